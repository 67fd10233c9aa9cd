"""The servers of one plugin, by scheme, host and port: each is paced by itself, so that no task waits for another's.

As a rule there is one, the platform's own, to which all rates, reads and creates belong. Where tasks may name an
address, a server that they name is a tenant's. All such servers together have at most a half of each, so that the
platform's own is always asked. Within that half no namespace has more places than it leaves free, so that one whose
servers are slow keeps no other out, and one server has at most a quarter of the whole. Where there are more namespaces
than places, they take turns. Of a single place there is no half: it is the platform's own, and the servers that tasks
name share one more.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from backoff_ctrl.k8s.gate.runtime.places import Path, Places, leaves_as_much
from backoff_ctrl.k8s.tasks.plugins.core import Key

from .pacing import NAMED, OF_ALL_NAMED, OF_ONE, OWN, Pacer, Rates, part
from .refreshing import Refresher
from .settings import WebApiSettings

OF_NAMESPACE: Final = 64
"""Servers of a namespace that are paced each by itself; those beyond are paced as one, ``BEYOND``."""
BEYOND: Final = "beyond "
"""The name of that one, before its namespace: no server's, since it has no scheme."""
IDLE_MAX: Final = 1024
"""Above this number of servers, those without jobs and callers are forgotten."""


class Origin:
    """One server, as one namespace uses it: its pace, its jobs that are followed, and its creates that are in doubt."""

    def __init__(self, path: Path, pacer: Pacer, refresher: Refresher) -> None:
        """``path`` is that of its pacer."""
        self.path = path
        self.pacer = pacer
        self.refresher = refresher


class Origins:
    """All servers of a plugin. On one event loop. ``own`` is the platform's."""

    def __init__(self, settings: Callable[[], WebApiSettings], wake: Callable[[Key], object]) -> None:
        """``settings`` returns what is in force now."""
        self._settings = settings
        self._wake = wake
        self._rates = Rates(settings().read, settings().write)
        self._reads = Places(lambda places, path: has_room(places, path, settings().caching.workers))
        self.seats = Places(lambda places, path: has_room(places, path, settings().creates_in_flight))
        """The creates that may be in doubt at a time."""
        self.own = self._made(OWN)
        self._named: defaultdict[str, dict[str, Origin]] = defaultdict(dict)
        self._idle_from = IDLE_MAX
        self._ending: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Origin]:
        yield self.own
        for servers in list(self._named.values()):
            yield from list(servers.values())

    def at(self, namespace: str, name: str) -> Origin:
        """Return the server of this name, ``https://host:port``, as a namespace uses it; no name: the platform's."""
        if not name:
            return self.own
        if name not in self._named[namespace]:
            self._make_room(namespace)
            if len(self._named[namespace]) >= OF_NAMESPACE:
                name = BEYOND + namespace
        servers = self._named[namespace]
        if name not in servers:
            servers[name] = self._made((*NAMED, namespace, name))
        return servers[name]

    def begin(self) -> None:
        """Adopt the limits of a plugin before its first call."""
        self._rates.begin(self._settings().read, self._settings().write)

    def change(self) -> None:
        """Adopt other limits."""
        self._rates.change(self._settings().read, self._settings().write)
        for each in (self._reads, self.seats):
            each.look()

    async def aclose(self) -> None:
        """End all reads."""
        await asyncio.gather(*(each.refresher.aclose() for each in self), *self._ending)

    def _made(self, path: Path) -> Origin:
        pacer = Pacer(self._rates, path)
        refresher = Refresher(pacer, lambda: self._settings().caching, self._wake, self._reads, path)
        return Origin(path, pacer, refresher)

    def _is_idle(self, origin: Origin) -> bool:
        has_places = any(each.are_used(*origin.path) for each in (self._reads, self.seats))
        return not (has_places or len(origin.refresher) or origin.pacer.is_used())

    def _make_room(self, namespace: str) -> None:
        if len(self._named[namespace]) >= OF_NAMESPACE:
            self._drop_idle(namespace)
        elif sum(map(len, self._named.values())) >= self._idle_from:
            for each in list(self._named):
                self._drop_idle(each)
            self._idle_from = max(IDLE_MAX, 2 * sum(map(len, self._named.values())))

    def _drop_idle(self, namespace: str) -> None:
        servers = self._named[namespace]
        for name in [name for name, each in servers.items() if self._is_idle(each)]:
            gone = servers.pop(name)
            self._rates.drop(gone.path)
            self.own.pacer.overloads += gone.pacer.overloads  # what is counted never falls
            self.own.refresher.counts.seconds += gone.refresher.counts.seconds
            ending = asyncio.create_task(gone.refresher.aclose())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        if not servers:
            del self._named[namespace]


def has_room(places: Places, path: Path, most: int) -> bool:
    """Return whether one more place may be taken on a path, or a part of it, where there are so ``most`` in all."""
    taken = places.taken
    if not path:
        return taken[path] < max(most, OF_ALL_NAMED)
    if path[:1] != NAMED:
        return taken[path] < most
    free = part(most, OF_ALL_NAMED) - taken[NAMED]
    if path == NAMED:
        return free > 0
    if len(path) == 2:
        return leaves_as_much(places, path, free)
    return taken[path[-1]] < part(most, OF_ONE)

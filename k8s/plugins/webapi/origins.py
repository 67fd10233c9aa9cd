"""The servers of one plugin, by scheme, host and port: each is paced by itself, so that no task waits for another's.

As a rule there is one, the platform's own, to which all rates, reads and creates belong. Where tasks may name an
address, a server that they name is a tenant's: it has at most a ``SHARE`` of each. All such servers together have at
most half of the reads and creates at a time, so that the platform's own is always asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from backoff_ctrl.k8s.plugins.core import Key

from .pacing import Pacer
from .protocol import RateLimit
from .refreshing import Refresher
from .seats import Seats
from .settings import WebApiSettings

SHARE: Final = 4
"""A server that tasks name has at most one of so many parts of what the plugin may do, and at least one place."""
ALL: Final = 2
"""All of them together have at most one of so many."""
ORIGINS_MAX: Final = 1024
"""Servers that are paced each by itself; those beyond are paced as one, ``BEYOND``."""
BEYOND: Final = "*"


class Origin:
    """One server: its pace, its jobs that are followed, and its creates that are in doubt."""

    def __init__(self, pacer: Pacer, refresher: Refresher, seats: Seats) -> None:
        self.pacer = pacer
        self.refresher = refresher
        self.seats = seats

    def is_idle(self) -> bool:
        return not (len(self.refresher) or len(self.seats) or self.pacer.is_used())


class Origins:
    """All servers of a plugin. On one event loop. ``own`` is the platform's."""

    def __init__(self, settings: Callable[[], WebApiSettings], wake: Callable[[Key], object]) -> None:
        """``settings`` returns what is in force now."""
        self._settings = settings
        self._wake = wake
        reads, creates = Seats(self._workers), Seats(self._creates)
        self._reads = Seats(lambda: _part(self._workers(), ALL), reads)
        self._creating = Seats(lambda: _part(self._creates(), ALL), creates)
        pacer = Pacer(settings().read, settings().write)
        self.own = Origin(pacer, Refresher(pacer, lambda: settings().caching, wake, reads), creates)
        self._named: dict[str, Origin] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Origin]:
        yield self.own
        yield from list(self._named.values())

    def at(self, name: str) -> Origin:
        """Return the server of this name, ``https://host:port``; empty: the platform's own."""
        if not name:
            return self.own
        if name not in self._named and len(self._named) >= ORIGINS_MAX:
            self._drop_idle()
            name = name if len(self._named) < ORIGINS_MAX else BEYOND
        if name not in self._named:
            self._named[name] = self._made()
        return self._named[name]

    def begin(self) -> None:
        """Adopt the limits of a plugin of which nothing has been asked yet."""
        self.own.pacer.begin(self._settings().read, self._settings().write)

    def change(self) -> None:
        """Adopt other limits."""
        read, write = self._settings().read, self._settings().write
        self.own.pacer.change(read, write)
        for each in self._named.values():
            each.pacer.change(_share(read), _share(write))

    async def aclose(self) -> None:
        """End all reads."""
        await asyncio.gather(*(each.refresher.aclose() for each in self), *self._ending)

    def _made(self) -> Origin:
        settings = self._settings()
        pacer = Pacer(_share(settings.read), _share(settings.write), whole=self.own.pacer)
        reads = Seats(lambda: _part(self._workers(), SHARE), self._reads)
        creates = Seats(lambda: _part(self._creates(), SHARE), self._creating)
        return Origin(pacer, Refresher(pacer, lambda: self._settings().caching, self._wake, reads), creates)

    def _drop_idle(self) -> None:
        for name in [name for name, each in self._named.items() if each.is_idle()]:
            gone = self._named.pop(name)
            self.own.pacer.overloads += gone.pacer.overloads  # what is counted never falls
            self.own.refresher.counts.seconds += gone.refresher.counts.seconds
            ending = asyncio.create_task(gone.refresher.aclose())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _workers(self) -> int:
        return self._settings().caching.workers

    def _creates(self) -> int:
        return self._settings().creates_in_flight


def _part(whole: int, parts: int) -> int:
    return max(1, whole // parts)


def _share(limit: RateLimit) -> RateLimit:
    return RateLimit(limit.qps / SHARE, _part(limit.burst, SHARE))

"""The watch of one kind: in all namespaces; where that is forbidden, in each namespace that is asked for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.watching.informer import Informer, Refusal
from backoff_ctrl.k8s.watching.objects import Kind, WatchForbiddenError
from backoff_ctrl.k8s.watching.status import WatchRecord

from .cache import Cache, Changed

if TYPE_CHECKING:  # it loads aiohttp, which takes 0.2 s: only who runs a watch does
    from backoff_ctrl.k8s.watching.source import ClusterSource

JSON = dict[str, Any]

log = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts after failures."""
ASK_AGAIN: Final = 60.0
"""The most seconds between two attempts after a 403 or a 404: a kind may be installed meanwhile."""


class KindWatch:
    """Keeps the objects of one kind. ``need`` begins; everything runs in the event loop that called it."""

    def __init__(
        self,
        source: ClusterSource,
        kind: Kind,
        made: tuple[str, str],
        changed: Changed,
        record: WatchRecord,
        rng: random.Random,
        keeper: type[Cache] = Cache,
    ) -> None:
        """``made`` is the API version and the kind of the objects; ``changed`` is told of each change.

        ``keeper`` observes one place.
        """
        self._keeper = keeper
        self._source = source
        self._kind = kind
        self._made = made
        self._changed = changed
        self._record = record
        self._rng = rng
        self._caches: dict[str | None, tuple[Cache, asyncio.Task[None]]] = {}
        self._needed: set[str] = set()
        self._apart = False  # all namespaces together are forbidden

    def need(self, namespace: str) -> None:
        """Watch this namespace too."""
        self._needed.add(namespace)
        self._start(None)
        if self._apart:
            self._start(namespace)

    def fed(self, namespace: str) -> bool:
        """Say whether all objects of this namespace are known, and changes reported."""
        return any(cache.fed for cache in self._of(namespace))

    def is_fed(self) -> bool:
        """Say whether that holds for every namespace that was asked for."""
        return all(self.fed(namespace) for namespace in list(self._needed))

    def why(self, namespace: str) -> str:
        """Say why not all objects of this namespace are known; empty: they are."""
        return "; ".join(dict.fromkeys(cache.why for cache in self._of(namespace) if cache.why))

    def find(self, namespace: str, name: str) -> JSON | None:
        """Return the object of this name, as it was seen last."""
        for cache in self._of(namespace):
            if cache.fed and (found := cache.find((namespace, name))) is not None:
                return found
        return None

    def everything(self) -> Iterable[JSON]:
        """Return all objects that are known."""
        for cache, _ in list(self._caches.values()):
            if cache.fed:
                yield from cache.everything()

    def note(self, namespace: str, resource: JSON) -> None:
        """Take in an object that an answer showed."""
        for cache in self._of(namespace):
            cache.note(resource)

    async def aclose(self) -> None:
        """End the watch, and wait until it has ended."""
        tasks = [task for _, task in self._caches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, namespace: str) -> list[Cache]:
        return [self._caches[place][0] for place in (None, namespace) if place in self._caches]

    def _start(self, namespace: str | None) -> None:
        if namespace not in self._caches:
            fed = self._together if namespace is None else (lambda: None)
            cache = self._keeper(self._kind, namespace, self._made, self._changed, fed, self._refused)
            informer = Informer(
                self._source, cache, self._record, self._rng, longest_pause=LONGEST_PAUSE, ask_again=ASK_AGAIN
            )
            self._caches[namespace] = cache, asyncio.create_task(informer.run())

    def _together(self) -> None:
        """All namespaces are watched together: those that were watched apart need it no longer."""
        self._apart = False
        for namespace in [each for each in self._caches if each is not None]:
            self._caches.pop(namespace)[1].cancel()

    def _refused(self, namespace: str | None, error: Refusal, times: int) -> None:
        if times == 2:  # not after the first one: a server that has just started refuses everything
            where = namespace or "all namespaces"
            log.warning("%s in %s can't be watched, each step reads its object: %s", self._kind.plural, where, error)
        if namespace is None and isinstance(error, WatchForbiddenError):
            self._apart = True
            for each in sorted(self._needed):
                self._start(each)

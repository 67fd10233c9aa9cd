"""Follows one kind of object in one place: lists it, watches it, and begins again whatever happens.

A stream that ends in good order is resumed where it ended, or where the last bookmark was. Everything else ends in a
new list, after a jittered wait: only a complete list proves that no change was missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from backoff_ctrl.engine.backoff import after, full_jitter
from backoff_ctrl.k8s.answers.paging import is_list

from .reading import (
    IgnoredError,
    WatchAbsentError,
    WatchBrokenError,
    WatchExpiredError,
    WatchForbiddenError,
    newest,
    read_event,
)

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Mapping

    from .reading import Event, Kind
    from .status import WatchBook

FIRST_PAUSE: Final = 0.1
"""Seconds that the first wait is drawn from; each failure in a row doubles it."""
HEALTHY_AFTER: Final = 10.0
"""A watch that broke after this many seconds was worth having: the next attempt begins without patience."""
SHORTEST: Final = 1.0
"""A stream that ends sooner is broken, however orderly: resuming it at once would hammer the server."""
BREATH: Final = 64
"""After so many objects in a row others get their turn: what has come already is taken without waiting."""


class Source(Protocol):
    """Where the objects come from. ``namespace`` None means all. All methods raise the errors of ``watch_events``."""

    async def is_served(self, group: str) -> bool:
        """Say whether the server has this group of resources."""

    def pages(self, kind: Kind, namespace: str | None) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the pages of a list."""

    def watch(self, kind: Kind, namespace: str | None, version: str) -> AsyncIterator[object]:
        """Yield what comes after that version, decoded, until the server ends the stream."""


class Observer(Protocol):
    """Takes in what is told. Its methods raise ``IgnoredError`` for what is of no use."""

    kind: Kind
    namespace: str | None

    def begin(self) -> None:
        """Hear that a list begins."""

    def item(self, body: object) -> None:
        """Take in one object of the list."""

    def listed(self, version: str) -> None:
        """Hear that the list is complete, and that changes will be told from now on."""

    def take(self, event: Event) -> None:
        """Take in a change."""

    def lost(self, error: BaseException) -> None:
        """Hear that changes may be missed from now on."""


class Follower:
    """Keeps one observer told. ``longest_pause`` bounds the wait between two attempts, in seconds."""

    def __init__(
        self, source: Source, observer: Observer, book: WatchBook, rng: random.Random, longest_pause: float
    ) -> None:
        """Prepare; ``run`` begins."""
        self._source = source
        self._observer = observer
        self._book = book
        self._rng = rng
        self._longest_pause = longest_pause
        self._failures = 0
        place = observer.namespace or "all namespaces"
        self._where = f"{observer.kind.plural} in {place}" if observer.kind.namespaced else observer.kind.plural

    async def run(self) -> NoReturn:
        """Follow until cancelled. Raises ``WatchForbiddenError`` and ``WatchAbsentError`` as the server says it."""
        while True:
            began = _now()
            try:
                await self._spell()
            except (WatchForbiddenError, WatchAbsentError, asyncio.CancelledError) as error:
                self._observer.lost(error)
                raise
            except WatchBrokenError as error:
                self._book.counts.expired += isinstance(error, WatchExpiredError)
                self._observer.lost(error)
                retry_after = error.retry_after
            except Exception as error:  # noqa: BLE001 - law 18: a bug of ours must not end the watch of the others
                self._book.failed(error, self._where)
                self._observer.lost(error)
                retry_after = 0.0
            if _now() - began >= HEALTHY_AFTER:
                self._failures = 0
            wait = full_jitter(self._failures, FIRST_PAUSE, self._longest_pause, self._rng)
            await asyncio.sleep(max(wait, after(retry_after, FIRST_PAUSE, self._rng) if retry_after else 0.0))
            self._failures += 1
            self._book.counts.reconnects += 1

    async def _spell(self) -> NoReturn:
        """List and watch, until it breaks."""
        version = await self._list()
        while True:
            opened = _now()
            version = await self._stream(version)
            if _now() - opened < SHORTEST:
                raise WatchBrokenError("the stream ended at once")
            self._book.counts.resumed += 1

    async def _list(self) -> str:
        self._observer.begin()
        version = ""
        taken = 0
        async with contextlib.aclosing(self._source.pages(self._observer.kind, self._observer.namespace)) as pages:  # type: ignore[type-var]  # ours are generators
            async for page in pages:
                metadata, items = page.get("metadata"), page.get("items")
                found = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
                if not isinstance(found, str) or not found or not is_list(page):
                    raise WatchBrokenError("the list is no list, or has no version to watch from")
                version = version or found
                for body in items or ():
                    taken += 1
                    if taken % BREATH == 0:
                        await asyncio.sleep(0)
                    with self._careful():
                        self._observer.item(body)
        if not version:
            raise WatchBrokenError("the list has no page")
        self._book.counts.relists += 1
        self._observer.listed(version)
        return version

    async def _stream(self, version: str) -> str:
        """Take in events until the stream ends; return where to resume."""
        kind, namespace = self._observer.kind, self._observer.namespace
        taken = 0
        async with contextlib.aclosing(self._source.watch(kind, namespace, version)) as stream:  # type: ignore[type-var]  # ours are generators
            async for raw in stream:
                taken += 1
                if taken % BREATH == 0:
                    await asyncio.sleep(0)
                with self._careful():
                    event = read_event(raw, kind, namespace)
                    version = newest(version, event.told.version)
                    if event.type != "BOOKMARK":
                        self._observer.take(event)
                        self._book.counts.events += 1
        return version

    def _careful(self) -> contextlib.AbstractContextManager[None]:
        return _Careful(self._book, self._where)


class _Careful:
    """Lets nothing that was told end the watch: what is of no use is counted, and so is an error of our own."""

    __slots__ = ("_book", "_where")

    def __init__(self, book: WatchBook, where: str) -> None:
        self._book = book
        self._where = where

    def __enter__(self) -> None:
        """Begin with one object."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, IgnoredError):
            self._book.ignored(error, self._where)
            return True
        if isinstance(error, Exception) and not isinstance(error, WatchBrokenError):
            self._book.failed(error, self._where)
            return True
        return False


def _now() -> float:
    return asyncio.get_running_loop().time()

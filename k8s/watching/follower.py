"""Follows one kind of object in one namespace, or in all: lists it, watches it, and starts again after any failure.

A stream that the server ends normally is resumed from its last event or bookmark. After anything else the objects are
listed again, after a jittered pause: only a complete list proves that no change was missed.
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
"""Seconds: upper bound of the first random pause; each consecutive failure doubles it."""
HEALTHY_AFTER: Final = 10.0
"""Seconds: a watch that lasted this long was healthy, and its end does not count as a consecutive failure."""
SHORTEST: Final = 1.0
"""Seconds: a stream that ends sooner counts as broken, even if it ended normally: resuming it would be a busy loop."""
BREATH: Final = 64
"""Objects after which the event loop gets a turn: objects that are already buffered are read without awaiting."""


class Source(Protocol):
    """Where the objects come from. ``namespace`` None means all. All methods raise the errors of ``reading``."""

    async def is_served(self, group: str) -> bool:
        """Say whether the server serves this API group, given by its path."""

    def pages(self, kind: Kind, namespace: str | None) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the pages of a list."""

    def watch(self, kind: Kind, namespace: str | None, version: str) -> AsyncIterator[object]:
        """Yield the decoded events after ``version``, until the server ends the stream."""


class Observer(Protocol):
    """Receives the objects and events. ``item`` and ``take`` raise ``IgnoredError`` for unusable ones."""

    kind: Kind
    namespace: str | None

    def begin(self) -> None:
        """A list begins."""

    def item(self, body: object) -> None:
        """The list has this object."""

    def listed(self, version: str) -> None:
        """The list is complete, and changes after ``version`` will follow."""

    def take(self, event: Event) -> None:
        """An object has changed."""

    def lost(self, error: BaseException) -> None:
        """Changes may be missed from now on, until the next ``listed``."""


class Follower:
    """Keeps one observer up to date. ``longest_pause``: the longest pause between two attempts, in seconds."""

    def __init__(
        self, source: Source, observer: Observer, book: WatchBook, rng: random.Random, longest_pause: float
    ) -> None:
        """Prepare to follow what the observer is for; ``run`` starts it."""
        self._source = source
        self._observer = observer
        self._book = book
        self._rng = rng
        self._longest_pause = longest_pause
        self._failures = 0
        place = observer.namespace or "all namespaces"
        self._where = f"{observer.kind.plural} in {place}" if observer.kind.namespaced else observer.kind.plural

    async def run(self) -> NoReturn:
        """Follow until cancelled. Raises ``WatchForbiddenError`` on a 403 and ``WatchAbsentError`` on a 404."""
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
            except Exception as error:  # noqa: BLE001 - law 18: a bug of ours must not end the other watches
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
        """List once and watch until the watch breaks."""
        version = await self._list()
        while True:
            opened = _now()
            version = await self._stream(version)
            if _now() - opened < SHORTEST:
                raise WatchBrokenError(f"the watch stream ended within {SHORTEST:g} s")
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
                    raise WatchBrokenError("the answer is not a list, or has no resourceVersion to watch from")
                version = version or found
                for body in items or ():
                    taken += 1
                    if taken % BREATH == 0:
                        await asyncio.sleep(0)
                    with self._careful():
                        self._observer.item(body)
        if not version:
            raise WatchBrokenError("the list has no pages")
        self._book.counts.relists += 1
        self._observer.listed(version)
        return version

    async def _stream(self, version: str) -> str:
        """Handle events until the stream ends; return the version to resume from."""
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
    """Keeps one bad object from ending the watch: unusable objects and internal errors are counted and skipped."""

    __slots__ = ("_book", "_where")

    def __init__(self, book: WatchBook, where: str) -> None:
        self._book = book
        self._where = where

    def __enter__(self) -> None:
        pass

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

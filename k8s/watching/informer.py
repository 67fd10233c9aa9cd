"""Keeps one observer up to date: lists, watches, resumes, and starts again after any failure.

A stream that the server ends normally is resumed from its last event or bookmark. After anything else the objects are
listed again, after a jittered pause: only a complete list proves that no change was missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final, NoReturn

from backoff_ctrl.engine.backoff import after, delay, full_jitter
from backoff_ctrl.k8s.answers.paging import is_list

from .objects import (
    Event,
    IgnoredError,
    Kind,
    Object,
    WatchAbsentError,
    WatchBrokenError,
    WatchExpiredError,
    WatchForbiddenError,
    newest,
    read_event,
    read_object,
)
from .source import ClusterSource
from .status import WatchRecord

FIRST_PAUSE: Final = 0.1
"""Seconds: upper bound of the first random pause after a failure; each consecutive one doubles it."""
FIRST_ASK: Final = 1.0
"""Seconds until the next try after a 403 or 404; four times as long after each further one in a row.

A kube-apiserver that has just started answers 403 to every request until it has loaded the roles.
"""
HEALTHY_AFTER: Final = 10.0
"""Seconds: a watch that lasted this long was healthy, and its end does not count as a consecutive failure."""
SHORTEST: Final = 1.0
"""Seconds: a stream that ends sooner counts as broken, even if it ended normally: resuming it would be a busy loop."""
BREATH: Final = 64
"""Objects after which the event loop gets a turn: objects that are already buffered are read without awaiting."""


Refusal = WatchForbiddenError | WatchAbsentError


class Observer:
    """Receives the objects of a kind in one namespace, or (None) in all. ``put`` may raise ``IgnoredError``."""

    def __init__(self, kind: Kind, namespace: str | None) -> None:
        self.kind = kind
        self.namespace = namespace

    def begin(self) -> None:
        """A list begins."""

    def item(self, body: object) -> None:
        """The list has this object."""
        self.put(read_object(body, self.kind, self.namespace))

    def listed(self, version: str) -> None:
        """The list is complete, and changes after ``version`` will follow."""

    def take(self, event: Event) -> None:
        """An object has changed."""
        if event.type == "DELETED":
            self.remove(event.object)
        else:
            self.put(event.object)

    def put(self, found: Object) -> None:
        """An object exists, and is like this now."""

    def remove(self, gone: Object) -> None:
        """An object was deleted, or has left the selection."""

    def lost(self, error: BaseException) -> None:
        """Changes may be missed from now on, until the next ``listed``."""

    def refused(self, error: Refusal, times: int) -> bool:  # noqa: ARG002
        """The server answers 403 or 404, so often in a row. Return whether to try again later."""
        return True


class Informer:
    """Keeps one observer up to date.

    ``longest_pause`` is the maximum of the jittered exponential back-off after failures, ``ask_again`` the maximum
    pause after 403s and 404s, both in seconds.
    """

    def __init__(
        self,
        source: ClusterSource,
        observer: Observer,
        record: WatchRecord,
        rng: random.Random,
        *,
        longest_pause: float,
        ask_again: float,
    ) -> None:
        self._source = source
        self._observer = observer
        self._record = record
        self._rng = rng
        self._longest_pause = longest_pause
        self._ask_again = ask_again
        self._failures = self._refusals = 0  # consecutive ones
        self._version = ""  # to resume from
        place = observer.namespace or "all namespaces"
        self._where = f"{observer.kind.plural} in {place}" if observer.kind.namespaced else observer.kind.plural

    async def run(self) -> None:
        """Follow until cancelled, or until the observer gives up a kind that it is refused."""
        while True:
            began = _now()
            try:
                await self._list_and_watch()
            except asyncio.CancelledError as error:
                self._observer.lost(error)
                raise
            except (WatchForbiddenError, WatchAbsentError) as error:
                self._observer.lost(error)
                self._record.counts.forbidden += isinstance(error, WatchForbiddenError)
                self._failures, self._refusals = 0, self._refusals + 1
                if not self._observer.refused(error, self._refusals):
                    return
                await asyncio.sleep(pause_after_refusal(self._refusals, self._ask_again, self._rng))
            except Exception as error:  # noqa: BLE001 - law 18: a bug of ours must not end the other watches
                self._observer.lost(error)
                await self._pause(error, _now() - began)

    async def _pause(self, error: Exception, lasted: float) -> None:
        retry_after = 0.0
        if isinstance(error, WatchBrokenError):
            self._record.counts.expired += isinstance(error, WatchExpiredError)
            retry_after = error.retry_after
        else:
            self._record.failed(error, self._where)
        if lasted >= HEALTHY_AFTER:
            self._failures = 0
        wait = full_jitter(self._failures, FIRST_PAUSE, self._longest_pause, self._rng)
        await asyncio.sleep(max(wait, after(retry_after, FIRST_PAUSE, self._rng) if retry_after else 0.0))
        self._failures += 1
        self._record.counts.reconnects += 1

    async def _list_and_watch(self) -> NoReturn:
        await self._list()
        while True:
            opened = _now()
            await self._stream()
            if _now() - opened < SHORTEST:
                raise WatchBrokenError(f"the watch stream ended within {SHORTEST:g} s")
            self._record.counts.resumed += 1

    async def _list(self) -> None:
        self._observer.begin()
        self._version, taken = "", 0
        async with contextlib.aclosing(self._source.pages(self._observer.kind, self._observer.namespace)) as pages:
            async for page in pages:
                metadata, items = page.get("metadata"), page.get("items")
                found = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
                if not isinstance(found, str) or not found or not is_list(page):
                    raise WatchBrokenError("the answer is not a list, or has no resourceVersion to watch from")
                self._version = self._version or found
                for body in items or ():
                    taken += 1
                    if taken % BREATH == 0:
                        await asyncio.sleep(0)
                    self._try(self._observer.item, body)
        if not self._version:
            raise WatchBrokenError("the list has no pages")
        self._record.counts.relists += 1
        self._refusals = 0
        self._observer.listed(self._version)

    async def _stream(self) -> None:
        """Handle events until the stream ends."""
        kind, namespace, taken = self._observer.kind, self._observer.namespace, 0
        async with contextlib.aclosing(self._source.watch(kind, namespace, self._version)) as stream:
            async for raw in stream:
                taken += 1
                if taken % BREATH == 0:
                    await asyncio.sleep(0)
                self._try(self._take, raw)

    def _take(self, raw: object) -> None:
        event = read_event(raw, self._observer.kind, self._observer.namespace)
        self._version = newest(self._version, event.object.version)
        if event.type != "BOOKMARK":
            self._observer.take(event)
            self._record.counts.events += 1

    def _try(self, call: Callable[[object], None], given: object) -> None:
        """Keep one bad object from ending the watch: unusable objects and internal errors are counted and skipped."""
        try:
            call(given)
        except WatchBrokenError:
            raise
        except IgnoredError as error:
            self._record.ignored(error, self._where)
        except Exception as error:  # noqa: BLE001 - law 18
            self._record.failed(error, self._where)


def pause_after_refusal(times: int, longest: float, rng: random.Random) -> float:
    """Return the seconds until the next try: few at first, since a server that starts refuses every request."""
    return delay(2 * min(times - 1, 100), FIRST_ASK, longest) * rng.uniform(0.8, 1.2)


def _now() -> float:
    return asyncio.get_running_loop().time()

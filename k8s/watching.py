"""Observes ResourceQuotas: lists them, watches them, and tells the ledger what they say and whether news will come.

Every interruption ends in a new list: only a complete list proves that no change was missed. A watch that ends in
good order is resumed where it ended. Where watching is forbidden the gate learns from refusals instead; that is
said once, and the permission is asked for again from time to time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from .quota_objects import UnknownScopeError, read_quota

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from .desk import Desk

log = logging.getLogger(__name__)

HEALTHY_AFTER: Final = 10.0
"""A watch that broke after this many seconds was worth having: the next attempt begins without patience."""


SHORTEST: Final = 1.0
"""A stream that ends sooner is broken, however orderly: resuming it at once would hammer the server."""


class WatchBrokenError(Exception):
    """The list failed or the stream broke: to be tried again."""


class WatchExpiredError(WatchBrokenError):
    """410: the version to resume from is forgotten; only a list helps."""


class WatchForbiddenError(Exception):
    """403: these credentials may not list or watch quotas here."""


class QuotaSource(Protocol):
    """Where the objects come from. ``namespace`` None means all."""

    async def list_quotas(self, namespace: str | None) -> Mapping[str, Any]:
        """Return a ResourceQuotaList. Raises the errors above."""

    def watch_quotas(self, namespace: str | None, version: str) -> AsyncIterator[Mapping[str, Any]]:
        """Yield watch events after that version, until the server ends the stream. Raises the errors above."""


class QuotaWatch:
    """Keeps a ledger told of the quotas of some namespaces, or of all (``namespaces=None``).

    ``longest_pause`` bounds the jittered exponential back-off between attempts and ``ask_again`` is how long a
    refused permission is left alone, in seconds.
    """

    def __init__(
        self,
        desk: Desk,
        source: QuotaSource,
        namespaces: Iterable[str] | None = None,
        *,
        longest_pause: float = 30.0,
        ask_again: float = 300.0,
    ) -> None:
        """Prepare; ``run`` begins."""
        self._desk = desk
        self._source = source
        self._wanted: list[str | None] = [None] if namespaces is None else list(dict.fromkeys(namespaces))
        self._longest_pause = longest_pause
        self._ask_again = ask_again
        self._rng = random.Random()
        self._known: dict[str | None, set[tuple[str, str]]] = {}
        self._told: set[str] = set()
        self._followed: set[str | None] = set()
        self._added = asyncio.Event()

    async def run(self) -> None:
        """Observe until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._added.clear()
                for namespace in self._wanted:
                    if namespace not in self._followed:
                        self._followed.add(namespace)
                        group.create_task(self._follow(namespace))
                await self._added.wait()

    def add(self, namespace: str) -> None:
        """Observe one namespace more. Call it in the loop of ``run``."""
        if None not in self._wanted and namespace not in self._wanted:
            self._wanted.append(namespace)
            self._added.set()

    async def _follow(self, namespace: str | None) -> None:
        try:
            while True:
                try:
                    await self._observe(namespace)
                except WatchForbiddenError as error:
                    self._say_once(f"quotas cannot be watched ({error}): the gate learns from refusals instead")
                    await asyncio.sleep(self._ask_again * self._rng.uniform(0.8, 1.2))
        finally:
            self._desk.watch_lost(namespace)

    async def _observe(self, namespace: str | None) -> None:
        """Have one good spell of watching, with as many attempts as it takes; the end of it is always a break."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(WatchBrokenError),
            wait=wait_random_exponential(multiplier=0.1, max=self._longest_pause),
        ):
            with attempt:
                await self._spell(namespace)

    async def _spell(self, namespace: str | None) -> None:
        began = asyncio.get_running_loop().time()
        try:
            version = await self._relist(namespace)
            while True:
                version = await self._stream(namespace, version)
        except WatchBrokenError as error:
            log.debug("the watch of quotas in %s broke: %s", namespace or "all namespaces", error)
            lasted = asyncio.get_running_loop().time() - began
            if isinstance(error, WatchExpiredError) or lasted < HEALTHY_AFTER:
                raise
        finally:
            self._desk.watch_lost(namespace)

    async def _relist(self, namespace: str | None) -> str:
        listed = await self._source.list_quotas(namespace)
        before, now = self._known.get(namespace, set()), set()
        for quota in listed.get("items") or ():
            now.add(self._observed(quota))
        for gone in before - now:
            self._desk.forget_quota(*gone)
        self._known[namespace] = now
        self._desk.watching(namespace)
        return str(listed["metadata"]["resourceVersion"])

    async def _stream(self, namespace: str | None, version: str) -> str:
        """Take in events until the stream ends; return where to resume."""
        opened = asyncio.get_running_loop().time()
        known = self._known[namespace]
        events = self._source.watch_quotas(namespace, version)
        async with contextlib.aclosing(events) as stream:  # type: ignore[type-var]  # ours are generators
            async for event in stream:
                kind, quota = event.get("type"), event.get("object") or {}
                if kind == "ERROR":
                    expired = quota.get("code") == 410 or quota.get("reason") in ("Expired", "Gone")
                    raise (WatchExpiredError if expired else WatchBrokenError)(quota.get("message", "ERROR event"))
                if kind == "DELETED":
                    place = self._place(quota)
                    known.discard(place)
                    self._desk.forget_quota(*place)
                elif kind in ("ADDED", "MODIFIED"):
                    known.add(self._observed(quota))
                version = str(quota.get("metadata", {}).get("resourceVersion", version))
        if asyncio.get_running_loop().time() - opened < SHORTEST:
            raise WatchBrokenError("the stream ended at once")
        return version

    def _observed(self, quota: Mapping[str, Any]) -> tuple[str, str]:
        place = self._place(quota)
        try:
            self._desk.observe_quota(*place, read_quota(quota))
        except UnknownScopeError as error:
            self._say_once(f"quota {'/'.join(place)} has a {error} that is not known here: only its refusals teach")
            self._desk.forget_quota(*place)
        return place

    @staticmethod
    def _place(quota: Mapping[str, Any]) -> tuple[str, str]:
        metadata = quota.get("metadata") or {}
        return str(metadata.get("namespace", "")), str(metadata.get("name", ""))

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            log.warning("%s", sentence)

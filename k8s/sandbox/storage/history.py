"""The changes to the objects of one kind, in order, as far back as they are remembered."""

from __future__ import annotations

import asyncio
import bisect
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import expired
from backoff_ctrl.k8s.sandbox.wire.encoding import JSON, load

if TYPE_CHECKING:
    import random

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Event:
    """One change. ``data`` is the object after it (for DELETED: its last state), ``previous`` the object before it."""

    __slots__ = ("_line", "_object", "_previous_object", "data", "name", "namespace", "previous", "type", "version")

    def __init__(
        self, version: int, type_: str, namespace: str, name: str, data: bytes, previous: bytes | None
    ) -> None:
        """Keep the serialised objects; they are parsed only on demand."""
        self.version = version
        self.type = type_
        self.namespace = namespace
        self.name = name
        self.data = data
        self.previous = previous
        self._line: bytes | None = None
        self._object: JSON | None = None
        self._previous_object: JSON | None = None

    @property
    def line(self) -> bytes:
        """The watch event, serialised once for all watchers."""
        if self._line is None:
            self._line = watch_line(self.type, self.data)
        return self._line

    @property
    def object(self) -> JSON:
        """The object, parsed once for all watchers: do not change it."""
        if self._object is None:
            self._object = load(self.data)
        return self._object

    @property
    def previous_object(self) -> JSON | None:
        """The object before the change, parsed once: do not change it."""
        if self._previous_object is None and self.previous is not None:
            self._previous_object = load(self.previous)
        return self._previous_object


def watch_line(type_: str, data: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), data)


class History:
    """A bounded log of events. Watchers see them up to ``visible``, which may trail the stored ones."""

    def __init__(self, capacity: int, pacing: Pacing) -> None:
        """Remember at least ``capacity`` events; ``pacing`` decides when watchers see them."""
        self._capacity = capacity
        self._pacing = pacing
        self._events: list[Event] = []
        self._versions: list[int] = []
        self._first = 0  # absolute position of _events[0]
        self._forgotten = 0  # version of the newest event that was dropped
        self._waiters: set[asyncio.Future[None]] = set()
        self.visible = 0
        self.held = False

    def append(self, event: Event) -> None:
        """Remember an event; watchers see it now or a little later."""
        self._events.append(event)
        self._versions.append(event.version)
        if len(self._events) >= 2 * self._capacity:
            self._forget(len(self._events) - self._capacity)
        self._pacing.publish(self)

    def forget_all(self, version: int) -> None:
        """Compact: a watch that resumes from a version below ``version`` gets 410."""
        self._forget(len(self._events))
        self._forgotten = max(self._forgotten, version)

    def _forget(self, count: int) -> None:
        if count:
            self._forgotten = self._versions[count - 1]
            del self._events[:count], self._versions[:count]
            self._first += count
            self.visible = max(self.visible, self._first)

    def show(self) -> None:
        """Let watchers see everything stored so far."""
        self.held = False
        self.visible = self._first + len(self._events)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def position_after(self, version: int) -> int:
        """Where a watch from this version starts. Raises 410 when later events were dropped."""
        if version < self._forgotten:
            raise expired(f"too old resource version: {version} ({self._forgotten})")
        return self._first + bisect.bisect_right(self._versions, version)

    def read(self, position: int) -> list[Event]:
        """The visible events from an absolute position on. Raises 410 when they were dropped."""
        if position < self._first:
            raise expired("The resourceVersion for the provided watch is too old.")
        return self._events[position - self._first : self.visible - self._first]

    def since(self, version: int) -> list[Event]:
        """All stored events after ``version``, visible or not. Raises 410 when some were dropped."""
        return self._events[self.position_after(version) - self._first :]

    async def changed(self, within: float) -> None:
        """Wait until new events become visible, at most ``within`` seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(within):
                await waiter
        except TimeoutError:
            self._waiters.discard(waiter)


class Pacing:
    """When watchers see an event: mostly before the request that caused it is answered, sometimes after.

    ``late_share`` of the events, and all that follow them meanwhile, are delayed by up to ``late_max`` seconds.
    A real server shows 1 % of quota charges after the answer, up to 5 ms late.
    """

    def __init__(self, rng: random.Random, late_share: float, late_max: float) -> None:
        """Draw the delays from ``rng``."""
        self._rng = rng
        self.late_share = late_share
        self.late_max = late_max
        self.loop: asyncio.AbstractEventLoop | None = None

    def publish(self, history: History) -> None:
        """Show the newest event now, or schedule it for later."""
        if history.held:
            return
        if self.loop is None or self._rng.random() >= self.late_share:
            history.show()
            return
        history.held = True
        self.loop.call_later(self._rng.uniform(0, self.late_max), history.show)

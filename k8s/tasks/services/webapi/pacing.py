"""How fast servers are asked: rate limits of reads and of writes, and a window for each server.

The limits are the platform's: in t seconds at most burst + qps x t calls are sent. Of those all servers together that
tasks name have at most a half, and one of them at most a quarter. The platform's own and those that are named take
turns, then the namespaces whose tasks name them, then the servers of a namespace (``runtime.places``). On one path the
order is that of arrival, reads and writes each in a line of their own.

The window is the engine's overload window (``engine/overload``): it grows with good answers, is cut by a 429 or 503,
and stays shut for the service's Retry-After. One that several namespaces name has a window for each: what it answers to
one stops no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from enum import Enum
from typing import Final
from weakref import WeakValueDictionary

from backoff_ctrl.engine.backoff import Bucket
from backoff_ctrl.engine.overload import Window, WindowSnapshot
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.runtime.places import NOT_NOW, Path, Turns
from backoff_ctrl.k8s.kube.pauses import Pauses
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RateLimit, RemoteError

OWN: Final[Path] = ("own",)
"""The path of the platform's own service."""
NAMED: Final[Path] = ("named",)
"""The path of all servers that tasks name, together. That of one has the namespace and the server, too."""
OF_ALL_NAMED: Final = 2
"""They have at most one of so many parts of what a plugin may do."""
OF_ONE: Final = 4
"""One of them has at most one of so many parts, however many namespaces name it."""
PAUSE_FIRST: Final = 1.0
PAUSE_LONGEST: Final = 30.0
"""Seconds between two tries of a create or delete, the first and the longest."""
OVERLOADED: Final = (429, 503)
_POLICY: Final = Policy()


def pauses() -> Pauses:
    """Return the pauses between the tries of one call."""
    return Pauses(PAUSE_FIRST, PAUSE_LONGEST)


def part(whole: int, parts: int) -> int:
    """Return one of so many parts, and at least one."""
    return max(1, whole // parts)


class Access(Enum):
    """A kind of calls."""

    READ = "read"
    WRITE = "write"


Limits = Mapping[Access, RateLimit]


class Buckets:
    """A part of what a plugin may send: a bucket for reads, and one for writes."""

    def __init__(self, limits: Limits, parts: int = 1) -> None:
        """Begin with full buckets."""
        self._parts = parts
        self._limits = dict(limits)
        self._buckets = {kind: self._bucket(limit) for kind, limit in limits.items()}

    def change(self, limits: Limits, now: float) -> None:
        """Adopt other limits. A changed one begins with an empty bucket, so that a change is no second burst."""
        for kind, limit in limits.items():
            if limit != self._limits[kind]:
                self._limits[kind] = limit
                bucket = self._buckets[kind] = self._bucket(limit)
                while bucket.level(now) >= 1:
                    bucket.take(now)

    def left(self, kind: Access, now: float) -> float:
        """Return the seconds until one more call may be sent."""
        return self._buckets[kind].wait_for(1, now)

    def take(self, kind: Access, now: float) -> None:
        """Count a call."""
        self._buckets[kind].take(now)

    def _bucket(self, limit: RateLimit) -> Bucket:
        return Bucket(limit.qps / self._parts, part(limit.burst, self._parts))


class Rates:
    """The rates of one plugin, and the callers that wait for them. On one event loop."""

    def __init__(self, read: RateLimit, write: RateLimit) -> None:
        self._clock = asyncio.get_running_loop().time
        self._servers: WeakValueDictionary[str, Buckets] = WeakValueDictionary()  # their pacers keep them
        self._pacers: dict[Path, Pacer] = {}
        self.lines = {kind: _Line(self, kind) for kind in Access}
        self.begin(read, write)

    def begin(self, read: RateLimit, write: RateLimit) -> None:
        """Adopt the limits of a plugin before its first call: its buckets are full."""
        self._limits = {Access.READ: read, Access.WRITE: write}
        self._whole, self._named = Buckets(self._limits), Buckets(self._limits, OF_ALL_NAMED)

    def change(self, read: RateLimit, write: RateLimit) -> None:
        """Adopt other limits."""
        self._limits = {Access.READ: read, Access.WRITE: write}
        for each in (self._whole, self._named, *self._servers.values()):
            each.change(self._limits, self._clock())
        self.look()

    def server(self, name: str) -> Buckets:
        """Return the buckets of a server that tasks name."""
        found = self._servers.get(name)
        if found is None:
            found = self._servers[name] = Buckets(self._limits, OF_ONE)
        return found

    def add(self, path: Path, pacer: Pacer) -> None:
        self._pacers[path] = pacer

    def drop(self, path: Path) -> None:
        """Forget a server that is not used."""
        self._pacers.pop(path, None)

    def look(self) -> None:
        """Let go who may go now."""
        for each in self.lines.values():
            each.look()

    # -- asked by the lines ---------

    def left(self, kind: Access, path: Path) -> float:
        now = self._clock()
        if not path:
            return self._whole.left(kind, now)
        pacer = self._pacers.get(path)
        if pacer is not None:
            return pacer.left(kind, now)
        return self._named.left(kind, now) if path == NAMED else 0.0

    def go(self, kind: Access, path: Path) -> None:
        now = self._clock()
        self._whole.take(kind, now)
        if path[:1] == NAMED:
            self._named.take(kind, now)
        self._pacers[path].go(kind, now)

    def undo(self, path: Path) -> None:
        self._pacers[path].ended(0.0, None, used=False)


class _Line(Turns):
    """The callers of one kind."""

    def __init__(self, rates: Rates, kind: Access) -> None:
        super().__init__()
        self._rates = rates
        self._kind = kind

    def left(self, path: Path) -> float:
        return self._rates.left(self._kind, path)

    def go(self, path: Path) -> None:
        self._rates.go(self._kind, path)

    def undo(self, path: Path) -> None:
        self._rates.undo(path)


class Slot:
    """The permission to make one call, which has to be ended once, by its outcome or unused."""

    __slots__ = ("_begun", "_over", "_pacer")

    def __init__(self, pacer: Pacer, begun: float) -> None:
        self._pacer = pacer
        self._begun = begun
        self._over = False

    def end(self, error: BaseException | None = None, *, used: bool = True) -> None:
        """Report how the call ended; ``used`` False: it was never made. A second report is ignored."""
        if not self._over:
            self._over = True
            self._pacer.ended(self._begun, error, used=used)


class Pacer:
    """Paces the calls that are sent to one server, the platform's own or one that tasks of a namespace name."""

    def __init__(self, rates: Rates, path: Path = OWN, rng: random.Random | None = None) -> None:
        """Begin with the engine's first window. ``path`` is ``OWN``, or ``NAMED`` with a namespace and a server."""
        self._rates = rates
        self._path = path
        self._server = None if path == OWN else rates.server(path[-1])
        self._window = Window(_POLICY, rng or random.Random())
        self._clock = asyncio.get_running_loop().time
        self._shut_out = 0
        self.overloads = 0
        """Answers by which the service is overloaded."""
        rates.add(path, self)

    def is_used(self) -> bool:
        """Return whether a call is under way, waits, or has to wait."""
        shut = self._shut_out > 0 or self._window.not_before > self._clock()
        return shut or self._window.in_flight > 0 or any(each.waits(*self._path) for each in self._rates.lines.values())

    def window(self) -> WindowSnapshot:
        return self._window.snapshot(self._clock())

    async def opened(self) -> None:
        """Wait while the server has asked to be left alone."""
        self._shut_out += 1  # until the caller goes on: a server that it is about to ask is not forgotten
        try:
            while (left := self._window.not_before - self._clock()) > 0:  # noqa: ASYNC110 - it may be shut again
                await asyncio.sleep(left)
        finally:
            self._shut_out -= 1

    async def enter(self, kind: Access) -> Slot:
        """Wait until one more call may be made."""
        await self._rates.lines[kind].enter(*self._path)
        return Slot(self, self._clock())

    def left(self, kind: Access, now: float) -> float:
        """Return the seconds until one more call may be sent to this server, as far as that is its own matter."""
        shut = self._window.not_before - now
        if shut > 0:
            return shut
        left = self._server.left(kind, now) if self._server is not None else 0.0
        return left if left > 0 or self._window.is_open(now) else NOT_NOW

    def go(self, kind: Access, now: float) -> None:
        """Count a call that begins."""
        self._window.in_flight += 1
        if self._server is not None:
            self._server.take(kind, now)

    def ended(self, begun: float, error: BaseException | None, *, used: bool) -> None:
        """Take the outcome of a call that began at ``begun``."""
        self._window.in_flight -= 1
        if used and isinstance(error, RemoteError) and error.status in OVERLOADED:
            self.overloads += 1
            self._window.bad(begun, self._clock(), error.retry_after, _POLICY.base, cut=_POLICY.overload_cut)
        elif used and (error is None or isinstance(error, RemoteError)):
            self._window.good()
        self._rates.look()

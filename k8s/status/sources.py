"""One gate as its status sees it, read in small steps, none of which delays a decision for long."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.look.looking import Tally
from backoff_ctrl.engine.look.outlook import NOTHING_ELSEWHERE
from backoff_ctrl.engine.look.pages import NAMESPACES_MAX
from backoff_ctrl.k8s.kube.watching.status import EVERYWHERE

from .slices import sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.engine.facts.demand import Demand
    from backoff_ctrl.engine.look.explaining import CeilingSnapshot, NamespaceSnapshot
    from backoff_ctrl.engine.look.looking import WaitingSnapshot
    from backoff_ctrl.engine.look.outlook import Outlook
    from backoff_ctrl.engine.look.pages import Changes, Cursor, WaitingPage
    from backoff_ctrl.engine.overload import WindowSnapshot
    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.gate.unfinished import Unfinished
    from backoff_ctrl.k8s.kube.watching.status import WatchRecord, WatchStatus

    from .counters import Counters

_BEHIND: Final = 1e12
"""A rank behind those of all waiting requests: a priority of 2^31 equals 6e10 s of waiting."""
_DRIFT: Final = 0.05  # seconds by which the wall clock may be set before shown times follow it


class WallClock:
    """Turns times of a ledger's clock into wall time. The same instant is always shown the same."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        """``clock`` is the ledger's, in seconds; ``wall`` Unix time."""
        self._clock = clock
        self.wall = wall
        self._ahead = wall() - clock()

    def unix(self, at: float) -> float:
        """Return a time of the ledger's clock as Unix time, rounded to milliseconds."""
        before, wall, after = self._clock(), self.wall(), self._clock()
        ahead = wall - after
        if abs(ahead - self._ahead) > _DRIFT + after - before:  # not only interrupted between the two
            self._ahead = ahead
        return round(at + self._ahead, 3)

    def text(self, at: float | None) -> str | None:
        """Return it as RFC 3339; None stays None."""
        return None if at is None else shown(self.unix(at))


def shown(unix: float) -> str:
    """Write a Unix time as RFC 3339, in UTC."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ceilings_of(found: NamespaceSnapshot) -> Iterator[tuple[tuple[str, str], CeilingSnapshot]]:
    """Yield the ceilings of a namespace by quota and resource."""
    for quota, resources in found.quotas.items():
        for resource, ceiling in resources.items():
            yield (quota, resource), ceiling


class Source:
    """A ledger with its counters and, where its quotas are watched, the record of that."""

    def __init__(
        self,
        ledger: Ledger,
        counters: Counters,
        *,
        name: str,
        server: str | None = None,
        watch: Callable[[], WatchRecord | None] = lambda: None,
        wall: Callable[[], float] = time.time,
        decides: bool = True,
    ) -> None:
        """``name`` is the gate's, ``server`` the API server's URL.

        ``decides``: creates pass it; else it only watches.
        """
        self.decides = decides
        self.ledger = ledger
        self.counters = counters
        self.name = name
        self.server = server
        self.unsubscribe: Callable[[], object] = lambda: None
        """Ends the counting."""
        self.record = watch
        """Returns the record of the watch; None: nothing is watched."""
        self.watch_clock = WallClock(time.monotonic, wall)  # the clock of the watch's record
        self.clock = WallClock(ledger.now, wall)
        self._names: list[str] = []
        self._known: dict[str, None] = {}  # in the order in which they became known
        self._lock = threading.Lock()  # of the names: several threads may read at once

    def renew(self, name: str) -> None:
        """Start over in a forked child."""
        self.name = name
        self._lock = threading.Lock()
        self.counters.renew(name)

    def namespaces(self, after: str = "") -> Iterator[str]:
        """Yield the namespaces behind ``after``, in order: those the engine knows, and those with something counted."""
        now = dict.fromkeys(self.ledger.look(lambda engine, _: engine.names()))
        now.update(dict.fromkeys(self.counters.names()))
        with self._lock:
            for name in sliced([name for name in now if name not in self._known]):
                insort(self._names, name)
                self._known[name] = None
            if gone := self._known.keys() - now.keys():
                self._names = [name for name in self._names if name not in gone]
                for name in gone:
                    del self._known[name]
            names = self._names
        yield from sliced(names[bisect_right(names, after) :])

    def in_order(self) -> Iterator[str]:
        """Yield the namespaces in the order in which they became known here."""
        for _ in self.namespaces("\U0010ffff"):
            pass  # bring them up to date
        yield from sliced(list(self._known))

    def namespace(self, name: str) -> tuple[NamespaceSnapshot, float] | None:
        """Return what is known of a namespace, and when; None: the engine knows nothing of it."""
        found, now = self.ledger.look(lambda engine, now: (engine.namespace(name, now), now))
        return None if found is None else (found, now)

    def changes(self, since: int) -> Changes:
        """Return some of the namespaces that have changed after the change ``since``, and where to continue; 0: all."""
        return self.ledger.look(lambda engine, now: engine.changes(since, NAMESPACES_MAX, now))

    def waiting(self, namespace: str, after: tuple[float, int] | None, limit: int) -> Iterator[WaitingSnapshot]:
        """Yield the creates that wait in a namespace behind a place, in the order of the line."""
        cursor = None if after is None else (namespace, *after)
        while limit > 0:
            page = self.ledger.look(partial(_waiting, namespace, cursor, limit))
            yield from page.items
            cursor = page.next
            if cursor is None:
                return
            limit -= len(page.items)

    def followers(
        self, namespace: str, after: tuple[float, int] | None = None
    ) -> list[tuple[Unfinished, tuple[float, int]]]:
        """Return the creates that wait for another one with their key, behind a place: they come after the line."""
        found = [(each, (_BEHIND, int(each.began * 1e9))) for each in self.ledger.line.following(namespace)]
        return sorted((each for each in found if after is None or each[1] > after), key=lambda each: each[1])

    def tally(self, namespace: str) -> Tally:
        """Count the waiting creates of a namespace by reason, quota and resource."""
        found = Tally(Counter(), Counter())
        row: int | None = 0
        while row is not None:
            part, row = self.ledger.look(partial(_tally, namespace, row))
            found.reasons.update(part.reasons)
            found.blocked.update(part.blocked)
        return found

    def outlook(
        self,
        namespace: str,
        wanted: Sequence[tuple[Demand, int]],
        elsewhere: Mapping[tuple[str, str], int] = NOTHING_ELSEWHERE,
    ) -> Outlook:
        """Return what would happen to creates in a namespace that come now, each demand so many times.

        ``elsewhere`` is what other gates hold and reserve there, by quota and resource.
        """
        return self.ledger.look(lambda engine, now: engine.outlook(namespace, wanted, now, elsewhere))

    def flows(self) -> tuple[list[tuple[str, WindowSnapshot]], float]:
        """Return the overload windows by flow, and when."""
        return self.ledger.look(lambda engine, now: (list(engine.flows(now).items()), now))

    def watch_status(self, namespace: str) -> WatchStatus | None:
        """Return how a namespace is watched, with a time of ``watch_clock``; None: it is not watched."""
        record = self.record()
        return None if record is None else record.of(namespace)

    def unready(self) -> Iterator[str]:
        """Yield the places where quotas were watched and no longer are, and why."""
        record = self.record()
        for place in () if record is None else record.lost():
            status = self.watch_status(place)
            if status is not None and status.lost:
                yield f"quotas of {'all namespaces' if place == EVERYWHERE else place}: watch lost: {status.why}"


class Following:
    """Follows the changes of a source: of 10,000 namespaces few have changed since the last time."""

    def __init__(self, source: Source) -> None:
        """Begin with all that it knows."""
        self._source = source
        self._upto = 0  # the last change that was read

    def news(self) -> Iterator[Changes]:
        """Yield what has changed since the last call. ``lost``: all is forgotten, and read again."""
        more = True
        while more:
            found = self._source.changes(self._upto)
            self._upto, more = (0, True) if found.lost else (found.upto, found.more)
            yield found


def _waiting(name: str, after: Cursor | None, limit: int, engine: Controller, now: float) -> WaitingPage:
    return engine.waiting(after, limit, now, name)


def _tally(name: str, row: int, engine: Controller, now: float) -> tuple[Tally, int | None]:
    return engine.tally(name, row, now)

"""Counts what happens in a gate as it happens, by namespace, quota and resource, and appends to the ring of decisions.

Each event is a few additions under a lock of its own: a decision never waits for a reader.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Final

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.look.explaining import Explanation
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.gate.subscribers import Subscriber, Verdict
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection

from .catalogue import DECISION_BUCKETS, WAIT_BUCKETS, WAKE_BUCKETS
from .decisions import Decisions

KINDS_MAX: Final = 64
"""Kinds that are counted separately; all others count as ``other``, since a kind is a label of series."""
NAMESPACES_MAX: Final = 20_000
"""Namespaces that are counted, and quotas whose last state is kept. Beyond that, the oldest are forgotten."""
WAKES_WITHIN: Final = 10.0
"""Seconds: an admission later than that has nothing to do with the last news of room."""


class Histogram:
    """Counts of values up to each bound, and their sum. The last count is of those beyond all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float], counts: Sequence[int] = (), total: float = 0.0) -> None:
        self.bounds = bounds
        self.counts = list(counts) or [0] * (len(bounds) + 1)
        self.sum = total

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def __copy__(self) -> Histogram:
        return Histogram(self.bounds, self.counts, self.sum)

    def __add__(self, other: Histogram) -> Histogram:
        counts = [one + another for one, another in zip(self.counts, other.counts, strict=True)]
        return Histogram(self.bounds, counts, self.sum + other.sum)


@dataclass(slots=True)
class NamespaceCounts:
    """What was counted in one namespace."""

    creates: Counter[tuple[str, str]] = field(default_factory=Counter)  # ended, by kind and outcome
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind, and lane or "created"
    declines: Counter[str] = field(default_factory=Counter)  # by reason
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)  # by quota and resource
    probes: Counter[str] = field(default_factory=Counter)  # passed, refused, or undecided
    shadow: Counter[str] = field(default_factory=Counter)
    waits: Histogram | None = None  # of creates that waited
    saved: int = 0

    def __copy__(self) -> NamespaceCounts:
        return NamespaceCounts(*(copy(getattr(self, each.name)) for each in fields(self)))


@dataclass(slots=True)
class _Wait:
    """What is remembered of a create that waits or has waited."""

    since: float | None = None  # it is in line since then
    total: float = 0.0  # seconds in line before that
    refused: int = 0  # sends that a quota refused
    waited: bool = False
    declined: bool = False  # the engine refused it


class Counters(Subscriber):
    """Counts for one ledger. Its methods are safe from any thread."""

    def __init__(
        self,
        clock: Callable[[], float],
        explain: Callable[[Request], Explanation | None],
        *,
        gate: str = "",
        wall: Callable[[], float] = time.time,
        ring: Decisions | None = None,
    ) -> None:
        """``clock`` is the ledger's, in seconds; ``explain`` returns why a create waits; ``wall`` is Unix time.

        ``gate`` is its name; several gates of a process share one ``ring``.
        """
        self.ring = ring if ring is not None else Decisions()
        self._clock = clock
        self._explain = explain
        self._wall = wall
        self.renew(gate)

    def renew(self, gate: str) -> None:
        """Count from 0: at the beginning, and in a forked child, where the lock may be held for ever."""
        self.started = self._wall()
        self.decisions = Histogram(DECISION_BUCKETS)
        self.wakes = Histogram(WAKE_BUCKETS)
        self.namespaces: dict[str, NamespaceCounts] = {}
        self._gate = gate
        self._lock = threading.RLock()  # a create may end in a finalizer, in a thread that is counting
        self._kinds: set[str] = set()
        self._room: dict[str, float] = {}  # namespaces that have admitted none since news of room, and when that came
        self._seen: dict[tuple[str, str], ObservedQuota] = {}

    def of(self, namespace: str) -> NamespaceCounts:
        """Return a copy of what was counted in a namespace."""
        with self._lock:
            found = self.namespaces.get(namespace)
            return NamespaceCounts() if found is None else copy(found)

    def names(self) -> list[str]:
        """Return the namespaces in which something was counted, the first one first."""
        with self._lock:
            return list(self.namespaces)

    def histograms(self) -> tuple[Histogram, Histogram]:
        """Return copies of the histograms of decisions and of wakes."""
        with self._lock:
            return copy(self.decisions), copy(self.wakes)

    # -- called by the gate ---------

    def waits(self, create: Unfinished) -> None:
        """Note that a create joined the line."""
        wait = self._wait(create)
        wait.since, wait.waited = self._clock(), True
        self._tell("waits", create, **_why(None if create.request is None else self._explain(create.request)))

    def admitted(self, create: Unfinished) -> None:
        """Note that a create left the line with a ticket. If it did not wait, the ring gets no decision for it."""
        wait = create.noted
        if not isinstance(wait, _Wait) or wait.since is None:
            return
        now = self._clock()
        since, wait.since = wait.since, None
        wait.total += now - since
        with self._lock:
            news = self._room.pop(create.creation.namespace, None)
            if news is not None and since <= news and now - news <= WAKES_WITHIN:
                self.wakes.add(now - news)
        self._tell("admitted", create, waited=wait.total)

    def answered(self, create: Unfinished, answer: Answer, rejection: Rejection | None, *, probe: bool) -> None:
        """Count an answer of the server to a create."""
        lane = "created" if answer.ok else str(rejection.lane) if rejection is not None else str(Lane.OTHER)
        refused = rejection is not None and rejection.lane is Lane.QUOTA
        with self._lock:
            counts = self._counts(create)
            counts.attempts[self._kind(create), lane] += 1
            if probe:
                counts.probes["passed" if answer.ok else "refused" if refused else "undecided"] += 1
            if refused and rejection is not None:
                for resource in rejection.requested:
                    counts.refusals[rejection.quota, resource] += 1
        if rejection is None or answer.ok:
            return
        if refused:
            self._wait(create).refused += 1
        resource = next(iter(rejection.requested), "")
        self._tell("refused", create, lane=lane, quota=rejection.quota, resource=resource, probe=probe)

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        """Note that the engine refuses a create."""
        self._wait(create).declined = True
        with self._lock:
            self._counts(create).declines[refusal.reason] += 1
        never = refusal.never
        named = {} if never is None else {"quota": never[0], "resource": never[1]}
        self._tell("declined", create, reason=refusal.reason, **named)

    def ended(self, create: Unfinished) -> None:
        """Count how a create ended, and how long it waited."""
        wait = create.noted if isinstance(create.noted, _Wait) else None
        outcome = "declined" if wait is not None and wait.declined else create.outcome
        waited = None
        with self._lock:
            counts = self._counts(create)
            counts.creates[self._kind(create), outcome] += 1
            if wait is not None and wait.waited:
                if wait.since is not None:
                    wait.total += self._clock() - wait.since
                waited = wait.total
                counts.waits = counts.waits or Histogram(WAIT_BUCKETS)
                counts.waits.add(waited)
                counts.saved += calls_saved(waited, wait.refused)
        create.noted = None
        if outcome != "declined":  # reported before, with its reason
            self._tell(outcome, create, waited=waited)

    def shadowed(self, namespace: str, verdict: Verdict) -> None:
        with self._lock:
            self._counts_of(namespace).shadow[verdict] += 1

    def observed(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """Note news of room, if it is one: what is admitted next was woken by it."""
        with self._lock:
            before = self._seen.get((namespace, quota))
            self._seen[namespace, quota] = seen
            if len(self._seen) > NAMESPACES_MAX:
                del self._seen[next(iter(self._seen))]
            if before is not None and _has_more_room(seen, before):
                self._room[namespace] = self._clock()

    def decided(self, seconds: float) -> None:
        with self._lock:
            self.decisions.add(seconds)

    # -- inside ---------

    def _tell(self, event: Any, create: Unfinished, **more: object) -> None:
        creation = create.creation
        subject = (create.create_id, creation.namespace, creation.resource, creation.name)
        self.ring.tell(self._wall(), self._gate, event, subject, **more)

    def _wait(self, create: Unfinished) -> _Wait:
        if not isinstance(create.noted, _Wait):
            create.noted = _Wait()
        return create.noted

    def _counts(self, create: Unfinished) -> NamespaceCounts:
        return self._counts_of(create.creation.namespace)

    def _counts_of(self, namespace: str) -> NamespaceCounts:
        counts = self.namespaces.get(namespace)
        if counts is None:
            counts = self.namespaces[namespace] = NamespaceCounts()
            if len(self.namespaces) > NAMESPACES_MAX:
                del self.namespaces[next(iter(self.namespaces))]
        return counts

    def _kind(self, create: Unfinished) -> str:
        kind = create.creation.resource
        if kind not in self._kinds:
            if len(self._kinds) >= KINDS_MAX:
                return "other"
            self._kinds.add(kind)
        return kind


def _why(why: Explanation | None) -> dict[str, str]:
    return {} if why is None else {"reason": why.reason, "quota": why.quota, "resource": why.resource}


def _has_more_room(now: ObservedQuota, before: ObservedQuota) -> bool:
    return any(
        limited - now.used.get(name, 0) > before.hard.get(name, limited) - before.used.get(name, 0)
        for name, limited in now.hard.items()
    )


_EARLY: Final = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0)
_EVERY: Final = 20.0


def loop_attempts(waited: float) -> int:
    """Return how many refused attempts the loop would have made in so many seconds; 0 for no wait at all."""
    if waited <= 0:
        return 0
    if waited < _EARLY[-1]:
        return bisect_right(_EARLY, waited)
    return len(_EARLY) + int((waited - _EARLY[-1]) // _EVERY)


def calls_saved(waited: float, refused: int) -> int:
    """Return the attempts saved for one create that waited so long, of which the gate had ``refused`` ones."""
    return max(0, loop_attempts(waited) - refused)

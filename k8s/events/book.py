"""Decides which Kubernetes events are written about waiting creates, and when: a pure state machine of bounded size.

As in client-go's EventBroadcaster, repeated news about the same object is one event whose series counts up; the series
ends after 6 minutes without a repetition. Beyond client-go, token buckets limit the requests, one bucket per namespace
and one for all. New events without a token are left out; one event of the namespace counts them.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from backoff_ctrl.k8s.cluster.token_bucket import Bucket

from .bodies import LEFT_OUT, LEFT_OUT_NOTE, event_body, series
from .stories import Story

Verb = Literal["create", "patch"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in requests per second, times in seconds. The defaults allow a namespace 31 requests in a minute.

    New events may not use ``kept_share`` of a bucket's burst: it is kept for the repetitions of older events.
    """

    namespace_rate: float = 0.1
    namespace_burst: int = 25
    rate: float = 1.0
    burst: int = 100
    kept_share: float = 0.2
    window: float = 360.0  # a series ends after this long without a repetition, as in client-go
    first_patch: float = 10.0  # the pause between two writes of an event doubles from here to the window
    shut: float = 300.0  # after a 403, how long until the next try
    series_max: int = 1000
    namespaces_max: int = 1000
    tries: int = 5


class Ended(StrEnum):
    """The result of a write. ``LATER``: no answer, or an overloaded server. ``FAILED``: refused for good."""

    DONE = "done"
    GONE = "gone"
    FORBIDDEN = "forbidden"
    LATER = "later"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Write:
    """One request: POST ``body`` to the namespace's events, or a merge patch of the event ``name``."""

    verb: Verb
    namespace: str
    name: str
    body: dict[str, Any]
    count: int


@dataclass(slots=True, eq=False)
class Place:
    """The state of one namespace. ``shut``: by verb, until when a refused permission is not tried again."""

    name: str
    bucket: Bucket
    shut: dict[Verb, float] = field(default_factory=dict)

    def is_idle(self, now: float) -> bool:
        """Say whether nothing is lost if it is forgotten."""
        return self.bucket.is_full(now) and all(until <= now for until in self.shut.values())


@dataclass(slots=True, eq=False)
class Series:
    """One event. ``count``: how often its story was told; ``stored``: the count that the server has."""

    key: tuple[str, ...]
    place: Place
    story: Story | None  # None: it counts the stories of the namespace that were left out
    began: float
    free_at: float  # the earliest time of the next write that only raises the count
    last: float = 0.0
    count: int = 0
    stored: int = 0
    tries: int = 0
    pause: float = 0.0
    busy: bool = False  # a write is due, or under way
    body: dict[str, Any] | None = None

    @property
    def verb(self) -> Verb:
        """What the next write is."""
        return "patch" if self.stored else "create"


@dataclass(slots=True)
class EventCounts:
    """Counters. Each story told is written, waiting to be written, or left out."""

    told: int = 0
    creates: int = 0
    patches: int = 0
    left_out: int = 0
    errors: int = 0


class EventBook:
    """Receives stories and says what to write next. Times are seconds of a monotonic clock.

    There is one write at a time: ``next`` returns it, ``ended`` reports its result. ``epoch`` returns the offset from
    the monotonic clock to the time of day; it is called for each write, since the time of day may be reset.
    """

    def __init__(
        self, instance: str, epoch: Callable[[], float], rng: random.Random, limits: Limits | None = None
    ) -> None:
        """Start without events. ``instance``: the reporting instance, see ``instance_name``."""
        self.limits = limits or Limits()
        self.counts = EventCounts()
        self._instance = instance
        self._epoch = epoch
        self._rng = rng
        self._bucket = Bucket(self.limits.rate, self.limits.burst)
        self._places: dict[str, Place] = {}
        self._series: OrderedDict[tuple[str, ...], Series] = OrderedDict()  # the least recently repeated first
        self._due: list[tuple[float, int, Series]] = []  # each series once at most
        self._order = itertools.count()
        self._writing: tuple[Write, Series] | None = None
        self._paused_until = float("-inf")
        self._failures = 0

    @property
    def held(self) -> int:
        """Entries in memory: events, namespaces and pending timers."""
        return len(self._series) + len(self._places) + len(self._due)

    # -- stories ---------

    def tell(self, story: Story, now: float) -> None:
        """Take in one story."""
        self.counts.told += 1
        self._forget_ended(now)
        known = self._series.get(story.key)
        if known is None:
            place = self._place(story.namespace, now)
            if place is None or len(self._series) >= self.limits.series_max:
                self._leave_out(place, 1, now)
                return
            known = self._series[story.key] = Series(story.key, place, story, now, free_at=now)
        self._repeat(known, 1, now)

    def _repeat(self, known: Series, times: int, now: float) -> None:
        known.count += times
        known.last = now
        self._series.move_to_end(known.key)
        if not known.busy:
            self._schedule(known, max(now, known.free_at))

    def _schedule(self, known: Series, when: float) -> None:
        known.busy = True
        heapq.heappush(self._due, (when, next(self._order), known))

    def _forget_ended(self, now: float) -> None:
        while self._series:
            oldest = next(iter(self._series.values()))
            if oldest.busy or oldest.last + self.limits.window >= now:
                return
            del self._series[oldest.key]

    def _place(self, namespace: str, now: float) -> Place | None:
        place = self._places.get(namespace)
        if place is None and len(self._places) >= self.limits.namespaces_max:
            used = {known.place.name for known in self._series.values()}
            self._places = {name: each for name, each in self._places.items() if name in used or not each.is_idle(now)}
        if place is None and len(self._places) < self.limits.namespaces_max:
            bucket = Bucket(self.limits.namespace_rate, self.limits.namespace_burst)
            place = self._places[namespace] = Place(namespace, bucket)
        return place

    # -- writes ---------

    def next(self, now: float) -> Write | None:
        """Return the write to do now, or None: then call again at ``next_due`` or after ``tell`` or ``ended``.

        If the ``note`` of a story raises an exception, the story counts as left out; then it is raised.
        """
        if self._writing is not None or now < self._paused_until:
            return None
        while self._due and self._due[0][0] <= now:
            known = heapq.heappop(self._due)[2]
            known.busy = False
            if self._is_free(known, now):
                return self._write(known, now)
        return None

    def next_due(self) -> float | None:
        """Return the earliest time at which ``next`` may return a write (past: now). None: not before a call."""
        if self._writing is not None or not self._due:
            return None
        return max(self._due[0][0], self._paused_until)

    def _is_free(self, known: Series, now: float) -> bool:
        """Say whether it may be written now; else leave it out, or let it wait where it only counts."""
        new = known.story is not None and not known.pause  # it was never sent
        shut = known.place.shut.get(known.verb, now) - now
        wait = max(shut, self._tokens_in(known.place, self.limits.kept_share if new else 0.0, now))
        if wait <= 0:
            return True
        if new or (known.story is not None and shut > 0):
            self._give_up(known, now)
        else:
            self._schedule(known, now + wait)
        return False

    def _tokens_in(self, place: Place, kept: float, now: float) -> float:
        """Return in how many seconds there is a token of the namespace and one of all, beside the share kept."""
        limits = self.limits
        own = place.bucket.wait_for(1 + int(kept * limits.namespace_burst), now)
        return max(own, self._bucket.wait_for(1 + int(kept * limits.burst), now))

    def _write(self, known: Series, now: float) -> Write:
        place, verb = known.place, known.verb
        if known.body is None:
            known.body = self._body(known, now)
        counted = series(known.count, known.last + self._epoch())
        if verb == "patch":
            known.pause = min(2 * known.pause, self.limits.window)
            self.counts.patches += 1
            body: dict[str, Any] = {"series": counted}
        else:
            known.pause = self.limits.first_patch
            self.counts.creates += 1
            body = known.body if counted is None else {**known.body, "series": counted}
        known.free_at = now + known.pause
        known.busy = True
        place.bucket.take(now)
        self._bucket.take(now)
        write = Write(verb, place.name, known.body["metadata"]["name"], body, known.count)
        self._writing = (write, known)
        return write

    def _body(self, known: Series, now: float) -> dict[str, Any]:
        story, when, nonce = known.story, known.began + self._epoch(), self._rng.getrandbits(16)
        try:
            owner, reason, note = (
                (None, LEFT_OUT, LEFT_OUT_NOTE) if story is None else (story.owner, story.happening, story.note())
            )
        except Exception:
            self._give_up(known, now)
            raise
        return event_body(known.place.name, owner, reason, note, self._instance, when, nonce)

    # -- results ---------

    def ended(self, how: Ended, now: float, retry_after: float = 0.0) -> None:
        """Report the result of the last write. ``retry_after``: the server's Retry-After in seconds, 0 for none."""
        assert self._writing is not None, "ended() without a write from next()"
        (write, known), self._writing = self._writing, None
        known.busy = False
        self._pause(how, now, retry_after)
        if how is Ended.DONE:
            known.stored, known.tries = write.count, 0
        elif how is Ended.GONE:  # the server has expired it: it is created anew, under another name
            known.stored, known.body, known.began = 0, None, now
        elif how is Ended.FORBIDDEN:
            known.place.shut[write.verb] = now + self.limits.shut
        elif how is Ended.LATER and known.verb == "create" and known.story is not None:
            known.tries += 1
        if how is Ended.FAILED or known.tries >= self.limits.tries:
            self._give_up(known, now)
        elif known.count > known.stored:
            self._schedule(known, max(now, known.free_at) if known.stored else now)

    def _pause(self, how: Ended, now: float, retry_after: float) -> None:
        self._failures = self._failures + 1 if how is Ended.LATER else 0
        if how is Ended.LATER:
            pause = min(30.0, 2.0 ** min(self._failures - 1, 5))
            self._paused_until = now + max(min(60.0, retry_after), pause * self._rng.uniform(0.5, 1.0))
        if how not in (Ended.DONE, Ended.GONE):
            self.counts.errors += 1

    # -- leaving out ---------

    def _give_up(self, known: Series, now: float) -> None:
        """Leave out what the server has not been told of an event."""
        missed, known.count = known.count - known.stored, known.stored
        if not known.stored:
            del self._series[known.key]
        if known.story is not None:
            self._leave_out(known.place, missed, now)

    def _leave_out(self, place: Place | None, count: int, now: float) -> None:
        self.counts.left_out += count
        if place is None:  # more than namespaces_max at once: not even counted in an event
            return
        key = (place.name, LEFT_OUT)
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = Series(key, place, None, now, free_at=now + self.limits.first_patch)
        self._repeat(known, count, now)

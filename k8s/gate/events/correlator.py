"""Decides which Kubernetes events are written about waiting creates, and when: a pure state machine of bounded size.

As in client-go's EventCorrelator, repeated reports about the same object are one event whose series counts up; the
series ends after 6 minutes without a repetition. In addition, token buckets limit the requests, one bucket per
namespace and one for all. New events without a token are left out; one event of the namespace counts them.

The events are of events.k8s.io/v1, by the rules of Kubernetes' ``pkg/apis/core/validation/events.go``: a note has at
most 1,024 bytes, a reporting instance at most 128; action and reason are required; a series counts from 2. Only the
series may change later.
"""

from __future__ import annotations

import heapq
import itertools
import random
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal

from backoff_ctrl.engine.backoff import Bucket, probe_delay
from backoff_ctrl.k8s.gate.creates.creation import Owner

Verb = Literal["create", "patch"]


class Reason(StrEnum):
    """What is reported. The values are the reasons of the events."""

    WAITS = "WaitingForQuota"
    NEVER_FITS = "NeverFits"
    ADMITTED = "Admitted"
    NOTICE = "NotWaiting"
    IGNORED = "AnnotationIgnored"
    SUSPENDED_AGAIN = "SuspendedAgain"
    NOT_AGAIN = "NotLetInAgain"
    TOO_LARGE = "TooLarge"


CONTROLLER: Final = "backoff-ctrl.dev/gate"
LEFT_OUT: Final = "EventsLeftOut"
LEFT_OUT_NOTE: Final = (
    "Some events about creates that wait for quota were not written, to avoid flooding this namespace. The count of "
    "this event says how many."
)
_KINDS: Final[dict[str, tuple[str, str]]] = {
    Reason.WAITS: ("Warning", "Waiting"),
    Reason.NEVER_FITS: ("Warning", "Refusing"),
    Reason.ADMITTED: ("Normal", "Creating"),
    Reason.NOTICE: ("Warning", "Refusing"),
    Reason.IGNORED: ("Warning", "Waiting"),
    Reason.SUSPENDED_AGAIN: ("Warning", "Waiting"),
    Reason.NOT_AGAIN: ("Warning", "Refusing"),
    Reason.TOO_LARGE: ("Warning", "Refusing"),
    LEFT_OUT: ("Normal", "Counting"),
}
"""Type and action for each reason. Waiting and refusal are Warnings, like FailedScheduling and FailedCreate: that is
where people look who want to know why their work does not run.
"""
NOTE_MAX: Final = 1024
INSTANCE_MAX: Final = 128
NAME_MAX: Final = 253
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Report:
    """One report on one create. Reports of equal ``key`` repeat the same news.

    ``note`` is called, from any thread, when the text is to be written: it may cost O(waiters).
    """

    reason: Reason
    namespace: str
    owner: Owner | None
    quota: str
    resource: str
    note: Callable[[], str]

    @property
    def key(self) -> tuple[str, ...]:
        """The subject: ``(namespace, owner's uid, kind and name, reason, quota, resource)``."""
        owner = self.owner
        who = ("", "", "") if owner is None else (owner.uid, owner.kind, owner.name)
        return (self.namespace, *who, self.reason, self.quota, self.resource)


def instance_name(host: str, pid: int) -> str:
    """Return the reporting instance: host name and process id, the host name cut to fit ``INSTANCE_MAX``."""
    tail = f"-{pid}"
    return host.encode("ascii", "replace").decode()[: INSTANCE_MAX - len(tail)] + tail


def event_name(about: str, when: float, nonce: int) -> str:
    """Name an event as client-go does: the object's name and the time. ``nonce`` (16 bits) keeps processes apart."""
    tail = f".{int(when * 1_000_000):x}{nonce & 0xFFFF:04x}"
    prefix = about[: NAME_MAX - len(tail)].rstrip("-.")
    return (prefix if _SUBDOMAIN.fullmatch(prefix) else "backoff-ctrl") + tail


def micro_time(when: float) -> str:
    """Format seconds since the epoch as a Kubernetes MicroTime."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def regarding(namespace: str, owner: Owner | None) -> dict[str, str]:
    """Refer to the owner or, without one, to the namespace itself.

    Both references carry ``namespace``: the server requires an event to be in its object's namespace. A reference
    to a Namespace without that field would force the event into ``default``, where few accounts may write.
    """
    if owner is None:
        return {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    made = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "namespace": namespace}
    return {**made, "uid": owner.uid} if owner.uid else made


def short_note(text: str) -> str:
    """Cut a note to ``NOTE_MAX`` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= NOTE_MAX else data[: NOTE_MAX - 3].decode("utf-8", "ignore") + "..."


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
class Namespace:
    """The state of one namespace. ``shut``: by verb, until when a refused permission is not tried again."""

    name: str
    bucket: Bucket
    shut: dict[Verb, float] = field(default_factory=dict)

    def is_idle(self, now: float) -> bool:
        """Return whether it can be forgotten without a loss."""
        return self.bucket.is_full(now) and all(until <= now for until in self.shut.values())


@dataclass(slots=True, eq=False)
class Series:
    """One event. ``count``: how often it was reported; ``stored``: the count that the server has."""

    key: tuple[str, ...]
    namespace: Namespace
    report: Report | None  # None: it counts the reports of the namespace that were left out
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
        return "patch" if self.stored else "create"


@dataclass(slots=True)
class EventCounts:
    """Counters. Each report is written, waiting to be written, or left out."""

    reported: int = 0
    creates: int = 0
    patches: int = 0
    left_out: int = 0
    errors: int = 0


class EventCorrelator:
    """Takes in reports and decides what to write next. Times are seconds of a monotonic clock.

    There is one write at a time: ``next`` returns it, ``ended`` reports its result. ``epoch`` returns the offset from
    the monotonic clock to the time of day; it is called for each write, since the time of day may be reset.
    ``instance``: the reporting instance, see ``instance_name``.
    """

    def __init__(
        self, instance: str, epoch: Callable[[], float], rng: random.Random, limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.counts = EventCounts()
        self._instance = instance
        self._epoch = epoch
        self._rng = rng
        self._bucket = Bucket(self.limits.rate, self.limits.burst)
        self._namespaces: dict[str, Namespace] = {}
        self._series: OrderedDict[tuple[str, ...], Series] = OrderedDict()  # the least recently repeated first
        self._due: list[tuple[float, int, Series]] = []  # each series once at most
        self._order = itertools.count()
        self._writing: tuple[Write, Series] | None = None
        self._paused_until = float("-inf")
        self._failures = 0

    @property
    def held(self) -> int:
        """Entries in memory: events, namespaces and pending timers."""
        return len(self._series) + len(self._namespaces) + len(self._due)

    # -- reports ---------

    def report(self, report: Report, now: float) -> None:
        self.counts.reported += 1
        self._forget_ended(now)
        known = self._series.get(report.key)
        if known is None:
            namespace = self._namespace(report.namespace, now)
            if namespace is None or len(self._series) >= self.limits.series_max:
                self._leave_out(namespace, 1, now)
                return
            known = self._series[report.key] = Series(report.key, namespace, report, now, free_at=now)
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

    def _namespace(self, name: str, now: float) -> Namespace | None:
        """Return its state; None: too many namespaces are in use."""
        found = self._namespaces.get(name)
        if found is None and len(self._namespaces) >= self.limits.namespaces_max:
            used = {known.namespace.name for known in self._series.values()}
            self._namespaces = {
                each.name: each for each in self._namespaces.values() if each.name in used or not each.is_idle(now)
            }
        if found is None and len(self._namespaces) < self.limits.namespaces_max:
            bucket = Bucket(self.limits.namespace_rate, self.limits.namespace_burst)
            found = self._namespaces[name] = Namespace(name, bucket)
        return found

    # -- writes ---------

    def next(self, now: float) -> Write | None:
        """Return the write to do now, or None: then call again at ``next_due`` or after ``report`` or ``ended``.

        If the ``note`` of a report raises an exception, the report counts as left out; then it is raised.
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
        """Return whether it may be written now; else leave it out or, if only its count rises, let it wait."""
        new = known.report is not None and not known.pause  # it was never sent
        shut = known.namespace.shut.get(known.verb, now) - now
        wait = max(shut, self._tokens_in(known.namespace, self.limits.kept_share if new else 0.0, now))
        if wait <= 0:
            return True
        if new or (known.report is not None and shut > 0):
            self._give_up(known, now)
        else:
            self._schedule(known, now + wait)
        return False

    def _tokens_in(self, namespace: Namespace, kept: float, now: float) -> float:
        """Return the seconds until both buckets have a token beyond the share that is kept."""
        limits = self.limits
        own = namespace.bucket.wait_for(1 + int(kept * limits.namespace_burst), now)
        return max(own, self._bucket.wait_for(1 + int(kept * limits.burst), now))

    def _write(self, known: Series, now: float) -> Write:
        namespace, verb = known.namespace, known.verb
        if known.body is None:
            known.body = self._body(known, now)
        body: dict[str, Any] = {}
        if known.count > 1:
            body["series"] = {"count": known.count, "lastObservedTime": micro_time(known.last + self._epoch())}
        if verb == "patch":
            known.pause = min(2 * known.pause, self.limits.window)
            self.counts.patches += 1
        else:
            known.pause = self.limits.first_patch
            self.counts.creates += 1
            body = {**known.body, **body}
        known.free_at = now + known.pause
        known.busy = True
        namespace.bucket.take(now)
        self._bucket.take(now)
        write = Write(verb, namespace.name, known.body["metadata"]["name"], body, known.count)
        self._writing = (write, known)
        return write

    def _body(self, known: Series, now: float) -> dict[str, Any]:
        report, namespace, when = known.report, known.namespace.name, known.began + self._epoch()
        owner, reason, note = None, LEFT_OUT, LEFT_OUT_NOTE
        if report is not None:
            try:
                owner, reason, note = report.owner, str(report.reason), report.note()
            except Exception:
                self._give_up(known, now)
                raise
        about = regarding(namespace, owner)
        type_, action = _KINDS[reason]
        name = event_name(about["name"], when, self._rng.getrandbits(16))
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(when),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": about,
            "note": short_note(note),
            "type": type_,
        }

    # -- results ---------

    def ended(self, how: Ended, now: float, retry_after: float = 0.0) -> None:
        """Report the result of the last write. ``retry_after``: the server's Retry-After in seconds, or 0."""
        assert self._writing is not None, "ended() without a write from next()"
        (write, known), self._writing = self._writing, None
        known.busy = False
        self._pause(how, now, retry_after)
        if how is Ended.DONE:
            known.stored, known.tries = write.count, 0
        elif how is Ended.GONE:  # the server has expired it: it is created again, under another name
            known.stored, known.body, known.began = 0, None, now
        elif how is Ended.FORBIDDEN:
            known.namespace.shut[write.verb] = now + self.limits.shut
        elif how is Ended.LATER and known.verb == "create" and known.report is not None:
            known.tries += 1
        if how is Ended.FAILED or known.tries >= self.limits.tries:
            self._give_up(known, now)
        elif known.count > known.stored:
            self._schedule(known, max(now, known.free_at) if known.stored else now)

    def _pause(self, how: Ended, now: float, retry_after: float) -> None:
        self._failures = self._failures + 1 if how is Ended.LATER else 0
        if how is Ended.LATER:
            pause = probe_delay(self._failures - 1, 1.0, 30.0, self._rng)
            self._paused_until = now + max(min(60.0, retry_after), pause)
        if how not in (Ended.DONE, Ended.GONE):
            self.counts.errors += 1

    # -- leaving out ---------

    def _give_up(self, known: Series, now: float) -> None:
        """Leave out the reports of an event that the server does not have yet."""
        missed, known.count = known.count - known.stored, known.stored
        if not known.stored:
            del self._series[known.key]
        if known.report is not None:
            self._leave_out(known.namespace, missed, now)

    def _leave_out(self, namespace: Namespace | None, count: int, now: float) -> None:
        self.counts.left_out += count
        if namespace is None:  # more than namespaces_max at once: not even counted in an event
            return
        key = (namespace.name, LEFT_OUT)
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = Series(key, namespace, None, now, free_at=now + self.limits.first_patch)
        self._repeat(known, count, now)

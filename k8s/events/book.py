"""Decides which Kubernetes events are written about waiting creates, and when: a pure state machine of bounded size.

As in client-go's EventBroadcaster, repeated news about the same object is one event whose series counts up; the series
ends after 6 minutes without a repetition. Beyond client-go, token buckets limit the requests, one bucket per namespace
and one for all. News without a token is left out and counted; a summary event reports how much was left out.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from .bodies import LEFT_OUT, event_body, event_name, series
from .budget import Budget, Limits
from .entries import Ended, EventCounts, Key, NamespaceEvents, Series, Summary, Write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from backoff_ctrl.k8s.gate.stories import Owner, Story

__all__ = ["Ended", "EventBook", "EventCounts", "Limits", "Write"]

_OLDEST: Final = 8
"""The oldest events looked at for one to evict: only a few are being written at a time, so one of these is free."""


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
        self._budget = Budget(self.limits)
        self._series: OrderedDict[Key, Series] = OrderedDict()  # the least recently repeated first
        self._places: dict[str, NamespaceEvents] = {}
        self._pending: deque[Series] = deque()
        self._due: list[tuple[float, int, Series | NamespaceEvents]] = []
        self._order = itertools.count()
        self._writing: tuple[Write, Series | Summary] | None = None
        self._paused_until = float("-inf")
        self._failures = 0
        self._places_looked_at = float("-inf")

    @property
    def held(self) -> int:
        """Entries in memory: events, namespaces and pending timers."""
        return len(self._series) + len(self._places) + len(self._due)

    # -- stories ---------

    def tell(self, story: Story, now: float) -> None:
        """Take in one story. If its ``note`` raises an exception, the story counts as left out; then it is raised."""
        self.counts.told += 1
        self._forget_old(now)
        place = self._place(story.namespace, now)
        known = self._series.get(story.key)
        if known is not None and self._is_old(known, now):
            self._forget(known, now)
            known = None
        if known is not None:
            known.count += 1
            known.last = now
            self._series.move_to_end(story.key)
            self._want_patch(known, now)
        elif place is None:
            self.counts.left_out += 1  # more than namespaces_max at once: not even a summary
        elif not self._room_for_new(place, now):
            self._leave_out(place, story.happening, 1, now)
        else:
            self._begin(story, place, now)

    def _begin(self, story: Story, place: NamespaceEvents, now: float) -> None:
        try:
            note = story.note()
        except Exception:
            self._leave_out(place, story.happening, 1, now)
            raise
        body = self._event(place, story.owner, story.happening, note, now)
        made = self._series[story.key] = Series(story.key, story.happening, place, body, now)
        place.series += 1
        self._reserve(made)

    def _event(self, place: NamespaceEvents, owner: Owner | None, reason: str, note: str, now: float) -> dict[str, Any]:
        when, nonce = now + self._epoch(), self._rng.getrandbits(16)
        return event_body(place.name, owner, reason, note, self._instance, when, nonce)

    def _room_for_new(self, place: NamespaceEvents, now: float) -> bool:
        if now < place.shut.get("create", now) or not self._budget.has_spare(place.account, now):
            return False
        return len(self._series) < self.limits.series_max or self._evict(now)

    # -- writes ---------

    def next(self, now: float) -> Write | None:
        """Return the write to do now, or None: then call again at ``next_due`` or after ``tell`` or ``ended``."""
        if self._writing is not None or now < self._paused_until:
            return None
        if self._pending:
            made = self._pending.popleft()
            self._budget.release(made.place.account)
            return self._create(made, now)
        while self._due and self._due[0][0] <= now:
            due, _, what = heapq.heappop(self._due)
            write = self._sum_up(what, due, now) if isinstance(what, NamespaceEvents) else self._patch(what, due, now)
            if write is not None:
                return write
        return None

    def next_due(self) -> float | None:
        """Return the earliest time at which ``next`` may return a write (past: now). None: not before a call."""
        if self._writing is not None:
            return None
        if self._pending:
            return self._paused_until
        return max(self._due[0][0], self._paused_until) if self._due else None

    def _create(self, made: Series, now: float) -> Write:
        self._budget.spend(made.place.account, now)
        self.counts.creates += 1
        made.pause = self.limits.first_patch
        made.free_at = now + made.pause
        counted = series(made.count, made.last + self._epoch())
        body = made.body if counted is None else {**made.body, "series": counted}
        return self._begun(Write("create", made.place.name, made.name, body, made.count), made)

    def _patch(self, known: Series, due: float, now: float) -> Write | None:
        place = known.place
        if due != self._called_for(known):
            return None  # an outdated timer
        known.due = None
        if known.pending or known.count == known.stored:
            return None
        if now < place.shut.get("patch", now):
            self._give_up(known, now)
            return None
        if (wait := self._budget.wait(place.account, now)) > 0:
            self._call_for(known, now + wait)
            return None
        self._budget.spend(place.account, now)
        self.counts.patches += 1
        known.pause = min(2 * known.pause, self.limits.window)
        known.free_at = now + known.pause
        body = {"series": series(known.count, known.last + self._epoch())}
        return self._begun(Write("patch", place.name, known.name, body, known.count), known)

    def _sum_up(self, place: NamespaceEvents, due: float, now: float) -> Write | None:
        if due != self._called_for(place):
            return None
        wait = max(self._budget.wait(place.account, now), place.shut.get("create", now) - now)
        if wait > 0:
            self._call_for(place, now + wait)
            return None
        place.summary_due = None
        self._budget.spend(place.account, now)
        self.counts.creates += 1
        summary = Summary(place.left_out, place.since)
        place.left_out, place.summed_up = Counter(), now
        listed = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.left_out.items()))
        total, seconds = summary.left_out.total(), now - place.since
        note = (
            f"{total} events of the last {seconds:.0f} s were not written, to avoid flooding this namespace: {listed}"
        )
        body = self._event(place, None, LEFT_OUT, note, now)
        return self._begun(Write("create", place.name, body["metadata"]["name"], body, total), summary)

    def _begun(self, write: Write, about: Series | Summary) -> Write:
        self._writing = (write, about)
        return write

    # -- results ---------

    def ended(self, how: Ended, now: float, retry_after: float = 0.0) -> None:
        """Report the result of the last write. ``retry_after``: the server's Retry-After in seconds, 0 for none."""
        assert self._writing is not None, "ended() without a write from next()"
        (write, about), self._writing = self._writing, None
        place = self._places[write.namespace]
        if how is Ended.LATER:
            self._failures += 1
            pause = min(30.0, 2.0 ** min(self._failures - 1, 5))
            self._paused_until = now + max(min(60.0, retry_after), pause * self._rng.uniform(0.5, 1.0))
        else:
            self._failures = 0
        if how not in (Ended.DONE, Ended.GONE):
            self.counts.errors += 1
        if how is Ended.FORBIDDEN:
            place.shut[write.verb] = now + self.limits.shut
        if isinstance(about, Summary):
            self._summary_ended(place, about, how)
        elif write.verb == "create":
            self._create_ended(about, write, how, now)
        else:
            self._patch_ended(about, write, how, now)

    def _create_ended(self, made: Series, write: Write, how: Ended, now: float) -> None:
        made.pending = False
        made.tries += 1
        if how is Ended.DONE:
            made.stored, made.tries = write.count, 0
            self._want_patch(made, now)
        elif how is Ended.LATER and made.tries < self.limits.tries and self._budget.wait(made.place.account, now) == 0:
            self._reserve(made)
        else:
            self._forget(made, now)
        if how is Ended.FORBIDDEN:
            for other in [each for each in self._pending if each.place is made.place]:
                self._pending.remove(other)
                self._budget.release(other.place.account)
                self._forget(other, now)

    def _patch_ended(self, known: Series, write: Write, how: Ended, now: float) -> None:
        if how is Ended.DONE:
            known.stored = write.count
        if how in (Ended.DONE, Ended.LATER):
            self._want_patch(known, now)
        elif how is Ended.GONE and self._budget.wait(known.place.account, now) == 0:  # the server has expired it
            name = event_name(known.body["regarding"]["name"], now + self._epoch(), self._rng.getrandbits(16))
            known.body = {**known.body, "metadata": {**known.body["metadata"], "name": name}}
            self._reserve(known)
        elif how is Ended.GONE:
            self._forget(known, now)
        else:
            self._give_up(known, now)

    def _summary_ended(self, place: NamespaceEvents, summary: Summary, how: Ended) -> None:
        if how in (Ended.LATER, Ended.FORBIDDEN):  # the next summary includes it
            place.left_out += summary.left_out
            place.since = summary.since
        if place.left_out:
            self._want_summary(place)

    def _reserve(self, made: Series) -> None:
        made.pending = True
        self._budget.reserve(made.place.account)
        self._pending.append(made)

    # -- timers ---------

    def _want_patch(self, known: Series, now: float) -> None:
        if not known.pending and known.due is None and known.count > known.stored:
            self._call_for(known, max(now, known.free_at))

    def _want_summary(self, place: NamespaceEvents) -> None:
        if place.summary_due is None:
            limits = self.limits
            self._call_for(place, max(place.since + limits.first_summary, place.summed_up + limits.summaries))

    def _call_for(self, what: Series | NamespaceEvents, when: float) -> None:
        if isinstance(what, NamespaceEvents):
            what.summary_due = when
        else:
            what.due = when
        heapq.heappush(self._due, (when, next(self._order), what))
        if len(self._due) > 2 * (len(self._series) + len(self._places)) + _OLDEST:  # mostly outdated timers
            self._due = [entry for entry in self._due if entry[0] == self._called_for(entry[2])]
            heapq.heapify(self._due)

    def _called_for(self, what: Series | NamespaceEvents) -> float | None:
        if isinstance(what, NamespaceEvents):
            return what.summary_due if self._places.get(what.name) is what else None
        return what.due if self._series.get(what.key) is what else None

    # -- leaving out and forgetting ---------

    def _leave_out(self, place: NamespaceEvents, happening: str, count: int, now: float) -> None:
        if not count:
            return
        self.counts.left_out += count
        if not place.left_out:
            place.since = now
        place.left_out[happening] += count
        self._want_summary(place)

    def _give_up(self, known: Series, now: float) -> None:
        """Count the repetitions of an event that the server does not know of as left out."""
        missed, known.count = known.count - known.stored, known.stored
        self._leave_out(known.place, known.happening, missed, now)

    def _forget(self, known: Series, now: float) -> None:
        del self._series[known.key]
        known.place.series -= 1
        self._leave_out(known.place, known.happening, known.count - known.stored, now)

    def _is_old(self, known: Series, now: float) -> bool:
        return known.last + self.limits.window < now and not self._is_under_way(known)

    def _is_under_way(self, known: Series) -> bool:
        return known.pending or (self._writing is not None and self._writing[1] is known)

    def _forget_old(self, now: float) -> None:
        """Drop the series that have ended and whose count the server knows."""
        while self._series:
            oldest = next(iter(self._series.values()))
            if oldest.count > oldest.stored or not self._is_old(oldest, now):
                return
            self._forget(oldest, now)

    def _evict(self, now: float) -> bool:
        """Make room in the table: drop the least recently repeated series that is not being written."""
        for known in itertools.islice(self._series.values(), _OLDEST):
            if not self._is_under_way(known):
                self._forget(known, now)
                return True
        return False

    def _place(self, namespace: str, now: float) -> NamespaceEvents | None:
        place = self._places.get(namespace)
        if place is not None:
            return place
        if len(self._places) >= self.limits.namespaces_max:
            self._forget_places(now)
        if len(self._places) >= self.limits.namespaces_max:
            return None
        made = NamespaceEvents(namespace, self._budget.account())
        self._places[namespace] = made
        return made

    def _forget_places(self, now: float) -> None:
        if now < self._places_looked_at + 1.0:
            return
        self._places_looked_at = now
        for name, place in list(self._places.items()):
            busy = place.series or place.left_out or any(until > now for until in place.shut.values())
            writing = self._writing is not None and self._writing[0].namespace == name
            if not busy and not writing and place.account.bucket.is_full(now):
                del self._places[name]

"""The Kubernetes events about objects of tasks, as additional reasons: each once and in order.

An event is identified by its uid and its count, not by a time: many happen within one second, and the times of events
are whole seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, moment, text
from backoff_ctrl.k8s.kube.cluster.kinds import JSON

from .marks import Key
from .phases import Reason

UNCLAIMED_MAX: Final = 1024
"""Unclaimed objects whose events are kept: an event may come before its object."""
OF_ONE_MAX: Final = 256
"""Events of one object that are kept, the latest ones."""
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


About: TypeAlias = tuple[str, str]
"""An object by its namespace and uid: who may write events in one namespace names objects of another there, too."""


class Occurrence(NamedTuple):
    """The last state of an event. Events are ordered by time, then by the order in which the server stored them."""

    when: datetime
    version: int
    uid: str
    times: int
    text: str


class EventBook:
    """The events of claimed objects."""

    def __init__(self, wake: Callable[[Key], object]) -> None:
        """Start empty. ``wake`` is called on news about a claimed object."""
        self._wake = wake
        self._keys: dict[About, Key] = {}
        self._events: dict[About, dict[str, Occurrence]] = {}
        self._unclaimed: OrderedDict[About, dict[str, Occurrence]] = OrderedDict()

    def claim(self, about: About, key: Key) -> None:
        if all(about) and about not in self._keys:
            self._keys[about] = key
            self._events[about] = self._unclaimed.pop(about, {})

    def release(self, about: About) -> None:
        self._keys.pop(about, None)
        self._events.pop(about, None)

    def changed(self, event: JSON, _: bool = False) -> None:
        about = text(metadata_of(event).get("namespace")), text(mapping(event.get("regarding")).get("uid"))
        found = _occurrence(event)
        if not all(about) or found is None:
            return
        events = self._events.get(about)
        if events is None:
            events = self._unclaimed.setdefault(about, {})
            self._unclaimed.move_to_end(about)
            if len(self._unclaimed) > UNCLAIMED_MAX:
                self._unclaimed.popitem(last=False)
        known = events.get(found.uid)
        if known is not None and known.times >= found.times:
            return
        events[found.uid] = found
        if len(events) > OF_ONE_MAX:
            del events[min(events, key=lambda each: events[each])]
        if about in self._keys:
            self._wake(self._keys[about])

    def news(self, about: About, told: Mapping[str, int]) -> tuple[tuple[Reason, ...], dict[str, int]]:
        """Return the events not reported yet, oldest first, and the counts that are reported with them."""
        events = self._events.get(about, {})
        new = sorted(each for each in events.values() if each.times > told.get(each.uid, 0))
        if not new:
            return (), dict(told)
        still = {each: count for each, count in told.items() if each in events} if events else dict(told)
        reasons = tuple(Reason(each.text, each.when) for each in new)
        return reasons, still | {each.uid: each.times for each in new}


def _occurrence(event: JSON) -> Occurrence | None:
    metadata = metadata_of(event)
    uid = text(metadata.get("uid"))
    if not uid:
        return None
    series = mapping(event.get("series"))
    count = series.get("count") or event.get("deprecatedCount") or 1
    count = count if isinstance(count, int) and count > 0 else 1
    times = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        metadata.get("creationTimestamp"),
    )
    when = next((found for found in map(moment, times) if found is not None), LONG_AGO)
    version = str(metadata.get("resourceVersion") or "")
    words = [str(each) for each in (event.get("reason"), event.get("note")) if each]
    said = ": ".join(words) + (f" (x{count})" if count > 1 else "")
    return Occurrence(when, int(version) if version.isdecimal() else 0, uid, count, said)

"""How well the watch works, for pages, metrics and the log: per namespace what is watched, since when, and why."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backoff_ctrl.engine.backoff import Bucket
from backoff_ctrl.k8s.kube.answers.objects import Key

from .objects import CLUSTER_QUOTAS, IgnoredError

log = logging.getLogger(__name__)

EVERYWHERE: Final = "*"  # the place that stands for all namespaces
LEARNS: Final = "learning from refusals instead"
STOPPED: Final = "stopped"
"""Why a namespace is unwatched after its watch was ended."""
LINES_BURST: Final = 10
LINES_RATE: Final = 1 / 30
"""Log lines per second and topic in the long run. Suppressed lines are counted; the next line gives their number."""


PARTLY_MAX: Final = 1000
"""Objects of one record that are named as read in part."""


class WatchState(StrEnum):
    """How the gate finds out about room."""

    QUOTAS = "watching quotas"
    PODS = "watching pods"
    LEARNING = "learning"


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """The status of one place. ``since`` is a time of the event loop; ``why`` is empty while quotas are watched.

    ``lost``: quotas were watched there, and no longer are.
    """

    state: WatchState
    since: float
    why: str
    lost: bool = False


@dataclass
class WatchCounts:
    """Counters of the watch. The keys of ``ignored`` are a fixed set, so that they can be labels of a metric."""

    relists: int = 0  # complete lists, including the first one of each place
    resumed: int = 0  # streams that the server ended normally and that were resumed
    reconnects: int = 0  # attempts after a list that failed or a stream that broke
    expired: int = 0
    forbidden: int = 0
    events: int = 0  # changes passed on to the observers
    ignored: Counter[str] = field(default_factory=Counter)
    failures: int = 0  # internal errors, after which the watch went on


@dataclass
class _Entry:
    since: float
    quotas: bool = False
    were_watched: bool = False
    pods: bool = False
    why_quotas: str = "not listed yet"
    why_pods: str = ""
    instead: str = ""
    logged: WatchState | None = None
    due: float | None = None

    @property
    def state(self) -> WatchState:
        if self.quotas:
            return WatchState.QUOTAS
        return WatchState.PODS if self.pods else WatchState.LEARNING

    def status(self) -> WatchStatus:
        why = "" if self.quotas else self.why_quotas
        if not self.quotas and not self.pods and self.why_pods:
            why += f"; {self.why_pods}"
        return WatchStatus(self.state, self.since, why, lost=self.were_watched and not self.quotas)


class WatchRecord:
    """Keeps the status and the counters, and writes the log lines. Written by one event loop, read from any thread.

    The loss of a watch is logged once it has lasted ``patience`` seconds, since most are over at once. Other changes
    are logged immediately, no state twice in a row. Lines are rate-limited per topic.
    """

    def __init__(self, *, patience: float = 5.0) -> None:
        self.counts = WatchCounts()
        self._patience = patience
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._buckets: dict[str, Bucket] = {}
        self._suppressed: Counter[str] = Counter()
        self._partly: dict[tuple[str, Key], str] = {}

    def status(self) -> Mapping[str, WatchStatus]:
        """Return the status of each namespace, and of ``EVERYWHERE``."""
        with self._lock:
            return {place: entry.status() for place, entry in self._entries.items()}

    def lost(self) -> list[str]:
        """Return the places whose quotas were watched, and no longer are."""
        return [place for place, status in self.status().items() if status.lost]

    def of(self, namespace: str) -> WatchStatus | None:
        """Return the status of a namespace, which may be that of ``EVERYWHERE``. None: it is not watched at all."""
        with self._lock:
            everywhere, own = self._entries.get(EVERYWHERE), self._entries.get(namespace)
            entry = everywhere if own is None or (everywhere is not None and everywhere.quotas) else own
            return None if entry is None else entry.status()

    def quotas(self, place: str, *, seen: bool, why: str = "", instead: str = LEARNS, patient: bool = False) -> None:
        """Record whether quotas are watched there.

        ``instead`` ends the log line. ``patient``: log it only if it lasts, since it may change in a moment.
        """
        with self._changing(place, patient=patient) as entry:
            entry.quotas, entry.why_quotas, entry.instead = seen, why, instead
            entry.were_watched = entry.were_watched or seen

    def pods(self, place: str, *, seen: bool, why: str = "", patient: bool = False) -> None:
        """Record whether the ends of pods are watched there. ``patient``: see ``quotas``."""
        with self._changing(place, patient=patient) as entry:
            entry.pods, entry.why_pods = seen, why

    def close(self, place: str) -> None:
        with self._lock:
            self._entries.pop(place, None)

    def ignored(self, error: IgnoredError, where: str) -> None:
        reason = str(error.reason)
        self.counts.ignored[reason] += 1
        text = f"the watch of {where} ignored {error} ({reason}: {self.counts.ignored[reason]} so far)"
        self._log(reason, logging.WARNING, text)

    def partly_listed(self, where: str, found: Mapping[Key, str]) -> None:
        """Record which objects of a complete list were read only in part, and why."""
        for place, key in [*self._partly]:
            if place == where and key not in found:
                del self._partly[place, key]
        for key, why in found.items():
            self.partly_read(where, key, why)

    def partly_read(self, where: str, key: Key, why: str) -> None:
        """Record that an object was read only in part, and log that once; no ``why``: it is whole, or gone."""
        if not why:
            if self._partly:
                self._partly.pop((where, key), None)
            return
        if (where, key) not in self._partly and len(self._partly) < PARTLY_MAX:
            self._partly[where, key] = why
            self._log("partly", logging.WARNING, _said_of(where, key, why))

    def partly(self) -> list[str]:
        """Return a sentence for each object that is read only in part."""
        return [_said_of(where, key, why) for (where, key), why in list(self._partly.items())]

    def failed(self, error: BaseException, where: str) -> None:
        self.counts.failures += 1
        text = f"internal error in the watch of {where}, which continues ({self.counts.failures} so far)"
        self._log("failure", logging.ERROR, text, error)

    def _log(self, topic: str, level: int, text: str, error: BaseException | None = None) -> None:
        """Log a line, unless there were too many on this topic recently."""
        now = _now()
        bucket = self._buckets.setdefault(topic, Bucket(LINES_RATE, LINES_BURST))
        if bucket.wait_for(1, now) > 0:
            self._suppressed[topic] += 1
            return
        bucket.take(now)
        rest = self._suppressed.pop(topic, 0)
        log.log(level, "%s%s", text, f" ({rest} similar lines suppressed)" if rest else "", exc_info=error)

    @contextmanager
    def _changing(self, place: str, *, patient: bool) -> Iterator[_Entry]:
        now = _now()
        with self._lock:
            entry = self._entries.setdefault(place, _Entry(now))
            before = entry.state
            yield entry
            if entry.state is not before:
                entry.since = now
        if entry.state is entry.logged:
            entry.due = None
        elif not patient:
            self._log_state(place, entry)
        elif entry.due is None:
            entry.due = now + self._patience
            asyncio.get_running_loop().call_later(self._patience, self._log_late, place, entry)

    def _log_late(self, place: str, entry: _Entry) -> None:
        ended = entry.why_quotas == STOPPED  # with its client: that is no loss
        if not ended and entry.due is not None and entry.due <= _now() + 0.001 and self._entries.get(place) is entry:
            self._log_state(place, entry)

    def _log_state(self, place: str, entry: _Entry) -> None:
        entry.due = None
        state, first = entry.state, entry.logged is None
        entry.logged = state
        what = _what(place)
        if state is WatchState.QUOTAS:
            self._log("watched" if first else "state", logging.DEBUG if first else logging.INFO, f"watching {what}")
            return
        instead = "watching the ends of pods instead" if state is WatchState.PODS else entry.instead
        self._log("state", logging.WARNING, f"cannot watch {what} ({entry.status().why}); {instead}")


def _said_of(where: str, key: Key, why: str) -> str:
    return f"{'/'.join(filter(None, key))} of {where} is read only in part: {why}"


def _what(place: str) -> str:
    if place == CLUSTER_QUOTAS.plural:
        return place
    return "quotas of all namespaces" if place == EVERYWHERE else f"quotas of namespace {place}"


def _now() -> float:
    return asyncio.get_running_loop().time()

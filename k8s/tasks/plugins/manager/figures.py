"""What the manager counts, and its samples for the metrics of its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field

from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.tasks.plugins.following import Monitor, Watches


@dataclass
class ManagerCounts:
    """Counters from the start of the manager on."""

    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Attempts that failed, by plugin, phase and code."""
    plugin_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Exceptions that plugins raised, by plugin and method."""
    launches: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Creates that ended, by plugin: ``created``, ``adopted``, ``failed``, ``stopped``."""
    reads: Counter[str] = field(default_factory=Counter)
    """Steps by where they found their objects: ``cache`` or ``server``."""
    deletions: Counter[str] = field(default_factory=Counter)
    """Objects whose deletion was requested, by plugin."""
    unexpected_deletions: Counter[str] = field(default_factory=Counter)
    """Objects that others deleted before they had ended, by plugin."""
    finalizer_conflicts: int = 0
    """Removals of our finalizer that were retried because the object had changed meanwhile."""


class Figures(Subscriber):
    """A subscriber that only gives samples for the ledger's metrics."""

    def __init__(self, counts: ManagerCounts, monitor: Monitor, watches: Watches, launcher: Sized) -> None:
        self._counts = counts
        self._monitor = monitor
        self._watches = watches
        self._launcher = launcher

    def figures(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Return samples: name without prefix, labels, value. Any thread may ask."""
        for place, number in self._monitor.numbers():
            yield "task_objects", place, number
        yield "task_creates_under_way", (), len(self._launcher)
        for kind, fed in self._watches.states():
            yield "task_watch_healthy", (kind,), int(fed)
        yield "task_watch_events_total", (), self._watches.record.counts.events
        yield "task_watch_relists_total", (), self._watches.record.counts.relists
        for launched, count in list(self._counts.launches.items()):
            yield "task_creates_total", launched, count
        for failed, count in list(self._counts.failures.items()):
            yield "task_failures_total", failed, count
        for raised, count in list(self._counts.plugin_errors.items()):
            yield "task_plugin_errors_total", raised, count
        for source, count in list(self._counts.reads.items()):
            yield "task_object_reads_total", (source,), count
        for plugin, count in list(self._counts.deletions.items()):
            yield "task_object_deletions_total", (plugin,), count
        for plugin, count in list(self._counts.unexpected_deletions.items()):
            yield "task_object_losses_total", (plugin,), count
        yield "task_finalizer_conflicts_total", (), self._counts.finalizer_conflicts

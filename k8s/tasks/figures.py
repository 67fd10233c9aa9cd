"""The metrics of a reconciler: of tasks, and of their steps."""

from __future__ import annotations

from collections.abc import Iterator

from backoff_ctrl.k8s.status.catalogue import STEP_BUCKETS
from backoff_ctrl.k8s.status.counters import Histogram
from backoff_ctrl.k8s.status.metrics import Sample

from .reconciler import Reconciler


def samples(reconciler: Reconciler) -> Iterator[Sample]:
    """Yield the samples of a reconciler. Any thread may ask."""
    counts = reconciler.counts
    for phase, number in reconciler.phases().items():
        yield Sample("tasks", (phase,), number)
    for phase, number in list(counts.ended.items()):
        yield Sample("tasks_ended_total", (phase,), number)
    for failed, number in list(counts.failures.items()):
        yield Sample("task_attempts_failed_total", failed, number)
    for kind, number in list(counts.retries.items()):
        yield Sample("task_retries_total", (kind,), number)
    for outcome, number in list(reconciler.collector.counts.items()):
        yield Sample("tasks_forgotten_total", (outcome,), number)
    for delivery in () if reconciler.notifier is None else reconciler.notifier.deliveries:
        for outcome, number in list(delivery.counts.items()):
            yield Sample("task_notifications_total", (delivery.receiver.name, outcome), number)
    steps = Histogram(STEP_BUCKETS)
    steps.counts, steps.sum = counts.by_time.copy(), counts.step_seconds
    yield Sample("task_step_seconds", (), steps)
    yield Sample("task_step_errors_total", (), counts.errors)
    yield Sample("task_status_writes_total", (), counts.writes)

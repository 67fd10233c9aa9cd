"""The metrics of the gates of a process: gathered in small steps, and written as text for Prometheus.

The text is written here and not by prometheus-client, which host programs need not have, and in slices: a thread that
writes 100,000 samples at once delays every other thread by 5 ms. ``collector`` gives the same to a host's registry.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backoff_ctrl.k8s.gate.creates.wait import SAME_KEY
from backoff_ctrl.k8s.gate.settings import SERIES_MAX
from backoff_ctrl.k8s.kube.answers.printing import metric_head, metric_sample

from .catalogue import METRICS, PREFIX, Metric
from .counters import Histogram
from .decisions import KeptDecision
from .documents import flow_name
from .slices import sliced
from .sources import ceilings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from backoff_ctrl.engine.look.explaining import CeilingSnapshot, NamespaceSnapshot

    from .counters import NamespaceCounts
    from .documents import Documents
    from .sources import Source
    from .streams import Streams

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

NANO: Final = 1_000_000_000
_LARGEST: Final = frozenset(
    {"ceiling_limited", "ceiling_used", "ceiling_headroom", "ceiling_heard_timestamp_seconds", "ceiling_observed"}
) | {"blocked", "mode", "watch_healthy", "namespace_slowed", "settle_seconds"}
"""Of these, the largest value of all gates of a process is exposed. All others are summed."""

Value = float | Histogram


class Sample(NamedTuple):
    """One series, or one histogram. ``name`` is without the prefix."""

    name: str
    labels: tuple[str, ...]
    value: Value

    @property
    def series(self) -> int:
        return len(self.value.counts) + 2 if isinstance(self.value, Histogram) else 1


class Gathered:
    """All samples by metric, and how many series were left out."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        """Take in at most so many series, those of the gates themselves in any case."""
        self.by_name: dict[str, dict[tuple[str, ...], Value]] = defaultdict(dict)
        self.series = 0
        self.left_out = 0
        self._series_max = series_max - 2  # the two that say how many there are

    def of(self, metric: Metric) -> dict[tuple[str, ...], Value]:
        """Return the samples of a metric by labels."""
        return self.by_name.get(metric.name.removeprefix(PREFIX), {})

    def take(self, samples: Iterable[Sample], *, always: bool = False) -> None:
        """Take in samples that belong together, or leave all of them out."""
        taken = list(samples)
        count = sum(sample.series for sample in taken)
        if not always and self.series + count > self._series_max:
            self.left_out += count
            return
        self.series += count
        for name, labels, value in taken:
            of_metric = self.by_name[name]
            of_metric[labels] = value if labels not in of_metric else _both(name, of_metric[labels], value)


def gather(
    documents: Documents,
    streams: Streams[KeptDecision] | None = None,
    series_max: int = SERIES_MAX,
    more: Iterable[Sample] = (),
) -> Gathered:
    """Gather all samples; ``more`` are those of the process beside its gates.

    A namespace is left out as a whole, the ones that became known last first.
    """
    found = Gathered(series_max)
    version = (documents.version, platform.python_version())
    found.take([Sample("build_info", version, 1)], always=True)
    if streams is not None:
        listening = [
            Sample("status_listeners", (), len(streams)),
            Sample("status_listeners_dropped_total", (), streams.dropped),
        ]
        found.take(listening, always=True)
    found.take(more, always=True)
    decide = any(source.decides for source in documents.sources)
    for source in documents.sources:
        if source.decides or not decide:  # else its knowledge would be counted twice
            found.take(_shown(source, _of_gate(source)), always=True)
        found.take(_shown(source, _of_watch(source)), always=True)
        for name in source.in_order():
            found.take(_shown(source, _of_namespace(source, name)))
    left_out = Sample("series_left_out", (), found.left_out)
    found.take([left_out, Sample("series", (), found.series + 2)], always=True)
    return found


def exposition(
    documents: Documents,
    streams: Streams[KeptDecision] | None = None,
    series_max: int = SERIES_MAX,
    more: Iterable[Sample] = (),
) -> list[bytes]:
    """Write all samples in Prometheus' text format, in pieces; ``more`` are those of the process beside its gates."""
    return written(gather(documents, streams, series_max, more))


def written(found: Gathered) -> list[bytes]:
    """Write samples in Prometheus' text format, in pieces."""
    pieces = []
    for metric in METRICS:
        if samples := found.of(metric):
            pieces.append(metric_head(metric.name, _type(metric), metric.help).encode())
            of_each = (_series(metric, *sample) for sample in sliced(samples.items()))
            pieces += ["".join(metric_sample(*each) for each in series).encode() for series in of_each]
    return pieces


def collector(documents: Documents, series_max: int = SERIES_MAX) -> Any:
    """Return a collector that a registry of prometheus-client takes: ``REGISTRY.register(collector(...))``."""
    from prometheus_client import metrics_core, registry  # noqa: PLC0415 - optional: only who calls this needs it

    class _Gates(registry.Collector):
        def collect(self) -> Iterator[Any]:
            found = gather(documents, None, series_max)
            for metric in METRICS:
                family = metrics_core.Metric(metric.name.removesuffix("_total"), metric.help, _type(metric))
                for sample in sliced(found.of(metric).items()):
                    for name, labels, value in _series(metric, *sample):
                        family.add_sample(name, dict(labels), value)
                yield family

        def describe(self) -> list[Any]:
            return []  # registering must not ask the gates

    return _Gates()


# -- samples ---------


def _shown(source: Source, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Leave out samples that make sense only for a gate, where this process only watches a cluster."""
    return (sample for sample in samples if source.decides or _is_of_cluster(sample.name))


def _is_of_cluster(name: str) -> bool:
    if name in ("ceiling_held", "ceiling_reserved", "ceiling_headroom"):
        return False  # gates know what they hold, and expose it: a 0 from here would be wrong, a sum would count twice
    return name.startswith(("ceiling_", "watch_")) or name == "namespaces"


def _of_gate(source: Source) -> Iterator[Sample]:
    counts = source.ledger.counts
    decisions, wakes = source.counters.histograms()
    windows, _ = source.flows()
    yield Sample("gate_info", (source.name, source.server or ""), 1)
    yield Sample("gate_start_timestamp_seconds", (), source.counters.started)
    yield Sample("failed_open_total", (), counts.failed_open)
    yield Sample("late_tickets_total", (), counts.late)
    yield Sample("decision_seconds", (), decisions)
    yield Sample("wake_seconds", (), wakes)
    yield Sample("settle_seconds", (), source.ledger.controller.settle_time)
    yield Sample("namespaces", (), source.ledger.controller.size)
    yield Sample("in_flight", (), sum(window.in_flight for _, window in windows))
    for subscriber in source.ledger.subscribers.every:
        yield from (Sample(*figure) for figure in subscriber.figures())
    for flow, window in windows:
        labels = (flow_name(flow), flow.rpartition("|")[2])
        yield Sample("overload_window", labels, window.size)
        yield Sample("overload_in_flight", labels, window.in_flight)
        yield Sample("overload_paused", labels, int(window.closed_for > 0))


def _of_watch(source: Source) -> Iterator[Sample]:
    record = source.record()
    if record is None:
        return
    counts = record.counts
    yield Sample("watch_events_total", (), counts.events)
    yield Sample("watch_relists_total", (), counts.relists)
    yield Sample("watch_reconnects_total", (), counts.reconnects)
    for reason, count in list(counts.ignored.items()):
        yield Sample("watch_ignored_total", (reason,), count)
    yield Sample("watch_partly_read", (), len(record.partly()))


def _of_namespace(source: Source, name: str) -> Iterator[Sample]:
    found = source.namespace(name)
    yield Sample("mode", (name, source.ledger.mode(name)), 1)
    yield from _counted(name, source.counters.of(name))
    yield from _watched(source, name)
    if followers := len(source.followers(name)):
        yield Sample("waiting", (name, SAME_KEY), followers)
    if found is None:
        return
    snapshot, now = found
    if snapshot.oldest is not None:
        yield Sample("oldest_waiting_timestamp_seconds", (name,), source.clock.unix(now - snapshot.oldest))
        yield from _line(source, name)
    yield Sample("overtakings_total", (name,), snapshot.overtakings)
    yield from _gangs(name, snapshot)
    if snapshot.brake is not None:
        yield Sample("namespace_slowed", (name,), 1)
    for quota, stale in snapshot.stale.items():
        yield Sample("stale_refusals_total", (name, quota), stale)
    for key, ceiling in ceilings_of(snapshot):
        yield from _ceiling((name, *key), ceiling, source.clock.unix(now - ceiling.age))


def _line(source: Source, name: str) -> Iterator[Sample]:
    tally = source.tally(name)
    for reason, count in tally.reasons.items():
        yield Sample("waiting", (name, reason), count)
    for quota, resource in tally.blocked:
        yield Sample("blocked", (name, quota, resource), 1)


def _gangs(name: str, snapshot: NamespaceSnapshot) -> Iterator[Sample]:
    if snapshot.waiting_gangs:
        yield Sample("gangs", (name, "waiting"), snapshot.waiting_gangs)
    if snapshot.gangs:
        yield Sample("gangs", (name, "admitted"), len(snapshot.gangs))
        yield Sample("gang_members", (name, "reserved"), sum(gang.undrawn for gang in snapshot.gangs))
        yield Sample("gang_members", (name, "drawn"), sum(gang.drawn for gang in snapshot.gangs))


def _ceiling(labels: tuple[str, str, str], ceiling: CeilingSnapshot, heard: float) -> Iterator[Sample]:
    for amount in ("limited", "used", "held", "reserved", "headroom"):
        yield Sample(f"ceiling_{amount}", labels, getattr(ceiling, amount) / NANO)
    yield Sample("ceiling_heard_timestamp_seconds", labels, heard)
    yield Sample("ceiling_observed", labels, int(ceiling.source == "observed"))


def _counted(name: str, counts: NamespaceCounts) -> Iterator[Sample]:
    yield from (Sample("creates_total", (name, *labels), count) for labels, count in counts.creates.items())
    yield from (Sample("declines_total", (name, reason), count) for reason, count in counts.declines.items())
    yield from (Sample("attempts_total", (name, *labels), count) for labels, count in counts.attempts.items())
    yield from (Sample("probes_total", (name, result), count) for result, count in counts.probes.items())
    yield from (Sample("shadow_creates_total", (name, verdict), count) for verdict, count in counts.shadow.items())
    yield from (Sample("quota_refusals_total", (name, *key), count) for key, count in counts.refusals.items())
    if counts.waits is not None:
        yield Sample("wait_seconds", (name,), counts.waits)
        yield Sample("calls_saved_estimate_total", (name,), counts.saved)


def _watched(source: Source, name: str) -> Iterator[Sample]:
    status = source.watch_status(name)
    if status is None:
        return
    if status.lost or status.state == "watching quotas":  # else they were never watched: there may be no permission
        yield Sample("watch_healthy", (name,), int(not status.lost))
    yield Sample("watch_state_timestamp_seconds", (name,), source.watch_clock.unix(status.since))


def _both(name: str, one: Value, other: Value) -> Value:
    if isinstance(one, Histogram):
        assert isinstance(other, Histogram)
        return one + other
    assert not isinstance(other, Histogram)
    if name in _LARGEST:
        return max(one, other)
    return min(one, other) if name.endswith("_timestamp_seconds") else one + other


# -- series ---------


def _type(metric: Metric) -> str:
    return "gauge" if metric.kind == "info" else metric.kind


def _series(
    metric: Metric, labels: tuple[str, ...], value: Value
) -> Iterator[tuple[str, list[tuple[str, str]], float]]:
    """Yield name, labels and value of each series of a sample: a histogram has one for each bucket."""
    pairs = list(zip(metric.labels, labels, strict=True))
    if not isinstance(value, Histogram):
        yield metric.name, pairs, value
        return
    count = 0
    for bound, here in zip([*map(str, value.bounds), "+Inf"], value.counts, strict=True):
        count += here
        yield f"{metric.name}_bucket", [*pairs, ("le", bound)], count
    yield f"{metric.name}_sum", pairs, value.sum
    yield f"{metric.name}_count", pairs, count

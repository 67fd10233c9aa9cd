"""How tasks go, as metrics for Prometheus: only of the server that carries them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.tasks.counts import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backoff_ctrl.k8s.tasks.reconciler import Reconciler

PREFIX: Final = "backoff_ctrl_task"


def exposition(reconciler: Reconciler | None) -> bytes:
    """Return the metrics of a reconciler as text; nothing while another process carries the tasks out."""
    if reconciler is None:
        return b""
    counts = reconciler.counts
    lines = [
        *_family(
            "s", "gauge", "Unfinished tasks, by phase.", {f'{{phase="{p}"}}': n for p, n in reconciler.phases().items()}
        ),
        *_family("_steps_total", "counter", "Steps of tasks.", {"": counts.steps}),
        *_family("_step_errors_total", "counter", "Steps that raised an error and came again.", {"": counts.errors}),
        *_family("_status_writes_total", "counter", "Statuses written to the store.", {"": counts.writes}),
        *_family(
            "_failures_total",
            "counter",
            "Attempts that failed, by whose failure it was and its code.",
            {f'{{kind="{kind}",code="{_escaped(code)}"}}': n for (kind, code), n in counts.failures.items()},
        ),
        *_family(
            "_retries_total",
            "counter",
            "Further attempts, by the kind of the failure before.",
            {f'{{kind="{kind}"}}': n for kind, n in counts.retries.items()},
        ),
        *_family(
            "s_ended_total",
            "counter",
            "Tasks that ended, by phase.",
            {f'{{phase="{phase}"}}': n for phase, n in counts.ended.items()},
        ),
        *_step_seconds(reconciler),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _family(name: str, kind: str, meaning: str, values: Mapping[str, float]) -> Iterator[str]:
    full = PREFIX + name
    yield f"# HELP {full} {meaning}"
    yield f"# TYPE {full} {kind}"
    for labels, value in sorted(values.items()):
        yield f"{full}{labels} {value}"


def _step_seconds(reconciler: Reconciler) -> Iterator[str]:
    counts, full = reconciler.counts, f"{PREFIX}_step_seconds"
    yield f"# HELP {full} Seconds of a step, waiting for the API server included."
    yield f"# TYPE {full} histogram"
    below = 0
    for bound, number in zip((*BUCKETS, "+Inf"), counts.by_time, strict=True):
        below += number
        yield f'{full}_bucket{{le="{bound}"}} {below}'
    yield f"{full}_sum {counts.step_seconds}"
    yield f"{full}_count {counts.steps}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")

"""Draws the picture of a replay: use, limit and number of waiting pods over time, one panel per client. SVG or PNG.

It shows one resource in one namespace: the most contended resource of the largest namespace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.engine.errors import BackoffError

from .clients import Run
from .reference import areas
from .workload import UNITS, Workload, in_nano

_LABELS: Final = {"limits.cpu": "CPUs", "limits.memory": "MiB", "requests.nvidia.com/gpu": "GPUs"}
USED: Final = "#4c78a8"
LIMIT: Final = "#222222"
WAITING: Final = "#e45756"
_NAMES: Final = {
    "plain": "plain: retries with random exponential back-off",
    "ancestor": "ancestor: Flyte 1's back-off",
    "gate_learning": "gate_learning: backoff-ctrl, learning from refusals",
    "gate_observing": "gate_observing: backoff-ctrl, watching the quotas",
    "proxy": "proxy: plain retries, unchanged, behind backoff-ctrl proxy",
}


class PictureError(BackoffError, RuntimeError):
    """matplotlib is not installed; the message says how to install it."""


def hardest_pressed(workload: Workload) -> tuple[str, str]:
    """Return the namespace with the most pods, and its resource with the largest area."""
    [(largest, _)] = Counter(pod.namespace for pod in workload.pods).most_common(1)
    # Not the largest area of all: that may be of a namespace with few pods, where hardly any wait.
    of_largest = {key: area for key, area in areas(workload).items() if key[0] == largest}
    return max(of_largest, key=lambda key: of_largest[key])


@contextmanager
def drawn(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield an empty figure of matplotlib, of so many inches; write it to ``path`` in the format that its suffix names.

    The same drawing makes the same bytes. Raises ``PictureError`` without matplotlib.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415

        mpl.use("Agg")
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as err:
        raise PictureError("no picture: matplotlib is not installed; install backoff-ctrl[demo]") from err
    with mpl.rc_context({"svg.hashsalt": "backoff-ctrl", "font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def draw(workload: Workload, runs: Sequence[Run], path: Path) -> None:
    """Write the picture of a replay. Raises ``PictureError`` without matplotlib."""
    namespace, resource = hardest_pressed(workload)
    with drawn(path, 9, 1.2 + 1.9 * len(runs)) as figure:
        axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        first, *_ = [_draw_run(axis, run, workload, namespace, resource) for axis, run in zip(axes, runs, strict=True)]
        axes[-1].set_xlim(0, None)  # once all are drawn, for they share it
        axes[-1].set_xlabel("time since the first arrival, in seconds of the trace")
        figure.suptitle(
            f"{resource} in namespace {namespace}: used, limited, and the number of waiting pods\n"
            f"({len(workload.pods)} pods in all namespaces, seed {workload.seed})",
            fontsize=11,
        )
        handles, labels = (
            [*one, *other] for one, other in zip(*(each.get_legend_handles_labels() for each in first), strict=True)
        )
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def _draw_run(axis: Any, run: Run, workload: Workload, namespace: str, resource: str) -> tuple[Any, Any]:
    """Draw one panel; return its left and its right axis."""
    unit = in_nano({resource: 1})[resource] * (1000 if UNITS[resource] == "m" else 1)
    limit = in_nano(workload.quotas[namespace])[resource] / unit
    steps = [(when, used.get(resource, 0) / unit) for when, space, used in run.usage if space == namespace]
    times = [0.0, *(max(0.0, when) for when, _ in steps)]
    used = [0.0, *(amount for _, amount in steps)]
    axis.fill_between(times, used, step="post", color=USED, alpha=0.55, linewidth=0, label="used")
    axis.axhline(limit, color=LIMIT, linestyle="--", linewidth=1, label="limited")
    axis.set_ylim(0, limit * 1.18)
    axis.set_ylabel(_LABELS[resource])
    axis.set_title(
        f"{_NAMES[run.client]}: {run.result.creates_sent:,} creates sent, {run.result.refused:,} refused",
        loc="left",
        fontsize=9.5,
    )
    line = axis.twinx()
    when, waiting = waiters(workload, run.admitted_at, namespace)
    line.step(when, waiting, where="post", color=WAITING, linewidth=1.2, label="waiting pods (right axis)")
    line.set_ylim(0, max(1, *waiting) * 1.18)
    line.set_ylabel("waiting pods", color=WAITING)
    line.tick_params(axis="y", colors=WAITING)
    for each in (axis, line):
        each.spines["top"].set_visible(False)
    return axis, line


def waiters(workload: Workload, admitted_at: Mapping[str, float], namespace: str) -> tuple[list[float], list[int]]:
    """Return the times at which a namespace's number of waiting pods changes, and the number from each time on."""
    pods = [pod for pod in workload.pods if pod.namespace == namespace]
    arrivals = sorted(pod.arrival for pod in pods)
    admissions = sorted(admitted_at[pod.name] for pod in pods if pod.name in admitted_at)
    times = sorted({0.0, *arrivals, *admissions})
    return times, [max(0, bisect_right(arrivals, t) - bisect_right(admissions, t)) for t in times]

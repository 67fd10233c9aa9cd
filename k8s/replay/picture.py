"""The picture of a replay: used against limited over time, with the waiters, a panel per client. SVG (or PNG).

Drawn for one namespace and one resource: the ones that the workload presses hardest on.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.errors import BackoffError

from .workload import UNITS, in_nano

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .workload import Workload

Usage = list[tuple[float, str, dict[str, int]]]

_USED: Final = "#4c78a8"
_LIMIT: Final = "#222222"
_WAITING: Final = "#e45756"
_NAMES: Final = {
    "plain": "plain retry",
    "ancestor": "Flyte 1's back-off (the ancestor)",
    "gate_learning": "the gate, learning from refusals",
    "gate_observing": "the gate, observing quotas",
}


class PictureError(BackoffError, RuntimeError):
    """There is no matplotlib; the sentence says how to get it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One client's run. Times are seconds of the trace's scale; ``usage`` holds nano-units."""

    client: str
    creates_sent: int
    refused: int
    usage: Usage
    admitted_at: Mapping[str, float]


def hardest_pressed(workload: Workload) -> tuple[str, str]:
    """Return the namespace and the resource with the most sum(demand x run time) / quota, by pods if equal."""
    areas: dict[tuple[str, str], float] = {}
    for pod in workload.pods:
        for resource, amount in pod.demand.items():
            key = (pod.namespace, resource)
            areas[key] = areas.get(key, 0.0) + amount * pod.run_time / workload.quotas[key[0]][key[1]]
    sizes: dict[str, int] = {}
    for pod in workload.pods:
        sizes[pod.namespace] = sizes.get(pod.namespace, 0) + 1
    largest = max(sizes, key=lambda namespace: sizes[namespace])
    # A namespace of a few pods may have the largest share: the picture is of where the line is.
    return max((key for key in areas if key[0] == largest), key=lambda key: areas[key])


def draw(workload: Workload, panels: Sequence[Panel], path: Path) -> None:
    """Write the picture; the suffix of ``path`` says which kind. Raises ``PictureError`` without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: PLC0415

        mpl.use("Agg")
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as err:
        raise PictureError("no picture: matplotlib is missing; install backoff-ctrl[demo]") from err
    namespace, resource = hardest_pressed(workload)
    with mpl.rc_context({"svg.hashsalt": "backoff-ctrl", "font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 1.2 + 1.9 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            _draw_panel(axis, panel, workload, namespace, resource)
        axes[-1].set_xlabel("seconds since the first pod arrived (as in the trace)")
        figure.suptitle(
            f"{resource} in namespace {namespace}: used against limited, and who waits "
            f"({len(workload.pods)} pods in all, seed {workload.seed})",
            fontsize=11,
        )
        handles, labels = _legend(axes[0])
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def _draw_panel(axis: Any, panel: Panel, workload: Workload, namespace: str, resource: str) -> None:
    unit = in_nano({resource: 1})[resource] * (1000 if UNITS[resource] == "m" else 1)
    limit = in_nano(workload.quotas[namespace])[resource] / unit
    steps = [(when, used.get(resource, 0) / unit) for when, space, used in panel.usage if space == namespace]
    times = [0.0, *(max(0.0, when) for when, _ in steps)]
    used = [0.0, *(amount for _, amount in steps)]
    axis.fill_between(times, used, step="post", color=_USED, alpha=0.55, linewidth=0, label="used")
    axis.axhline(limit, color=_LIMIT, linestyle="--", linewidth=1, label="limited")
    axis.set_ylim(0, limit * 1.18)
    axis.set_ylabel(_label(resource))
    axis.set_title(
        f"{_NAMES.get(panel.client, panel.client)}: {panel.creates_sent:,} creates sent, {panel.refused:,} refused",
        loc="left",
        fontsize=9.5,
    )
    line = axis.twinx()
    when, waiting = waiters(workload, panel.admitted_at, namespace)
    line.step(when, waiting, where="post", color=_WAITING, linewidth=1.2, label="waiting pods (right)")
    line.set_ylim(0, max(1, *waiting) * 1.18)
    line.set_ylabel("waiting", color=_WAITING)
    line.tick_params(axis="y", colors=_WAITING)
    axis.set_xlim(0, None)
    axis.waiters = line
    for each in (axis, line):
        each.spines["top"].set_visible(False)


def _label(resource: str) -> str:
    if resource == "limits.cpu":
        return "CPUs"
    return "MiB" if resource == "limits.memory" else "GPUs"


def _legend(axis: Any) -> tuple[list[Any], list[str]]:
    handles, labels = axis.get_legend_handles_labels()
    more, words = axis.waiters.get_legend_handles_labels()
    return handles + more, labels + words


def waiters(workload: Workload, admitted_at: Mapping[str, float], namespace: str) -> tuple[list[float], list[int]]:
    """Return the times at which the number of waiting pods of a namespace changes, and the numbers from then on."""
    pods = [pod for pod in workload.pods if pod.namespace == namespace]
    arrivals = sorted(pod.arrival for pod in pods)
    admissions = sorted(admitted_at[pod.name] for pod in pods if pod.name in admitted_at)
    times = sorted({0.0, *arrivals, *admissions})
    return times, [max(0, bisect_right(arrivals, t) - bisect_right(admissions, t)) for t in times]

"""Draws a run of Jobs, its sides beside each other: when each Job waited and ran, and the CPUs in use. SVG or PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .jobs import CPUS, OPERATOR, PLAIN, SIDES, JobsRun
from .picture import LIMIT, USED, WAITING, drawn

_WAITS: Final = "#d9d9d9"
_TITLES: Final = {PLAIN: "the Job controller alone", OPERATOR: "with backoff-ctrl operator"}
_ROW: Final = 0.17
"""Inches of a Job's row."""


def draw_jobs(run: JobsRun, path: Path) -> None:
    """Write the picture. Raises ``PictureError`` without matplotlib."""
    rows = _ROW * len(run.jobs)
    with drawn(path, 11, 2.8 + rows) as figure:
        axes = figure.subplots(2, len(SIDES), sharex=True, sharey="row", height_ratios=(rows, 1.3), squeeze=False)
        for column, name in enumerate(SIDES):
            _draw_rows(axes[0][column], run, name)
            _draw_usage(axes[1][column], run, name)
        axes[0][0].set_xlim(0, None)  # once all are drawn, for they share it
        axes[0][0].set_ylabel(f"{len(run.jobs)} Jobs")
        axes[1][0].set_ylabel("CPUs")
        figure.suptitle(
            f"The same Jobs under a quota of {CPUS} CPUs, at the same time; their pods are made by {run.controller}",
            fontsize=11,
        )
        marks = [axis.get_legend_handles_labels() for axis in axes[:, 0]]
        handles, labels = ([each for group in kind for each in group] for kind in zip(*marks, strict=True))
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def _draw_rows(axis: Any, run: JobsRun, name: str) -> None:
    """Draw a row for each Job: how long it waited, when it ran, when it was refused a pod."""
    side = run.sides[name]
    rows = {job.name: row for row, job in enumerate(run.jobs)}
    created = [side.created[job] for job in rows]
    began = [side.began.get(job, side.until) for job in rows]
    ended = [side.ended.get(job, side.until) for job in rows]
    places = list(rows.values())
    waited = [end - begin for begin, end in zip(created, began, strict=True)]
    ran = [end - begin for begin, end in zip(began, ended, strict=True)]
    axis.barh(places, waited, left=created, height=0.8, color=_WAITS, label="waits")
    axis.barh(places, ran, left=began, height=0.8, color=USED, label="runs")
    refused = [when for when, _ in side.refusals], [rows[job] for _, job in side.refusals]
    axis.plot(*refused, linestyle="", marker="|", markersize=7, color=WAITING, label="is refused a pod")
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks([])
    done = f"{len(side.ended)} of {len(rows)} Jobs after {side.until:.1f} s"
    axis.set_title(f"{_TITLES[name]}: {done}, {side.refused} creates refused", loc="left", fontsize=9.5)
    _without_frame(axis)


def _draw_usage(axis: Any, run: JobsRun, name: str) -> None:
    side = run.sides[name]
    times = [0.0, *(when for when, _ in side.usage), side.until]
    used = [0.0, *(cpus for _, cpus in side.usage)]
    axis.fill_between(times, [*used, used[-1]], step="post", color=USED, alpha=0.55, linewidth=0, label="CPUs used")
    axis.axhline(CPUS, color=LIMIT, linestyle="--", linewidth=1, label="limited")
    axis.set_ylim(0, CPUS * 1.18)
    axis.set_xlabel(
        f"seconds; {100 * run.idle_share(name):.0f} % of the quota was idle although a Job that fits waited"
    )
    _without_frame(axis)


def _without_frame(axis: Any) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)

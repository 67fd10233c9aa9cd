"""The panels about the plugin manager: what its tasks' objects do, and whether it sees them."""

from __future__ import annotations

from typing import Final

from . import queries as q
from .panels import Panel, Query
from .queries import Scope, named

ALL: Final = Scope(('cluster=~"$cluster"',))


def _sum(expr: str, *labels: str) -> str:
    return q.by("sum", ("gate", *labels), named(expr))


TASKS: Final = (
    Panel(
        "Which objects do tasks have?",
        "Objects of tasks by kind and state: living, ended, or being deleted; and creates that wait or are sent.",
        "lines",
        (
            Query(_sum(ALL.gauge("backoff_ctrl_task_objects"), "kind", "state"), "{{gate}} {{kind}} {{state}}"),
            Query(_sum(ALL.gauge("backoff_ctrl_task_creates_under_way")), "{{gate}} under way"),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "How do tasks fare?",
        "Creates that ended, attempts that failed and by which code, and objects that the manager deleted, per rate "
        "interval.",
        "lines",
        (
            Query(
                _sum(ALL.increase("backoff_ctrl_task_creates_total", over=q.RATE), "plugin", "outcome"),
                "{{gate}} {{plugin}} {{outcome}}",
            ),
            Query(
                _sum(ALL.increase("backoff_ctrl_task_failures_total", over=q.RATE), "plugin", "code"),
                "{{gate}} {{plugin}} {{code}}",
            ),
            Query(
                _sum(ALL.increase("backoff_ctrl_task_object_deletions_total", over=q.RATE), "plugin"),
                "{{gate}} {{plugin}} deleted",
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "What should not happen to tasks?",
        "Exceptions in plugins, objects that somebody else deleted, and finalizers whose removal met a conflict, per "
        "rate interval.",
        "lines",
        (
            Query(
                _sum(ALL.increase("backoff_ctrl_task_plugin_errors_total", over=q.RATE), "plugin", "method"),
                "{{gate}} {{plugin}} {{method}}",
            ),
            Query(
                _sum(ALL.increase("backoff_ctrl_task_object_losses_total", over=q.RATE), "plugin"),
                "{{gate}} {{plugin}} lost",
            ),
            Query(
                _sum(ALL.increase("backoff_ctrl_task_finalizer_conflicts_total", over=q.RATE)),
                "{{gate}} finalizer conflicts",
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Is the manager well informed?",
        "Whether all objects of a kind are watched: 1; or 0, and then each step reads its object.",
        "lines",
        (
            Query(
                q.by("min", ("gate", "kind"), named(ALL.gauge("backoff_ctrl_task_watch_healthy"))), "{{gate}} {{kind}}"
            ),
        ),
        unit="locale",
        width=12,
    ),
    Panel(
        "What does following tasks cost?",
        "Changes of objects that were seen, complete lists, and where steps found their objects, per second.",
        "lines",
        (
            Query(_sum(ALL.rate("backoff_ctrl_task_watch_events_total")), "{{gate}} changes"),
            Query(_sum(ALL.rate("backoff_ctrl_task_watch_relists_total")), "{{gate}} lists"),
            Query(_sum(ALL.rate("backoff_ctrl_task_object_reads_total"), "source"), "{{gate}} {{source}}"),
        ),
        unit="locale",
        width=12,
    ),
)

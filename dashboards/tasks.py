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
        "How many tasks are there, and in which phase?",
        "Tasks that have not ended, by phase.",
        "lines",
        (Query(_sum(ALL.gauge("backoff_ctrl_tasks"), "phase"), "{{gate}} {{phase}}"),),
        unit="locale",
        stacked=True,
        width=8,
    ),
    Panel(
        "How do tasks end?",
        "Tasks that ended, by phase, and further attempts, by whose failure the one before was (USER, or SYSTEM for "
        "the platform), per rate interval.",
        "lines",
        (
            Query(_sum(ALL.increase("backoff_ctrl_tasks_ended_total", over=q.RATE), "phase"), "{{gate}} {{phase}}"),
            Query(
                _sum(ALL.increase("backoff_ctrl_task_retries_total", over=q.RATE), "kind"),
                "{{gate}} again after {{kind}}",
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Whose fault do attempts fail by?",
        "Attempts that failed, by whose failure it was (USER, or SYSTEM for the platform) and its code, per rate "
        "interval.",
        "lines",
        (
            Query(
                _sum(ALL.increase("backoff_ctrl_task_attempts_failed_total", over=q.RATE), "kind", "code"),
                "{{gate}} {{kind}} {{code}}",
            ),
        ),
        unit="locale",
        width=8,
        none="none failed",
    ),
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
        width=8,
    ),
    Panel(
        "How long does a step of a task take?",
        "Waiting for the API server included: half take less than p50, one in a hundred more than p99.",
        "lines",
        tuple(
            Query(
                f"histogram_quantile({part:g}, {_sum(ALL.rate('backoff_ctrl_task_step_seconds_bucket'), 'le')})",
                f"{{{{gate}}}} p{part * 100:g}",
            )
            for part in (0.5, 0.99)
        ),
        unit="s",
        width=8,
    ),
    Panel(
        "How much work is there with tasks?",
        "Per second: steps, those that raised an error and came again, statuses that were written to the store, ended "
        "tasks that were forgotten, and notifications of ends, by what became of them.",
        "lines",
        (
            Query(_sum(ALL.rate("backoff_ctrl_task_step_seconds_count")), "{{gate}} steps"),
            Query(_sum(ALL.rate("backoff_ctrl_task_step_errors_total")), "{{gate}} errors"),
            Query(_sum(ALL.rate("backoff_ctrl_task_status_writes_total")), "{{gate}} writes"),
            Query(_sum(ALL.rate("backoff_ctrl_tasks_forgotten_total"), "outcome"), "{{gate}} forgotten: {{outcome}}"),
            Query(_sum(ALL.rate("backoff_ctrl_task_notifications_total"), "outcome"), "{{gate}} told: {{outcome}}"),
        ),
        unit="ops",
        width=8,
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
        width=24,
    ),
)

WEB_APIS: Final = (
    Panel(
        "Which jobs do other services run?",
        "Jobs of web API plugins that are followed, and calls of their services without an answer.",
        "lines",
        (
            Query(_sum(ALL.gauge("backoff_ctrl_webapi_jobs"), "plugin"), "{{gate}} {{plugin}} jobs"),
            Query(_sum(ALL.gauge("backoff_ctrl_webapi_calls_in_flight"), "plugin"), "{{gate}} {{plugin}} calls"),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "What do the services answer?",
        "Calls by result (ok, an HTTP status, network: none came in time, bug: of the plugin), per rate interval.",
        "lines",
        (
            Query(
                _sum(ALL.increase("backoff_ctrl_webapi_calls_total", over=q.RATE), "plugin", "method", "result"),
                "{{gate}} {{plugin}} {{method}} {{result}}",
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Why do attempts at other services fail?",
        "Attempts that failed by code, and what plugins count themselves, per rate interval.",
        "lines",
        (
            Query(
                _sum(ALL.increase("backoff_ctrl_webapi_failures_total", over=q.RATE), "plugin", "code"),
                "{{gate}} {{plugin}} {{code}}",
            ),
            Query(
                _sum(ALL.increase("backoff_ctrl_webapi_plugin_events_total", over=q.RATE), "plugin", "event"),
                "{{gate}} {{plugin}} {{event}}",
            ),
        ),
        unit="locale",
        width=8,
        none="none failed",
    ),
    Panel(
        "Are jobs read in time?",
        "How late the last job was read. It grows where readRateLimiter is too low for so many jobs.",
        "lines",
        (
            Query(
                q.by("max", ("gate", "plugin"), named(ALL.gauge("backoff_ctrl_webapi_read_lag_seconds"))),
                "{{gate}} {{plugin}}",
            ),
        ),
        unit="s",
        width=8,
    ),
    Panel(
        "Is a service overloaded?",
        "Calls that may be in flight, and answers that said that it is overloaded, per rate interval.",
        "lines",
        (
            Query(_sum(ALL.gauge("backoff_ctrl_webapi_window_size"), "plugin"), "{{gate}} {{plugin}} window"),
            Query(
                _sum(ALL.increase("backoff_ctrl_webapi_overloads_total", over=q.RATE), "plugin"),
                "{{gate}} {{plugin}} overloaded",
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "How long do reads take?",
        "Seconds of reading per second: the workers that are busy.",
        "lines",
        (Query(_sum(ALL.rate("backoff_ctrl_webapi_read_seconds_total"), "plugin"), "{{gate}} {{plugin}}"),),
        unit="locale",
        width=8,
    ),
)

"""The panels about the webhooks beside the operator: Jobs that are to wait, and Tasks that are judged."""

from __future__ import annotations

from typing import Final

from . import queries as q
from .panels import NONE_IS_GOOD, Panel, Query
from .queries import Scope

ALL: Final = Scope(('cluster=~"$cluster"',))


def _by_outcome(metric: str) -> Query:
    return Query(q.by("sum", ("outcome",), ALL.increase(metric, over=q.RATE)), "{{outcome}}")


SUSPENSION: Final = (
    Panel(
        "Which replica of the operator leads?",
        "Shows 1 for the replica that lets Jobs in and carries out Tasks, 0 for those that stand by. If none leads for "
        "longer than 15 seconds, nothing is let in: look at the log of a replica.",
        "lines",
        (Query(q.by("max", ("instance",), ALL.gauge("backoff_ctrl_operator_leader")), "{{instance}}"),),
        unit="locale",
        width=8,
    ),
    Panel(
        "How many Jobs wait, and how many run?",
        "Jobs and the like that the operator follows, by state. Refused are those that can never fit, or that the API "
        "server does not let it resume: `kubectl describe` of such a Job says why.",
        "lines",
        (Query(q.by("sum", ("state",), ALL.gauge("backoff_ctrl_jobs")), "{{state}}"),),
        unit="locale",
        width=8,
    ),
    Panel(
        "How are Jobs let in?",
        "Jobs and the like that were let in, by how, per rate interval. Reserved is the rule. Ungated: the mode of "
        "their namespace does not enforce, or an error of ours let them go.",
        "lines",
        (Query(q.by("sum", ("how",), ALL.increase("backoff_ctrl_jobs_admitted_total", over=q.RATE)), "{{how}}"),),
        unit="locale",
        width=8,
    ),
    Panel(
        "What became of Jobs that are to wait?",
        "New Jobs and the like that the webhook was asked about, by what became of them, and requests that it could "
        "not read, per rate interval. Those that are suspended wait in line until the operator lets them in; others "
        "are left alone: held are suspended by their user, reserved are a Task's, part belongs to something that waits "
        "as a whole, kueue and elsewhere have another controller, unfit may not be suspended.",
        "lines",
        (
            _by_outcome("backoff_ctrl_suspension_reviews_total"),
            Query(f"sum({ALL.increase('backoff_ctrl_suspension_malformed_total', over=q.RATE)})", "malformed"),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Which Jobs run ungated?",
        "Jobs and the like that should have waited, and that nobody let in, by namespace. They were created while the "
        "webhook did not answer, or before their namespace got the label. What they take is missed by those in line.",
        "lines",
        (Query(q.by("max", q.NAMESPACE, ALL.gauge("backoff_ctrl_suspension_ungated")), "{{namespace}}"),),
        unit="locale",
        width=8,
        steps=NONE_IS_GOOD,
    ),
    Panel(
        "Which Tasks are refused?",
        "Tasks that were created or changed, by what the webhook said, per rate interval. Forbidden: their author may "
        "not do what they ask for. Changed: a spec that has to stay. Invalid: they could never run. Unanswered: the "
        "API server did not say who may.",
        "lines",
        (_by_outcome("backoff_ctrl_task_reviews_total"),),
        unit="locale",
        width=8,
    ),
)

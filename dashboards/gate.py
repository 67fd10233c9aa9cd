"""The dashboard of the gates themselves: are they up, quick, well informed, and left in peace by the API server?"""

from __future__ import annotations

from typing import Final

from . import queries as q
from .boards import Board, Choice, Row
from .injection import INJECTION
from .panels import NONE_IS_GOOD, Column, Panel, Query
from .queries import GATE, Scope, named
from .suspension import SUSPENSION
from .tasks import TASKS, WEB_APIS

ALL: Final = Scope(('cluster=~"$cluster"',))
UP: Final = 'up{cluster=~"$cluster"}'
"""Prometheus' own metric: 1 for each target that answers."""
NAMED: Final = ("gate",)
WINDOW: Final = ("gate", "flow", "priority_level")


def _of_gates(how: str, expr: str, labels: tuple[str, ...] = NAMED) -> str:
    """Aggregate the series of the chosen gates, by name."""
    return q.by(how, labels, named(expr))


def _quantiles(histogram: str) -> tuple[Query, ...]:
    each = ALL.rate(histogram + "_bucket")
    return tuple(
        Query(
            f"histogram_quantile({part:g}, {_of_gates('sum', each, ('gate', 'le'))})", f"{{{{gate}}}} p{part * 100:g}"
        )
        for part in (0.5, 0.99)
    )


_LOST: Final = (
    f"({ALL.gauge('backoff_ctrl_watch_state_timestamp_seconds')} and on ({', '.join((*GATE, 'namespace'))}) "
    f"{ALL.gauge('backoff_ctrl_watch_healthy')} == 0)"
)
"""When the watch was lost, where it is."""

_NOW: Final = (
    Panel(
        "Which gates answer?",
        "Each gate that Prometheus read metrics from during the time shown. No: it is still configured or discovered, "
        "but does not answer.",
        "table",
        (
            Query(
                f"{q.by('max', GATE, UP)} and on ({', '.join(GATE)}) "
                f"last_over_time({ALL.series('backoff_ctrl_gate_info', over=q.RANGE)})"
            ),
            Query(q.by("max", (*GATE, "gate", "server"), ALL.gauge("backoff_ctrl_gate_info"))),
            Query(q.by("max", (*GATE, "version", "python_version"), ALL.gauge("backoff_ctrl_build_info"))),
            Query(f"time() - {q.by('max', GATE, ALL.gauge('backoff_ctrl_gate_start_timestamp_seconds'))}"),
            Query(q.by("max", GATE, ALL.gauge("backoff_ctrl_namespaces"))),
        ),
        width=24,
        height=7,
        columns=(
            Column("cluster", "Cluster"),
            Column("gate", "Gate"),
            Column("instance", "Instance"),
            Column("job", "Job"),
            Column("A", "Answers", texts={"1": ("yes", "green"), "0": ("no", "red")}),
            Column("server", "API server"),
            Column("version", "Version"),
            Column("python_version", "Python"),
            Column("D", "Up for", unit="s"),
            Column("E", "Namespaces known", unit="locale"),
        ),
        none="no gate is read",
    ),
    Panel(
        "How many creates are in flight?",
        "Creates sent but not yet answered, at all chosen gates.",
        "stat",
        (Query(f"sum({named(ALL.gauge('backoff_ctrl_in_flight'))})"),),
        unit="locale",
        width=6,
        height=4,
    ),
    Panel(
        "Did a gate fail open?",
        "Internal errors over the time shown: each let creates through ungated, or skipped an optional check. The "
        "log of the gate has the first of each kind.",
        "stat",
        (Query(f"sum({named(ALL.increase('backoff_ctrl_failed_open_total'))})"),),
        unit="locale",
        width=6,
        height=4,
        steps=NONE_IS_GOOD,
    ),
    Panel(
        "In how many namespaces is the watch lost?",
        "Namespaces whose quotas should be watched and are not, counted at each gate.",
        "stat",
        (Query(q.or_zero(f"count({named(ALL.gauge('backoff_ctrl_watch_healthy'))} == 0)")),),
        unit="locale",
        width=6,
        height=4,
        steps=NONE_IS_GOOD,
    ),
    Panel(
        "Are series left out?",
        "Series that a gate does not expose because of its limit. Counters go on, but their latest "
        "namespaces are not seen here.",
        "stat",
        (Query(f"sum({named(ALL.gauge('backoff_ctrl_series_left_out'))})"),),
        unit="locale",
        width=6,
        height=4,
        steps=NONE_IS_GOOD,
    ),
)

_QUICK: Final = (
    Panel(
        "How long does a decision take?",
        "Time that the engine took for one decision or update, while holding its lock. All creates of a gate pass "
        "this lock.",
        "lines",
        _quantiles("backoff_ctrl_decision_seconds"),
        unit="s",
        none="nothing was decided",
    ),
    Panel(
        "How soon does room wake a create?",
        "From news of room to the admission of the first create that waited for it. The settle time is part of it: "
        "room that was just reported is left alone that long, since the API server's own cache trails.",
        "lines",
        (
            *_quantiles("backoff_ctrl_wake_seconds"),
            Query(_of_gates("max", ALL.gauge("backoff_ctrl_settle_seconds")), "{{gate}} settle time"),
        ),
        unit="s",
    ),
)

_WATCH: Final = (
    Panel(
        "Are quotas watched where they should be?",
        "Namespaces of each gate whose quotas are watched, and those where the watch is lost.",
        "lines",
        (
            Query(_of_gates("count", f"({ALL.gauge('backoff_ctrl_watch_healthy')} == 1)"), "{{gate}} watched"),
            Query(_of_gates("count", f"({ALL.gauge('backoff_ctrl_watch_healthy')} == 0)"), "{{gate}} lost"),
        ),
        unit="locale",
        none="no quota is watched",
    ),
    Panel(
        "Where is the watch lost, and since when?",
        "Namespaces whose quotas should be watched and are not. `backoff-ctrl doctor -n NAMESPACE` says whether rights "
        "are missing.",
        "table",
        (Query(f"time() - {_of_gates('min', _LOST, ('gate', *q.NAMESPACE))}"),),
        columns=(
            Column("gate", "Gate"),
            Column("cluster", "Cluster"),
            Column("namespace", "Namespace"),
            Column("A", "Lost for", unit="s"),
        ),
        sort="Lost for",
        none="nowhere",
    ),
    Panel(
        "How busy is the watch?",
        "Per second: changes that were reported, complete lists, and attempts after a list that failed or a stream "
        "that broke.",
        "lines",
        (
            Query(_of_gates("sum", ALL.rate("backoff_ctrl_watch_events_total")), "{{gate}} events"),
            Query(_of_gates("sum", ALL.rate("backoff_ctrl_watch_relists_total")), "{{gate}} lists"),
            Query(_of_gates("sum", ALL.rate("backoff_ctrl_watch_reconnects_total")), "{{gate}} reconnects"),
        ),
        unit="ops",
    ),
    Panel(
        "What could the watch not read?",
        "Objects and events that were ignored, per second, by reason; and how many objects are read only in part, "
        "since users have nested them more than 100 levels deep (the log and the operator's /readyz name them).",
        "lines",
        (
            Query(
                _of_gates("sum", ALL.rate("backoff_ctrl_watch_ignored_total"), ("gate", "reason")),
                "{{gate}} {{reason}}",
            ),
            Query(_of_gates("max", ALL.gauge("backoff_ctrl_watch_partly_read")), "{{gate}} in part"),
            Query(q.by("max", ("instance",), ALL.gauge("backoff_ctrl_operator_partly_read")), "{{instance}} in part"),
        ),
        unit="ops",
        none="it read everything",
    ),
)

_OVERLOAD: Final = (
    Panel(
        "How many creates may be in flight?",
        "The overload window of each server, credential and priority level: it shrinks when the API server answers 429 "
        "or 503 or drops connections, and grows again with each success. Below it, the creates in flight.",
        "lines",
        (
            Query(_of_gates("max", ALL.gauge("backoff_ctrl_overload_window"), WINDOW), "{{gate}} {{flow}} window"),
            Query(
                _of_gates("sum", ALL.gauge("backoff_ctrl_overload_in_flight"), WINDOW), "{{gate}} {{flow}} in flight"
            ),
        ),
        unit="locale",
    ),
    Panel(
        "When did the API server ask for patience?",
        "Times in which no create was sent, because the API server asked to wait.",
        "states",
        (Query(_of_gates("max", ALL.gauge("backoff_ctrl_overload_paused"), WINDOW), "{{gate}} {{flow}}"),),
        texts={"1": ("paused", "red"), "0": ("sending", "green")},
    ),
)

_ITSELF: Final = (
    Panel(
        "How many series does each gate expose?",
        "Series of one answer to Prometheus. Beyond the limit, the rest is left out and counted.",
        "lines",
        (
            Query(_of_gates("max", ALL.gauge("backoff_ctrl_series")), "{{gate}} exposed"),
            Query(_of_gates("max", ALL.gauge("backoff_ctrl_series_left_out")), "{{gate}} left out"),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Who listens to decisions?",
        "Listeners of the stream of decisions, and those that were dropped because they were too slow.",
        "lines",
        (
            Query(_of_gates("sum", ALL.gauge("backoff_ctrl_status_listeners")), "{{gate}} listeners"),
            Query(
                _of_gates("sum", ALL.increase("backoff_ctrl_status_listeners_dropped_total", over=q.RATE)),
                "{{gate}} dropped",
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "What went wrong inside?",
        "Internal errors, and tickets that the engine had written off before their create ended, per rate interval. "
        "Both should stay 0.",
        "lines",
        (
            Query(
                _of_gates("sum", ALL.increase("backoff_ctrl_failed_open_total", over=q.RATE)), "{{gate}} failed open"
            ),
            Query(
                _of_gates("sum", ALL.increase("backoff_ctrl_late_tickets_total", over=q.RATE)), "{{gate}} late tickets"
            ),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Are people told?",
        "Webhook notifications by outcome, per rate interval: sent, failed after all attempts, or dropped because too "
        "many were waiting for their receiver.",
        "lines",
        (
            Query(
                _of_gates(
                    "sum",
                    ALL.increase("backoff_ctrl_notifications_total", over=q.RATE),
                    ("gate", "receiver", "outcome"),
                ),
                "{{gate}} {{receiver}} {{outcome}}",
            ),
        ),
        unit="locale",
        width=24,
    ),
)

GATES: Final = Board(
    "backoff-ctrl-gate",
    "backoff-ctrl: the gates",
    "Whether the gates are up, fast and up to date, and whether the API server is overloaded.",
    (Choice("gate", "Gate", "The gates to show.", 'label_values(backoff_ctrl_gate_info{cluster=~"$cluster"}, gate)'),),
    (
        Row("Now", _NOW),
        Row("Is it quick?", _QUICK),
        Row("Is it well informed?", _WATCH),
        Row("Is the API server overloaded?", _OVERLOAD),
        Row("Sidecars", INJECTION),
        Row("Jobs that wait", SUSPENSION),
        Row("Tasks", TASKS),
        Row("Tasks at other services", WEB_APIS),
        Row("Inside", _ITSELF),
    ),
    "/",
)

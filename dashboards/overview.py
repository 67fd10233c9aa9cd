"""The dashboard of all namespaces: what is full, who waits, and what the gates spare the API server."""

from __future__ import annotations

from typing import Final

from . import queries as q
from .boards import Board, Row
from .panels import FULL, NONE_IS_GOOD, Column, Panel, Query
from .queries import Scope

ALL: Final = Scope(('cluster=~"$cluster"',))
TO_NAMESPACE: Final = "/d/backoff-ctrl-namespace?${datasource:queryparam}&${__url_time_range}&var-namespace="
OLD: Final = ((None, "green"), (600.0, "yellow"), (1800.0, "red"))
REFUSED: Final = 'answer="quota"'
NEVER_FITS: Final = 'reason="never-fits"'
REASONS: Final = (
    "Waiting creates by reason. quota: too little is left. kept-for-another: what is left is kept for one that "
    "waited longer. never-fits: it asks for more than the limit. paused: the limit is 0. paused-by-operator: an "
    "operator paused the namespace. first-contact: nothing is known yet. overload: the API server asks for "
    "fewer requests. namespace-slowed: a webhook or the evaluation of quotas fails there. not-counted-yet: a quota "
    "names the kind, but its usage is still to be counted. comes-back: its client was asked to retry. same-key: "
    "another create with its key goes first. its-turn: about to be sent."
)
_MOST: Final = 20
"""Rows of what could have one for each of thousands of namespaces."""

_NOW: Final = (
    Panel(
        "How many creates wait?",
        "Creates in the waiting lines of all gates. They wait instead of failing; that alone is not a problem.",
        "stat",
        (Query(q.or_zero(f"sum({ALL.gauge('backoff_ctrl_waiting')})")),),
        unit="locale",
        width=4,
        height=4,
    ),
    Panel(
        "How long has the oldest one waited?",
        "The create that has waited longest, in any namespace.",
        "stat",
        (Query(f"max({q.oldest_wait(ALL)})"),),
        unit="s",
        width=4,
        height=4,
        steps=OLD,
        none="none waits",
    ),
    Panel(
        "How many namespaces wait for quota?",
        "Namespaces in which at least one create waits for a resource of a quota.",
        "stat",
        (Query(q.or_zero(f"count({q.by('max', q.NAMESPACE, ALL.gauge('backoff_ctrl_blocked'))})")),),
        unit="locale",
        width=4,
        height=4,
    ),
    Panel(
        "How many refusals were saved?",
        "An estimate, over the time shown: the attempts that a retry loop of 1 to 20 s would have made while creates "
        "waited. Each would have been refused.",
        "stat",
        (Query(q.or_zero(f"sum({ALL.increase('backoff_ctrl_calls_saved_estimate_total')})")),),
        unit="locale",
        width=4,
        height=4,
        steps=((None, "green"),),
    ),
    Panel(
        "How many refusals were left?",
        "Creates that the API server refused because of a quota, over the time shown: probes, and races with others.",
        "stat",
        (Query(q.or_zero(f"sum({ALL.increase('backoff_ctrl_attempts_total', REFUSED)})")),),
        unit="locale",
        width=4,
        height=4,
    ),
    Panel(
        "How many gates answer?",
        "Gates that Prometheus can scrape. See the dashboard of the gates for those that do not answer.",
        "stat",
        (Query(q.or_zero(f"count({ALL.gauge('backoff_ctrl_gate_info')})")),),
        unit="locale",
        width=4,
        height=4,
        steps=((None, "red"), (1.0, "green")),
    ),
)

_WHO: Final = (
    Panel(
        "Which namespaces are full?",
        f"The fullest resource of any quota of a namespace: used, held and reserved, of what is allowed. The {_MOST} "
        "fullest. Above 100 %: the limit was lowered, or something was created past the quota. Click one for more.",
        "bars",
        (
            Query(
                f"sort_desc(topk({_MOST}, {q.by('max', q.NAMESPACE, q.fullness(ALL))}))",
                "{{namespace}}",
            ),
        ),
        unit="percentunit",
        height=11,
        steps=FULL,
        greatest=1,
        none="no quota is known",
        data_links=(("Show the namespace", TO_NAMESPACE + "${__field.labels.namespace}"),),
    ),
    Panel(
        "Who waits?",
        "Namespaces in which creates wait, and for how long the oldest one has waited. Click one for more.",
        "table",
        (
            Query(f"{q.waiting(ALL, q.NAMESPACE)} > 0"),
            Query(q.oldest_wait(ALL)),
            Query(f"{q.waiting(ALL, q.NAMESPACE, NEVER_FITS)} > 0"),
        ),
        height=11,
        columns=(
            Column("cluster", "Cluster"),
            Column("namespace", "Namespace", link=TO_NAMESPACE + "${__value.text}"),
            Column("A", "Waiting", unit="locale"),
            Column("B", "Oldest wait", unit="s", steps=OLD),
            Column("C", "Never fit", unit="locale", steps=NONE_IS_GOOD),
        ),
        sort="Oldest wait",
        none="none waits",
    ),
    Panel(
        "Which quotas hold creates up?",
        "Each resource of each quota that creates wait for, and how much of it is taken.",
        "table",
        (
            Query(q.blocked(ALL)),
            Query(f"({q.fullness(ALL)}) and on ({', '.join(q.CEILING)}) {q.blocked(ALL)}"),
            Query(f"({q.held(ALL)}) / ({q.limited(ALL)} > 0) and on ({', '.join(q.CEILING)}) {q.blocked(ALL)}"),
        ),
        columns=(
            Column("cluster", "Cluster"),
            Column("namespace", "Namespace", link=TO_NAMESPACE + "${__value.text}"),
            Column("resourcequota", "Quota"),
            Column("resource", "Resource"),
            Column("B", "Taken", unit="percentunit", bar=True, steps=FULL),
            Column("C", "Of that by creates in flight", unit="percentunit"),
        ),
        sort="Taken",
        none="no create waits for a quota",
    ),
    Panel(
        "Why do creates wait?",
        REASONS,
        "lines",
        (Query(q.waiting(ALL, ("reason",)), "{{reason}}"),),
        unit="locale",
        stacked=True,
        none="none waits",
    ),
)

_WORTH: Final = (
    Panel(
        "How fast do creates get in?",
        "Creates that ended, per second, by how: created, failed, declined by the gate, timed out or cancelled.",
        "lines",
        (Query(q.by("sum", ("outcome",), ALL.rate("backoff_ctrl_creates_total")), "{{outcome}}"),),
        unit="reqps",
        stacked=True,
    ),
    Panel(
        "How long do creates wait?",
        "Of the creates that waited: half waited less than p50, one in twenty more than p95.",
        "lines",
        tuple(Query(q.quantile(part, ALL, "backoff_ctrl_wait_seconds"), f"p{part * 100:g}") for part in (0.5, 0.95)),
        unit="s",
        none="none had to wait",
    ),
    Panel(
        "What do refusals cost, and what is saved?",
        "Per second: quota refusals that the API server really gave, and, as an estimate, those that retry loops would "
        "have caused beside them.",
        "lines",
        (
            Query(f"sum({ALL.rate('backoff_ctrl_attempts_total', REFUSED)})", "refused"),
            Query(f"sum({ALL.rate('backoff_ctrl_calls_saved_estimate_total')})", "saved (estimate)"),
        ),
        unit="reqps",
    ),
    Panel(
        "What would enforcing change?",
        "Namespaces in shadow mode, over the time shown: creates that would have waited, and those that the gate would "
        "have declined. In shadow mode all of them were sent.",
        "table",
        tuple(
            Query(q.by("sum", q.NAMESPACE, ALL.increase("backoff_ctrl_shadow_creates_total", verdict)))
            for verdict in ('verdict="create"', 'verdict="wait"', 'verdict="refuse"')
        ),
        columns=(
            Column("cluster", "Cluster"),
            Column("namespace", "Namespace", link=TO_NAMESPACE + "${__value.text}"),
            Column("A", "Sent at once", unit="locale"),
            Column("B", "Would wait", unit="locale"),
            Column("C", "Would be declined", unit="locale"),
        ),
        sort="Would wait",
        none="no namespace is in shadow mode",
    ),
)

OVERVIEW: Final = Board(
    "backoff-ctrl-overview",
    "backoff-ctrl: all namespaces",
    "What is full, who waits for quota and why, and how many requests the gates save.",
    (),
    (Row("Now", _NOW), Row("Full and waiting", _WHO), Row("What it does", _WORTH)),
    "/",
)

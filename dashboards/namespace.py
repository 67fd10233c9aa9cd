"""The dashboard of one namespace: its quotas, its waiting line, and what happens at the API server."""

from __future__ import annotations

from typing import Final

from backoff_ctrl.engine import Policy

from . import queries as q
from .boards import Board, Choice, Row
from .overview import OLD, REASONS
from .panels import FULL, YES_NO, Column, Panel, Query
from .queries import BYTES, Scope

HERE: Final = Scope(('cluster=~"$cluster"', 'namespace="$namespace"'), gates='cluster=~"$cluster", gate=~"$gate"')
QUOTAS: Final = Scope((*HERE.matchers, 'resourcequota=~"$resourcequota"'), gates=HERE.gates)
OF_QUOTA: Final = ("resourcequota", "resource")
LINE: Final = (("Show the waiting line on the live page", "${page}/?namespace=${namespace}"),)

_NOW: Final = (
    Panel(
        "How many creates wait here?",
        "Creates in the namespace's waiting lines, at all chosen gates.",
        "stat",
        (Query(q.or_zero(f"sum({HERE.gauge('backoff_ctrl_waiting')})")),),
        unit="locale",
        width=4,
        height=4,
        links=LINE,
    ),
    Panel(
        "How long has the oldest one waited here?",
        "The create of this namespace that has waited longest.",
        "stat",
        (Query(f"max({q.oldest_wait(HERE)})"),),
        unit="s",
        width=4,
        height=4,
        steps=OLD,
        none="none waits",
        links=LINE,
    ),
    Panel(
        "Is the gate enforcing here?",
        "In mode enforce creates wait for quota; in shadow everything is sent, and only counted; off: the gate does "
        "nothing. Several modes: the gates do not agree.",
        "stat",
        (Query(f"{q.by('max', ('mode',), HERE.gauge('backoff_ctrl_mode'))} == 1", "{{mode}}"),),
        width=4,
        height=4,
        show="name",
        none="unknown to these gates",
    ),
    Panel(
        "Are its quotas watched?",
        "While they are watched, room is known within milliseconds. If not, a gate finds it by watching pods or with "
        "probes, later. No: at least one gate has lost the watch.",
        "stat",
        (Query(f"min({HERE.gauge('backoff_ctrl_watch_healthy')})"),),
        width=4,
        height=4,
        texts=YES_NO,
        none="not by these gates",
    ),
    Panel(
        "Is it slowed by a webhook?",
        "Yes: a webhook fails, or quotas are not evaluated in time, so creates of this namespace go in slowly. Other "
        "namespaces are not concerned.",
        "stat",
        (Query(q.or_zero(f"max({HERE.gauge('backoff_ctrl_namespace_slowed')})")),),
        width=4,
        height=4,
        texts={"1": ("yes", "red"), "0": ("no", "green")},
    ),
    Panel(
        "How many refusals were saved here?",
        "An estimate, over the time shown: the attempts that a retry loop of 1 to 20 s would have made while creates "
        "waited here.",
        "stat",
        (Query(q.or_zero(f"sum({HERE.increase('backoff_ctrl_calls_saved_estimate_total')})")),),
        unit="locale",
        width=4,
        height=4,
        steps=((None, "green"),),
    ),
)


def _ceilings(title: str, description: str, unit: str, resources: str) -> Panel:
    """A table with a row for each resource of each quota, in a unit that suits these resources."""
    limited = q.limited(QUOTAS, resources)
    return Panel(
        title,
        description,
        "table",
        (
            Query(q.fullness(QUOTAS, resources)),
            Query(limited),
            Query(q.used(QUOTAS, resources)),
            Query(q.held(QUOTAS, resources)),
            Query(q.reserved(QUOTAS, resources)),
            Query(q.headroom(QUOTAS, resources)),
            Query(q.by("max", q.CEILING, QUOTAS.gauge("backoff_ctrl_blocked", resources))),
        ),
        unit=unit,
        width=24,
        height=7,
        columns=(
            Column("resourcequota", "Quota"),
            Column("resource", "Resource"),
            Column("A", "Taken", unit="percentunit", bar=True, steps=FULL, width=260),
            Column("B", "Limit"),
            Column("C", "Used"),
            Column("D", "Held"),
            Column("E", "Reserved"),
            Column("F", "Left"),
            Column("G", "Creates wait for it", texts={"1": ("yes", "orange")}),
        ),
        sort="Taken",
        none="no such ceiling is known",
        links=LINE,
    )


_EACH: Final = (
    "Used: already charged. Held: for creates in flight or just answered. Reserved: for gangs. "
    "Left: what remains of the limit after these, a hint; the API server decides."
)
_QUOTAS: Final = (
    _ceilings(
        "What is left of cores, devices and objects?",
        f"A row for each resource of each quota that is counted in cores, devices or objects. {_EACH}",
        "short",
        f'resource!~"{BYTES}"',
    ),
    _ceilings(
        "What is left of memory and storage?",
        f"A row for each resource of each quota that is counted in bytes. {_EACH}",
        "bytes",
        f'resource=~"{BYTES}"',
    ),
    Panel(
        "How full is each quota?",
        "Used, held and reserved, of what is allowed, by quota and resource.",
        "lines",
        (Query(q.fullness(QUOTAS), "{{resourcequota}} {{resource}}"),),
        unit="percentunit",
        steps=FULL,
    ),
    Panel(
        "How old is what is known?",
        "Time since the newest fact about each resource of each quota arrived. While quotas are watched, an old fact "
        "means only that nothing changed; else creates may wait for room that is there, or be refused.",
        "lines",
        (
            Query(
                f"time() - {q.by('max', q.CEILING, QUOTAS.gauge('backoff_ctrl_ceiling_heard_timestamp_seconds'))}",
                "{{resourcequota}} {{resource}}",
            ),
        ),
        unit="s",
        links=LINE,
    ),
)

_WAITING: Final = (
    Panel(
        "Why do creates wait here?",
        REASONS,
        "lines",
        (Query(q.waiting(HERE, ("reason",)), "{{reason}}"),),
        unit="locale",
        stacked=True,
        none="none waits",
        links=LINE,
    ),
    Panel(
        "How long do creates wait here?",
        "Of the creates that waited: half waited less than p50, one in twenty more than p95, one in a hundred more "
        "than p99.",
        "lines",
        tuple(
            Query(q.quantile(part, HERE, "backoff_ctrl_wait_seconds"), f"p{part * 100:g}") for part in (0.5, 0.95, 0.99)
        ),
        unit="s",
        none="none had to wait",
    ),
    Panel(
        "How did the oldest wait grow?",
        "How long the oldest create has waited. If this climbs for hours, nothing is admitted.",
        "lines",
        (Query(f"max({q.oldest_wait(HERE)})", "oldest"),),
        width=8,
        unit="s",
        steps=OLD,
        none="none waits",
        links=LINE,
    ),
    Panel(
        "How do creates end?",
        "Creates that ended, per second, by kind and by how: created, failed, declined by the gate, timed out or "
        "cancelled.",
        "lines",
        (Query(q.by("sum", ("kind", "outcome"), HERE.rate("backoff_ctrl_creates_total")), "{{kind}} {{outcome}}"),),
        width=8,
        unit="reqps",
        stacked=True,
    ),
    Panel(
        "Why does the gate decline creates?",
        "Creates that the gate itself refused, per second, by reason. never-fits: it asks for more than the limit "
        "of a quota; waited-too-long: its time limit is over.",
        "lines",
        (Query(q.by("sum", ("reason",), HERE.rate("backoff_ctrl_declines_total")), "{{reason}}"),),
        width=8,
        unit="reqps",
        stacked=True,
        none="none is declined",
    ),
)

_SERVER: Final = (
    Panel(
        "What does the API server answer?",
        "Creates sent, per second, by the answer: created, or the class of the refusal. `backoff-ctrl classify` "
        "explains an answer.",
        "lines",
        (Query(q.by("sum", ("answer",), HERE.rate("backoff_ctrl_attempts_total")), "{{answer}}"),),
        unit="reqps",
        stacked=True,
    ),
    Panel(
        "Which resources are refused?",
        "Quota refusals per second, by quota and resource. stale: the refusal was older than what is known here, so "
        "the create was sent again at once.",
        "lines",
        (
            Query(
                q.by("sum", OF_QUOTA, QUOTAS.rate("backoff_ctrl_quota_refusals_total")),
                "{{resourcequota}} {{resource}}",
            ),
            Query(
                q.by("sum", ("resourcequota",), QUOTAS.rate("backoff_ctrl_stale_refusals_total")),
                "{{resourcequota}} stale",
            ),
        ),
        unit="reqps",
        none="none is refused",
    ),
    Panel(
        "Do probes find room?",
        "Creates let through against a full quota, per second, by whether there was room. If there is mostly "
        "none, others use the quota, and its changes are not watched.",
        "lines",
        (Query(q.by("sum", ("result",), HERE.rate("backoff_ctrl_probes_total")), "{{result}}"),),
        unit="reqps",
        stacked=True,
        none="no probes",
    ),
    Panel(
        "How often do small creates pass large ones?",
        "Per second: a create that fits passes a larger one that waits. It is bounded: "
        f"{Policy().until_kept()}, room is kept for the larger one.",
        "lines",
        (Query(f"sum({HERE.rate('backoff_ctrl_overtakings_total')})", "overtakings"),),
        unit="ops",
    ),
    Panel(
        "How many gangs wait, and how many are on their way?",
        "A gang waits in line as one, and is admitted as a whole. Admitted ones are counted until all of their members "
        "are created, or what is left was given back.",
        "lines",
        (Query(q.by("sum", ("state",), HERE.gauge("backoff_ctrl_gangs")), "{{state}}"),),
        none="no gangs",
    ),
    Panel(
        "How much of the admitted gangs exists?",
        "Members that were created (drawn), and those that others get no room for until they are (reserved). Reserved "
        "for long: the program that creates the pods is stuck.",
        "lines",
        (Query(q.by("sum", ("state",), HERE.gauge("backoff_ctrl_gang_members")), "{{state}}"),),
        stacked=True,
        none="no gangs",
    ),
    Panel(
        "What would enforcing do here?",
        "In shadow mode, per second: what enforcing would have done with the creates that were sent: create, wait or "
        "refuse.",
        "lines",
        (Query(q.by("sum", ("verdict",), HERE.rate("backoff_ctrl_shadow_creates_total")), "{{verdict}}"),),
        unit="reqps",
        stacked=True,
        none="not in shadow mode",
    ),
    Panel(
        "Where do ceilings come from?",
        "Observed ones are read from the ResourceQuota. Learned ones come from a refusal: only what "
        "refusals name is known.",
        "states",
        (
            Query(
                q.by("min", OF_QUOTA, QUOTAS.gauge("backoff_ctrl_ceiling_observed")),
                "{{resourcequota}} {{resource}}",
            ),
        ),
        texts={"1": ("observed", "green"), "0": ("learned", "yellow")},
    ),
)

NAMESPACE: Final = Board(
    "backoff-ctrl-namespace",
    "backoff-ctrl: one namespace",
    "The quotas of one namespace, its waiting line, and what the API server answers.",
    (
        Choice(
            "namespace",
            "Namespace",
            "The namespace to show.",
            'label_values(backoff_ctrl_mode{cluster=~"$cluster"}, namespace)',
            several=False,
        ),
        Choice(
            "resourcequota",
            "Quota",
            "The quotas to show.",
            'label_values(backoff_ctrl_ceiling_limited{cluster=~"$cluster", namespace="$namespace"}, resourcequota)',
        ),
        Choice(
            "gate",
            "Gate",
            "The gates whose view to show.",
            'label_values(backoff_ctrl_gate_info{cluster=~"$cluster"}, gate)',
        ),
    ),
    (
        Row("Now", _NOW),
        Row("Quotas", _QUOTAS),
        Row("The waiting line", _WAITING),
        Row("At the API server", _SERVER),
    ),
    "/?namespace=${namespace}",
)

"""Alerts: what a person should look at, how long it has to last, and which panel and which runbook help then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from . import queries as q
from .gate import GATES
from .namespace import NAMESPACE
from .overview import OVERVIEW
from .queries import EVERYTHING
from .recording import BLOCKED, BY_REASON, FULLNESS, OLDEST

if TYPE_CHECKING:
    from .boards import Board

WAITS_TOO_LONG: Final = 1800
"""Seconds."""
ALMOST_FULL: Final = 0.9
STALE_AFTER: Final = 900
"""Seconds. While creates wait at a ceiling that is not watched, a probe tells something new every 20 s or so."""
PAUSED_TOO_OFTEN: Final = 0.5
"""Of the time in which the API server wants nothing sent."""
ENDS_WITHIN: Final = 7 * 86_400
"""Seconds. A certificate is renewed a month before its end."""
SEEN_WITHIN: Final = "1d"
"""How long a gate that no longer answers is still one of ours."""

_HERE: Final = "namespace {{ $labels.namespace }}"
_AT: Final = "quota {{ $labels.resourcequota }} of namespace {{ $labels.namespace }}"
_GATE: Final = "gate at {{ $labels.instance }}"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``summary`` and ``description`` are templates of Prometheus."""

    name: str
    expr: str
    lasts: str
    """For how long it has to be so."""
    severity: Literal["info", "warning", "critical"]
    summary: str
    description: str
    board: Board
    panel: str
    """The title of the panel that shows it."""
    variables: tuple[str, ...] = ()
    """Labels that are passed to the board's variables of the same name."""

    @property
    def anchor(self) -> str:
        """The heading of its runbook, as addresses have it."""
        return self.name.lower()

    def dashboard(self) -> str:
        """Return the path at Grafana that shows it."""
        chosen = "".join(f"&var-{name}={{{{ $labels.{name} | urlquery }}}}" for name in self.variables)
        return self.board.address(self.panel) + chosen


def _stale() -> str:
    """Ceilings that block creates at a gate that neither watches their quotas nor heard of them for long."""
    heard = EVERYTHING.series("backoff_ctrl_ceiling_heard_timestamp_seconds")
    labels = (*q.GATE, "namespace")
    watched = f"{EVERYTHING.series('backoff_ctrl_watch_healthy')} == 1"
    return (
        f"time() - {heard} > {STALE_AFTER} and on ({', '.join((*labels, 'resourcequota', 'resource'))}) "
        f"{EVERYTHING.series('backoff_ctrl_blocked')} == 1 unless on ({', '.join(labels)}) {watched}"
    )


def _away(metric: str) -> str:
    """0 for each target that no longer answers, and had this metric not long ago."""
    return f"up == 0 and on ({', '.join(q.GATE)}) last_over_time({EVERYTHING.series(metric, over=SEEN_WITHIN)})"


def _leads() -> str:
    """1 where a replica of the operator leads, 0 where none does: those that no longer answer do not."""
    leader = "backoff_ctrl_operator_leader"
    known = f"{EVERYTHING.series(leader)} or on ({', '.join(q.GATE)}) ({_away(leader)})"
    return q.by("max", ("cluster", "job"), known)


ALERTS: Final = (
    Alert(
        "BackoffCtrlWaitingTooLong",
        f"{OLDEST.name} > {WAITS_TOO_LONG}",
        "5m",
        "warning",
        f"A create in {_HERE} has waited for {{{{ $value | humanizeDuration }}}}",
        "It is still in line. Either the quota stays full, or nothing lets it in: the namespace's board says which "
        "resource it waits for, and `backoff-ctrl holders` who holds it.",
        NAMESPACE,
        "How did the oldest wait grow?",
        ("namespace",),
    ),
    Alert(
        "BackoffCtrlNeverFits",
        f'{BY_REASON.name}{{reason="never-fits"}} > 0',
        "1m",
        "warning",
        f"{{{{ $value }}}} creates in {_HERE} ask for more than a quota allows",
        "They fit in no moment, however empty the quota is. They wait because the policy says on_never_fits: wait.",
        NAMESPACE,
        "Why do creates wait here?",
        ("namespace",),
    ),
    Alert(
        "BackoffCtrlDeclined",
        q.by("sum", q.NAMESPACE, EVERYTHING.grown("backoff_ctrl_creates_total", 'outcome="declined"', over="15m"))
        + " > 0",
        "0m",
        "warning",
        f"The gate declined creates in {_HERE}",
        "About {{ $value | humanize }} in 15 minutes, without asking the API server: they ask for more than a quota "
        "allows, waited longer than the policy permits, or too many others wait.",
        NAMESPACE,
        "How do creates end?",
        ("namespace",),
    ),
    Alert(
        "BackoffCtrlQuotaAlmostFullWithWaiters",
        f"{FULLNESS.name} > {ALMOST_FULL} and on ({', '.join(q.CEILING)}) {BLOCKED.name} == 1",
        "15m",
        "info",
        f"{{{{ $labels.resource }}}} in {_AT} is {{{{ $value | humanizePercentage }}}} taken, and creates wait for it",
        "The quota does what it is for. If people wait too often, it is too small for the work, or something holds it "
        "that should have ended.",
        NAMESPACE,
        "How full is each quota?",
        ("namespace", "resourcequota"),
    ),
    Alert(
        "BackoffCtrlStaleCeilings",
        _stale(),
        "5m",
        "warning",
        f"A gate has heard nothing of {{{{ $labels.resource }}}} in {_AT} for {{{{ $value | humanizeDuration }}}}",
        f"Creates wait for it at the {_GATE}, which does not watch this quota: they may wait for room that is there.",
        NAMESPACE,
        "How old is what is known?",
        ("namespace", "resourcequota"),
    ),
    Alert(
        "BackoffCtrlWatchLost",
        q.by("count", q.GATE, f"{EVERYTHING.series('backoff_ctrl_watch_healthy')} == 0") + " > 0",
        "5m",
        "warning",
        f"The {_GATE} no longer watches the quotas of {{{{ $value }}}} namespaces",
        "It goes on with what it learns from pods and probes: room is found later, and more creates are refused.",
        GATES,
        "Where is the watch lost, and since when?",
    ),
    Alert(
        "BackoffCtrlOverload",
        q.by(
            "max",
            (*q.GATE, "flow", "priority_level"),
            f"avg_over_time({EVERYTHING.series('backoff_ctrl_overload_paused', over='10m')})",
        )
        + f" > {PAUSED_TOO_OFTEN}",
        "5m",
        "warning",
        f"The API server asks the {_GATE} to wait for {{{{ $value | humanizePercentage }}}} of the time",
        "It answers creates with 429 or 503, or connections fail. Creates of all namespaces go in slowly.",
        GATES,
        "When did the API server ask for patience?",
    ),
    Alert(
        "BackoffCtrlFailedOpen",
        q.by("sum", q.GATE, EVERYTHING.grown("backoff_ctrl_failed_open_total", over="15m")) + " > 0",
        "0m",
        "warning",
        f"The {_GATE} had internal errors, and let creates through ungated",
        "A fault of backoff-ctrl. No create was lost, and the API server still keeps the quota; but creates may have "
        "been refused that would have waited.",
        GATES,
        "What went wrong inside?",
    ),
    Alert(
        "BackoffCtrlGateDown",
        _away("backoff_ctrl_gate_info"),
        "5m",
        "critical",
        f"The {_GATE} does not answer",
        "Prometheus read its metrics within the last day, and no longer can. If it is a proxy, its clients can't "
        "create anything; if it is inside a program, that program is down or its status port is closed.",
        GATES,
        "Which gates answer?",
    ),
    Alert(
        "BackoffCtrlNoGates",
        "absent(backoff_ctrl_gate_info)",
        "10m",
        "critical",
        "Prometheus finds no gate at all",
        "Either none runs, or Prometheus no longer reads their metrics; then no other alert of backoff-ctrl can fire.",
        OVERVIEW,
        "How many gates answer?",
    ),
    Alert(
        "BackoffCtrlPodsWithoutSidecar",
        q.by("max", q.NAMESPACE, EVERYTHING.series("backoff_ctrl_injection_pods_without_sidecar")) + " > 0",
        "5m",
        "warning",
        f"{{{{ $value }}}} labelled pods in {_HERE} have no sidecar",
        "They were created while the injection webhook did not answer, or can't have one. They create ungated.",
        GATES,
        "Which labelled pods have no sidecar?",
    ),
    Alert(
        "BackoffCtrlJobsUngated",
        q.by("max", q.NAMESPACE, EVERYTHING.series("backoff_ctrl_suspension_ungated")) + " > 0",
        "5m",
        "warning",
        f"{{{{ $value }}}} Jobs in {_HERE} run that should have waited",
        "They were created while the webhook did not answer, or before their namespace got the label.",
        GATES,
        "Which Jobs run ungated?",
    ),
    Alert(
        "BackoffCtrlNobodyLeads",
        f"{_leads()} == 0",
        "2m",
        "critical",
        "No replica of the operator {{ $labels.job }} leads",
        "Jobs that wait are not let in, and Tasks are not carried out. What runs goes on.",
        GATES,
        "Which replica of the operator leads?",
    ),
    Alert(
        "BackoffCtrlCertificateEnds",
        q.by("min", q.GATE, EVERYTHING.series("backoff_ctrl_injection_certificate_expiry_timestamp_seconds"))
        + f" - time() < {ENDS_WITHIN}",
        "1h",
        "warning",
        "The certificate of the webhook at {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
        "It should have been renewed long before. Once it has ended, the API server does not trust the webhook: "
        "labelled pods are created without a sidecar, Jobs do not wait, and Tasks are refused.",
        GATES,
        "How long is the webhook's certificate good?",
    ),
    Alert(
        "BackoffCtrlTooManySeries",
        q.by("max", q.GATE, EVERYTHING.series("backoff_ctrl_series_left_out")) + " > 0",
        "15m",
        "warning",
        f"The {_GATE} leaves out {{{{ $value }}}} series",
        "There are more than its limit. Dashboards and alerts do not see the namespaces that were known last.",
        GATES,
        "How many series does each gate expose?",
    ),
)

"""The catalogue of metrics as data. What is not listed here is not exposed, and docs/metrics.md is made from it.

Names and units follow Prometheus, the labels ``namespace``, ``resourcequota`` and ``resource`` kube-state-metrics, so
that ``on(namespace, resourcequota, resource)`` joins with ``kube_resourcequota``. Amounts are in base units: cores,
bytes, numbers of objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram", "info"]
CEILING: Final = ("namespace", "resourcequota", "resource")
WAIT_BUCKETS: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds. Each namespace has a histogram of its own, so these are few."""
WAKE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
STEP_BUCKETS: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
DECISION_BUCKETS: Final = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 0.1)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` is the name that queries use, with ``_total`` or ``_info``; ``unit`` is for people."""

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: Final = (
    # -- the gate itself: few series, never left out ---------
    Metric("backoff_ctrl_build_info", "info", "The running version; always 1.", "", ("version", "python_version")),
    Metric("backoff_ctrl_gate_info", "info", "The gate's name and API server; always 1.", "", ("gate", "server")),
    Metric(
        "backoff_ctrl_gate_start_timestamp_seconds",
        "gauge",
        "When the gate began to count; counters start at 0 there.",
        "Unix time",
    ),
    Metric(
        "backoff_ctrl_failed_open_total",
        "counter",
        "Internal errors. Each let creates through ungated, or ended a look that only helps. Should stay 0.",
        "errors",
    ),
    Metric(
        "backoff_ctrl_late_tickets_total",
        "counter",
        "Tickets that the engine had given up before their create ended.",
        "tickets",
    ),
    Metric(
        "backoff_ctrl_decision_seconds",
        "histogram",
        "Time that the engine took for one decision or piece of news, lock held.",
        "seconds",
        buckets=DECISION_BUCKETS,
    ),
    Metric(
        "backoff_ctrl_wake_seconds",
        "histogram",
        "Time from news of room in a namespace to the admission of the first create that waited for it.",
        "seconds",
        buckets=WAKE_BUCKETS,
    ),
    Metric(
        "backoff_ctrl_settle_seconds",
        "gauge",
        "How long room that was just reported is left alone, since the API server's own cache trails; learned.",
        "seconds",
    ),
    Metric("backoff_ctrl_namespaces", "gauge", "Namespaces that the gate knows something of.", "namespaces"),
    Metric("backoff_ctrl_in_flight", "gauge", "Creates sent and not answered yet.", "creates"),
    Metric(
        "backoff_ctrl_overload_window",
        "gauge",
        "Creates that may be in flight for a server, credential and priority level.",
        "creates",
        ("flow", "priority_level"),
    ),
    Metric(
        "backoff_ctrl_overload_in_flight", "gauge", "Creates in flight there.", "creates", ("flow", "priority_level")
    ),
    Metric(
        "backoff_ctrl_overload_paused",
        "gauge",
        "1 while the API server asked for patience there, else 0.",
        "",
        ("flow", "priority_level"),
    ),
    Metric(
        "backoff_ctrl_watch_events_total", "counter", "Changes of quotas and pods that the watch reported.", "events"
    ),
    Metric("backoff_ctrl_watch_relists_total", "counter", "Complete lists, the first of each place included.", "lists"),
    Metric(
        "backoff_ctrl_watch_reconnects_total",
        "counter",
        "Attempts after a list that failed or a stream that broke.",
        "attempts",
    ),
    Metric(
        "backoff_ctrl_watch_ignored_total", "counter", "Objects and events that could not be read.", "", ("reason",)
    ),
    Metric("backoff_ctrl_status_listeners", "gauge", "Listeners of the stream of decisions.", "listeners"),
    Metric(
        "backoff_ctrl_status_listeners_dropped_total",
        "counter",
        "Listeners that were too slow, and were dropped.",
        "listeners",
    ),
    Metric(
        "backoff_ctrl_notifications_total",
        "counter",
        "Notifications by receiver and outcome: sent, failed (after all tries) or dropped (too many were waiting).",
        "notifications",
        ("receiver", "outcome"),
    ),
    Metric("backoff_ctrl_series", "gauge", "Series of this answer.", "series"),
    Metric(
        "backoff_ctrl_series_left_out",
        "gauge",
        "Series left out of this answer, since there are too many: see the limit in docs/metrics.md.",
        "series",
    ),
    # -- the plugin manager, where one runs ---------
    Metric(
        "backoff_ctrl_task_objects",
        "gauge",
        "Objects of tasks, by state: living, ended or deleting. A number that falls to 0 is shown for 5 minutes.",
        "objects",
        ("kind", "namespace", "state"),
    ),
    Metric("backoff_ctrl_task_creates_under_way", "gauge", "Creates of tasks that wait or are sent.", "creates"),
    Metric(
        "backoff_ctrl_task_creates_total",
        "counter",
        "Creates of tasks that ended, by outcome: created, adopted (the object existed already) or failed.",
        "creates",
        ("plugin", "outcome"),
    ),
    Metric(
        "backoff_ctrl_task_failures_total",
        "counter",
        "Attempts at tasks that failed, by phase and the code of the error.",
        "attempts",
        ("plugin", "phase", "code"),
    ),
    Metric(
        "backoff_ctrl_task_plugin_errors_total",
        "counter",
        "Exceptions that plugins raised: bugs of theirs. Should stay 0.",
        "errors",
        ("plugin", "method"),
    ),
    Metric(
        "backoff_ctrl_task_object_reads_total",
        "counter",
        "Steps that looked at an object, by where it was found: cache (the watch), or server (a request).",
        "reads",
        ("source",),
    ),
    Metric(
        "backoff_ctrl_task_object_deletions_total",
        "counter",
        "Objects that the manager deleted: aborted, or cleaned up.",
        "objects",
        ("plugin",),
    ),
    Metric(
        "backoff_ctrl_task_object_losses_total",
        "counter",
        "Objects that somebody else deleted before they had ended.",
        "objects",
        ("plugin",),
    ),
    Metric(
        "backoff_ctrl_task_finalizer_conflicts_total",
        "counter",
        "Removals of the manager's finalizer that were tried again, as somebody had changed the object meanwhile.",
        "conflicts",
    ),
    Metric(
        "backoff_ctrl_task_watch_healthy",
        "gauge",
        "1 while all objects of tasks of this kind are watched, else 0: then each step reads its object.",
        "",
        ("kind",),
    ),
    Metric("backoff_ctrl_task_watch_events_total", "counter", "Changes of tasks' objects that were seen.", "events"),
    Metric("backoff_ctrl_task_watch_relists_total", "counter", "Complete lists of tasks' objects.", "lists"),
    Metric("backoff_ctrl_tasks", "gauge", "Tasks that have not ended, by phase.", "tasks", ("phase",)),
    Metric("backoff_ctrl_tasks_ended_total", "counter", "Tasks that ended, by phase.", "tasks", ("phase",)),
    Metric(
        "backoff_ctrl_task_attempts_failed_total",
        "counter",
        "Attempts at tasks that failed, by whose failure it was (USER, or SYSTEM for the platform) and its code.",
        "attempts",
        ("kind", "code"),
    ),
    Metric(
        "backoff_ctrl_task_retries_total",
        "counter",
        "Further attempts at tasks, by whose failure the one before was.",
        "attempts",
        ("kind",),
    ),
    Metric(
        "backoff_ctrl_task_step_seconds",
        "histogram",
        "Time of one step of a task, waiting for the API server included.",
        "seconds",
        buckets=STEP_BUCKETS,
    ),
    Metric("backoff_ctrl_task_step_errors_total", "counter", "Steps that raised an error and came again.", "steps"),
    Metric("backoff_ctrl_task_status_writes_total", "counter", "Statuses that were written to the store.", "writes"),
    # -- the injection webhook, where one runs ---------
    Metric(
        "backoff_ctrl_injection_reviews_total",
        "counter",
        "Pods that the webhook was asked about, by what became of them: injected, present, or why not.",
        "pods",
        ("namespace", "outcome"),
    ),
    Metric("backoff_ctrl_injection_malformed_total", "counter", "Requests that were no AdmissionReview.", "requests"),
    Metric(
        "backoff_ctrl_injection_pods_without_sidecar",
        "gauge",
        "Labelled pods that live and have no sidecar, where the webhook is asked about pods.",
        "pods",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_injection_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the certificate that the webhook serves ends; absent before it has one.",
        "Unix time",
    ),
    # -- by namespace ---------
    Metric(
        "backoff_ctrl_mode",
        "gauge",
        "1 for the mode that the namespace is in.",
        "",
        ("namespace", "mode"),
    ),
    Metric(
        "backoff_ctrl_creates_total",
        "counter",
        "Creates that ended, by outcome: created, failed, declined, timed-out or cancelled.",
        "creates",
        ("namespace", "kind", "outcome"),
    ),
    Metric(
        "backoff_ctrl_declines_total",
        "counter",
        "Creates that the gate itself refused, by why: never-fits, waited-too-long, too-many-waiting and so on.",
        "creates",
        ("namespace", "reason"),
    ),
    Metric(
        "backoff_ctrl_attempts_total",
        "counter",
        "Creates sent to the API server, each time, by what it answered: created, or the lane of its refusal.",
        "requests",
        ("namespace", "kind", "answer"),
    ),
    Metric("backoff_ctrl_waiting", "gauge", "Creates in line, by why they wait.", "creates", ("namespace", "reason")),
    Metric(
        "backoff_ctrl_oldest_waiting_timestamp_seconds",
        "gauge",
        "Since when the create waits that waits longest; absent while none waits.",
        "Unix time",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_wait_seconds",
        "histogram",
        "How long creates waited in line before they were admitted, declined or given up. Those that never waited "
        "are not counted.",
        "seconds",
        ("namespace",),
        WAIT_BUCKETS,
    ),
    Metric(
        "backoff_ctrl_calls_saved_estimate_total",
        "counter",
        "Estimate: the attempts that a retry loop of 1 to 20 s would have made while creates waited here.",
        "requests",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_probes_total",
        "counter",
        "Creates let through against a full quota to test for room, by whether there was some.",
        "creates",
        ("namespace", "result"),
    ),
    Metric(
        "backoff_ctrl_overtakings_total",
        "counter",
        "How often a create that fits passed a larger one that waits.",
        "creates",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_gangs",
        "gauge",
        "Gangs, by state: waiting (in line as one), or admitted and not complete. Absent while there are none.",
        "gangs",
        ("namespace", "state"),
    ),
    Metric(
        "backoff_ctrl_gang_members",
        "gauge",
        "Members of admitted gangs, by state: reserved (may still be created), or drawn (sent, or made by others). "
        "Absent while there are none.",
        "objects",
        ("namespace", "state"),
    ),
    Metric(
        "backoff_ctrl_shadow_creates_total",
        "counter",
        "Creates in shadow mode, by what enforcing would have done: create, wait or refuse.",
        "creates",
        ("namespace", "verdict"),
    ),
    Metric(
        "backoff_ctrl_namespace_slowed",
        "gauge",
        "1 while a failing webhook or slow evaluation of quotas slows the namespace; absent else.",
        "",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_watch_healthy",
        "gauge",
        "1 while the quotas of the namespace are watched, 0 once that is lost; absent where they never were.",
        "",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_watch_state_timestamp_seconds",
        "gauge",
        "Since when that is so.",
        "Unix time",
        ("namespace",),
    ),
    # -- by quota and resource ---------
    Metric(
        "backoff_ctrl_quota_refusals_total",
        "counter",
        "The API server's quota refusals, by each resource that they name.",
        "requests",
        CEILING,
    ),
    Metric(
        "backoff_ctrl_stale_refusals_total",
        "counter",
        "Quota refusals by a state older than the one known here; sent again without a step of back-off.",
        "requests",
        ("namespace", "resourcequota"),
    ),
    Metric("backoff_ctrl_ceiling_limited", "gauge", "The quota's limit.", "cores, bytes or objects", CEILING),
    Metric("backoff_ctrl_ceiling_used", "gauge", "What is charged, as known here.", "cores, bytes or objects", CEILING),
    Metric(
        "backoff_ctrl_ceiling_held",
        "gauge",
        "What creates in flight, or answered a moment ago, will be charged.",
        "cores, bytes or objects",
        CEILING,
    ),
    Metric("backoff_ctrl_ceiling_reserved", "gauge", "What gangs may still draw.", "cores, bytes or objects", CEILING),
    Metric(
        "backoff_ctrl_ceiling_headroom",
        "gauge",
        "limited - used - held - reserved; a hint, the server decides.",
        "cores, bytes or objects",
        CEILING,
    ),
    Metric(
        "backoff_ctrl_ceiling_heard_timestamp_seconds",
        "gauge",
        "When the newest fact about it was received.",
        "Unix time",
        CEILING,
    ),
    Metric(
        "backoff_ctrl_ceiling_observed",
        "gauge",
        "1 if the ceiling was read from the ResourceQuota, 0 if it was learned from a refusal.",
        "",
        CEILING,
    ),
    Metric(
        "backoff_ctrl_blocked",
        "gauge",
        "1 while creates wait for this resource of this quota; absent else.",
        "",
        CEILING,
    ),
)
"""In the order in which they are exposed, and kept: beyond the limit of series, the last are left out first."""

BY_NAME: Final = {metric.name: metric for metric in METRICS}
SERIES_MAX: Final = 50_000
"""Series exposed by default. Namespaces known first come first, so that a series, once exposed, stays."""

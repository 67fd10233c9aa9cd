"""The catalogue of metrics as data. Only metrics in it are exposed, and docs/metrics.md is made from it.

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
        "When the gate started; its counters began at 0 then.",
        "Unix time",
    ),
    Metric(
        "backoff_ctrl_failed_open_total",
        "counter",
        "Internal errors. Each let creates through ungated, or skipped an optional check. Should stay 0.",
        "errors",
    ),
    Metric(
        "backoff_ctrl_late_tickets_total",
        "counter",
        "Tickets that the engine had written off before their create ended.",
        "tickets",
    ),
    Metric(
        "backoff_ctrl_decision_seconds",
        "histogram",
        "Time that the engine took for one decision or update, while holding the lock.",
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
        "How long room that was just reported is not used yet, because the API server's cache lags behind; learned.",
        "seconds",
    ),
    Metric("backoff_ctrl_namespaces", "gauge", "Namespaces that the gate knows something about.", "namespaces"),
    Metric("backoff_ctrl_in_flight", "gauge", "Creates sent but not yet answered.", "creates"),
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
        "1 while the API server asks for fewer requests there, else 0.",
        "",
        ("flow", "priority_level"),
    ),
    Metric(
        "backoff_ctrl_watch_events_total", "counter", "Changes of quotas and pods that the watch reported.", "events"
    ),
    Metric(
        "backoff_ctrl_watch_relists_total", "counter", "Complete lists, including the first of each namespace.", "lists"
    ),
    Metric(
        "backoff_ctrl_watch_reconnects_total",
        "counter",
        "Attempts after a list that failed or a stream that broke.",
        "attempts",
    ),
    Metric(
        "backoff_ctrl_watch_ignored_total", "counter", "Objects and events that could not be read.", "", ("reason",)
    ),
    Metric(
        "backoff_ctrl_watch_partly_read",
        "gauge",
        "Quotas and pods that are read only in part: nested too deeply, or with text or numbers that can't be read.",
        "objects",
    ),
    Metric("backoff_ctrl_status_listeners", "gauge", "Listeners of the stream of decisions.", "listeners"),
    Metric(
        "backoff_ctrl_status_listeners_dropped_total",
        "counter",
        "Listeners dropped because they were too slow.",
        "listeners",
    ),
    Metric(
        "backoff_ctrl_notifications_total",
        "counter",
        "Notifications by receiver and outcome: sent, failed (after all attempts) or dropped (too many were waiting).",
        "notifications",
        ("receiver", "outcome"),
    ),
    Metric("backoff_ctrl_series", "gauge", "Series in this response.", "series"),
    Metric(
        "backoff_ctrl_series_left_out",
        "gauge",
        "Series left out of this answer, because there are too many: see the limit in docs/metrics.md.",
        "series",
    ),
    # -- the plugin manager, where one runs ---------
    Metric(
        "backoff_ctrl_task_objects",
        "gauge",
        "Objects of tasks, by state: living, ended or deleting. A number that drops to 0 stays for 5 minutes.",
        "objects",
        ("kind", "namespace", "state"),
    ),
    Metric(
        "backoff_ctrl_task_creates_under_way", "gauge", "Creates of tasks that are waiting or in flight.", "creates"
    ),
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
        "Exceptions raised by plugins, which are bugs. Should stay 0.",
        "errors",
        ("plugin", "method"),
    ),
    Metric(
        "backoff_ctrl_task_object_reads_total",
        "counter",
        "Steps that read an object, by source: cache (the watch), or server (a request).",
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
    Metric("backoff_ctrl_webapi_jobs", "gauge", "Jobs of web API plugins that are followed.", "jobs", ("plugin",)),
    Metric(
        "backoff_ctrl_webapi_calls_total",
        "counter",
        "Calls of services by web API plugins, by result: ok, an HTTP status, network, task, cancelled or bug.",
        "calls",
        ("plugin", "method", "result"),
    ),
    Metric(
        "backoff_ctrl_webapi_calls_in_flight", "gauge", "Calls of a service without an answer.", "calls", ("plugin",)
    ),
    Metric(
        "backoff_ctrl_webapi_window_size",
        "gauge",
        "The calls of a service that may be in flight; overload answers shrink it.",
        "calls",
        ("plugin",),
    ),
    Metric(
        "backoff_ctrl_webapi_overloads_total",
        "counter",
        "Answers of a service that said it is overloaded: 429 or 503.",
        "answers",
        ("plugin",),
    ),
    Metric(
        "backoff_ctrl_webapi_read_lag_seconds",
        "gauge",
        "How late the last job was read, after it was due: it grows where the read limit is too low for the jobs.",
        "seconds",
        ("plugin",),
    ),
    Metric(
        "backoff_ctrl_webapi_read_seconds_total", "counter", "Time that reads of jobs took.", "seconds", ("plugin",)
    ),
    Metric(
        "backoff_ctrl_webapi_failures_total",
        "counter",
        "Attempts of web API plugins that failed.",
        "attempts",
        ("plugin", "phase", "code"),
    ),
    Metric(
        "backoff_ctrl_webapi_plugin_events_total",
        "counter",
        "What web API plugins count themselves.",
        "events",
        ("plugin", "event"),
    ),
    Metric(
        "backoff_ctrl_task_object_losses_total",
        "counter",
        "Objects that somebody else deleted before they ended.",
        "objects",
        ("plugin",),
    ),
    Metric(
        "backoff_ctrl_task_finalizer_conflicts_total",
        "counter",
        "Removals of the manager's finalizer that were retried because somebody had changed the object meanwhile.",
        "conflicts",
    ),
    Metric(
        "backoff_ctrl_task_watch_healthy",
        "gauge",
        "1 while all objects of tasks of this kind are watched, else 0: then each step reads its object.",
        "",
        ("kind",),
    ),
    Metric("backoff_ctrl_task_watch_events_total", "counter", "Observed changes of tasks' objects.", "events"),
    Metric("backoff_ctrl_task_watch_relists_total", "counter", "Complete lists of tasks' objects.", "lists"),
    Metric("backoff_ctrl_tasks", "gauge", "Tasks that have not ended, by phase.", "tasks", ("phase",)),
    Metric("backoff_ctrl_tasks_ended_total", "counter", "Tasks that ended, by phase.", "tasks", ("phase",)),
    Metric(
        "backoff_ctrl_task_notifications_total",
        "counter",
        "Notifications of ends of tasks and attempts, by receiver and outcome: sent, failed or dropped.",
        "notifications",
        ("receiver", "outcome"),
    ),
    Metric(
        "backoff_ctrl_tasks_forgotten_total",
        "counter",
        "Tasks that had ended long ago, by outcome: deleted, already_gone or failed.",
        "tasks",
        ("outcome",),
    ),
    Metric(
        "backoff_ctrl_task_attempts_failed_total",
        "counter",
        "Attempts at tasks that failed, by who caused the failure (USER, or SYSTEM for the platform) and its code.",
        "attempts",
        ("kind", "code"),
    ),
    Metric(
        "backoff_ctrl_task_retries_total",
        "counter",
        "Retries of tasks, by who caused the failure before.",
        "attempts",
        ("kind",),
    ),
    Metric(
        "backoff_ctrl_task_step_seconds",
        "histogram",
        "Duration of one step of a task, including waits for the API server.",
        "seconds",
        buckets=STEP_BUCKETS,
    ),
    Metric("backoff_ctrl_task_step_errors_total", "counter", "Steps that raised an error and were retried.", "steps"),
    Metric("backoff_ctrl_task_status_writes_total", "counter", "Status updates written to the store.", "writes"),
    # -- the injection webhook, where one runs ---------
    Metric(
        "backoff_ctrl_injection_reviews_total",
        "counter",
        "Pods that the webhook was asked about, by outcome: injected, present, or the reason why not.",
        "pods",
        ("namespace", "outcome"),
    ),
    Metric(
        "backoff_ctrl_injection_malformed_total", "counter", "Requests that were not an AdmissionReview.", "requests"
    ),
    Metric(
        "backoff_ctrl_injection_pods_without_sidecar",
        "gauge",
        "Running labelled pods without a sidecar, in namespaces that the webhook covers.",
        "pods",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_injection_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the webhook's certificate expires; absent before it has one.",
        "Unix time",
    ),
    # -- the operator, where one runs ---------
    Metric("backoff_ctrl_operator_leader", "gauge", "1 in the replica of the operator that leads, else 0.", ""),
    Metric(
        "backoff_ctrl_operator_partly_read",
        "gauge",
        "Jobs, Tasks and what stands around them that the operator reads only in part; /readyz names them.",
        "objects",
    ),
    Metric(
        "backoff_ctrl_jobs",
        "gauge",
        "Jobs and the like that the operator follows, by state: waiting, granted, running, refused or left alone.",
        "objects",
        ("state",),
    ),
    Metric(
        "backoff_ctrl_jobs_admitted_total",
        "counter",
        "Jobs and the like that were let in, by how: with their room reserved, or ungated (the mode of their "
        "namespace, or an error of ours).",
        "objects",
        ("kind", "how"),
    ),
    # -- the webhooks beside the operator, where one runs ---------
    Metric(
        "backoff_ctrl_suspension_reviews_total",
        "counter",
        "New Jobs and the like that the webhook was asked about, by outcome: suspended, or why it left them alone.",
        "objects",
        ("namespace", "outcome"),
    ),
    Metric(
        "backoff_ctrl_suspension_malformed_total",
        "counter",
        "Requests to the webhooks of Jobs and Tasks that were not an AdmissionReview.",
        "requests",
    ),
    Metric(
        "backoff_ctrl_suspension_ungated",
        "gauge",
        "Jobs and the like that run although they should have waited: the webhook was away when they were created.",
        "objects",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_task_reviews_total",
        "counter",
        "Tasks that the webhook was asked about, by outcome: allowed, or why it refused them.",
        "tasks",
        ("namespace", "outcome"),
    ),
    # -- by namespace ---------
    Metric(
        "backoff_ctrl_mode",
        "gauge",
        "1 for the mode of the namespace.",
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
        "Creates that the gate itself refused, by reason: never-fits, waited-too-long, too-many-waiting and so on.",
        "creates",
        ("namespace", "reason"),
    ),
    Metric(
        "backoff_ctrl_attempts_total",
        "counter",
        "Attempts sent to the API server, by its answer: created, or the lane of its refusal.",
        "requests",
        ("namespace", "kind", "answer"),
    ),
    Metric("backoff_ctrl_waiting", "gauge", "Creates in line, by reason.", "creates", ("namespace", "reason")),
    Metric(
        "backoff_ctrl_oldest_waiting_timestamp_seconds",
        "gauge",
        "When the create that has waited longest began to wait; absent while none waits.",
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
        "Creates sent against a full quota to test for room, by whether there was room.",
        "creates",
        ("namespace", "result"),
    ),
    Metric(
        "backoff_ctrl_overtakings_total",
        "counter",
        "How often a create that fits overtook a larger waiting one.",
        "creates",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_gangs",
        "gauge",
        "Gangs, by state: waiting (in line as one), or admitted and not complete. Absent if there are none.",
        "gangs",
        ("namespace", "state"),
    ),
    Metric(
        "backoff_ctrl_gang_members",
        "gauge",
        "Members of admitted gangs, by state: reserved (may still be created), or drawn (sent, or made by others). "
        "Absent if there are none.",
        "objects",
        ("namespace", "state"),
    ),
    Metric(
        "backoff_ctrl_shadow_creates_total",
        "counter",
        "Creates in shadow mode, by what `enforce` would have done: create, wait or refuse.",
        "creates",
        ("namespace", "verdict"),
    ),
    Metric(
        "backoff_ctrl_namespace_slowed",
        "gauge",
        "1 while a failing webhook or slow quota evaluation slows the namespace down; absent otherwise.",
        "",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_watch_healthy",
        "gauge",
        "1 while the quotas of the namespace are watched, 0 once the watch is lost; absent if they never were.",
        "",
        ("namespace",),
    ),
    Metric(
        "backoff_ctrl_watch_state_timestamp_seconds",
        "gauge",
        "When the state of the watch last changed.",
        "Unix time",
        ("namespace",),
    ),
    # -- by quota and resource ---------
    Metric(
        "backoff_ctrl_quota_refusals_total",
        "counter",
        "Quota refusals by the API server, counted for each resource that they name.",
        "requests",
        CEILING,
    ),
    Metric(
        "backoff_ctrl_stale_refusals_total",
        "counter",
        "Quota refusals based on an older state than the gate knows; resent without more back-off.",
        "requests",
        ("namespace", "resourcequota"),
    ),
    Metric("backoff_ctrl_ceiling_limited", "gauge", "The quota's limit.", "cores, bytes or objects", CEILING),
    Metric("backoff_ctrl_ceiling_used", "gauge", "Used amount, as known here.", "cores, bytes or objects", CEILING),
    Metric(
        "backoff_ctrl_ceiling_held",
        "gauge",
        "Amount held for creates in flight or just answered.",
        "cores, bytes or objects",
        CEILING,
    ),
    Metric("backoff_ctrl_ceiling_reserved", "gauge", "Amount reserved for gangs.", "cores, bytes or objects", CEILING),
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
        "1 while creates wait for this resource of this quota; absent otherwise.",
        "",
        CEILING,
    ),
)
"""In the order in which they are exposed, and kept: beyond the limit of series, the last are left out first."""

BY_NAME: Final = {metric.name: metric for metric in METRICS}

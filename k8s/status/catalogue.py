"""The catalogue of metrics as data. Only metrics in it are exposed, and docs/metrics.md is made from it.

Names and units follow Prometheus, the labels ``namespace``, ``resourcequota`` and ``resource`` kube-state-metrics, so
that ``on(namespace, resourcequota, resource)`` joins with ``kube_resourcequota``. Amounts are in base units: cores,
bytes, numbers of objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "backoff_ctrl_"
CEILING: Final = "namespace resourcequota resource"
AMOUNT: Final = "cores, bytes or objects"
WAIT_BUCKETS: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds. Each namespace has a histogram of its own, so these are few."""
WAKE_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
STEP_BUCKETS: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
DECISION_BUCKETS: Final = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 0.1)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` is the name that queries use, with ``_total`` or ``_info``; ``unit`` is for people."""

    name: str
    labels: tuple[str, ...]
    unit: str
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram", "info"]:
        """Its type, which its name tells."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "info" if self.name.endswith("_info") else "gauge"


def _metric(name: str, labels: str, unit: str, help: str, buckets: tuple[float, ...] = ()) -> Metric:  # noqa: A002
    return Metric(PREFIX + name, tuple(labels.split()), unit, help, buckets)


# fmt: off
METRICS: Final = (
    # -- the gate itself: few series, never left out ---------
    _metric("build_info", "version python_version", "", "The running version; always 1."),
    _metric("gate_info", "gate server", "", "The gate's name and API server; always 1."),
    _metric("gate_start_timestamp_seconds", "", "Unix time", "When the gate started; its counters began at 0 then."),
    _metric("failed_open_total", "", "errors",
            "Internal errors. Each let creates through ungated, or skipped an optional check. Should stay 0."),
    _metric("late_tickets_total", "", "tickets", "Tickets that the engine had written off before their create ended."),
    _metric("decision_seconds", "", "seconds",
            "Time that the engine took for one decision or update, while holding the lock.", DECISION_BUCKETS),
    _metric("wake_seconds", "", "seconds",
            "Time from news of room in a namespace to the admission of the first create that waited for it.",
            WAKE_BUCKETS),
    _metric("settle_seconds", "", "seconds",
            "How long room that was just reported is not used yet, because the API server's cache lags behind; "
            "learned."),
    _metric("namespaces", "", "namespaces", "Namespaces that the gate knows something about."),
    _metric("in_flight", "", "creates", "Creates sent but not yet answered."),
    _metric("overload_window", "flow priority_level", "creates",
            "Creates that may be in flight for a server, credential and priority level."),
    _metric("overload_in_flight", "flow priority_level", "creates", "Creates in flight there."),
    _metric("overload_paused", "flow priority_level", "",
            "1 while the API server asks for fewer requests there, else 0."),
    _metric("watch_events_total", "", "events", "Changes of quotas and pods that the watch reported."),
    _metric("watch_relists_total", "", "lists", "Complete lists, including the first of each namespace."),
    _metric("watch_reconnects_total", "", "attempts", "Attempts after a list that failed or a stream that broke."),
    _metric("watch_ignored_total", "reason", "", "Objects and events that could not be read."),
    _metric("watch_partly_read", "", "objects",
            "Quotas and pods that are read only in part: nested too deeply, or with text or numbers that can't "
            "be read."),
    _metric("status_listeners", "", "listeners", "Listeners of the stream of decisions."),
    _metric("status_listeners_dropped_total", "", "listeners", "Listeners dropped because they were too slow."),
    _metric("notifications_total", "receiver outcome", "notifications",
            "Notifications by receiver and outcome: sent, failed (after all attempts) or dropped (too many were "
            "waiting)."),
    _metric("series", "", "series", "Series in this response."),
    _metric("series_left_out", "", "series",
            "Series left out of this answer, because there are too many: see the limit in docs/metrics.md."),
    # -- the plugin manager, where one runs ---------
    _metric("task_objects", "kind namespace state", "objects",
            "Objects of tasks, by state: living, ended or deleting. A number that drops to 0 stays for 5 minutes."),
    _metric("task_creates_under_way", "", "creates", "Creates of tasks that are waiting or in flight."),
    _metric("task_creates_total", "plugin outcome", "creates",
            "Creates of tasks that ended, by outcome: created, adopted (the object existed already) or failed."),
    _metric("task_failures_total", "plugin phase code", "attempts",
            "Attempts at tasks that failed, by phase and the code of the error."),
    _metric("task_plugin_errors_total", "plugin method", "errors",
            "Exceptions raised by plugins, which are bugs. Should stay 0."),
    _metric("task_object_reads_total", "source", "reads",
            "Steps that read an object, by source: cache (the watch), or server (a request)."),
    _metric("task_object_deletions_total", "plugin", "objects",
            "Objects that the manager deleted: aborted, or cleaned up."),
    _metric("webapi_jobs", "plugin", "jobs", "Jobs of web API plugins that are followed."),
    _metric("webapi_calls_total", "plugin method result", "calls",
            "Calls of services by web API plugins, by result: ok, an HTTP status, network, task, cancelled or bug."),
    _metric("webapi_calls_in_flight", "plugin", "calls", "Calls of a service without an answer."),
    _metric("webapi_window_size", "plugin", "calls",
            "The calls of a service that may be in flight; overload answers shrink it."),
    _metric("webapi_overloads_total", "plugin", "answers",
            "Answers of a service that said it is overloaded: 429 or 503."),
    _metric("webapi_read_lag_seconds", "plugin", "seconds",
            "How late the last job was read, after it was due: it grows where the read limit is too low for the jobs."),
    _metric("webapi_read_seconds_total", "plugin", "seconds", "Time that reads of jobs took."),
    _metric("webapi_failures_total", "plugin phase code", "attempts", "Attempts of web API plugins that failed."),
    _metric("webapi_plugin_events_total", "plugin event", "events", "What web API plugins count themselves."),
    _metric("task_object_losses_total", "plugin", "objects", "Objects that somebody else deleted before they ended."),
    _metric("task_finalizer_conflicts_total", "", "conflicts",
            "Removals of the manager's finalizer that were retried because somebody had changed the object meanwhile."),
    _metric("task_watch_healthy", "kind", "",
            "1 while all objects of tasks of this kind are watched, else 0: then each step reads its object."),
    _metric("task_watch_events_total", "", "events", "Observed changes of tasks' objects."),
    _metric("task_watch_relists_total", "", "lists", "Complete lists of tasks' objects."),
    _metric("tasks", "phase", "tasks", "Tasks that have not ended, by phase."),
    _metric("tasks_ended_total", "phase", "tasks", "Tasks that ended, by phase."),
    _metric("task_notifications_total", "receiver outcome", "notifications",
            "Notifications of ends of tasks and attempts, by receiver and outcome: sent, failed or dropped."),
    _metric("tasks_forgotten_total", "outcome", "tasks",
            "Tasks that had ended long ago, by outcome: deleted, already_gone or failed."),
    _metric("task_attempts_failed_total", "kind code", "attempts",
            "Attempts at tasks that failed, by who caused the failure (USER, or SYSTEM for the platform) and its "
            "code."),
    _metric("task_retries_total", "kind", "attempts", "Retries of tasks, by who caused the failure before."),
    _metric("task_step_seconds", "", "seconds",
            "Duration of one step of a task, including waits for the API server.", STEP_BUCKETS),
    _metric("task_step_errors_total", "", "steps", "Steps that raised an error and were retried."),
    _metric("task_status_writes_total", "", "writes", "Status updates written to the store."),
    # -- the injection webhook, where one runs ---------
    _metric("injection_reviews_total", "namespace outcome", "pods",
            "Pods that the webhook was asked about, by outcome: injected, present, or the reason why not."),
    _metric("injection_malformed_total", "", "requests", "Requests that were not an AdmissionReview."),
    _metric("injection_pods_without_sidecar", "namespace", "pods",
            "Running labelled pods without a sidecar, in namespaces that the webhook covers."),
    _metric("injection_certificate_expiry_timestamp_seconds", "", "Unix time",
            "When the webhook's certificate expires; absent before it has one."),
    # -- the operator, where one runs ---------
    _metric("operator_leader", "", "", "1 in the replica of the operator that leads, else 0."),
    _metric("operator_partly_read", "", "objects",
            "Jobs, Tasks and what stands around them that the operator reads only in part; /readyz names them."),
    _metric("jobs", "state", "objects",
            "Jobs and the like that the operator follows, by state: waiting, granted, running, refused or left alone."),
    _metric("jobs_admitted_total", "kind how", "objects",
            "Jobs and the like that were let in, by how: with their room reserved, or ungated (the mode of their "
            "namespace, or an error of ours)."),
    # -- the webhooks beside the operator, where one runs ---------
    _metric("suspension_reviews_total", "namespace outcome", "objects",
            "New Jobs and the like that the webhook was asked about, by outcome: suspended, or why it left them "
            "alone."),
    _metric("suspension_malformed_total", "", "requests",
            "Requests to the webhooks of Jobs and Tasks that were not an AdmissionReview."),
    _metric("suspension_ungated", "namespace", "objects",
            "Jobs and the like that run although they should have waited: the webhook was away when they were "
            "created."),
    _metric("task_reviews_total", "namespace outcome", "tasks",
            "Tasks that the webhook was asked about, by outcome: allowed, or why it refused them."),
    # -- by namespace ---------
    _metric("mode", "namespace mode", "", "1 for the mode of the namespace."),
    _metric("creates_total", "namespace kind outcome", "creates",
            "Creates that ended, by outcome: created, failed, declined, timed-out or cancelled."),
    _metric("declines_total", "namespace reason", "creates",
            "Creates that the gate itself refused, by reason: never-fits, waited-too-long, too-many-waiting and "
            "so on."),
    _metric("attempts_total", "namespace kind answer", "requests",
            "Attempts sent to the API server, by its answer: created, or the lane of its refusal."),
    _metric("waiting", "namespace reason", "creates", "Creates in line, by reason."),
    _metric("oldest_waiting_timestamp_seconds", "namespace", "Unix time",
            "When the create that has waited longest began to wait; absent while none waits."),
    _metric("wait_seconds", "namespace", "seconds",
            "How long creates waited in line before they were admitted, declined or given up. Those that never "
            "waited are not counted.", WAIT_BUCKETS),
    _metric("calls_saved_estimate_total", "namespace", "requests",
            "Estimate: the attempts that a retry loop of 1 to 20 s would have made while creates waited here."),
    _metric("probes_total", "namespace result", "creates",
            "Creates sent against a full quota to test for room, by whether there was room."),
    _metric("overtakings_total", "namespace", "creates", "How often a create that fits overtook a larger waiting one."),
    _metric("gangs", "namespace state", "gangs",
            "Gangs, by state: waiting (in line as one), or admitted and not complete. Absent if there are none."),
    _metric("gang_members", "namespace state", "objects",
            "Members of admitted gangs, by state: reserved (may still be created), or drawn (sent, or made by "
            "others). Absent if there are none."),
    _metric("shadow_creates_total", "namespace verdict", "creates",
            "Creates in shadow mode, by what `enforce` would have done: create, wait or refuse."),
    _metric("namespace_slowed", "namespace", "",
            "1 while a failing webhook or slow quota evaluation slows the namespace down; absent otherwise."),
    _metric("watch_healthy", "namespace", "",
            "1 while the quotas of the namespace are watched, 0 once the watch is lost; absent if they never were."),
    _metric("watch_state_timestamp_seconds", "namespace", "Unix time", "When the state of the watch last changed."),
    # -- by quota and resource ---------
    _metric("quota_refusals_total", CEILING, "requests",
            "Quota refusals by the API server, counted for each resource that they name."),
    _metric("stale_refusals_total", "namespace resourcequota", "requests",
            "Quota refusals based on an older state than the gate knows; resent without more back-off."),
    _metric("ceiling_limited", CEILING, AMOUNT, "The quota's limit."),
    _metric("ceiling_used", CEILING, AMOUNT, "Used amount, as known here."),
    _metric("ceiling_held", CEILING, AMOUNT, "Amount held for creates in flight or just answered."),
    _metric("ceiling_reserved", CEILING, AMOUNT, "Amount reserved for gangs."),
    _metric("ceiling_headroom", CEILING, AMOUNT, "limited - used - held - reserved; a hint, the server decides."),
    _metric("ceiling_heard_timestamp_seconds", CEILING, "Unix time", "When the newest fact about it was received."),
    _metric("ceiling_observed", CEILING, "",
            "1 if the ceiling was read from the ResourceQuota, 0 if it was learned from a refusal."),
    _metric("blocked", CEILING, "", "1 while creates wait for this resource of this quota; absent otherwise."),
)
# fmt: on
"""In the order in which they are exposed, and kept: beyond the limit of series, the last are left out first."""

BY_NAME: Final = {metric.name: metric for metric in METRICS}

"""Two gates' metrics as a script: gauges that stay, counters that grow evenly, for 40 minutes until a chosen time.

The first answers have all of it, with timestamps of its own, so that every rate is exact and nobody waits for it.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = tuple[str, Mapping[str, str], float]

STEP: Final = 15
LASTS: Final = 2400
"""Seconds."""
WHOLE: Final = 2
"""Answers with everything: the first may come too late on a slow machine; what Prometheus has, it leaves out."""
CPU: Final = {"namespace": "team", "resourcequota": "q", "resource": "limits.cpu"}
MEMORY: Final = {**CPU, "resource": "requests.memory"}
PAUSED: Final = {**CPU, "resource": "pods", "resourcequota": "paused"}
TEAM: Final = {"namespace": "team"}
OTHER: Final = {"namespace": "other"}
FLOW: Final = {"flow": "f", "priority_level": "p"}
GI: Final = 2**30

BOTH: Final[tuple[Row, ...]] = (
    ("build_info", {"version": "1.0", "python_version": "3.11"}, 1),
    ("settle_seconds", {}, 0.002),
    ("series", {}, 100),
    ("mode", {**TEAM, "mode": "enforce"}, 1),
    ("mode", {**OTHER, "mode": "shadow"}, 1),
    ("overload_window", FLOW, 16),
    ("ceiling_limited", MEMORY, 64 * GI),
    ("ceiling_used", MEMORY, 16 * GI),
    ("ceiling_held", MEMORY, 0),
    ("ceiling_reserved", MEMORY, 0),
    ("ceiling_headroom", MEMORY, 48 * GI),
    ("ceiling_observed", MEMORY, 1),
    ("ceiling_limited", PAUSED, 0),
    ("ceiling_used", PAUSED, 0),
    ("ceiling_held", PAUSED, 0),
    ("ceiling_reserved", PAUSED, 0),
)
GAUGES: Final[dict[str, tuple[Row, ...]]] = {
    "a": (
        *BOTH,
        ("gate_info", {"gate": "a", "server": "https://k"}, 1),
        ("namespaces", {}, 2),
        ("in_flight", {}, 3),
        ("webapi_jobs", {"plugin": "connector"}, 12),
        ("webapi_calls_in_flight", {"plugin": "connector"}, 2),
        ("webapi_window_size", {"plugin": "connector"}, 16),
        ("webapi_read_lag_seconds", {"plugin": "connector"}, 0.5),
        ("overload_in_flight", FLOW, 3),
        ("overload_paused", FLOW, 0),
        ("status_listeners", {}, 2),
        ("series_left_out", {}, 0),
        ("waiting", {**TEAM, "reason": "quota"}, 2),
        ("waiting", {**TEAM, "reason": "never-fits"}, 0),
        ("injection_pods_without_sidecar", TEAM, 2),
        ("suspension_ungated", TEAM, 3),
        ("operator_leader", {}, 1),
        ("operator_partly_read", {}, 1),
        ("watch_partly_read", {}, 1),
        ("jobs", {"state": "waiting"}, 4),
        ("task_objects", {**TEAM, "kind": "pods", "state": "living"}, 4),
        ("task_creates_under_way", {}, 2),
        ("tasks", {"phase": "Running"}, 3),
        ("tasks", {"phase": "WaitingForResources"}, 5),
        ("task_watch_healthy", {"kind": "pods"}, 1),
        ("gangs", {**TEAM, "state": "waiting"}, 1),
        ("gangs", {**TEAM, "state": "admitted"}, 2),
        ("gang_members", {**TEAM, "state": "reserved"}, 5),
        ("gang_members", {**TEAM, "state": "drawn"}, 11),
        ("watch_healthy", TEAM, 1),
        ("watch_healthy", OTHER, 1),
        ("ceiling_used", CPU, 4),
        ("ceiling_held", CPU, 1),
        ("ceiling_reserved", CPU, 0),
        ("ceiling_limited", CPU, 8),
        ("ceiling_headroom", CPU, 3),
        ("ceiling_observed", CPU, 1),
    ),
    "b": (
        *BOTH,
        ("gate_info", {"gate": "b", "server": "https://k"}, 1),
        ("gate_info", {"gate": "b/2", "server": "https://other"}, 1),  # of the same process
        ("namespaces", {}, 2),
        ("in_flight", {}, 4),
        ("overload_in_flight", FLOW, 4),
        ("overload_paused", FLOW, 1),
        ("status_listeners", {}, 0),
        ("series_left_out", {}, 7),
        ("waiting", {**TEAM, "reason": "quota"}, 3),
        ("waiting", {**TEAM, "reason": "never-fits"}, 1),
        ("gangs", {**TEAM, "state": "admitted"}, 1),
        ("gang_members", {**TEAM, "state": "reserved"}, 1),
        ("namespace_slowed", TEAM, 1),
        ("watch_healthy", TEAM, 0),
        ("ceiling_used", CPU, 3),
        ("ceiling_held", CPU, 2),
        ("ceiling_reserved", CPU, 1),
        ("ceiling_limited", CPU, 8.75),
        ("ceiling_headroom", CPU, 2.75),
        ("ceiling_observed", CPU, 0),
        ("blocked", CPU, 1),
        ("blocked", MEMORY, 1),
    ),
}
AGES: Final[dict[str, tuple[Row, ...]]] = {
    "a": (
        ("gate_start_timestamp_seconds", {}, 7200),
        ("oldest_waiting_timestamp_seconds", TEAM, 90),
        ("watch_state_timestamp_seconds", TEAM, 7200),
        ("watch_state_timestamp_seconds", OTHER, 7200),
        ("injection_certificate_expiry_timestamp_seconds", {}, -300_000),
        ("ceiling_heard_timestamp_seconds", CPU, 20),
        ("ceiling_heard_timestamp_seconds", MEMORY, 30),
    ),
    "b": (
        ("gate_start_timestamp_seconds", {}, 3600),
        ("oldest_waiting_timestamp_seconds", TEAM, 2000),
        ("watch_state_timestamp_seconds", TEAM, 600),
        ("ceiling_heard_timestamp_seconds", CPU, 1000),
        ("ceiling_heard_timestamp_seconds", MEMORY, 30),
    ),
}
"""Times, as seconds before the end; less than 0: after it."""
COUNTERS: Final[tuple[Row, ...]] = (
    ("failed_open_total", {}, 0.01),
    ("late_tickets_total", {}, 0.02),
    ("watch_events_total", {}, 5),
    ("watch_relists_total", {}, 0.1),
    ("watch_reconnects_total", {}, 0.2),
    ("watch_ignored_total", {"reason": "unreadable"}, 0.3),
    ("status_listeners_dropped_total", {}, 0.04),
    ("notifications_total", {"receiver": "ops", "outcome": "failed"}, 0.05),
    ("injection_reviews_total", {**TEAM, "outcome": "injected"}, 1),
    ("injection_malformed_total", {}, 0.02),
    ("suspension_reviews_total", {**TEAM, "outcome": "suspended"}, 1),
    ("suspension_malformed_total", {}, 0.02),
    ("jobs_admitted_total", {"kind": "jobs.batch", "how": "reserved"}, 0.5),
    ("task_reviews_total", {**TEAM, "outcome": "allowed"}, 1),
    ("task_creates_total", {"plugin": "container", "outcome": "created"}, 1),
    ("task_failures_total", {"plugin": "container", "phase": "RetryableFailure", "code": "OOMKilled"}, 0.1),
    ("task_attempts_failed_total", {"kind": "USER", "code": "OOMKilled"}, 0.1),
    ("task_retries_total", {"kind": "USER"}, 0.05),
    ("webapi_calls_total", {"plugin": "connector", "method": "get", "result": "ok"}, 2),
    ("webapi_failures_total", {"plugin": "connector", "phase": "PermanentFailure", "code": "NotFound"}, 0.1),
    ("webapi_plugin_events_total", {"plugin": "connector", "event": "polled"}, 0.1),
    ("webapi_overloads_total", {"plugin": "connector"}, 0.1),
    ("webapi_read_seconds_total", {"plugin": "connector"}, 0.3),
    ("tasks_ended_total", {"phase": "Success"}, 0.5),
    ("task_step_seconds_bucket", {"le": "0.001"}, 10),
    ("task_step_seconds_bucket", {"le": "0.01"}, 20),
    ("task_step_seconds_bucket", {"le": "+Inf"}, 20),
    ("task_step_seconds_count", {}, 20),
    ("task_step_errors_total", {}, 0.02),
    ("task_status_writes_total", {}, 4),
    ("tasks_forgotten_total", {"outcome": "deleted"}, 0.1),
    ("task_notifications_total", {"receiver": "ops", "outcome": "sent"}, 0.1),
    ("task_plugin_errors_total", {"plugin": "container", "method": "get_task_phase"}, 0.01),
    ("task_object_reads_total", {"source": "cache"}, 3),
    ("task_object_deletions_total", {"plugin": "container"}, 0.2),
    ("task_object_losses_total", {"plugin": "container"}, 0.03),
    ("task_finalizer_conflicts_total", {}, 0.02),
    ("task_watch_events_total", {}, 6),
    ("task_watch_relists_total", {}, 0.01),
    ("creates_total", {**TEAM, "kind": "pods", "outcome": "created"}, 2),
    ("creates_total", {**TEAM, "kind": "pods", "outcome": "declined"}, 0.5),
    ("declines_total", {**TEAM, "reason": "never-fits"}, 0.5),
    ("creates_total", {**OTHER, "kind": "jobs.batch", "outcome": "created"}, 1),
    ("attempts_total", {**TEAM, "kind": "pods", "answer": "created"}, 2),
    ("attempts_total", {**TEAM, "kind": "pods", "answer": "quota"}, 0.25),
    ("calls_saved_estimate_total", TEAM, 10),
    ("probes_total", {**TEAM, "result": "passed"}, 0.1),
    ("probes_total", {**TEAM, "result": "refused"}, 0.25),
    ("overtakings_total", TEAM, 0.4),
    ("shadow_creates_total", {**OTHER, "verdict": "create"}, 0.6),
    ("shadow_creates_total", {**OTHER, "verdict": "wait"}, 0.3),
    ("shadow_creates_total", {**OTHER, "verdict": "refuse"}, 0.1),
    ("quota_refusals_total", CPU, 0.25),
    ("stale_refusals_total", {"namespace": "team", "resourcequota": "q"}, 0.05),
    ("wait_seconds_bucket", {**TEAM, "le": "1"}, 1),
    ("wait_seconds_bucket", {**TEAM, "le": "10"}, 2),
    ("wait_seconds_bucket", {**TEAM, "le": "+Inf"}, 2),
    ("decision_seconds_bucket", {"le": "1e-05"}, 50),
    ("decision_seconds_bucket", {"le": "0.0001"}, 100),
    ("decision_seconds_bucket", {"le": "+Inf"}, 100),
    ("wake_seconds_bucket", {"le": "0.01"}, 1),
    ("wake_seconds_bucket", {"le": "0.1"}, 2),
    ("wake_seconds_bucket", {"le": "+Inf"}, 2),
)
"""By how much each grows in a second, at each of both gates."""


def names() -> set[str]:
    """Return the metrics that are served."""
    rows = [*GAUGES["a"], *GAUGES["b"], *AGES["a"], *AGES["b"], *COUNTERS]
    return {"backoff_ctrl_" + re.sub("(?<=seconds)_(bucket|count)$", "", name) for name, _, _ in rows}


def answer(gate: str, end: int) -> str:
    """Return everything of one gate until a Unix time, as Prometheus reads it."""
    lines = []
    for at in range(end - LASTS, end + 1, STEP):
        for name, labels, value in _rows(gate, at, end):
            inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
            lines.append(f"backoff_ctrl_{name}{{{inside}}} {value!r} {at * 1000}\n")
    return "".join(lines)


def _rows(gate: str, at: int, end: int) -> Iterator[Row]:
    yield from GAUGES[gate]
    yield from ((name, labels, end - age) for name, labels, age in AGES[gate])
    grown = at - end + LASTS + 1000
    yield from ((name, labels, slope * grown) for name, labels, slope in COUNTERS)


class Exporter:
    """Serves ``/a`` and ``/b`` on loopback; use it as a context manager."""

    def __init__(self, end: int) -> None:
        """Prepare the answers until a Unix time."""
        self._answers = {f"/{gate}": answer(gate, end) for gate in ("a", "b")}
        self._condition = threading.Condition()
        self._asked = dict.fromkeys(self._answers, 0)

    def __enter__(self) -> Self:
        """Listen."""
        exporter = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = exporter._take(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def read(self, timeout: float) -> bool:
        """Wait until each gate is asked once more, and more often than it had something to say: then all is stored."""
        with self._condition:
            wanted = max(WHOLE, *self._asked.values()) + 1
            return self._condition.wait_for(lambda: min(self._asked.values()) >= wanted, timeout)

    def _take(self, path: str) -> str:
        with self._condition:
            self._asked[path] += 1
            self._condition.notify_all()
            return self._answers[path] if self._asked[path] <= WHOLE else ""

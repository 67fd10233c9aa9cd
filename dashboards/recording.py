"""Recording rules: what alerts need, and what is worth keeping for longer than every gate's series.

Their names say what is aggregated, as Prometheus recommends: labels, metric, operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from . import queries as q
from .queries import EVERYTHING

OVER: Final = "5m"


@dataclass(frozen=True, slots=True)
class Record:
    """One recording rule."""

    name: str
    expr: str


def _ceiling(what: str, expr: str) -> Record:
    return Record(f"namespace_resourcequota_resource:backoff_ctrl_ceiling_{what}", expr)


def _refusals() -> str:
    labels = (*q.NAMESPACE, "resourcequota", "resource")
    return q.by("sum", labels, EVERYTHING.rate("backoff_ctrl_quota_refusals_total", over=OVER))


FULLNESS: Final = _ceiling("taken:ratio", q.fullness(EVERYTHING))
BLOCKED: Final = Record("namespace_resourcequota_resource:backoff_ctrl_blocked:max", q.blocked(EVERYTHING))
WAITING: Final = Record("namespace:backoff_ctrl_waiting:sum", q.waiting(EVERYTHING, q.NAMESPACE))
BY_REASON: Final = Record("namespace_reason:backoff_ctrl_waiting:sum", q.waiting(EVERYTHING, (*q.NAMESPACE, "reason")))
OLDEST: Final = Record("namespace:backoff_ctrl_oldest_wait_seconds:max", q.oldest_wait(EVERYTHING))

RECORDS: Final = (
    _ceiling("limited:max", q.limited(EVERYTHING)),
    _ceiling("used:max", q.used(EVERYTHING)),
    _ceiling("held:sum", q.held(EVERYTHING)),
    _ceiling("reserved:sum", q.reserved(EVERYTHING)),
    _ceiling("headroom", q.headroom(EVERYTHING)),
    FULLNESS,
    BLOCKED,
    WAITING,
    BY_REASON,
    OLDEST,
    Record(
        f"namespace_outcome:backoff_ctrl_creates:rate{OVER}",
        q.by("sum", (*q.NAMESPACE, "outcome"), EVERYTHING.rate("backoff_ctrl_creates_total", over=OVER)),
    ),
    Record(f"namespace_resourcequota_resource:backoff_ctrl_quota_refusals:rate{OVER}", _refusals()),
    Record(
        f"namespace:backoff_ctrl_calls_saved_estimate:rate{OVER}",
        q.by("sum", q.NAMESPACE, EVERYTHING.rate("backoff_ctrl_calls_saved_estimate_total", over=OVER)),
    ),
    Record(
        f"namespace_le:backoff_ctrl_wait_seconds_bucket:rate{OVER}",
        q.by("sum", (*q.NAMESPACE, "le"), EVERYTHING.rate("backoff_ctrl_wait_seconds_bucket", over=OVER)),
    ),
)

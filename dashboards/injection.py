"""The panels about the injection webhook: what becomes of labelled pods."""

from __future__ import annotations

from typing import Final

from . import queries as q
from .panels import NONE_IS_GOOD, Panel, Query
from .queries import Scope

ALL: Final = Scope(('cluster=~"$cluster"',))

EXPIRY: Final = "backoff_ctrl_injection_certificate_expiry_timestamp_seconds"

INJECTION: Final = (
    Panel(
        "What became of labelled pods?",
        "Pods that the webhook was asked about, by what became of them, and requests that it could not read, per rate "
        "interval. Pods that it was not asked about, since it was away, are not here.",
        "lines",
        (
            Query(
                q.by("sum", ("outcome",), ALL.increase("backoff_ctrl_injection_reviews_total", over=q.RATE)),
                "{{outcome}}",
            ),
            Query(f"sum({ALL.increase('backoff_ctrl_injection_malformed_total', over=q.RATE)})", "malformed"),
        ),
        unit="locale",
        width=8,
    ),
    Panel(
        "Which labelled pods have no sidecar?",
        "Pods that live, by namespace. They were created while the webhook did not answer, or can't have one, and "
        "create ungated.",
        "lines",
        (Query(q.by("max", q.NAMESPACE, ALL.gauge("backoff_ctrl_injection_pods_without_sidecar")), "{{namespace}}"),),
        unit="locale",
        width=8,
        steps=NONE_IS_GOOD,
    ),
    Panel(
        "How long is the webhook's certificate good?",
        "Until the certificate ends that each replica serves. It is renewed a month before, or as cert-manager is "
        "told; once it has ended, pods are created without a sidecar.",
        "lines",
        (
            Query(
                f"{q.by('min', q.GATE, ALL.gauge(EXPIRY))} - time()",
                "{{instance}}",
            ),
        ),
        unit="s",
        width=8,
    ),
)

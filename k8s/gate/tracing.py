"""An observer that makes a span of each create. It needs ``opentelemetry-api``; without an SDK no span is exported."""

from __future__ import annotations

from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider

from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection

from .subscribers import Subscriber
from .unfinished import Unfinished

OURS: Final = "backoff_ctrl."
"""Begins the names of our own attributes."""


class Spans(Subscriber):
    """Makes the spans of one ledger. Its methods are safe from any thread."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Without a ``provider``, use the one that the program has set."""
        self._tracer = trace.get_tracer("backoff-ctrl", tracer_provider=provider)
        self._spans: dict[Unfinished, Span] = {}  # each method takes single steps of the dict

    def begun(self, create: Unfinished) -> None:
        creation = create.creation
        self._spans[create] = self._tracer.start_span(
            f"create {creation.resource}",
            kind=SpanKind.CLIENT,
            attributes={
                "k8s.namespace.name": creation.namespace,
                OURS + "kind": creation.resource,
                OURS + "name": creation.name,
                "server.address": creation.server,
            },
        )

    def waits(self, create: Unfinished) -> None:
        if (span := self._spans.get(create)) is not None and span.is_recording():
            wait = create.wait()
            span.add_event("waits", {"reason": wait.reason, "quota": wait.quota, "resource": wait.resource})

    def admitted(self, create: Unfinished) -> None:
        if (span := self._spans.get(create)) is not None:
            span.add_event("admitted")

    def answered(self, create: Unfinished, answer: Answer, rejection: Rejection | None, *, probe: bool) -> None:
        if (span := self._spans.get(create)) is not None:
            lane = "created" if answer.ok else str(Lane.OTHER if rejection is None else rejection.lane)
            span.add_event("answered", {"lane": lane, "http.response.status_code": answer.status, "probe": probe})

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        if (span := self._spans.get(create)) is not None:
            span.add_event("declined", {"reason": refusal.reason})

    def ended(self, create: Unfinished) -> None:
        span = self._spans.pop(create, None)
        if span is None:
            return
        span.set_attribute(OURS + "create_id", create.create_id)
        answer, error = create.answer, create.error
        if answer is not None:
            span.set_attribute("http.response.status_code", answer.status)
        if answer is None or not answer.ok:
            words = f"the API server's answer was {answer.status}" if answer is not None else type(error).__name__
            span.set_status(StatusCode.ERROR, words)
        span.end()

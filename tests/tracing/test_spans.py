"""Spans of creates at a real gate, as the SDK's exporter in memory gets them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.tracing import Spans
from backoff_ctrl.k8s.kube.answers.answer import Answer
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.status.asking import Crowd


class Traced:
    """A provider whose spans end up in memory."""

    def __init__(self) -> None:
        """Start without spans."""
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("caller")

    def ours(self) -> list[ReadableSpan]:
        """Return the ended spans of creates."""
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith("create ")]


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Spans in memory."""
    made = Traced()
    yield made
    made.provider.shutdown()


def events(span: ReadableSpan) -> list[str]:
    """The names of a span's events."""
    return [event.name for event in span.events]


def test_a_create_that_waits_is_one_span_below_its_callers(crowd: Crowd, traced: Traced) -> None:
    """From the call to the 201, with what happened in between."""
    crowd.gate.ledger.subscribe(Spans(traced.provider))
    with traced.tracer.start_as_current_span("task") as task:
        pending = crowd.core.create_namespaced_pod("team", pod("second"), async_req=True)
        while not crowd.get("/v1/waiting")["items"]:
            pending.wait(0.01)
        assert traced.ours() == []
        crowd.make_room("first")
        pending.get(30)
    (span,) = traced.ours()
    assert span.parent is not None
    assert span.parent.span_id == task.get_span_context().span_id
    assert span.context.trace_id == task.get_span_context().trace_id
    attributes = dict(span.attributes or {})
    assert (span.name, attributes["k8s.namespace.name"], attributes["backoff_ctrl.name"]) == (
        "create pods", "team", "second",
    )  # fmt: skip
    assert attributes["http.response.status_code"] == 201
    assert len(str(attributes["backoff_ctrl.create_id"])) == 32
    assert span.status.status_code is not StatusCode.ERROR
    assert events(span)[:3] == ["admitted", "answered", "waits"]  # sent once, since nothing was known
    assert events(span)[-2:] == ["admitted", "answered"]
    (waits, *_) = (event for event in span.events if event.name == "waits")
    assert dict(waits.attributes or {}) == {"reason": "quota", "quota": "q", "resource": "pods"}
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time > span.start_time


def test_a_create_that_ends_without_an_object_is_an_error(crowd: Crowd, traced: Traced) -> None:
    """Its status says how."""
    crowd.gate.ledger.subscribe(Spans(traced.provider))
    thread = crowd.wait_with("second", timeout=0.2)
    thread.join(PATIENCE)
    (span,) = traced.ours()
    assert (span.parent, span.status.status_code, span.status.description) == (None, StatusCode.ERROR, "WaitedTooLong")


class Stored:
    """A server that stores everything."""

    async def send(self, body: dict[str, Any]) -> Answer:
        """Answer 201."""
        return Answer(201, {}, b"{}")


async def test_each_task_of_asyncio_is_the_parent_of_its_own_creates(traced: Traced) -> None:
    """Contexts are not mixed up."""
    gate = AsyncGate()
    gate.ledger.subscribe(Spans(traced.provider))

    async def task(name: str) -> int:
        with traced.tracer.start_as_current_span(name) as span:
            await gate.create(Creation("s", "c", "team", "pods", pod(name)), Stored())  # type: ignore[arg-type]
            return span.get_span_context().span_id

    parents = await asyncio.gather(*(task(f"t{number}") for number in range(5)))
    assert {span.parent.span_id for span in traced.ours() if span.parent is not None} == set(parents)
    assert len(traced.ours()) == 5
    await gate.aclose()


PROGRAM = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
if sys.argv[1:] == ["missing"]:
    sys.modules["opentelemetry"] = None
from kubernetes import client
from backoff_ctrl import GatedApiClient
with GatedApiClient(client.Configuration(host="http://127.0.0.1:1")) as gated:
    print([type(each).__name__ for each in gated.gate.ledger.subscribers.every])
    print(any(name.startswith("opentelemetry.trace") for name in sys.modules))
"""


@pytest.mark.long
def test_nothing_is_loaded_unless_it_is_asked_for_and_what_is_missing_is_said() -> None:
    """One line of the log; creates go on."""

    def program(*arguments: str, **variables: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env={**os.environ, **variables}, capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout.splitlines()

    assert program() == ["['HostedWatch']", "False"]
    assert program(BACKOFF_CTRL_TRACES="1") == ["['Spans', 'HostedWatch']", "True"]
    assert program("missing", BACKOFF_CTRL_TRACES="1")[:2] == [
        "ERROR creates are not traced: pip install 'backoff-ctrl[otel]'",
        "['HostedWatch']",
    ]

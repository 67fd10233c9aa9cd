"""What a connector's answer means: Flyte's phases, the older states, errors, outputs and links."""

from __future__ import annotations

import pytest
from flyteidl.admin.agent_pb2 import AgentError, Resource, State
from flyteidl.core.execution_pb2 import ExecutionError, TaskExecution, TaskLog
from flyteidl.core.literals_pb2 import Literal, LiteralMap, Primitive, Scalar
from google.protobuf import json_format

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.kept import OUTPUTS_MAX
from backoff_ctrl.k8s.tasks.plugins.phases import flaw_of
from backoff_ctrl.k8s.tasks.services.connector.answers import phase_at_once, phase_of

ALL = [
    (Resource(phase=TaskExecution.QUEUED), Phase.QUEUED),
    (Resource(phase=TaskExecution.WAITING_FOR_RESOURCES), Phase.QUEUED),
    (Resource(phase=TaskExecution.INITIALIZING), Phase.INITIALIZING),
    (Resource(phase=TaskExecution.RUNNING), Phase.RUNNING),
    (Resource(phase=TaskExecution.SUCCEEDED), Phase.SUCCESS),
    (Resource(phase=TaskExecution.FAILED), Phase.PERMANENT_FAILURE),
    (Resource(phase=TaskExecution.ABORTED), Phase.PERMANENT_FAILURE),
    (Resource(phase=TaskExecution.RETRYABLE_FAILED), Phase.RETRYABLE_FAILURE),
    (Resource(state=State.PENDING), Phase.INITIALIZING),
    (Resource(state=State.RUNNING), Phase.RUNNING),
    (Resource(state=State.SUCCEEDED), Phase.SUCCESS),
    (Resource(state=State.PERMANENT_FAILURE), Phase.PERMANENT_FAILURE),
    (Resource(state=State.RETRYABLE_FAILURE), Phase.RETRYABLE_FAILURE),
    (Resource(phase=TaskExecution.RUNNING, state=State.SUCCEEDED), Phase.RUNNING),
    (Resource(phase=42), Phase.RUNNING),
    (Resource(state=17), Phase.RUNNING),
]


@pytest.mark.parametrize(("resource", "phase"), ALL, ids=str)
def test_each_phase_has_its_meaning_and_the_state_counts_only_without_one(resource: Resource, phase: Phase) -> None:
    resource.message = "why"
    info = phase_of(resource)
    assert info.phase is phase
    assert "why" in info.reason
    assert flaw_of(info) == ""
    assert flaw_of(phase_at_once(resource)) == ""
    assert phase_at_once(resource).phase.is_terminal


def test_every_phase_of_flyte_is_known() -> None:
    """A new one in flyteidl has to be given a meaning."""
    described = {each.phase for each, _ in ALL if each.phase}
    assert described - {42} == set(TaskExecution.Phase.values()) - {TaskExecution.UNDEFINED}
    assert {each.state for each, _ in ALL if not each.phase} - {17} == set(State.values())


def test_a_phase_of_a_newer_connector_ends_nothing_and_is_named() -> None:
    assert phase_of(Resource(phase=42)).reason == "the connector reports phase 42, which is unknown here"
    assert phase_of(Resource(state=17)).reason == "the connector reports state 17, which is unknown here"


@pytest.mark.parametrize(
    ("error", "kind", "phase", "code"),
    [
        (None, ErrorKind.USER, Phase.PERMANENT_FAILURE, "TaskFailedWithError"),
        (AgentError(code="Bad"), ErrorKind.USER, Phase.PERMANENT_FAILURE, "Bad"),
        (AgentError(origin=ExecutionError.SYSTEM), ErrorKind.SYSTEM, Phase.PERMANENT_FAILURE, "TaskFailedWithError"),
        (AgentError(kind=AgentError.RECOVERABLE), ErrorKind.USER, Phase.RETRYABLE_FAILURE, "TaskFailedWithError"),
    ],
)
def test_the_error_says_whose_fault_it_is_and_whether_to_try_again(
    error: AgentError | None, kind: ErrorKind, phase: Phase, code: str
) -> None:
    info = phase_of(Resource(phase=TaskExecution.FAILED, message="m", agent_error=error))
    assert info.error is not None
    assert (info.error.kind, info.phase, info.error.code) == (kind, phase, code)
    assert info.error.message == "failed to run the job: m"


@pytest.mark.parametrize("said", ["", " ", "\r\n"])
@pytest.mark.parametrize("phase", [each for each in TaskExecution.Phase.values() if each != TaskExecution.SUCCEEDED])
def test_a_connector_that_says_nothing_leaves_no_sentence_without_its_end(phase: int, said: str) -> None:
    """Whichever phase it answers, at once or later."""
    for info in (phase_of(Resource(phase=phase, message=said)), phase_at_once(Resource(phase=phase, message=said))):
        for text in (info.reason, "" if info.error is None else info.error.message):
            assert text == text.strip().rstrip(":;,"), text


def test_outputs_links_and_custom_info_are_shown() -> None:
    resource = Resource(
        phase=TaskExecution.SUCCEEDED,
        outputs=LiteralMap(literals={"n": Literal(scalar=Scalar(primitive=Primitive(integer=3)))}),
        log_links=[TaskLog(uri="http://a", name="console"), TaskLog(uri="http://b"), TaskLog(name="no uri")] * 900,
    )
    json_format.ParseDict({"job": 1}, resource.custom_info)
    info = phase_of(resource)
    assert (info.outputs, info.custom) == ({"n": 3}, {"job": 1})
    assert [(each.name, each.uri) for each in info.logs[:2]] == [("console", "http://a"), ("log", "http://b")]
    assert len(info.logs) < 20


def test_a_success_with_too_much_to_keep_is_a_success_that_says_so() -> None:
    long = "x" * OUTPUTS_MAX
    resource = Resource(
        phase=TaskExecution.SUCCEEDED,
        outputs=LiteralMap(literals={"s": Literal(scalar=Scalar(primitive=Primitive(string_value=long)))}),
    )
    json_format.ParseDict({"s": long}, resource.custom_info)
    info = phase_of(resource)
    assert (info.phase, info.outputs, info.custom) == (Phase.SUCCESS, None, {})
    assert "its outputs are not kept: 16393 bytes as JSON, more than 16384" in info.reason
    assert "its custom is not kept: " in info.reason

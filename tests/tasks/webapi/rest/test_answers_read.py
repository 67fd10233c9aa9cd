"""Answers: any bytes are read, and what they mean is bounded JSON that a store takes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.phases import flaw_of
from backoff_ctrl.k8s.tasks.services.rest.answers import message_of, phase_of, read_answer
from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from tests.tasks.webapi.rest.jobs_service import described

JSON = dict[str, Any]
CONFIG = described(
    message="$.message",
    outputs={"loss": "$.result.loss", "all": "$.result"},
    show={"node": "$.node"},
    logs=[{"name": "page", "url": "{$.url}/#/{$.id}"}, {"name": "file", "url": "{$.answer.log}"}],
    completion_time=["$.ended"],
    error=["$.error.reason", "$.detail"],
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["done", "broken", "\ud800"]),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.sampled_from(["state", "message", "result", "node", "id", "log", "ended"]), each),
    max_leaves=12,
)  # fmt: skip


@given(st.binary() | ANY_JSON.map(lambda value: json.dumps(value).encode()), st.integers(100, 599))
def test_any_answer_is_read(content: bytes, status: int) -> None:
    """It has a body, or a sentence; and what a body means can be stored."""
    answer = read_answer(status, content, 1_000)
    assert (answer.body is None) == bool(answer.flaw)
    assert message_of(CONFIG, answer).isprintable()
    if isinstance(answer.body, dict):
        info = phase_of(CONFIG, answer.body, {"id": "j1", "url": "http://here"})
        assert flaw_of(info) == ""


def test_an_answer_has_all_that_is_described() -> None:
    """Outputs only of a success."""
    body: JSON = {
        "state": "done",
        "message": "fine",
        "result": {"loss": 0.5},
        "node": "n1",
        "log": "s3://x",
        "ended": "2026-05-04T12:00:00Z",
    }
    info = phase_of(CONFIG, body, {"id": "j1", "url": "http://here"})
    assert (info.phase, info.reason, info.outputs, info.custom) == (
        Phase.SUCCESS,
        "fine",
        {"loss": 0.5, "all": {"loss": 0.5}},
        {"node": "n1"},
    )
    assert [(each.name, each.uri) for each in info.logs] == [("page", "http://here/#/j1"), ("file", "s3://x")]
    assert info.occurred_at is not None
    early = phase_of(CONFIG, {**body, "state": "runs"}, {})
    assert (early.outputs, early.occurred_at, [each.name for each in early.logs]) == (None, None, ["file"])


def test_outputs_that_are_too_large_are_not_kept() -> None:
    """The task has succeeded all the same, and says so."""
    info = phase_of(CONFIG, {"state": "done", "result": {"loss": "x" * 20_000}}, {})
    assert (info.phase, info.outputs) == (Phase.SUCCESS, None)
    assert info.reason == "its outputs are not kept: 40033 bytes as JSON, more than 16384"


def test_a_long_detail_is_cut_or_left_out() -> None:
    """A state is stored at each step."""
    assert phase_of(CONFIG, {"state": "runs", "node": "x" * 9_000}, {}).custom == {"node": "x" * 2_000}
    assert phase_of(CONFIG, {"state": "runs", "node": ["x" * 9_000]}, {}).custom == {}
    assert len(phase_of(CONFIG, {"state": "runs", "message": "x" * 9_000}, {}).reason) == 2_000


def test_half_a_character_is_a_question_mark() -> None:
    """JSON can say one, and no store takes it."""
    answer = read_answer(200, rb'{"state": "runs", "message": "\ud83d!", "\udc00": "\ud83d\ude00"}', 1_000)
    assert answer.body == {"state": "runs", "message": "?!", "?": "\N{GRINNING FACE}"}


def test_what_a_service_says_is_found_where_the_description_has_it() -> None:
    """Else its text; of a traceback the last line; of a page its title."""
    rows = {
        b'{"error": {"reason": "no room"}, "detail": "x"}': "no room: x",
        b'{"other": 1}': '{"other": 1}',
        b"not \x1b[31m today\n": "not ?[31m today",
        b"Traceback (most recent call last):\n  File x\nValueError: no such job\n": "ValueError: no such job",
        b"<!DOCTYPE html><title> Bad\nGateway </title>": 'an HTML page "Bad Gateway"',
        b"": "it is empty",
    }
    assert {content: message_of(CONFIG, read_answer(500, content, 1_000)) for content in rows} == rows


def test_an_entry_reads_an_answer_by_itself() -> None:
    """For people who try a description."""
    phase_of_entry = entry_of(CONFIG).phase_of
    assert phase_of_entry is not None
    info = phase_of_entry({"id": "j1", "state": "evicted"})
    assert info.error is not None
    assert (info.phase, info.error.code) == (Phase.RETRYABLE_FAILURE, "Evicted")

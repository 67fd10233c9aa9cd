"""Answers as real servers and clients wrote them: every text of tests/data/answers.jsonl, verbatim, with its origin."""

# ruff: noqa: E501  # sentences of servers stay whole

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.answers.rejections import Lane, Rejection, read_rejection

ANSWERS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "answers.jsonl").read_text("utf-8").splitlines()
]
QUOTA = [answer for answer in ANSWERS if answer["lane"] == "quota"]
SENTENCE = (
    'pods "p-95p4j" is forbidden: exceeded quota: team, requested: requests.cpu=1500m,requests.nvidia.com/gpu=1, '
    "used: requests.cpu=1500m,requests.nvidia.com/gpu=1, limited: requests.cpu=2,requests.nvidia.com/gpu=1"
)
SECOND = SENTENCE.replace("team", "other").replace("gpu=1,", "gpu=2,")


def named(answers: list[dict[str, Any]]) -> list[Any]:
    """Name the cases by where they were published."""
    return [pytest.param(answer, id=f"{answer['origin']}-{answer['lane']}") for answer in answers]


def assert_says(rejection: Rejection, answer: dict[str, Any]) -> None:
    """Compare what was read with what a person reads in the text."""
    assert rejection.lane == answer["lane"]
    assert rejection.quota == answer["quota"]
    for part in ("requested", "used", "limited"):
        expected = {name: parse_quantity(text) for name, text in answer.get(part, {}).items()}
        assert getattr(rejection, part) == expected


def test_there_are_texts_of_many_origins() -> None:
    """The table is wide: tens of public threads, most lanes, every quota text from the wild."""
    assert len({answer["origin"] for answer in ANSWERS}) >= 60
    assert len(QUOTA) >= 30
    assert len({answer["lane"] for answer in ANSWERS}) >= 14


@pytest.mark.parametrize("answer", named(ANSWERS))
def test_a_published_text_is_read_as_a_person_reads_it(answer: dict[str, Any]) -> None:
    """Lane, quota and amounts of a text as it was published, status unknown where it was a line of a log."""
    assert_says(read_rejection(answer["status"], {}, answer["text"].encode()), answer)
    assert_says(read_rejection(answer["status"], {}, answer["text"]), answer)


@pytest.mark.parametrize("answer", named(QUOTA))
def test_a_published_quota_text_survives_another_json_wrapping(answer: dict[str, Any]) -> None:
    """The same text as the message of a Status, and as a JSON string inside a line of a log."""
    status = {"kind": "Status", "status": "Failure", "message": answer["text"], "code": 403}
    assert_says(read_rejection(403, {}, json.dumps(status)), answer)
    assert_says(read_rejection(0, {}, f'level=error msg={json.dumps(answer["text"])} pod="x"'), answer)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "."),
        ("[", "]"),
        ("'", "'"),
        ('"', '"'),
        ("", "\n"),
        ("(", ")"),
        ("<", ">"),
        ("`", "`"),
        ("Error creating: ", " (retrying in 5s)"),
        ('admission webhook "q.example.com" denied the request: ', ""),
        ('admission webhook "q.example.com" denied the request: [', "]."),
        (
            "Message: Forbidden!Configured service account doesn't have access. Service account may have been revoked. ",
            ".",
        ),
        ('{"error": "', '", "code": 403}'),
        ("[", f", {SECOND}]"),
        ("pods is not quota: exceeded quota: bad-one, requested: x, used: y, limited: z; ", ""),
    ],
)
def test_the_quota_sentence_is_found_in_any_coat(before: str, after: str) -> None:
    """Prefixes, quotes, brackets, several errors: the first whole refusal counts, exactly."""
    rejection = read_rejection(0, {}, f"{before}{SENTENCE}{after}")
    assert rejection.lane is Lane.QUOTA
    assert rejection.quota == "team"
    assert rejection.requested == {"requests.cpu": 1_500_000_000, "requests.nvidia.com/gpu": 1_000_000_000}
    assert rejection.limited == {"requests.cpu": 2_000_000_000, "requests.nvidia.com/gpu": 1_000_000_000}


@pytest.mark.parametrize("status", [0, 400, 403, 422, 429, 500, 503])
def test_a_quota_text_is_a_quota_whatever_error_status_brings_it(status: int) -> None:
    """Webhooks choose their own status; the text is the only thing that tells."""
    assert read_rejection(status, {}, SENTENCE).lane is Lane.QUOTA


@pytest.mark.parametrize("status", [200, 201, 204, 301])
def test_a_success_is_no_rejection_whatever_it_says(status: int) -> None:
    """An object that quotes a refusal, an event for one, is not refused."""
    assert read_rejection(status, {}, SENTENCE).lane is Lane.OTHER


@pytest.mark.parametrize(
    "text",
    [
        "exceeded quota: q",
        "exceeded quota: q, requested: ",
        "exceeded quota: q, requested: cpu=1",
        "exceeded quota: q, requested: cpu=1, used: cpu=1",
        "exceeded quota: q, requested: cpu=1, used: cpu=1, limited: ",
        "exceeded quota: q, requested: cpu=x, used: cpu=y, limited: cpu=z",
        "exceeded quota: q, requested: cpu=1, used: cpu=1, limited: memory=1",
        "exceeded quota: q, requested: =1, used: =1, limited: =1",
        "exceeded quota: q, requested: cpu=9e999, used: cpu=1, limited: cpu=9e999",
    ],
)
@pytest.mark.parametrize("status", [0, 403])
def test_half_a_quota_text_teaches_nothing(text: str, status: int) -> None:
    """A refusal without its amounts can't be waited for: it is none of the lanes."""
    body = json.dumps({"kind": "Status", "message": text}, separators=(",", ":")).encode()
    for answer in (text.encode(), body):
        rejection = read_rejection(status, {}, answer)
        assert rejection.lane is Lane.OTHER
        assert not rejection.requested
        assert not rejection.limited


@pytest.mark.parametrize(
    ("requested", "limited", "never"),
    [
        ("cpu=2", "cpu=2", False),
        ("cpu=2001m", "cpu=2", True),
        ("cpu=2", "cpu=0", False),
        ("cpu=1,pods=5", "cpu=0,pods=4", True),
        ("memory=1537Mi", "memory=1.5Gi", True),
        ("memory=1536Mi", "memory=1.5Gi", False),
    ],
)
def test_more_than_the_whole_quota_never_fits_and_zero_is_a_pause(requested: str, limited: str, never: bool) -> None:
    """Strictly greater than a limit above zero, in any resource that is named."""
    used = ",".join(f"{item.partition('=')[0]}=0" for item in limited.split(","))
    text = f"exceeded quota: q, requested: {requested}, used: {used}, limited: {limited}"
    assert read_rejection(403, {}, text).never_fits is never


def test_headroom_goes_below_zero_when_a_quota_was_made_after_its_pods() -> None:
    """A server can report more used than limited; what is left is negative then, not zero."""
    text = "exceeded quota: q, requested: cpu=1, used: cpu=4500m, limited: cpu=2"
    assert read_rejection(403, {}, text).headroom == {"cpu": -2_500_000_000}


def test_the_fast_way_and_the_careful_way_read_the_same() -> None:
    """A Status as API servers send it is read without parsing JSON: to the same value, field by field."""
    for answer in QUOTA:
        message = " ".join(answer["text"].split())
        details = {"name": "p", "kind": "pods"}
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": message}
        status |= {"reason": "Forbidden", "details": details, "code": 403}
        compact = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
        careful = read_rejection(403, {}, json.dumps({"x": 1} | status, indent=1))
        quick = read_rejection(403, {}, compact.encode())
        assert (quick.lane, quick.quota, quick.requested, quick.used, quick.limited, quick.never_fits) == (
            careful.lane,
            careful.quota,
            careful.requested,
            careful.used,
            careful.limited,
            careful.never_fits,
        )
        assert message.startswith(quick.message)  # what follows the sentence is cut off


def test_the_message_of_a_status_is_shown_without_its_json() -> None:
    """What people read is the sentence of the server, unescaped."""
    status = {"kind": "Status", "apiVersion": "v1", "message": SENTENCE, "reason": "Forbidden", "code": 403}
    assert read_rejection(403, {}, json.dumps(status, separators=(",", ":")).encode()).message == SENTENCE
    assert read_rejection(403, {}, json.dumps(status, indent=2).encode()).message == SENTENCE
    assert read_rejection(0, {}, f"HTTP response body: {json.dumps(status)}\n").message == SENTENCE

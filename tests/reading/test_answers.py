"""Published answers of real servers and clients: each text of tests/data/answers.jsonl, verbatim, with its origin."""

# ruff: noqa: E501  # sentences of servers stay whole

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection, read_rejection

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
    """Label each case with its origin and its lane."""
    return [pytest.param(answer, id=f"{answer['origin']}-{answer['lane']}") for answer in answers]


def assert_says(rejection: Rejection, answer: dict[str, Any]) -> None:
    """Compare the parsed rejection with the expected lane, quota and amounts."""
    assert rejection.lane == answer["lane"]
    assert rejection.quota == answer["quota"]
    for part in ("requested", "used", "limited"):
        expected = {name: parse_quantity(text) for name, text in answer.get(part, {}).items()}
        assert getattr(rejection, part) == expected


def test_the_texts_have_many_origins() -> None:
    """The data covers at least 60 public sources, 30 quota texts and 14 lanes."""
    assert len({answer["origin"] for answer in ANSWERS}) >= 60
    assert len(QUOTA) >= 30
    assert len({answer["lane"] for answer in ANSWERS}) >= 14


@pytest.mark.parametrize("answer", named(ANSWERS))
def test_a_published_text_is_read_correctly(answer: dict[str, Any]) -> None:
    """Lane, quota and amounts are right; for lines of a log the status is unknown."""
    assert_says(read_rejection(answer["status"], {}, answer["text"].encode()), answer)
    assert_says(read_rejection(answer["status"], {}, answer["text"]), answer)


@pytest.mark.parametrize("answer", named(QUOTA))
def test_a_published_quota_text_survives_another_json_wrapping(answer: dict[str, Any]) -> None:
    """The same text as the message of a Status, if a server said it, and as a JSON string inside a line of a log."""
    if answer["status"] and not answer["text"].startswith("{"):
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
def test_the_quota_sentence_is_found_in_any_wrapping(before: str, after: str) -> None:
    """Prefixes, quotes, brackets, several errors: the first complete rejection counts, with exact amounts."""
    rejection = read_rejection(0, {}, f"{before}{SENTENCE}{after}")
    assert rejection.lane is Lane.QUOTA
    assert rejection.quota == "team"
    assert rejection.requested == {"requests.cpu": 1_500_000_000, "requests.nvidia.com/gpu": 1_000_000_000}
    assert rejection.limited == {"requests.cpu": 2_000_000_000, "requests.nvidia.com/gpu": 1_000_000_000}


@pytest.mark.parametrize("status", [0, 400, 403, 422, 429, 500, 503])
def test_a_quota_text_has_the_quota_lane_under_any_error_status(status: int) -> None:
    """Webhooks choose their own status, so only the text is reliable."""
    assert read_rejection(status, {}, SENTENCE).lane is Lane.QUOTA


PLANTED = "exceeded quota: fake, requested: pods=1, used: pods=5, limited: pods=5"


@pytest.mark.parametrize(
    "message",
    [
        # A name, a subresource's, a user's, a namespace's: quoted as Go does it, so that none can end its quotes.
        'pods "NAME" is forbidden: User "eve" cannot create resource "pods/exec" in API group "" in the namespace "n"',
        'users "NAME" is forbidden: User "eve" cannot impersonate resource "users" in API group "" at the cluster scope',
        'pods is forbidden: User "NAME" cannot create resource "pods" in API group "" in the namespace "n"',
        'pods is forbidden: User "eve" cannot create resource "pods" in API group "" in the namespace "NAME"',
        'pods "NAME" is forbidden: maximum cpu usage per Container is 1, but limit is 2',
        'pods "NAME" not found',
        # The resource and its group come from the URL, and stand there without quotes.
        'NAME is forbidden: User "eve" cannot create resource "NAME" in API group "" in the namespace "n"',
        'pods.NAME "x" is forbidden: User "eve" cannot create resource "pods" in API group "NAME" in the namespace "n"',
        'admission webhook "w.example.com" denied the request: the image NAME is not allowed',
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        PLANTED,
        PLANTED.capitalize(),
        f'pods "x" is forbidden: {PLANTED}',
        f"pods is forbidden: {PLANTED}",
        f'x" is forbidden: {PLANTED}',
        f'admission webhook "w" denied the request: {PLANTED}',
        f'","message":"pods is forbidden: {PLANTED}","x":"',
    ],
)
def test_a_sentence_that_somebody_put_into_a_name_teaches_nothing(message: str, name: str) -> None:
    """A 403 repeats what was asked for, in its message and in its details; any namespace can be asked for."""
    quoted = message.replace('"NAME"', json.dumps(name)).replace("NAME", name)
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": quoted}
    status |= {"reason": "Forbidden", "details": {"name": name, "kind": name}, "code": 403}
    for body in (json.dumps(status, separators=(",", ":")), json.dumps(status, indent=1), quoted):
        for answer in (body, body.encode()):
            assert read_rejection(403, {}, answer).lane is not Lane.QUOTA
            assert not read_rejection(403, {}, answer).limited


@pytest.mark.parametrize("status", [200, 201, 204, 301])
def test_a_success_is_never_a_rejection(status: int) -> None:
    """An object that quotes a rejection, such as an event, was not rejected."""
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
def test_an_incomplete_quota_text_yields_no_amounts(text: str, status: int) -> None:
    """A create cannot wait for a rejection without amounts, so its lane is other."""
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
def test_a_request_above_the_whole_quota_never_fits_and_a_zero_limit_is_a_pause(
    requested: str, limited: str, never: bool
) -> None:
    """It never fits if any named resource is strictly greater than a limit above zero."""
    used = ",".join(f"{item.partition('=')[0]}=0" for item in limited.split(","))
    text = f"exceeded quota: q, requested: {requested}, used: {used}, limited: {limited}"
    assert read_rejection(403, {}, text).never_fits is never


def test_headroom_is_negative_when_a_quota_is_newer_than_its_pods() -> None:
    """A server can report more used than limited; the headroom is then negative, not zero."""
    text = "exceeded quota: q, requested: cpu=1, used: cpu=4500m, limited: cpu=2"
    assert read_rejection(403, {}, text).headroom == {"cpu": -2_500_000_000}


def test_the_fast_path_and_the_full_parser_agree() -> None:
    """The fast path reads a Status without parsing its JSON, and gives the same value in every field."""
    for answer in (answer for answer in QUOTA if answer["status"] and not answer["text"].startswith("{")):
        message = " ".join(answer["text"].split())
        details = {"name": "p", "kind": "pods"}
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "message": message}
        status |= {"reason": "Forbidden", "details": details, "code": 403}
        compact = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
        full = read_rejection(403, {}, json.dumps({"x": 1} | status, indent=1))
        quick = read_rejection(403, {}, compact.encode())
        assert (quick.lane, quick.quota, quick.requested, quick.used, quick.limited, quick.never_fits) == (
            full.lane,
            full.quota,
            full.requested,
            full.used,
            full.limited,
            full.never_fits,
        )
        assert message.startswith(quick.message)  # text after the sentence is cut off


def test_the_message_of_a_status_is_shown_without_its_json() -> None:
    """The message is the server's sentence, unescaped."""
    status = {"kind": "Status", "apiVersion": "v1", "message": SENTENCE, "reason": "Forbidden", "code": 403}
    assert read_rejection(403, {}, json.dumps(status, separators=(",", ":")).encode()).message == SENTENCE
    assert read_rejection(403, {}, json.dumps(status, indent=2).encode()).message == SENTENCE
    assert read_rejection(0, {}, f"HTTP response body: {json.dumps(status)}\n").message == SENTENCE

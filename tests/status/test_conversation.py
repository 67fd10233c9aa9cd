"""The conversation without I/O: ETags, 304 and problems, as any adapter gets them."""

from __future__ import annotations

import json

import pytest

from backoff_ctrl.k8s.status.asked import ProblemError, check_sender
from backoff_ctrl.k8s.status.conversation import Answer, answer, problem, target_of
from backoff_ctrl.k8s.status.endpoints import find
from backoff_ctrl.k8s.status.shapes import Acted, Page

ITEMS = [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (Page("now", ITEMS), Page("later", ITEMS), Page("now", ITEMS[:1])),
        (Page("now", ITEMS, "n"), Page("later", ITEMS, "n"), Page("now", ITEMS, "m")),
        (Acted("now", "pause", "done"), Acted("later", "pause", "done"), Acted("now", "resume", "done")),
        ({"as_of": "now", "items": ITEMS}, {"as_of": "later", "items": ITEMS}, {"as_of": "now", "items": []}),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_known_etag_is_answered_304_until_more_than_the_time_changes(
    one: object, same: object, other: object, method: str
) -> None:
    first = answer(method, {}, one)
    assert json.loads(first.whole)["as_of"] == "now"
    asked = {"if-none-match": f'"x", W/{first.headers["ETag"]}'}
    known = answer(method, asked, same)
    assert (known.status, known.whole, known.content_type) == (304, b"", "")
    assert known.headers == first.headers
    assert answer(method, asked, other).status == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_what_was_done_is_never_unchanged(method: str) -> None:
    made = answer(method, {"if-none-match": "*"}, Answer.showing({"name": "task"}, 201))
    assert (made.status, made.whole) == (201, b'{"name":"task"}')


def test_a_text_has_no_etag() -> None:
    found = answer("GET", {"if-none-match": "*"}, Answer([b"o", b"k\n"]))
    assert (found.status, found.whole, found.headers) == (200, b"ok\n", {})


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (ProblemError(401, "who?"), {"WWW-Authenticate": "Bearer"}),
        (ProblemError(503, "later"), {"Retry-After": "5"}),
        (ProblemError(404, "what?", "#/path"), {}),
    ],
)
def test_a_problem_has_the_headers_of_its_status(error: ProblemError, headers: dict[str, str]) -> None:
    found = problem(error)
    assert (found.status, found.content_type, found.headers) == (
        error.problem.status,
        "application/problem+json",
        headers,
    )
    assert json.loads(found.whole)["detail"] == str(error)


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("PUT", "/v1/gates", "GET, HEAD"), ("GET", "/v1/explain", "POST"), ("POST", "/v1/requests/\udcff", "GET, HEAD"),
])  # fmt: skip
def test_another_method_is_told_those_of_the_path(method: str, path: str, allowed: str) -> None:
    """Even where the path is no valid text."""
    with pytest.raises(ProblemError) as caught:
        find(method, path)
    found = problem(caught.value)
    assert (found.status, found.headers) == (405, {"Allow": allowed})
    assert json.loads(found.whole)["detail"] == str(caught.value)


@pytest.mark.parametrize(("target", "found"), [
    ("/v1/gates?a=b#c", ("there", "/v1/gates", "a=b")),
    ("http://localhost:1/v1/gates?a", ("localhost:1", "/v1/gates", "a")),
    ("HTTP://localhost", ("localhost", "", "")),
    ("ftp://localhost/", ("there", "ftp://localhost/", "")),
])  # fmt: skip
def test_a_target_may_be_a_whole_url(target: str, found: tuple[str, str, str]) -> None:
    assert target_of(target, "there") == found


@pytest.mark.parametrize(("host", "origin", "acts"), [
    (None, None, False), ("elsewhere", None, False), ("localhost", "http://elsewhere", False),
    ("localhost:1", "http://localhost:2", True), ("localhost", "null", False),
])  # fmt: skip
def test_a_server_of_this_machine_answers_its_names_and_pages(host: str | None, origin: str | None, acts: bool) -> None:
    """Pages of other ports may read, but not act."""
    check_sender("localhost:80", "http://localhost:9", hosts=(), acts=False)
    check_sender("localhost:80", "http://localhost:80", hosts=(), acts=True)
    check_sender("here:80", None, hosts={"here"}, acts=False)
    with pytest.raises(ProblemError) as caught:
        check_sender(host, origin, hosts=(), acts=acts)
    assert caught.value.problem.status == 403


def test_a_server_for_other_machines_refuses_posts_of_other_pages() -> None:
    check_sender("there", "https://there", hosts=None, acts=True)
    check_sender("there", "https://elsewhere", hosts=None, acts=False)
    with pytest.raises(ProblemError):
        check_sender("there", "https://elsewhere", hosts=None, acts=True)

"""The reader on arbitrary input: any bytes, status and headers give a lane in bounded time, never an exception."""

# ruff: noqa: E501  # tables of fragments

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.answers.rejections import LONGEST_BODY, Lane, Rejection, read_rejection

WORDS = st.sampled_from(
    [
        "exceeded quota: ", "Exceeded quota: ", 'exceeded hierarchical quota in namespace "', ", requested: ", ", used: ",
        ", limited: ", "cpu=1", "memory=1Gi", "pods=1.", "a=", "=1", ",", ":", '"', "\\", "\\n", "\n", " ", "[", "]", "{",
        "}", '{"kind":"Status"', '"message":"', '"code":403', "failed quota: ", "must specify ", "status unknown for quota: ",
        'User "', '" cannot ', "admission webhook ", "denied the request", "maximum ", " usage per ", "Reason: ", "Conflict",
        "9e999", "1e-9", "٣", "\x00", "\ud800",
    ]
)  # fmt: skip
texts = st.lists(WORDS | st.text(max_size=5), max_size=40).map("".join)
bodies = st.binary(max_size=400) | texts | texts.map(lambda text: text.encode("utf-8", "surrogatepass"))
statuses = st.sampled_from([0, 200, 400, 401, 403, 404, 409, 422, 429, 500, 503, 504]) | st.integers(-(2**40), 2**40)
headers = st.dictionaries(
    st.sampled_from(["Retry-After", "retry-after", "X"]) | st.text(max_size=8), st.text(max_size=8)
)


@given(statuses, headers, bodies)
@example(403, {}, b'{"kind":"Status","message":"\\u0065xceeded quota: q, requested: a=1, used: a=1, limited: a=1"}')
@example(403, {}, b'{"kind":"Status" exceeded quota: q, requested: a=1, used: a=1, limited: a=1"')
@example(403, {}, b'{"kind":"Status","message":"\\t exceeded quota: q, requested: a=1, used: a=1, limited: a=1"}')
@example(0, {}, b'{"kind":"Status","message":1,"reason":[],"details":[],"code":"x"}')
@example(0, {}, b'{"kind":"Status","message":null,"details":{"causes":{},"retryAfterSeconds":true}}')
@example(0, {"Retry-After": "1" * 5000}, b"[" * 5000)
def test_any_answer_gives_a_rejection(status: int, headers: dict[str, str], body: bytes | str) -> None:
    """Any input gives a complete Rejection, with amounts only in the lane quota."""
    rejection = read_rejection(status, headers, body)
    assert isinstance(rejection, Rejection)
    assert isinstance(rejection.lane, Lane)
    assert rejection.retry_after is None or 0 <= rejection.retry_after <= 3600
    if rejection.lane is Lane.QUOTA:
        assert rejection.quota
        assert not rejection.requested.keys().isdisjoint(rejection.limited)
    else:
        assert not rejection.requested
        assert not rejection.used
        assert not rejection.limited
    assert set(rejection.headroom) <= set(rejection.limited)
    assert rejection.never_fits in {True, False}


@pytest.mark.parametrize(
    "unit",
    [
        "{", "[", '{"a"', '{"kind":"Status"', "exceeded quota: a, requested: ", "exceeded quota: ", "a=1,", " \n", "\\",
        'exceeded hierarchical quota in namespace "', 'User "', 'User "" cannot ', "cannot be fulfilled on resourcequotas",
        "failed quota: ", "maximum ", "in namespace ", "code=", "Reason: A ", "rror from server (", "cannot create resource",
        "admission webhook ", '"not found"', 'a "', "x", '"', "é",
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [0, 403, 409])
def test_a_hostile_text_is_read_in_linear_time(unit: str, status: int) -> None:
    """No repetition causes backtracking: a megabyte is cut and read in some milliseconds, not in minutes."""
    body = (unit * (1_048_576 // len(unit))).encode()
    started = time.thread_time()
    read_rejection(status, {}, body)
    assert time.thread_time() - started < 20.0


def test_a_list_of_amounts_of_any_length_is_read_in_linear_time() -> None:
    """A rejection that names 500 resources is read completely."""
    items = ",".join(f"requests.example.com/d{index}=1" for index in range(500))
    rejection = read_rejection(403, {}, f"exceeded quota: q, requested: {items}, used: {items}, limited: {items}")
    assert len(rejection.limited) == 500


def test_text_beyond_the_body_limit_is_not_read() -> None:
    """A quota sentence after the first LONGEST_BODY characters does not count."""
    text = " " + "x" * LONGEST_BODY + " exceeded quota: q, requested: a=1, used: a=1, limited: a=1"
    assert read_rejection(0, {}, text).lane is Lane.OTHER

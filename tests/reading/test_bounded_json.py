"""What an API server answers is read whatever is in it: one odd object costs no other of its page."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.answers.bounded_json import DEPTH_MAX, PartlyRead, is_deeper, read_json
from tests.odd_objects import odd_job

texts = st.sampled_from(['"', "\\", "[", "}", '\\"', "[{", "é", "a", "\u2028"]) | st.text(max_size=4)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


def levels_of(value: Any) -> int:
    """Return the levels of a value, counted naively."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


@given(trees, st.booleans(), st.integers(0, 6))
def test_depth_is_judged_on_the_bytes_as_on_the_value(value: Any, ascii_only: bool, levels: int) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert is_deeper(data, levels) == (levels_of(value) > levels)


@given(trees)
def test_what_is_within_the_bounds_is_read_as_it_is(value: Any) -> None:
    assert read_json(json.dumps(value).encode()) == value


BAD = {
    "deep": b"[" * 2000 + b"]" * 2000,
    "a level too deep": b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
    "deep in strings, too": b'{"[{\\"":["]}",' * 2000 + b"1" + b"]}" * 2000,
    "digits": b"1" * 5000,
    "no UTF-8": b'"\xff\xfe"',
}
PLAIN = {"metadata": {"name": "plain", "uid": "p"}, "spec": {"items": [[1, "}"]], "object": {}}}


def odd(bad: bytes) -> bytes:
    return (
        b'{"kind":"Job","metadata":{"name":"odd","uid":"o","managedFields":[{"fieldsV1":' + bad + b'}]},"spec":{"a":1}}'
    )


def is_the_odd_one(found: Any) -> bool:
    return (
        isinstance(found, PartlyRead)
        and bool(found.why)
        and (found["metadata"]["name"], found["metadata"]["uid"], found["spec"]) == ("odd", "o", {"a": 1})
    )


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_one_odd_object_is_read_in_part_and_all_others_whole(bad: bytes) -> None:
    """Alone, on a page, in a line of a watch, and in a single answer: its name, uid and spec are known."""
    plain = json.dumps(PLAIN).encode()
    page = b'{"kind":"JobList","metadata":{"resourceVersion":"7"},"items":[%s,%s,{},%s]}' % (plain, odd(bad), plain)
    found = read_json(page)
    assert found["metadata"] == {"resourceVersion": "7"}
    first, second, *others = found["items"]
    assert [first, *others] == [PLAIN, {}, PLAIN]
    assert is_the_odd_one(second)
    line = read_json(b'{"type":"DELETED","object":%s}' % odd(bad))
    assert line["type"] == "DELETED"
    assert is_the_odd_one(line["object"])
    assert is_the_odd_one(Answer(200, {}, odd(bad)).json())


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=20))
@example([*range(300)])
def test_no_page_is_lost_whatever_its_objects_are(seeds: list[int]) -> None:
    objects = [odd_job(random.Random(seed), number) for number, seed in enumerate(seeds)]
    alone = [read_json(each) for each in objects]
    page = read_json(b'{"metadata":{},"items":[' + b",".join(objects) + b"]}")
    assert page["items"] == alone
    assert all(each["spec"]["suspend"] for each in alone)


@given(st.binary(max_size=200) | trees.map(lambda value: json.dumps(value).encode()[:-1]))
@example(b"[" * 100_000)
@example(b'{"items":[' * 300)
@example(b"]" * 500)
@example(b'"' * 501)
def test_other_bytes_raise_nothing_but_value_errors(data: bytes) -> None:
    try:
        read_json(data)
    except ValueError:
        assert Answer(200, {}, data).json() is None

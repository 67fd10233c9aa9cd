"""What an API server answers is read whatever is in it: one odd object costs no other of its page."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.bounded_json import DEPTH_MAX, PartlyRead, is_deeper, read_json, read_line
from tests.kit.odd_objects import odd_job

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


# -- trimmed ---------


def named(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its spec."""
    return {name: value for name, value in body.items() if name != "spec"}


@given(st.lists(trees, max_size=4), trees, st.booleans(), st.sampled_from([None, 1]))
def test_items_are_trimmed_as_if_all_were_read_first(items: list[Any], other: Any, last: bool, indent: Any) -> None:
    """Wherever a server writes the items: those of custom resources are before the metadata."""
    plain = [PLAIN, *items, {**PLAIN, "spec": items}]
    page = {"items": plain, "metadata": {"continue": "a"}, "other": other}
    if last:
        page = dict(reversed(page.items()))
    found = read_json(json.dumps(page, indent=indent).encode(), named)
    assert found == {**page, "items": [named(each) if isinstance(each, dict) else each for each in plain]}


@pytest.mark.parametrize("change", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"])
def test_the_object_of_an_event_is_trimmed(change: str) -> None:
    event = {"type": change, "object": {**PLAIN, "items": [PLAIN]}}
    found = read_line(json.dumps(event).encode(), named)
    assert ("spec" in found["object"]) == (change in {"BOOKMARK", "ERROR"})


@pytest.mark.parametrize("bad", BAD)
def test_what_is_read_in_part_is_trimmed_and_stays_marked(bad: str) -> None:
    odd = b'{"metadata":{"name":"odd"},"spec":{"a":1},"x":' + BAD[bad] + b"}"
    page = b'{"metadata":{"resourceVersion":"7"},"items":[' + json.dumps(PLAIN).encode() + b"," + odd + b"]}"
    plain, found = read_json(page, named)["items"]
    assert plain == named(PLAIN)
    assert isinstance(found, PartlyRead)
    assert found.why
    assert "spec" not in found
    assert found["metadata"] == {"name": "odd"}
    assert read_line(b'{"type":"ADDED","object":' + odd + b"}", named)["object"] == found


@pytest.mark.parametrize("data", [b"[]", b"1", b"{}", b'{"items":[]}', b'{"items":null}', b' { "a" : 1 } '])
def test_what_has_no_items_is_read_as_it_is(data: bytes) -> None:
    assert read_json(data, named) == json.loads(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"items":[', b'{"items":[1 2]}', b'{"items":[1,]}', b'{"a":1}{}', b"{1:2}"]
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    for trim in (None, named):
        with pytest.raises(ValueError, match=r".+"):
            read_json(data, trim)


def test_a_page_takes_little_memory_beside_what_is_needed_of_it() -> None:
    """Of 40 objects with 2,000 entries each one is there at a time, not all."""
    item = {**PLAIN, "spec": {"env": [{"name": f"a{each}"} for each in range(2_000)]}}
    data = json.dumps({"metadata": {}, "items": [item] * 40}).encode()
    peaks = []
    for trim in (None, named):
        tracemalloc.start()
        read_json(data, trim)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 3
    assert peaks[1] < 6 * len(data)

"""YAML that is read: what PyYAML says of it, in bounded time."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.proxy.http.messages import PayloadError
from backoff_ctrl.k8s.proxy.http.yaml_text import DEEPEST, LONGEST_NUMBER, MOST_VALUES, read_yaml

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=9),
    TEXTS,
    st.sampled_from(
        ["yes", "no", "~", "", "1:30", "0x1f", "0o17", "017", "1_000", "1e3", "<<", "=", "- a", "a: b", "|"]
    ),
)
KEYS = TEXTS.filter(lambda key: key != "<<")
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@pytest.mark.long
@given(
    value=st.dictionaries(KEYS, VALUES, max_size=5),
    flow=st.sampled_from([True, False, None]),
    style=st.sampled_from([None, '"', "'", "|", ">"]),
    canonical=st.booleans(),
)
def test_what_is_read_is_what_pyyaml_reads(value: Any, flow: bool | None, style: str | None, canonical: bool) -> None:
    """In every style in which it writes an object."""
    text = yaml.dump(
        value, default_flow_style=flow, default_style=style, canonical=canonical, allow_unicode=True, Dumper=NoAliases
    )
    assert read_yaml(text.encode()) == yaml.load(text, Loader=yaml.CSafeLoader)


class NoAliases(yaml.CSafeDumper):
    """Writes an object that comes twice two times."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write no alias."""
        del data
        return True


@pytest.mark.parametrize(
    "text",
    [
        "a: 1:30\nb: 190:20:30.15\nc: 0x1F\nd: 0b1\ne: 1_000\nf: .inf\ng: 010\nh: 08\ni: +1\nj: 1.\nk: .5\nl: 1e3\n",
        "a: yes\nb: No\nc: on\nd: ~\ne: null\nf:\ng: ''\nh: y\ni: TRUE\n",
        "a: 2001-12-14t21:59:43.10-05:00\nb: 2002-12-14\nc: '2002-12-14'\n",
        "a: !!str 5\nb: !!int '7'\nc: ! 9\nd: !!binary aGk=\ne: !!float 1\nf: !!map {a: 1}\ng: !!seq [1]\n",
        "a: |\n  one\n  two\nb: >-\n  one\n  two\nc: 'it''s'\nd: \"\\u00e9\\n\"\ne: plain # comment\n",
        "%YAML 1.1\n---\na: {b: [c, {d: e}], f: }\n...\n",
        '{"apiVersion": "v1", "a": [1, 2.5, true, null, "x"]}',
        "a: &x [1]\nb: &y {c: &z d}\n",
        "[1, a]",
        "text",
        "",
    ],
)
def test_the_values_of_yaml_are_those_of_pyyaml(text: str) -> None:
    """Numbers in base 60, octal ones, times, tags, blocks, JSON, anchors that nobody refers to."""
    assert read_yaml(text.encode()) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: !!set {b}",
        "a: !!omap [b: 1]",
        "a: !!pairs [b: 1]",
        "a: !!python/object:os.system {}",
        "a: !!python/name:os.system ''",
        "a: !!map b",
        "a: !!set b",
        "a: !!own b",
        "a: {1: b}",
        "a: {yes: b}",
        "a: {~: b}",
        "a: {[b]: c}",
        "a: {b: 1, 'b': 2}",
        "a: {<<: {b: 1}}",
        "a: {'<<': {b: 1}}",
        "a: =",
        "a: [",
        "a: b: c",
        "\ta: b",
    ],
)
def test_yaml_that_is_more_than_json_is_refused(text: str) -> None:
    """Go's reader may take it otherwise."""
    with pytest.raises(PayloadError):
        read_yaml(text.encode())


@pytest.mark.parametrize("written", ["[{}]", "\n{}", "{{{}}}"], ids=["list", "block", "object"])
def test_values_are_counted(written: str) -> None:
    """A body of 32 KiB can have 16,000, and took a quarter of a second in which nobody else was served."""
    most = MOST_VALUES - 3  # the object, its key and the list
    read_yaml(_of(written, most))
    with pytest.raises(PayloadError, match=f"more than {MOST_VALUES} values"):
        read_yaml(_of(written, most + 2))


def _of(written: str, values: int) -> bytes:
    """A document with so many values in one list, or object."""
    if "{{" in written:
        return ("a: {" + ", ".join(f"k{number}: 1" for number in range(values // 2)) + "}").encode()
    return ("a: " + written.format("".join("\n- 1" if "\n" in written else "1," for _ in range(values)))).encode()


@pytest.mark.parametrize("number", ["1" + ":1" * 50, "1" + ":1" * 49 + ".0", "1" * 101, "0x" + "f" * 99])
def test_the_length_of_a_number_is_bounded(number: str) -> None:
    """In base 60 the time grows with its square: one of 32 KiB took 80 ms."""
    assert len(number) == LONGEST_NUMBER + 1
    with pytest.raises(PayloadError, match="number"):
        read_yaml(f"a: {number}".encode())
    assert read_yaml(f"a: '{number}'".encode()) == {"a": number}


def test_levels_are_counted() -> None:
    """The object itself is one."""
    deepest = DEEPEST - 1
    read_yaml(("a: " + "[" * deepest + "]" * deepest).encode())
    with pytest.raises(PayloadError, match="levels"):
        read_yaml(("a: " + "[" * DEEPEST + "]" * DEEPEST).encode())

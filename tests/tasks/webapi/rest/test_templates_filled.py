"""Templates: what of a task is put where, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.operators.paths import Text
from backoff_ctrl.k8s.tasks.services.rest.templates import filled

JSON = dict[str, Any]
TASK: JSON = {
    "name": "train", "attempt": 0, "labels": {"a/b": "c"}, "env": {"A": "1"},
    "custom": {"n": 3, "yes": True, "list": [1, {"x": None}], "env": {"vars": {"A": "0", "B": "2"}, "pip": ["x"]}, "none": None},
}  # fmt: skip

FILLED: dict[str, tuple[Any, Any]] = {
    "a value of any type": (["$.custom.n", "$.custom.yes", "$.custom.list"], [3, True, [1, {"x": None}]]),
    "a word in a text": ("{$.name}-{$.attempt}", "train-0"),
    "other braces": ('{"a": "{$.name}"} {name} {}', '{"a": "train"} {name} {}'),
    "what is no template": ([1, 2.5, None, True, "x"], [1, 2.5, None, True, "x"]),
    "a field without a value": ({"a": "$.custom.x", "b": "x{$.custom.x}", "c": 1}, {"c": 1}),
    "a null": ({"a": "$.custom.none", "c": 1}, {"c": 1}),
    "an object in a text": ({"a": "x{$.custom.env}", "c": 1}, {"c": 1}),
    "an item without a value": (["$.custom.x", "a"], ["a"]),
    "nothing at all": ("$.custom.x", None),
    "an object of which nothing is left": ({"a": {"b": {"c": "$.custom.x"}}, "d": {}}, {"d": {}}),
    "fields put there": ({"...": "$.custom.env", "c": 1}, {"vars": {"A": "0", "B": "2"}, "pip": ["x"], "c": 1}),
    "what is beside them wins": (
        {"...": "$.custom.env", "vars": "$.env", "pip": ["y"]},
        {"vars": {"A": "1", "B": "2"}, "pip": ["y"]},
    ),
    "no fields to put": ({"a": {"...": "$.custom.x", "b": "$.env"}}, {"a": {"b": {"A": "1"}}}),
}


@pytest.mark.parametrize(("template", "says"), FILLED.values(), ids=FILLED.keys())
def test_a_template_is_filled(template: Any, says: Any) -> None:
    """Nothing is changed in the task, or in the template."""
    before = repr((template, TASK))
    assert filled(template, TASK) == says
    assert repr((template, TASK)) == before


def test_a_text_names_what_it_lacks() -> None:
    """The first path that finds no word."""
    text = Text("/{$.name}/{$.custom.x}/{$.custom.y}")
    assert text.paths == ["$.name", "$.custom.x", "$.custom.y"]
    assert (text.lacking(TASK), text.of(TASK)) == ("$.custom.x", None)
    assert Text("{$.name}").of(TASK, str.upper) == "TRAIN"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("ab{}. "),
        lambda each: st.lists(each) | st.dictionaries(st.text("ab"), each),
    )
)
def test_json_without_a_path_stays_as_it_is(value: Any) -> None:
    """Whatever it holds, so that a constant body needs no quoting."""
    assert filled(value, TASK) == value

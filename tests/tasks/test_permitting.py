"""What may change in the spec of a Task, and which rights it needs: no field is overlooked."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.permitting import ChangedError, changes, fingerprint, to_change, to_create

ENTRIES = registry()
SPEC: dict[str, Any] = {"type": "container", "container": {"image": "a", "x-new": {"deep": [1, {"y": False}]}}}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.sampled_from(["", "1", "true"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
specs = st.dictionaries(st.sampled_from(["type", "custom", "container", "abort", "again"]), values)


def same(one: object, other: object) -> bool:
    """Compare as JSON does: true is not 1, and a field that is null is there."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def fixed(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in {"abort", "signal", "again"}}


@given(specs, specs)
def test_two_specs_are_equal_where_every_field_is(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Against a naive twin; the order of fields does not count."""
    assert (fingerprint(one) == fingerprint(other)) == same(fixed(one), fixed(other))
    assert fingerprint(dict(reversed(one.items()))) == fingerprint(one)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("container", "image"), "b", "spec.container.image"),
        (("container", "x-new", "deep"), [1, {"y": 0}], "spec"),
        (("container", "x-new", "other"), 1, "spec.container.x-new.other"),
        (("priority",), 9, "spec.priority"),
    ],
)
def test_the_first_field_that_differs_is_named(path: tuple[str, ...], value: object, named: str) -> None:
    """Without its value, which may be a secret that whoever changes it must not see."""
    new = copy.deepcopy(SPEC)
    place = new
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ChangedError, match=rf"^{named} can't be changed: .*; only abort, again, signal may change$"):
        changes(SPEC, new)


def test_ending_needs_the_right_to_delete_and_running_again_that_to_create_too() -> None:
    """Each right is on the object that the task has."""
    entry = ENTRIES.resolve("container")
    for new, rights in (
        ({"abort": True}, ["delete pods"]),
        ({"signal": "go"}, ["delete pods"]),
        ({"again": 1, "priority": 3}, ["delete pods", "create pods", "update resourcequotas"]),
        ({"abort": True, "again": 1}, ["delete pods", "create pods"]),
    ):
        spec = {**SPEC, **new}
        changed = changes({**SPEC, **{name: new[name] for name in new if name == "priority"}}, spec)
        assert [str(each) for each in to_change(entry, spec, changed)] == rights
    assert changes(SPEC, SPEC) == frozenset()


@pytest.mark.parametrize(
    ("spec", "rights"),
    [
        (SPEC, ["create pods"]),
        ({**SPEC, "priority": 1, "serviceAccount": "a"}, ["create pods", "update resourcequotas"]),
        ({**SPEC, "priority": -1}, ["create pods"]),
        ({"type": "job"}, ["create jobs.batch"]),
        (
            {"type": "sleep", "secrets": {"T": {"secret": "s", "key": "k"}}},
            ["create tasks.backoff-ctrl.dev", "get secrets/s"],
        ),
        (
            {"type": "ray-job"},
            ["create tasks.backoff-ctrl.dev", "use webplugins.backoff-ctrl.dev/ray-jobs"],
        ),
    ],
)
def test_creating_needs_what_the_task_does(spec: dict[str, Any], rights: list[str]) -> None:
    """An object's own right covers its service account and its Secrets, as Kubernetes has it."""
    assert [str(each) for each in to_create(ENTRIES.resolve(spec["type"]), spec)] == rights

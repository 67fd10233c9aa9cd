"""What is refused in a task, with the field's name and what would be right; and when two specs are one."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import TypeAdapter

from backoff_ctrl.k8s.tasks.documents import TaskDocument
from backoff_ctrl.k8s.tasks.model import schema, seconds_of
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.reading import difference, read_task, wish_of
from tests.tasks.tasks_written import manifest


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"retries": {"usr": 1}}, "spec.retries.usr: unknown; did you mean user?"),
        ({"retries": {"user": "1"}}, 'spec.retries.user: "1" can\'t be used: write a whole number'),
        ({"retries": {"user": -1}}, "spec.retries.user: "),
        ({"typ": "pod"}, "spec.typ: unknown; did you mean type?"),
        ({"zzz": 1}, "spec.zzz: unknown; choose from type, container, "),
        ({"type": ""}, "spec.type: "),
        ({"type": None}, "spec.type: "),
        ({"interruptible": "yes"}, 'spec.interruptible: "yes" can\'t be used: write true or false'),
        ({"priority": True}, "spec.priority: "),
        ({"container": []}, 'spec.container: "[]" can\'t be used: write an object'),
        ({"timeout": "5x"}, 'write a duration such as "90s"'),
        ({"timeout": "0s"}, "would end the task at once"),
        ({"timeout": 5}, "spec.timeout: "),
        ({"needs": "other"}, "spec.needs: "),
        ({"needs": ["Other"]}, 'spec.needs[0].task: "Other" can\'t be used: write the name of a task'),
        ({"needs": [{"task": "a", "endd": "Any"}]}, "spec.needs[0].endd: unknown; did you mean ended?"),
        ({"needs": ["train"]}, "spec.needs: train would wait for itself"),
        ({"needs": ["a", "a"]}, "spec.needs: a is named twice"),
        ({"container": {"args": ["\ud800"]}}, "spec.container.args[0]: \"'\\ud800'\" can't be used: half a surrogate"),
        ({"container": {"args": [float("inf")]}}, "spec.container.args[0]: inf can't be used: JSON has no such number"),
        ({"container": {"args": [date(2020, 1, 1)]}}, "spec.container.args[0]: "),
        ({"container": {"env": {None: "x"}}}, "spec.container.env: the key None can't be used"),
        ({"container": {"env": {"\udfff": "x"}}}, "can't be used: write a text, in quotes"),
    ],
)
def test_a_wrong_field_is_named(spec: dict[str, Any], said: str) -> None:
    """The path, what is wrong, what would be right."""
    with pytest.raises(TaskSpecError) as caught:
        read_task(manifest(**spec))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "Job"}, "apiVersion: this is backoff-ctrl.dev/v1alpha1 Job"),
        ({"apiVersion": "v1"}, "apiVersion: "),
        ({"metadata": {"name": "Not A Name"}}, "metadata.name: "),
        ({"metadata": {}}, "metadata.name: it is required"),
        ({"metadata": {"name": "a", "namespace": "a.b"}}, "metadata.namespace: "),
        ({"metadata": {"name": "a", "labels": {"a": 1}}}, "metadata.labels.a: "),
        ({"status": {"phase": "Success"}}, "status: only the manager writes it"),
        ({"spec": None}, "spec: "),
        ({"more": 1}, "more: unknown"),
        (
            {"apiVersion": None, "apiversion": "backoff-ctrl.dev/v1alpha1"},
            "apiversion: unknown; did you mean apiVersion?",
        ),
        ({"kind": None}, "kind: it is required: Task"),
        ({"kind": "task"}, 'kind: "task" can\'t be used: did you mean Task?'),
        ({"apiVersion": "backoff-ctrl.dev/v1"}, "can't be used: did you mean backoff-ctrl.dev/v1alpha1?"),
        ({"spec": None, "specs": {"type": "container"}}, "specs: unknown; did you mean spec?"),
    ],
)
def test_so_is_one_outside_the_spec(change: dict[str, Any], said: str) -> None:
    """Nothing is guessed, and nothing is left out in silence."""
    with pytest.raises(TaskSpecError) as caught:
        read_task({**manifest(), **change})
    assert said in str(caught.value)


def test_a_bomb_of_aliases_is_refused_before_it_is_copied() -> None:
    """Twelve lines of YAML that stand for 9 to the power of 12 values."""
    bomb: Any = "x"
    for _ in range(12):
        bomb = [bomb] * 9
    with pytest.raises(TaskSpecError, match=r"spec: more than 300,000 values.*aliases"):
        read_task(manifest(container={"args": bomb}))


def test_equal_specs_are_equal_however_they_are_written() -> None:
    """Defaults may be written or left out; ``abort`` is a wish and no part of what is compared."""
    plain = wish_of(read_task(manifest())).spec
    spelt = wish_of(read_task(manifest(retries={"user": 0, "system": 3}, priority=0, needs=[], abort=True))).spec
    assert plain == spelt
    other = wish_of(read_task(manifest(retries={"user": 1}))).spec
    assert difference(plain, other) == "spec.retries is not set there and \"{'user': 1}\" here"


def test_the_fields_of_the_api_say_what_they_mean() -> None:
    """All but those whose name says it, those of the parts too; each part has its own name there, and one shape."""
    found = TypeAdapter(TaskDocument).json_schema(mode="serialization")
    shapes = {"TaskDocument": found, **found["$defs"]}
    silent = {f"{name}.{key}" for name, shape in shapes.items() for key, each in shape["properties"].items()
              if "description" not in each}  # fmt: skip
    assert silent == {
        "TaskDocument.namespace", "TaskDocument.name", "TaskDocument.created_at", "TaskDocument.labels",
        "TaskDocument.annotations",
    }  # fmt: skip
    assert found["required"] == list(found["properties"])


def test_durations_are_read() -> None:
    """As Kubernetes writes them, in whole seconds."""
    assert [seconds_of(text) for text in ("90s", "15m", "1h30m", "2h0m5s")] == [90, 900, 5400, 7205]
    for wrong in ("", "5", "1.5h", "m", "5m1h", "-1s"):
        with pytest.raises(ValueError, match="write a duration"):
            seconds_of(wrong)


def test_the_schema_is_that_of_a_custom_resource() -> None:
    """Names as in YAML, unknown keys refused, each part described."""
    found = schema()
    spec = found["$defs"]["TaskSpec"]
    assert spec["additionalProperties"] is False
    assert {"type", "podTemplate", "primaryContainer", "serviceAccount", "needs"} <= spec["properties"].keys()
    assert spec["required"] == ["type"]
    assert found["properties"]["apiVersion"]["const"] == "backoff-ctrl.dev/v1alpha1"


@pytest.mark.parametrize("custom", [{"rounds": 3, "deep": [{"x": None}]}, [1, "a", True], "text", 0, False, 1.5])
def test_a_plugins_own_parameters_are_any_json(custom: Any) -> None:
    """They are kept as they are; null is none."""
    kept = wish_of(read_task(manifest(custom=custom))).spec["custom"]
    assert (kept, type(kept)) == (custom, type(custom))
    assert "custom" not in wish_of(read_task(manifest(custom=None))).spec
    with pytest.raises(TaskSpecError, match=r"spec\.custom\.at: .* can't be used"):
        read_task(manifest(custom={"at": date(2020, 1, 1)}))

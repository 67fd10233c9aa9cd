"""The generic plugin by itself: what a config can say, what is refused, and what of a state it makes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError
from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.generic import entry_of
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext

JSON = dict[str, Any]
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
STATES: JSON = {"Done": {"phase": "Success"}, "Broken": {"phase": "PermanentFailure"}, "Waits": {"phase": "Queued"}}
LEAST: JSON = {
    "id": "thing",
    "task-types": ["thing"],
    "resource": {"api-version": "example.com/v1", "kind": "Thing", "plural": "things"},
    "state": {"path": "$.status.state"},
    "states": STATES,
}


def told(resource: JSON, **config: Any) -> PhaseInfo:
    """Return what a plugin of this config says."""
    plugin = entry_of(OPERATORS.read({**LEAST, **config}, "here")).plugin
    return plugin.get_task_phase(PluginContext(K8sPluginConfig(), NOW), resource)


def in_state(state: Any, **status: Any) -> JSON:
    return {"metadata": {"name": "t"}, "status": {"state": state, **status}}


def test_the_least_config_is_enough() -> None:
    """Any other state runs, a failure is its user's, and has a code."""
    assert told(in_state("Done")).phase.title == "Success"
    assert told(in_state("New")).phase.title == "Running"
    error = told(in_state("Broken")).error
    assert error is not None
    assert (error.kind, error.code) == ("USER", "Unknown")


@pytest.mark.parametrize(("state", "written"), [(True, True), (True, "true"), (3, 3), (3, "3"), (None, ""), ({}, None)])
def test_states_that_are_no_texts_are_found(state: Any, written: Any) -> None:
    """YAML reads ``true`` and ``3`` as something else than words; a state that is none is the empty one."""
    assert told(in_state(state), states={**STATES, written: {"phase": "Initializing"}}).phase.title == "Initializing"


def test_a_case_changes_what_it_names_and_leaves_the_rest() -> None:
    """The first that fits counts; a path that finds nothing is an empty word."""
    broken = {
        "phase": "RetryableFailure",
        "kind": "SYSTEM",
        "code": "$.status.why",
        "cleanup": True,
        "reason": "it broke",
        "cases": [
            {"path": "$.status.exit", "values": [1, 2], "kind": "USER", "phase": "PermanentFailure"},
            {"path": "$.status.exit", "values": [2, 3], "code": "Three", "cleanup": False, "reason": "it broke thrice"},
            {"path": "$.status.exit", "values": [""], "code": "Unexplained"},
        ],
    }
    config = {"states": {**STATES, "Broken": broken}, "message": ["$.status.why", "$.status.words"]}

    def row(**status: Any) -> tuple[Any, ...]:
        info = told(in_state("Broken", **status), **config)
        assert info.error is not None
        return info.phase.title, info.error.kind.value, info.error.code, info.cleanup_on_failure, info.reason

    assert row(exit=9, why="W") == ("RetryableFailure", "SYSTEM", "W", True, "it broke: W")
    assert row(exit=2, why="W", words="x") == ("PermanentFailure", "USER", "W", True, "it broke: W: x")
    assert row(exit=3) == ("RetryableFailure", "SYSTEM", "Three", False, "it broke thrice")
    assert row() == ("RetryableFailure", "SYSTEM", "Unexplained", True, "it broke")


def test_conditions_give_a_failure_its_code_and_its_words() -> None:
    """Unless the config has its own; among those that are True the end wins, else the latest."""

    def resource(*conditions: tuple[str, str, int]) -> JSON:
        listed = [
            {"type": kind, "status": status, "reason": f"{kind}Reason", "message": "m", "lastTransitionTime": f"2026-05-04T11:00:{at:02}Z"}
            for kind, status, at in conditions
        ]  # fmt: skip
        return {"status": {"conditions": listed}}

    config: JSON = {"state": {"conditions": "$.status.conditions"}}
    info = told(resource(("Broken", "True", 1), ("Waits", "True", 9)), **config)
    assert (info.error and info.error.code, info.reason) == ("BrokenReason", "BrokenReason: m")
    assert info.occurred_at == datetime(2026, 5, 4, 11, 0, 1, tzinfo=UTC)
    assert told(resource(("Waits", "True", 1), ("Works", "True", 2)), **config).phase.title == "Running"
    assert told(resource(("Works", "True", 2), ("Waits", "True", 2)), **config).phase.title == "Queued"
    assert told(resource(("Done", "False", 3), ("Waits", "Unknown", 4)), **config).phase.title == "Running"
    reasoned = {**STATES, "Waits": {"phase": "Queued", "reason": "in line"}}
    assert told(resource(("Waits", "True", 1)), **config, states=reasoned).reason == "in line"
    named = told(resource(("Broken", "True", 1)), **config, code="Mine", message="$.status.conditions[0].type")
    assert (named.error and named.error.code, named.reason) == ("Mine", "Broken")


def test_an_operators_words_are_cut() -> None:
    """A stack trace of a megabyte is no reason."""
    info = told(in_state("Broken", words="x" * 1_000_000), message="$.status.words")
    assert len(info.reason) == 2_000


def test_pods_say_nothing_where_the_config_names_none() -> None:
    """An operator may make pods that fail, and try again."""
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Failed", "reason": "NodeShutdown"}}
    for pods, kind in (({}, "USER"), ({"pods": {"labels": {"a": "b"}}}, "SYSTEM")):
        plugin = entry_of(OPERATORS.read({**LEAST, **pods}, "here")).plugin
        info = plugin.get_task_phase(PluginContext(K8sPluginConfig(), NOW, (pod,)), in_state("Broken"))
        assert info.error is not None
        assert info.error.kind == kind


def test_labels_that_the_object_does_not_tell_yet_select_nothing() -> None:
    """Half of the labels would select the pods of others."""
    pods = {"labels": {"app": "thing", "of": "$.status.cluster"}}
    plugin = entry_of(OPERATORS.read({**LEAST, "pods": pods}, "here")).plugin
    assert plugin.pod_labels(in_state("New")) == {}  # type: ignore[attr-defined]
    assert plugin.pod_labels(in_state("New", cluster="c")) == {"app": "thing", "of": "c"}  # type: ignore[attr-defined]


BAD: dict[str, tuple[JSON, str]] = {
    "no resource": ({"resource": None}, "here: resource: Input should be"),
    "a key that is unknown": ({"phases": {}}, "here: phases: unknown key"),
    "a key below one": ({"resource": {"api-version": "v1", "kind": "T", "plural": "ts", "group": "x"}}, "here: resource.group: unknown key"),
    "a plural in capitals": ({"resource": {"api-version": "v1", "kind": "T", "plural": "Ts"}}, "here: resource.plural: "),
    "no task types": ({"task-types": []}, "here: task-types: "),
    "no path": ({"state": {"path": "status.state"}}, "here: state.path: 'status.state' is not a JSONPath: it begins with $"),
    "a broken path": ({"message": ["$.a", "$.a["]}, "here: message: '$.a[' is not a JSONPath: unexpected end of query"),
    "a path that is a number": ({"suspended": 3}, "here: suspended: must be a JSONPath"),
    "two ways to tell a state": ({"state": {"path": "$.a", "conditions": "$.b"}}, "here: state: name either path"),
    "no way to tell a state": ({"state": {}}, "here: state: name either path"),
    "an unknown phase": ({"states": {**STATES, "X": {"phase": "Aborted"}}}, "here: states.X.phase: 'Aborted' is not a phase of an object"),
    "no success": ({"states": {"X": {"phase": "Running"}}}, "here: states: no state means Success"),
    "a kind of success": ({"states": {"X": {"phase": "Success", "kind": "USER"}}}, "here: states.X: kind is only for failures"),
    "an unknown kind": ({"states": {"X": {"phase": "PermanentFailure", "kind": "THEIRS"}}}, "here: states.X.kind: "),
    "a case without values": ({"states": {**STATES, "X": {"phase": "Running", "cases": [{"path": "$.a"}]}}}, "here: states.X.cases.0.values: this key is missing"),
    "others that end": ({"other": {"phase": "PermanentFailure"}}, "here: other: an undescribed state"),
    "long names": ({"name-max-length": 300}, "here: name-max-length: "),
    "a duration": ({"started": {"path": "$.a", "within": "soon"}}, "here: started.within: 'soon' is not a duration"),
    "pods without labels": ({"pods": {"labels": {}}}, "here: pods.labels: "),
    "a main pod without a name": ({"pods": {"labels": {"a": "b"}, "main": {"names": [""], "states": ["X"], "code": "C"}}}, "here: pods.main.names.0: must be the name of a pod"),
    "a path in the name of a pod": ({"pods": {"labels": {"a": "b"}, "main": {"names": ["{x}-0"], "states": ["X"], "code": "C"}}}, "here: pods.main.names.0: 'x' is not a JSONPath"),
    "the latest of a word": ({"state": {"path": "$.a", "latest": True}}, "here: state: latest chooses among conditions"),
    "fewer than no pods": ({"pods-made": [{"default-replicas": -1}]}, "here: pods-made.0.default-replicas: "),
}  # fmt: skip


@pytest.mark.parametrize(("change", "says"), BAD.values(), ids=BAD)
def test_a_wrong_config_is_a_sentence_with_the_key(change: JSON, says: str) -> None:
    """And one mistake is told once."""
    with pytest.raises(DescriptionError) as raised:
        OPERATORS.read({**LEAST, **change}, "here")
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)
    assert "more)" not in str(raised.value)


def test_operators_are_named_in_the_settings_or_in_files(tmp_path: Path) -> None:
    """Files are found beside the settings; the same id twice, and a file that is none, are refused."""
    (tmp_path / "a.yaml").write_text('{"id": "file"}\n---\n{}')
    assert OPERATORS.configured(None, tmp_path) == []
    assert [each.id for each in OPERATORS.configured([LEAST, {**LEAST, "id": "other"}], tmp_path)] == ["thing", "other"]
    for section, says in (
        ([LEAST, LEAST], r"plugins.generic\[1\]: there are two operators with the id thing"),
        (["a.yaml"], "a.yaml: holds 2 documents"),
        (["b.yaml"], "b.yaml: cannot be read"),
        ([3], r"plugins.generic\[0\]: must be an object"),
        ({}, "plugins.generic: must be a list"),
    ):
        with pytest.raises(DescriptionError, match=says):
            OPERATORS.configured(section, tmp_path)


def test_the_shipped_operators_are_read_like_any_other() -> None:
    """One per file, each under its file's name, and no two of them for one task type."""
    shipped = list(OPERATORS.shipped())
    folder = Path(__file__).parents[3] / "k8s" / "kube" / "operators"
    assert {each.id: each for each in shipped} == {
        path.stem: OPERATORS.read_file(path) for path in folder.glob("*.yaml")
    }
    types = [name for each in shipped for name in each.task_types]
    assert sorted(types) == ["dask", "mpi", "mpi-v2beta1", "pytorch", "ray", "spark", "tensorflow"]

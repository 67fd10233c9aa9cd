"""All states that operators write have a meaning, the same for Tasks and for who lets Jobs in."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS
from backoff_ctrl.k8s.kube.operators.states import Stands, described
from backoff_ctrl.k8s.tasks.builtin import builtin_entries
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext, PluginEntry
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS, AdmissibleKind
from tests.tasks.phases.operator_cases import NOW, ago, condition

JSON = dict[str, Any]
LISTED: Final = yaml.safe_load((Path(__file__).parents[2] / "data/states/states.yaml").read_text())
STATES: Final[dict[str, list[str]]] = {each["resource"]: each["states"] for each in LISTED}
ENTRIES: Final = [of_objects(each) for each in builtin_entries() if isinstance(each, PluginEntry)]


def resource_of(kind: AdmissibleKind) -> str:
    """Return its resource with the version: two operators define MPIJobs."""
    return f"{kind.resource}/{kind.api_version.rpartition('/')[2]}"


def entry_of(kind: AdmissibleKind) -> PluginEntry | None:
    """Return the plugin of Tasks of a kind; None: there is none."""
    found = ((each.resource_to_watch.api_version, each.resource_to_watch.kind, each) for each in ENTRIES)
    return next((each for version, name, each in found if (version, name) == (kind.api_version, kind.kind)), None)


def in_state(kind: AdmissibleKind, state: str) -> JSON:
    """Return an object of a kind in a state: a word where the kind has one, else a condition that is True."""
    words = {"rayjobs.ray.io": "jobDeploymentStatus", "rayclusters.ray.io": "state"}
    status: JSON = {"startTime": ago(seconds=10)}
    if kind.kind == "SparkApplication":
        status["applicationState"] = {"state": state}
    elif kind.resource in words:
        status[words[kind.resource]] = state
    else:
        status["conditions"] = [condition(state, "Any")]
    metadata = {"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": ago(seconds=20)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}, "status": status}


CASES: Final = [(kind, state) for kind in KINDS for state in STATES[resource_of(kind)]]
each_state = pytest.mark.parametrize(("kind", "state"), CASES, ids=[f"{k.api_version} {k.kind} {s}" for k, s in CASES])


def test_the_states_of_each_kind_that_waits_are_listed() -> None:
    assert {resource_of(kind) for kind in KINDS} == STATES.keys()


@each_state
def test_each_state_of_an_operator_has_a_meaning(kind: AdmissibleKind, state: str) -> None:
    """In the description that ships for its kind, or where kinds without one have theirs."""
    if isinstance(kind.ended, partial):
        (name,) = kind.ended.args
        assert state in described(name).states
    else:
        assert state in kind.states


@each_state
def test_a_task_and_who_lets_in_agree_on_what_is_over_and_what_is_suspended(kind: AdmissibleKind, state: str) -> None:
    """But for a Job that makes no more pods: it is over for the line, and not yet for its task."""
    entry, body = entry_of(kind), in_state(kind, state)
    if entry is None:
        assert kind.kind in {"TrainJob", "RayCluster", "XGBoostJob", "JAXJob", "PaddleJob"}
        return
    if kind.states.get(state) is Stands.ENDING:
        assert kind.has_ended(body)
        assert not entry.plugin.is_terminal(body)
        return
    assert kind.has_ended(body) is entry.plugin.is_terminal(body)
    phase = entry.plugin.get_task_phase(PluginContext(K8sPluginConfig(), NOW, ()), body).phase.title
    assert (phase in {"Success", "RetryableFailure", "PermanentFailure"}) is kind.has_ended(body)
    if "suspend" in state.lower():
        assert phase == "Queued"


@pytest.mark.parametrize("operator", [*OPERATORS.shipped()], ids=lambda each: each.id)
def test_a_description_and_the_kind_that_waits_have_the_same_fields(operator: Any) -> None:
    """What suspends an object, and who manages it, is written once."""
    about = operator.resource
    kind = next((each for each in KINDS if (each.api_version, each.kind) == (about.api_version, about.kind)), None)
    if kind is None:
        assert operator.id == "dask"  # it can't be suspended
        return
    assert (kind.plural, kind.suspend) == (about.plural, operator.suspended.text.removeprefix("$."))
    managed = operator.managed_by
    assert (kind.managed_by, kind.manager) == (
        ("", "") if managed is None else (managed.path.text.removeprefix("$."), managed.controller)
    )

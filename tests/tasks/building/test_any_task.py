"""Whatever a task says, its plugin builds a pod of it, or names the field that is wrong."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.tasks.model import API_VERSION
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container, pod, sidecar
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, TaskContext, TaskMetadata, TaskSpecError
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of

CONFIG = K8sPluginConfig.model_validate(
    {
        "default-env-vars": {"A": "a"},
        "default-env-from-secrets": ["s"],
        "default-tolerations": [{"key": "a"}],
        "default-node-selector": {"a": "b"},
        "interruptible-node-selector-requirement": {"key": "a", "operator": "Exists"},
        "task-resources": {"limits": {"cpu": "2"}},
    }
)
CONTAINER = {
    "name": "main",
    "image": "i",
    "env": [{"name": "A", "value": "b"}],
    "envFrom": [{"prefix": "p"}],
    "resources": {"requests": {"cpu": "4"}, "limits": {"gpu": 1, "memory": "1Gi"}},
}
TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
RUN = {
    "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1500m"}},
    "env": [{"name": "B", "value": "c"}],
    "accelerator": {"device": "a100", "partitionSize": "1g.5gb", "unpartitioned": False},
}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {
        "containers": [CONTAINER, {"name": "side", "image": "i", "resources": {"limits": {"cpu": "9"}}}],
        "initContainers": [{"name": "init", "image": "i", "env": []}],
        "tolerations": [{"key": "b"}],
        "nodeSelector": {"c": "d"},
        "affinity": {"nodeAffinity": NODES},
        "securityContext": {},
        "serviceAccountName": "s",
    },
}
TASKS = [
    (container, {"container": CONTAINER, **RUN}),
    (pod, {"podTemplate": TEMPLATE, "env": RUN["env"]}),
    (sidecar, {"podTemplate": TEMPLATE, "primaryContainer": "main", **RUN}),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.sampled_from(["main", "1", "-1", "1 core", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "cpu"]), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value within a value."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [found for key in keys for found in [(*path, key), *places(value[key], (*path, key))]]


PLACES = [(entry, spec, path) for entry, spec in TASKS for path in places(spec)]


def test_a_sound_task_is_built() -> None:
    """So that what follows tries what it means to try."""
    for entry, spec in TASKS:
        made = built(entry, spec)
        assert footprint(made).amounts["requests.nvidia.com/gpu"] == 10**9


def built(entry: PluginEntry, spec: dict[str, Any]) -> dict[str, Any]:
    task = TaskMetadata("n", "t", "uid", 0, "t-0", interruptible=True)
    return entry.plugin.build_resource(TaskContext(task, entry.id, spec, CONFIG))


@given(st.sampled_from(PLACES), JUNK)
def test_a_task_with_a_wrong_value_is_built_or_refused_by_field(
    place: tuple[PluginEntry, dict[str, Any], tuple[Any, ...]], wrong: Any
) -> None:
    """Anything at any place: what is built is at least a pod, and the task itself is never changed."""
    entry, sound, path = place
    spec = copy.deepcopy(sound)
    parent: Any = spec
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = wrong
    before = repr(spec)
    made = built_or_refused(entry, spec)

    assert repr(spec) == before
    if isinstance(made, dict):
        assert made["spec"]["containers"]
        json.dumps(made)
    else:
        assert made.path.startswith("spec")


def built_or_refused(entry: PluginEntry, spec: dict[str, Any]) -> dict[str, Any] | TaskSpecError:
    """Return the pod of a task, or what is wrong with it."""
    try:
        return built(entry, spec)
    except TaskSpecError as error:
        return error


def test_all_that_plugins_read_of_a_task_may_be_written_in_one() -> None:
    """The model of tasks knows each of these fields, and hands them on as they were written."""
    for entry, spec in TASKS:
        written = {
            "apiVersion": API_VERSION,
            "kind": "Task",
            "metadata": {"name": "t"},
            "spec": {"type": entry.id, **spec},
        }
        kept = wish_of(read_task(written)).spec
        assert {key: kept[key] for key in spec} == spec

"""``backoff_ctrl.plugins``: what a plugin of another package builds its objects with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backoff_ctrl import plugins
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from backoff_ctrl.plugins import (
    JSON,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
    container,
    pod,
    pod_template,
    scheduling,
)
from tests.tasks.phases.operator_cases import manifest

CONFIG = K8sPluginConfig.model_validate(
    {
        "default-cpus": "2",
        "default-env-vars": {"A": "a"},
        "default-tolerations": [{"key": "batch", "operator": "Exists"}],
        "default-node-selector": {"pool": "batch"},
        "interruptible-tolerations": [{"key": "spot", "operator": "Exists"}],
        "resource-tolerations": {"nvidia.com/gpu": [{"key": "gpu", "operator": "Exists"}]},
        "scheduler-name": "ours",
        "image-pull-policy": "Always",
        "task-resources": {"limits": {"cpu": "4"}},
    }
)
MAIN: JSON = {"name": "main", "image": "i"}


def task(**spec: Any) -> TaskContext:
    """Return a task of some other package's type."""
    return TaskContext(TaskMetadata("n", "train", "u-1", 0, "train"), "theirs", spec, CONFIG)


def template(*containers: JSON, **spec: Any) -> JSON:
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers), **spec}}


def test_the_public_names_are_all_there() -> None:
    """What the page for authors imports."""
    assert {name for name in plugins.__all__ if not hasattr(plugins, name)} == set()


def test_a_pod_template_has_what_platform_and_run_add_and_no_restart_policy() -> None:
    """Its own metadata stays, the task's template is not changed."""
    given = template(MAIN)
    made = pod_template(task(env=[{"name": "B", "value": "b"}]), given, "spec.template.spec.template")
    assert given == template(MAIN)
    assert made["metadata"]["labels"] == {"a": "b"}
    spec = made["spec"]
    assert (spec["nodeSelector"], spec["schedulerName"]) == ({"pool": "batch"}, "ours")
    assert spec["tolerations"] == [{"key": "batch", "operator": "Exists"}]
    assert "restartPolicy" not in spec
    (one,) = spec["containers"]
    assert one["resources"] == {
        "requests": {"cpu": "2", "memory": "1024Mi"},
        "limits": {"cpu": "2", "memory": "1024Mi"},
    }
    assert [each["name"] for each in one["env"]] == ["A", "B"]
    assert one["imagePullPolicy"] == "Always"


def test_a_gpu_is_found_by_the_nodes_that_have_it() -> None:
    """The accelerator of the task selects them, in a template as in the parts that an object keeps elsewhere."""
    gpu = {**MAIN, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    asked = task(accelerator={"device": "a100"})
    asked = replace(asked, metadata=replace(asked.metadata, interruptible=True))
    spec = pod_template(asked, template(gpu), "spec.template")["spec"]
    apart = scheduling(asked, [gpu], "spec.template.spec")
    assert set(apart) == {"tolerations", "nodeSelector", "affinity", "schedulerName"}
    assert {key: spec[key] for key in apart} == apart
    assert {each["key"] for each in apart["tolerations"]} == {"gpu", "spot", "batch", "k8s.amazonaws.com/accelerator"}
    (term,) = apart["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["a100"]


def test_a_container_by_itself_is_the_tasks_main_one() -> None:
    """It may have no name: not every object calls its containers."""
    made = container(task(resources={"limits": {"cpu": "3"}}), {"image": "i"}, "spec.template.spec.runner")
    assert made["resources"] == {
        "requests": {"cpu": "3", "memory": "1024Mi"},
        "limits": {"cpu": "3", "memory": "1024Mi"},
    }
    assert made["env"] == [{"name": "A", "value": "a"}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            lambda: pod_template(task(), None, "spec.template.spec.worker"),
            r"spec\.template\.spec\.worker\.spec: must be",
        ),
        (lambda: pod(task(), template(), "spec.template"), r"spec\.template\.spec\.containers: a pod needs"),
        (
            lambda: container(task(), [], "spec.template.spec.runner"),
            r"spec\.template\.spec\.runner: must be an object",
        ),
        (
            lambda: container(task(), {"resources": {"requests": {"cpu": "x"}}}, "spec.runner"),
            r"spec\.runner\.resources\.requests\.cpu: ",
        ),
        (lambda: scheduling(task(), "x", "spec.template"), r"spec\.template\.containers: must be a list"),
    ],
)
def test_an_error_begins_with_where_the_task_says_it(given: Any, said: str) -> None:
    """As its plugin names the place."""
    with pytest.raises(TaskSpecError, match=f"^{said}"):
        given()


@pytest.mark.parametrize("task_type", ["container", "pod", "sidecar", "job", "jobset", "spark"])
def test_parameters_that_no_plugin_reads_are_refused(task_type: str) -> None:
    """The plugins that ship have none of their own."""
    body = {"container": MAIN, "podTemplate": template(MAIN)}
    if task_type not in ("container", "pod", "sidecar"):
        body["template"] = manifest(task_type)
    context = replace(task(**body, custom={"rounds": 3}), type=task_type)
    with pytest.raises(TaskSpecError, match=rf"^spec\.custom: tasks of type {task_type} have no parameters"):
        of_objects(registry().resolve(task_type)).plugin.build_resource(context)

"""What the plugins of Jobs, JobSets and custom resources build from a task's template, and the pods that it will make."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.charges.parts import parts_of
from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.generic import GenericPlugin
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskMetadata, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from tests.tasks.phases.operator_cases import manifest

JSON = dict[str, Any]
PLUGINS = registry()
TYPES = ["job", "jobset", "ray", "dask", "pytorch", "tensorflow", "mpi", "mpi-v2beta1", "spark"]
CONFIG = K8sPluginConfig(
    default_node_selector={"pool": "batch"},
    default_env_vars={"A": "b"},
    default_tolerations=[{"key": "team", "operator": "Exists"}],
    default_env_from_configmaps=["shared"],
    default_cpus="2",
)
POD: JSON = {"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}


def task(task_type: str, template: Any, name: str = "train", **spec: Any) -> TaskContext:
    metadata = TaskMetadata("n", "train", "u-1", 0, name, service_account="robot")
    return TaskContext(metadata, task_type, {"template": template, **spec}, CONFIG)


def built(task_type: str, template: Any, **spec: Any) -> JSON:
    """Return what the plugin makes of a template."""
    return of_objects(PLUGINS.resolve(task_type)).plugin.build_resource(task(task_type, template, **spec))


def pod_specs(found: Any) -> list[JSON]:
    if isinstance(found, list):
        return [each for value in found for each in pod_specs(value)]
    if not isinstance(found, dict):
        return []
    own = [found] if isinstance(found.get("containers"), list) else []
    return own + [each for value in found.values() for each in pod_specs(value)]


@pytest.mark.parametrize("task_type", TYPES)
def test_the_template_is_copied_and_its_pods_get_the_platforms_defaults(task_type: str) -> None:
    """Once, though its pods are one section by an alias. Name and status stay out, labels in; the task stays as it is."""
    template = manifest(task_type)
    template["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}, "uid": "u", "finalizers": ["f"]}
    template["status"] = {"phase": "old"}
    before = repr(template)
    made = built(task_type, template, env=[{"name": "RUN", "value": "1"}])
    assert repr(template) == before
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
    assert made["metadata"] == {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    specs = pod_specs(made)
    assert len(specs) == len(pod_specs(template))
    for spec in specs:
        (container,) = spec["containers"]
        assert (spec["nodeSelector"], spec["serviceAccountName"]) == ({"pool": "batch"}, "robot")
        assert sorted((each["name"], each["value"]) for each in container["env"]) == [("A", "b"), ("RUN", "1")]
        assert container["envFrom"] == [{"configMapRef": {"name": "shared", "optional": True}}]
        assert spec["tolerations"] == [{"key": "team", "operator": "Exists"}]
        assert container["resources"]["requests"]["cpu"] == "2"
        assert spec.get("restartPolicy") == ("Never" if task_type in {"job", "jobset"} else None)


def test_what_is_no_template_gets_the_fields_that_it_has() -> None:
    """Spark's driver and executors: under their own names, the user's words first, and no resources."""
    template = manifest("spark")
    template["spec"]["driver"] |= {"serviceAccount": "mine", "env": [{"name": "A", "value": "own"}]}
    spec = built("spark", template)["spec"]
    for section in (spec["driver"], spec["executor"]):
        assert section["nodeSelector"] == {"pool": "batch"}
        assert section["tolerations"] == [{"key": "team", "operator": "Exists"}]
        assert section["envFrom"] == [{"configMapRef": {"name": "shared", "optional": True}}]
        assert not {"resources", "containers", "name", "image", "affinity"} & set(section)
    assert (spec["driver"]["serviceAccount"], spec["executor"]["serviceAccount"]) == ("mine", "robot")
    assert spec["driver"]["env"] == [{"name": "A", "value": "own"}]
    assert spec["driver"]["memory"] == "512m"


@pytest.mark.parametrize(
    ("task_type", "steady", "passing"),
    [
        ("spark", ["driver"], ["executor"]),
        ("dask", ["job.spec", "cluster.spec.scheduler.spec"], ["cluster.spec.worker.spec"]),
    ],
)
def test_a_driver_is_not_put_where_it_may_be_interrupted(task_type: str, steady: list[str], passing: list[str]) -> None:
    """An interruptible task is: with its driver or scheduler, all that was computed would be lost."""
    config = K8sPluginConfig(interruptible_tolerations=[{"key": "spot"}])
    one = task(task_type, json.loads(json.dumps(manifest(task_type))))
    one = replace(one, config=config, metadata=replace(one.metadata, interruptible=True))
    spec = of_objects(PLUGINS.resolve(task_type)).plugin.build_resource(one)["spec"]
    for paths, expected in ((steady, []), (passing, [{"key": "spot"}])):
        for path in paths:
            section = spec
            for key in path.split("."):
                section = section[key]
            assert section.get("tolerations", []) == expected, path


def test_a_job_gets_a_restart_policy_and_the_resources_of_the_run() -> None:
    """A Job's pods may not be restarted always, the default of pods; runs may change what a Job's container asks for."""
    template = manifest("job")
    del template["spec"]["template"]["spec"]["restartPolicy"]
    spec = built("job", template, resources={"requests": {"cpu": "3"}})["spec"]["template"]["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["resources"]["requests"]["cpu"] == "3"
    template["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    assert built("job", template)["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def _without(task_type: str, *path: str) -> JSON:
    template: JSON = json.loads(json.dumps(manifest(task_type)))
    section: Any = template
    for key in path[:-1]:
        section = section[int(key)] if key.isdigit() else section[key]
    del section[path[-1]]
    return template


WRONG: dict[str, tuple[str, Any, str]] = {
    "no template": ("job", None, "spec.template: must be the Job to create"),
    "no spec": ("ray", {"kind": "RayJob"}, "spec.template.spec: must be an object: the spec of the RayJob"),
    "another kind": ("spark", manifest("ray"), "spec.template.apiVersion: must be sparkoperator.k8s.io/v1beta2 for a task"),
    "another version": ("mpi", manifest("mpi-v2beta1"), "spec.template.apiVersion: must be kubeflow.org/v1 for a task of type mpi"),
    "no pod template": ("job", _without("job", "spec", "template"), "spec.template.spec.template.spec: must be an object"),
    "no containers": ("job", _without("job", "spec", "template", "spec", "containers"), "spec.template.spec.template.spec.containers: "),
    "no image's name": ("dask", _without("dask", "spec", "job", "spec", "containers"), "spec.template.spec.job.spec.containers: "),
    "a worker without containers": ("ray", _without("ray", "spec", "rayClusterSpec", "workerGroupSpecs", "0", "template", "spec", "containers"), "spec.template.spec.rayClusterSpec.workerGroupSpecs[0].template.spec.containers: "),
    "no replicated jobs": ("jobset", _without("jobset", "spec", "replicatedJobs"), "spec.template.spec.replicatedJobs: must list at least one"),
    "no Job in it": ("jobset", _without("jobset", "spec", "replicatedJobs", "0", "template"), "spec.template.spec.replicatedJobs[0].template.spec: must be an object"),
    "no name of a Job": ("jobset", _without("jobset", "spec", "replicatedJobs", "0", "name"), "spec.template.spec.replicatedJobs[0].name: must be the name"),
    "no driver's memory": ("spark", {**manifest("spark"), "spec": {**manifest("spark")["spec"], "driver": {"memory": "much"}}}, 'spec.template: spec.driver.memory: "much"'),
}  # fmt: skip


@pytest.mark.parametrize(("task_type", "template", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_template_names_its_field(task_type: str, template: Any, says: str) -> None:
    """Before anything is created."""
    with pytest.raises(TaskSpecError) as raised:
        built(task_type, template)
    assert str(raised.value).startswith(says)


def test_resources_of_a_run_are_refused_where_pods_are_of_several_kinds() -> None:
    """They would say nothing of which."""
    with pytest.raises(TaskSpecError, match=r"^spec\.resources: a RayJob makes pods of several kinds"):
        built("ray", manifest("ray"), resources={"requests": {"cpu": "3"}})


def test_names_that_are_too_long_for_pods_are_refused_at_once() -> None:
    """A pod's name holds those of the JobSet, of the replicated job, and two indexes: 63 characters at most."""
    template = manifest("jobset")
    plugin = of_objects(PLUGINS.resolve("jobset")).plugin
    longest = "w" * 17
    template["spec"]["replicatedJobs"][0]["name"] = longest
    assert plugin.get_properties().generated_name_max_length == 35
    made = plugin.build_resource(task("jobset", template, "x" * 60))
    assert len(f"{'x' * 35}-{longest}-0-0-abcde") == 63
    template["spec"]["replicatedJobs"][0]["name"] = longest + "w"
    with pytest.raises(TaskSpecError, match=r"replicatedJobs\[0\].name: .* names of 64 characters.* 1 shorter"):
        plugin.build_resource(task("jobset", template, "x" * 60))
    assert made["spec"]["replicatedJobs"][0]["name"] == longest


MADE = [{"section": "$.spec.launcher"}, {"section": "$.spec.groups[*]", "replicas": "$.size", "default-replicas": 2}]
THING = {
    "id": "thing",
    "task-types": ["thing"],
    "resource": {"api-version": "example.com/v1", "kind": "Thing", "plural": "things"},
    "state": {"path": "$.status.state"},
    "states": {"Done": {"phase": "Success"}},
    "suspended": "$.spec.suspend",
    "pods-made": MADE,
}


def of_cpu(cpu: str) -> JSON:
    """Return a pod template that requests so much."""
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}}


def test_the_pods_of_an_unknown_kind_are_where_its_config_says() -> None:
    """Their number, their charge, where their labels go; none are made while it is suspended."""
    plugin = GenericPlugin(OPERATORS.read(THING, "here"))
    groups: list[JSON] = [
        {"template": of_cpu("1"), "size": 3},
        {"template": of_cpu("2")},
        {"template": of_cpu("4"), "size": 0},
    ]
    thing: JSON = {"spec": {"launcher": {"template": of_cpu("500m")}, "groups": groups}}
    found = [
        (part.count, part.demand.amounts["requests.cpu"], part.kind, part.made_by, part.template, part.suspended)
        for part in plugin.parts(thing)
    ]
    assert found == [
        (1, NANO // 2, "Pod", "Thing", "spec.launcher.template", False),
        (3, NANO, "Pod", "Thing", "spec.groups[0].template", False),
        (2, 2 * NANO, "Pod", "Thing", "spec.groups[1].template", False),
    ]
    thing["spec"]["suspend"] = True
    assert [part.suspended for part in plugin.parts(thing)] == [True] * 3
    groups[0]["size"] = "many"
    with pytest.raises(TaskSpecError, match=r"spec.groups\[0\].template: its number of replicas, 'many', is not"):
        plugin.parts(thing)
    groups[0] = {"template": {}}
    with pytest.raises(TaskSpecError, match=r"spec.groups\[0\].template.spec: required field is missing"):
        plugin.parts(thing)


@pytest.mark.parametrize("task_type", [each for each in TYPES if each not in {"job", "jobset"}])
def test_the_pods_of_a_known_kind_are_those_of_its_footprint(task_type: str) -> None:
    """The table of kinds knows more than paths could say."""
    plugin = of_objects(PLUGINS.resolve(task_type)).plugin
    template = manifest(task_type)
    assert isinstance(plugin, GenericPlugin)
    assert plugin.parts(template) == parts_of(template)
    assert sum(part.count or 0 for part in plugin.parts(template) if part.kind == "Pod") >= 2


def test_a_config_says_what_gets_no_defaults_and_what_can_not_be_counted() -> None:
    """A template that is left as it is makes pods; a section of fields says too little of its own."""
    made = [
        {"section": "$.spec.plain", "defaults": False},
        {"section": "$.spec.flat", "fields": {"nodes": "nodeSelector"}},
    ]
    plugin = GenericPlugin(OPERATORS.read({**THING, "pods-made": made}, "here"))
    flat = {"template": of_cpu("2"), "nodes": {"disk": "ssd"}}
    template = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "spec": {"plain": {"template": of_cpu("1")}, "flat": flat},
    }
    spec = plugin.build_resource(task("thing", template))["spec"]
    assert spec["plain"] == {"template": of_cpu("1")}
    assert spec["flat"] == {**flat, "nodes": {"disk": "ssd", "pool": "batch"}}
    assert [part.template for part in plugin.parts({"spec": spec})] == ["spec.plain.template"]

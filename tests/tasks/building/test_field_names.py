"""Misspelt names and wrong types in a task's container, template and resources: refused when the task is read."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.spelling import abbreviated, misspelt
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.executing import check
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.field_names import CONTAINER, POD_SPEC, field_flaw, model_of, names_of
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from tests.tasks.tasks_written import wish

JSON = dict[str, Any]
REGISTRY = registry()
IMAGE: JSON = {"name": "main", "image": "busybox"}


def container(**more: Any) -> JSON:
    return {"container": {"image": "busybox", **more}}


def template(metadata: JSON | None = None, **spec: Any) -> JSON:
    whole: JSON = {"spec": {"containers": [IMAGE], **spec}}
    return {"type": "pod", "container": None, "podTemplate": {**whole, **({"metadata": metadata} if metadata else {})}}


def job(**spec: Any) -> JSON:
    whole = {"template": {"spec": {"containers": [IMAGE]}}, **spec}
    return {"type": "job", "container": None, "template": {"spec": whole}}


def workers(**spec: Any) -> JSON:
    replica = {"replicas": 1, "template": {"spec": {"containers": [{**IMAGE, "name": "pytorch"}], **spec}}}
    kinds = {"pytorchReplicaSpecs": {"Master": replica}}
    return {"type": "pytorch", "container": None, "template": {"spec": kinds}}


MISSPELT: list[tuple[JSON, str]] = [
    (container(comand=["true"]), "spec.container.comand: unknown; did you mean command?"),
    (container(cmd=["true"]), "spec.container.cmd: unknown; did you mean command?"),
    (container(imagepullpolicy="Always"), "spec.container.imagepullpolicy: unknown; did you mean imagePullPolicy?"),
    (container(volume_mounts=[]), "spec.container.volume_mounts: unknown; did you mean volumeMounts?"),
    (container(env=[{"name": "A", "vaule": "1"}]), "spec.container.env[0].vaule: unknown; did you mean value?"),
    (container(resources={"request": {"memory": "8Gi"}}), "spec.container.resources.request: unknown; did you mean req"),
    (container(resources={"limits": {"memroy": "8Gi"}}), "spec.container.resources.limits.memroy: unknown; did you mea"),
    (container(resources={"requests": {"gpus": 1}}), "spec.container.resources.requests.gpus: unknown; did you mean gpu"),
    (container(resources={"requests": {"fpga": 1}}), "spec.container.resources.requests.fpga: unknown; choose from cpu"),
    (container(livenessProbe={"httpGet": {"prot": 1}}), "spec.container.livenessProbe.httpGet.prot: unknown; did you"),
    ({"resources": {"request": {"memory": "8Gi"}}}, "spec.resources.request: unknown; did you mean requests?"),
    ({"resources": {"memory": "8Gi"}}, "spec.resources.memory: unknown; choose from limits, requests"),
    ({"resources": {"requests": {"cpus": 1}}}, "spec.resources.requests.cpus: unknown; did you mean cpu?"),
    ({"env": [{"name": "A", "valueFron": {}}]}, "spec.env[0].valueFron: unknown; did you mean valueFrom?"),
    ({"accelerator": {"devise": "a100"}}, "spec.accelerator.devise: unknown; did you mean device?"),
    (template(nodeselector={"a": "b"}), "spec.podTemplate.spec.nodeselector: unknown; did you mean nodeSelector?"),
    (template(volumes=[{"name": "v", "configmap": {}}]), "spec.podTemplate.spec.volumes[0].configmap: unknown; did you"),
    (template(containers=[{**IMAGE, "arg": ["a"]}]), "spec.podTemplate.spec.containers[0].arg: unknown; did you mean ar"),
    (template(initContainers=[{**IMAGE, "resource": {}}]), "spec.podTemplate.spec.initContainers[0].resource: unknown; "),
    (template({"lables": {"a": "b"}}), "spec.podTemplate.metadata.lables: unknown; did you mean labels?"),
    ({**template(), "podTemplate": {"spec": {"containers": [IMAGE]}, "meta": {}}}, "spec.podTemplate.meta: unknown; "),
    (job(backofLimit=3), "spec.template.spec.backofLimit: unknown; did you mean backoffLimit?"),
    (job(template={"spec": {"containers": [{**IMAGE, "comand": []}]}}), "spec.template.spec.template.spec.containers[0]"),
    ({**job(), "template": {**job()["template"], "metdata": {}}}, "spec.template.metdata: unknown; did you mean metadata"),
    (workers(tolerationss=[]), "spec.template.spec.pytorchReplicaSpecs.Master.template.spec.tolerationss: unknown; did "),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "said"), MISSPELT, ids=[each[1].partition(":")[0] for each in MISSPELT])
def test_a_misspelt_name_is_refused_with_its_path(spec: JSON, said: str) -> None:
    """Else the API server drops it, and the task runs without what it asks for."""
    with pytest.raises(TaskSpecError) as refused:
        check(wish(**spec), REGISTRY, K8sPluginConfig())
    assert str(refused.value).startswith(said), str(refused.value)


WRONG_TYPES: list[tuple[JSON, str]] = [
    (container(command="echo hi"), "spec.container.command: must be a list, not a text"),
    (container(args=["sleep", 5]), "spec.container.args[1]: must be a text, not a whole number: write it in quotes"),
    (container(args=[True]), "spec.container.args[0]: must be a text, not true or false: write it in quotes"),
    (container(env={"A": "b"}), "spec.container.env: must be a list, not an object"),
    (container(env=[{"name": "A", "value": 1.5}]), "spec.container.env[0].value: must be a text, not a number: write"),
    (container(ports=[8080]), "spec.container.ports[0]: must be an object, not a whole number"),
    (container(tty="yes"), "spec.container.tty: must be true or false, not a text"),
    (container(securityContext={"runAsUser": "0"}), "spec.container.securityContext.runAsUser: must be a whole number"),
    ({"env": [{"name": "A", "value": True}]}, "spec.env[0].value: must be a text, not true or false: write it in quotes"),
    (template({"labels": {"a": 1}}), "spec.podTemplate.metadata.labels.a: must be a text, not a whole number: write it"),
    (template(nodeSelector={"gpu": True}), "spec.podTemplate.spec.nodeSelector.gpu: must be a text, not true or false"),
    (template(tolerations=[{"tolerationSeconds": 1.5}]), "spec.podTemplate.spec.tolerations[0].tolerationSeconds: must"),
    (job(parallelism="2"), "spec.template.spec.parallelism: must be a whole number, not a text"),
    (job(template={"spec": {"containers": IMAGE}}), "spec.template.spec.template.spec.containers: must be a list, not an"),
    (workers(hostNetwork="true"), "spec.template.spec.pytorchReplicaSpecs.Master.template.spec.hostNetwork: must be true"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "said"), WRONG_TYPES, ids=[each[1].partition(":")[0] for each in WRONG_TYPES])
def test_a_value_of_a_wrong_type_is_refused_with_its_path(spec: JSON, said: str) -> None:
    """Else the task is stored, and fails with the API server's words about Go once it is its turn."""
    with pytest.raises(TaskSpecError) as refused:
        check(wish(**spec), REGISTRY, K8sPluginConfig())
    assert str(refused.value).startswith(said), str(refused.value)


UNREAD: list[tuple[JSON, str]] = [
    (
        {"podTemplate": {"spec": {}}},
        "spec.podTemplate: tasks of type container don't read it: leave it out (it reads co",
    ),
    ({"primaryContainer": "main"}, "spec.primaryContainer: tasks of type container don't read it: leave it out"),
    (
        {**template(), "container": IMAGE},
        "spec.container: tasks of type pod don't read it: leave it out (it reads podT",
    ),
    (
        {**job(), "container": IMAGE},
        "spec.container: tasks of type job don't read it: leave it out (it reads template)",
    ),
    ({**workers(), "podTemplate": {}}, "spec.podTemplate: tasks of type pytorch don't read it"),
    ({"type": "sleep", "container": IMAGE}, "spec.container: tasks of type sleep don't read it: leave it out (it runs"),
    ({"type": "signal", "template": {}}, "spec.template: tasks of type signal don't read it"),
    ({"type": "signal", "custom": {"wanted": "bool"}}, "spec.custom: tasks of type signal have no parameters"),
]


@pytest.mark.parametrize(("spec", "said"), UNREAD, ids=[each[1][:60] for each in UNREAD])
def test_what_a_type_does_not_read_is_refused(spec: JSON, said: str) -> None:
    """Its author meant another type, and what they wrote would never run."""
    with pytest.raises(TaskSpecError) as refused:
        check(wish(**spec), REGISTRY, K8sPluginConfig())
    assert str(refused.value).startswith(said), str(refused.value)


@pytest.mark.parametrize(
    "spec",
    [
        container(livenessProbe={"httpGet": {"port": "web", "path": None}, "periodSeconds": 5.0}),
        container(resources={"requests": {"cpu": 0.5, "memory": 1024}}),
        template(overhead={"cpu": 1}, volumes=[{"name": "v", "emptyDir": {"sizeLimit": 1024}}]),
        template({"creationTimestamp": None, "annotations": {"a": "b"}}),
    ],
    ids=["a port or its name", "amounts", "further amounts", "null"],
)  # fmt: skip
def test_what_the_server_takes_is_of_no_wrong_type(spec: JSON) -> None:
    """A quantity may be a number, a port a name, and null stands for nothing."""
    check(wish(**spec), REGISTRY, K8sPluginConfig())


@pytest.mark.parametrize(
    "spec",
    [
        container(portForwarding={}),
        template(workloadGroup={"name": "a"}),
        container(resources={"requests": {"example.com/fpga": 1, "hugepages-2Mi": "4Mi", "gpu": 1, "memory": "1Gi"}}),
        template({"labels": {"comand": "x"}}, volumes=[{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"pth": "/"}}}]),
        {**template(), "podTemplate": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [IMAGE]}}},
        job(suspend=False),
    ],
    ids=["unlike any", "unlike any of a pod", "resources", "names that the author chooses", "a pod as it is written", "a Job"],
)  # fmt: skip
def test_what_may_be_newer_than_the_client_is_left_to_the_server(spec: JSON) -> None:
    """An unknown name that resembles no known one: the object is created with strict validation."""
    check(wish(**spec), REGISTRY, K8sPluginConfig())


def test_no_known_name_counts_as_another_one_misspelt() -> None:
    """A client that is a release behind must not refuse a new field: those of recent releases are tried as unknown."""
    recent = {
        "V1PodSecurityContext": {"supplementalGroupsPolicy"},
        "V1PersistentVolumeClaimSpec": {"dataSourceRef"},
        "V1Container": {"restartPolicy", "resizePolicy", "terminationMessagePolicy"},
        "V1PodSpec": {"hostUsers", "schedulingGates", "resourceClaims"},
        "V1JobSpec": {"podReplacementPolicy", "successPolicy", "maxFailedIndexes", "backoffLimitPerIndex"},
    }
    for model, names in recent.items():
        known = names_of(model)
        for name in names & known:
            older = known - names
            assert (misspelt(name, older) or abbreviated(name, older)) is None, (model, name)


def test_the_models_of_the_client_are_found() -> None:
    """By version and kind; a custom resource has none, whatever it is called."""
    assert (model_of("v1", "Pod"), model_of("batch/v1", "Job")) == ("V1Pod", "V1Job")
    assert (model_of("ray.io/v1", "Job"), model_of("jobset.x-k8s.io/v1alpha2", "JobSet")) == ("", "")
    assert field_flaw({"spec": {"contaners": []}}, "V1Pod", "") is not None
    assert {"image", "command", "resources"} <= names_of(CONTAINER)
    assert "nodeSelector" in names_of(POD_SPEC)

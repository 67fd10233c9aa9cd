"""What the platform sets for all pods: where a pod says nothing, and where it says something itself."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container, sidecar
from backoff_ctrl.k8s.tasks.plugins.marks import DOMAIN, PROJECT, TASK_NAME, is_label_value, with_metadata
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
)

JSON = dict[str, Any]

CONFIG = K8sPluginConfig.model_validate(
    {
        "default-env-from-secrets": ["s"],
        "default-tolerations": [{"key": "team", "operator": "Exists"}],
        "default-node-selector": {"pool": "tasks"},
        "default-affinity": {"podAntiAffinity": {}},
        "scheduler-name": "theirs",
        "add-tolerations-for-extended-resources": ["example.com/fpga"],
        "image-pull-policy": "Always",
        "default-pod-security-context": {"runAsUser": 1},
        "default-security-context": {"privileged": False},
        "default-pod-dns-config": {"searches": ["theirs"]},
        "enable-host-networking-pod": False,
    }
)
NODE = "requiredDuringSchedulingIgnoredDuringExecution"


def built(entry: PluginEntry, spec: JSON, config: K8sPluginConfig = CONFIG) -> JSON:
    task = TaskMetadata("team", "t", "uid", 0, "t-0", service_account="runner")
    found: JSON = entry.plugin.build_resource(TaskContext(task, entry.id, spec, config))["spec"]
    return found


def test_where_a_pod_says_nothing() -> None:
    """Everything comes from the platform; security only for the primary container, and nothing more."""
    fpga = {"example.com/fpga": 1}
    spec = {
        "podTemplate": {
            "spec": {
                "initContainers": [{"name": "init", "resources": {"limits": fpga, "claims": []}}],
                "containers": [{"name": "main", "resources": {"limits": {"cpu": 1, "memory": 1}}}, {"name": "side"}],
            }
        },
        "primaryContainer": "main",
    }
    added = {
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "envFrom": [{"secretRef": {"name": "s", "optional": True}}],
    }
    amounts = {"cpu": 1, "memory": 1}

    assert built(sidecar, spec) == {
        "initContainers": [{"name": "init", "resources": {"limits": fpga, "claims": []}, **added}],
        "containers": [
            {
                "name": "main",
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {"privileged": False},
                **added,
            },
            {"name": "side", **added},
        ],
        "tolerations": [
            {"key": "team", "operator": "Exists"},
            {"key": "example.com/fpga", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "nodeSelector": {"pool": "tasks"},
        "affinity": {"podAntiAffinity": {}},
        "schedulerName": "theirs",
        "serviceAccountName": "runner",
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": 1},
        "dnsConfig": {"searches": ["theirs"]},
        "hostNetwork": False,
    }


def test_where_a_pod_says_something_itself() -> None:
    """That is kept; only whether pods use the host's network is the platform's to say."""
    main = {
        "name": "main",
        "imagePullPolicy": "Never",
        "securityContext": {"privileged": True},
        "terminationMessagePolicy": "File",
    }
    own = {
        "containers": [main],
        "nodeSelector": {"pool": "mine"},
        "affinity": {"podAffinity": {}},
        "schedulerName": "mine",
        "serviceAccountName": "mine",
        "restartPolicy": "OnFailure",
        "securityContext": {},
        "dnsConfig": {"searches": ["mine"]},
        "hostNetwork": True,
    }
    made = built(sidecar, {"podTemplate": {"spec": own}})

    assert {key: made[key] for key in own if key not in ("containers", "hostNetwork")} == {
        key: value for key, value in own.items() if key not in ("containers", "hostNetwork")
    }
    assert made["hostNetwork"] is False
    assert main.items() <= made["containers"][0].items()


def test_where_neither_says_anything() -> None:
    """The API server's defaults hold: no field is sent that nobody asked for."""
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": 1, "memory": 1}}}]}}

    assert set(built(sidecar, {"podTemplate": template}, K8sPluginConfig())) == {
        "containers",
        "restartPolicy",
        "serviceAccountName",
    }


def test_accelerators_as_the_platform_labels_them() -> None:
    """Labels and taints of its own, and what a whole GPU means there."""
    config = K8sPluginConfig.model_validate(
        {
            "gpu-device-node-label": "gpu",
            "gpu-partition-size-node-label": "part",
            "gpu-unpartitioned-node-selector-requirement": {"key": "whole", "operator": "Exists"},
            "gpu-unpartitioned-toleration": {"key": "whole"},
        }
    )
    one = {"image": "i", "resources": {"requests": {"gpu": 1}}}
    part = built(container, {"container": one, "accelerator": {"device": "a", "partitionSize": "b"}}, config)
    whole = built(container, {"container": one, "accelerator": {"unpartitioned": True}}, config)

    assert part["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
        {"key": "part", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
    ]
    assert whole["tolerations"] == [{"key": "whole"}]
    assert whole["affinity"]["nodeAffinity"][NODE]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "whole", "operator": "Exists"}]}
    ]


def affinity_of(spec: JSON) -> list[JSON]:
    (term,) = spec["affinity"]["nodeAffinity"][NODE]["nodeSelectorTerms"]
    return list(term["matchExpressions"])


def test_a_devices_name_stands_for_what_its_nodes_are_labelled_with() -> None:
    """In any case of letters; a name that the platform doesn't know is the label's value."""
    config = K8sPluginConfig.model_validate({"accelerator-devices": {"A100": "nvidia-tesla-a100"}})
    one = {"image": "i", "resources": {"limits": {"gpu": 1}}}
    for name, value in (("a100", "nvidia-tesla-a100"), ("A100", "nvidia-tesla-a100"), ("nvidia-l4", "nvidia-l4")):
        spec = built(container, {"container": one, "accelerator": {"device": name}}, config)
        assert [each["values"] for each in affinity_of(spec)] == [[value]]


def test_a_class_of_devices_has_its_own_resource_labels_and_pod_template() -> None:
    """Those of Flyte are known; the platform's win, and what it leaves out is as for GPUs."""
    one = {"image": "i", "resources": {"limits": {"gpu": 4}}}
    tpu = {"deviceClass": "GOOGLE_TPU", "device": "tpu-v5p-slice", "partitionSize": "2x2x1"}
    spec = built(container, {"container": one, "accelerator": tpu}, K8sPluginConfig())
    assert spec["containers"][0]["resources"]["limits"]["google.com/tpu"] == 4
    assert {each["key"]: each["values"] for each in affinity_of(spec)} == {
        "cloud.google.com/gke-tpu-accelerator": ["tpu-v5p-slice"],
        "cloud.google.com/gke-tpu-topology": ["2x2x1"],
    }
    template = {"template": {"spec": {"runtimeClassName": "neuron", "tolerations": [{"key": "neuron"}]}}}
    own = {
        "resource-name": "example.com/neuron",
        "unpartitioned-node-selector-requirement": {"key": "whole", "operator": "Exists"},
        "unpartitioned-toleration": {"key": "whole"},
        "pod-template": template,
    }
    config = K8sPluginConfig.model_validate({"accelerator-device-classes": {"amazon_neuron": own}})
    wish = {"deviceClass": "AMAZON_NEURON", "unpartitioned": True}
    spec = built(container, {"container": one, "accelerator": wish}, config)
    assert spec["containers"][0]["resources"]["limits"]["example.com/neuron"] == 4
    assert (spec["runtimeClassName"], affinity_of(spec)) == ("neuron", [{"key": "whole", "operator": "Exists"}])
    assert {"key": "whole"} in spec["tolerations"]
    assert {"key": "neuron"} in spec["tolerations"]
    with pytest.raises(
        TaskSpecError, match=r"^spec\.accelerator\.deviceClass: unknown class 'ABACUS': choose one of AMA"
    ):
        built(container, {"container": one, "accelerator": {"deviceClass": "ABACUS"}}, config)


def test_objects_are_not_owned_where_the_platform_says_so() -> None:
    """As Flyte's key does, for all plugins."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u-1"}
    task = TaskMetadata("team", "t", "uid", 0, "t-0", owner=owner)
    for disabled in (False, True):
        config = K8sPluginConfig.model_validate({"disable-inject-owner-references": disabled})
        made = with_metadata({"kind": "Pod"}, task, config, PluginProperties(), "s")
        assert ("ownerReferences" in made["metadata"]) is not disabled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train", "train"),
        ("a.b", "a.b"),
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 52 + "-ptqqbfy7mt"),
        ("My Team!", "My-Team-"),
    ],
)
def test_an_objects_labels_name_its_task_its_project_and_its_domain(name: str, value: str) -> None:
    """So that people find it; a name that is no label's value is cut, and keeps apart from others by a hash."""
    own = {PROJECT: "mine", "app": "web"}
    task = TaskMetadata("team", name, "uid", 0, "t-0", project=name, labels=own)
    labels = with_metadata({"kind": "Pod"}, task, K8sPluginConfig(), PluginProperties(), "s")["metadata"]["labels"]
    assert labels[TASK_NAME] == labels[PROJECT]
    assert labels[TASK_NAME].startswith(value)
    assert is_label_value(labels[TASK_NAME])
    assert DOMAIN not in labels
    assert labels["app"] == "web"


def test_what_a_pods_containers_share_is_kept_within_limits_too() -> None:
    """Resources of the pod itself are no way around them."""
    config = K8sPluginConfig.model_validate({"task-resources": {"limits": {"cpu": 2}}})
    spec = {"containers": [{"name": "main"}], "resources": {"limits": {"cpu": 64, "memory": "1Gi"}}}
    task = TaskContext(TaskMetadata("team", "t", "uid", 0, "t-0"), "pod", {"podTemplate": {"spec": spec}}, config)
    made = sidecar.plugin.build_resource(task)

    assert made["spec"]["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}}
    assert made["metadata"]["annotations"]["backoff-ctrl.dev/adjusted-resources"] == (
        "the pod: limits.cpu lowered from 64 to 2, the platform's limit"
    )


WRONG = [
    ("resources", 1, "spec.podTemplate.spec.resources", "must be an object, not a whole number"),
    ("resources", {"limits": {"cpu": "x"}}, "spec.podTemplate.spec.resources.limits.cpu", "not a quantity"),
    ("tolerations", "x", "spec.podTemplate.spec.tolerations", "must be a list, not a text"),
    ("tolerations", ["x"], "spec.podTemplate.spec.tolerations[0]", "must be an object"),
    ("nodeSelector", [], "spec.podTemplate.spec.nodeSelector", "must be an object, not a list"),
    ("affinity", "x", "spec.podTemplate.spec.affinity", "must be an object, not a text"),
    ("affinity", {"nodeAffinity": 1}, "spec.podTemplate.spec.affinity.nodeAffinity", "must be an object, not a whole number"),
    ("affinity", {"nodeAffinity": {NODE: []}}, f"spec.podTemplate.spec.affinity.nodeAffinity.{NODE}", "must be an object"),
    ("affinity", {"nodeAffinity": {NODE: {"nodeSelectorTerms": {}}}}, f"spec.podTemplate.spec.affinity.nodeAffinity.{NODE}.nodeSelectorTerms", "must be a list"),
    ("affinity", {"nodeAffinity": {NODE: {"nodeSelectorTerms": [{"matchExpressions": 1}]}}}, f"spec.podTemplate.spec.affinity.nodeAffinity.{NODE}.nodeSelectorTerms[0].matchExpressions", "must be a list"),
    ("initContainers", [{"name": "i", "env": [{"name": 1}]}], "spec.podTemplate.spec.initContainers[0].env[0].name", "must be a text"),
    ("initContainers", [{"name": "i", "env": [{"name": ""}]}], "spec.podTemplate.spec.initContainers[0].env[0]", "must be an object with a name"),
    ("initContainers", [{"name": "i", "resources": 1}], "spec.podTemplate.spec.initContainers[0].resources", "must be an object, not a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "path", "message"), WRONG)
def test_a_field_that_cant_be_added_to(key: str, value: Any, path: str, message: str) -> None:
    """It is refused by its path before anything is sent."""
    with pytest.raises(TaskSpecError) as caught:
        built(sidecar, {"podTemplate": {"spec": {"containers": [{"name": "main"}], key: value}}})

    assert (caught.value.path, message in str(caught.value)) == (path, True)


def test_parts_of_a_task_that_are_no_objects() -> None:
    """Each is named from the top of the task."""
    for spec, path in (
        ({"podTemplate": 1}, "spec.podTemplate"),
        ({"podTemplate": {"spec": 1}}, "spec.podTemplate.spec"),
        ({"podTemplate": {"metadata": 1, "spec": {"containers": [{"name": "a"}]}}}, "spec.podTemplate.metadata"),
        ({"podTemplate": {"spec": {"containers": [{"name": "a"}]}}, "resources": 1}, "spec.resources"),
        ({"podTemplate": {"spec": {"containers": [{"name": "a"}]}}, "primaryContainer": 1}, "spec.primaryContainer"),
    ):
        with pytest.raises(TaskSpecError) as caught:
            built(sidecar, spec)
        assert caught.value.path == path

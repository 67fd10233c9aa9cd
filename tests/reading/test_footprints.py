"""The charges of manifests: tables of cases, derived by hand from the API server's evaluators."""

# ruff: noqa: E501  # tables of manifests

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import Footprint, footprint_of
from backoff_ctrl.k8s.kube.charges.pods import shape_of

Manifest = dict[str, Any]


def container(requests: Manifest | None = None, limits: Manifest | None = None, **fields: Any) -> Manifest:
    """Return a container with these requests and limits."""
    return {"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}} | fields


def pod(*containers: Manifest, **spec: Any) -> Manifest:
    """Return a pod manifest with these containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers)} | spec,
    }


def charged(manifest: Manifest) -> dict[str, str]:
    """Return the charge of the create, as quantity strings."""
    return {name: format_quantity(amount) for name, amount in footprint(manifest).amounts.items()}


def estimated(manifest: Manifest) -> dict[str, str]:
    """Return the charge including later pods, as quantity strings; it must be marked as estimated."""
    found = footprint_of(manifest)
    assert found.estimated
    return {name: format_quantity(amount) for name, amount in found.demand.amounts.items()}


POD = {"count/pods": "1", "pods": "1"}


@pytest.mark.parametrize(
    ("manifest", "amounts"),
    [
        (pod(container()), {}),
        (pod({"name": "bare"}), {}),
        (pod(container({"cpu": "1500m"})), {"cpu": "1500m", "requests.cpu": "1500m"}),
        (pod(container({"cpu": 1}), container({"cpu": 0.5})), {"cpu": "1500m", "requests.cpu": "1500m"}),
        (
            pod(container(None, {"cpu": 2, "memory": "1k"})),
            {"cpu": "2", "requests.cpu": "2", "limits.cpu": "2", "memory": "1k", "requests.memory": "1k", "limits.memory": "1k"},
        ),
        (pod(container({"cpu": 1}, {"cpu": 2})), {"cpu": "1", "requests.cpu": "1", "limits.cpu": "2"}),
        (pod(container({"cpu": 0}, {"cpu": 2})), {"limits.cpu": "2"}),
        (pod(container({"cpu": None, "memory": "3"}, {"cpu": 2})), {"memory": "3", "requests.memory": "3", "limits.cpu": "2"}),
        (pod(container({"cpu": "100u"})), {"cpu": "1m", "requests.cpu": "1m"}),
        (
            pod(container({"ephemeral-storage": "2M"}, {"ephemeral-storage": "3M"})),
            {"ephemeral-storage": "2M", "requests.ephemeral-storage": "2M", "limits.ephemeral-storage": "3M"},
        ),
        (pod(container({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1})), {"requests.nvidia.com/gpu": "1"}),
        (pod(container(None, {"nvidia.com/gpu": "2"})), {"requests.nvidia.com/gpu": "2"}),
        (pod(container({"hugepages-2Mi": "4M"}, {"hugepages-2Mi": "4M"})), {"hugepages-2Mi": "4M", "requests.hugepages-2Mi": "4M"}),
        (pod(container({"kubernetes.io/batch": 1, "requests.x.com/y": 1, "attachable-volumes-x": 1, "pods": 5})), {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_is_charged_for_its_containers_under_every_name(manifest: Manifest, amounts: dict[str, str]) -> None:
    """Aliases, limits as requests, null as zero, extended resources, huge pages, rounding up to thousandths."""
    assert charged(manifest) == POD | amounts


def test_ordinary_init_containers_count_when_they_need_more_than_the_rest() -> None:
    """Each runs alone, so only the largest counts, per resource."""
    inits = [container({"cpu": 5, "memory": "1M"}), container({"cpu": 1, "memory": "9M"})]
    found = charged(pod(container({"cpu": 2, "memory": "2M"}), container({"cpu": 2}), initContainers=inits))
    assert (found["cpu"], found["memory"]) == ("5", "9M")


def test_restartable_init_containers_run_beside_later_containers() -> None:
    """Sidecars add to the containers and to those ordinary init containers that start after them."""
    first, sidecar, second = container({"cpu": 6}), container({"cpu": 2}, restartPolicy="Always"), container({"cpu": 5})
    app = container({"cpu": 1})
    assert charged(pod(app, initContainers=[first, sidecar, second]))["cpu"] == "7"
    assert charged(pod(app, initContainers=[sidecar, first, second]))["cpu"] == "8"
    assert charged(pod(app, initContainers=[sidecar, sidecar]))["cpu"] == "5"


@pytest.mark.parametrize(
    ("whole", "amounts"),
    [
        ({"requests": {"cpu": 3}}, {"cpu": "3", "requests.cpu": "3", "memory": "5k", "requests.memory": "5k", "limits.memory": "5k"}),
        ({"limits": {"cpu": 4}}, {"cpu": "1", "requests.cpu": "1", "limits.cpu": "4", "memory": "5k", "requests.memory": "5k", "limits.memory": "5k"}),
        ({"limits": {"memory": "9k"}}, {"cpu": "1", "requests.cpu": "1", "memory": "5k", "requests.memory": "5k", "limits.memory": "9k"}),
        ({"requests": {"cpu": 3}, "limits": {"cpu": 4}}, {"cpu": "3", "requests.cpu": "3", "limits.cpu": "4", "memory": "5k", "requests.memory": "5k", "limits.memory": "5k"}),
        ({"requests": {"nvidia.com/gpu": 3}}, {"cpu": "1", "requests.cpu": "1", "memory": "5k", "requests.memory": "5k", "limits.memory": "5k"}),
        ({"limits": {"hugepages-2Mi": "6M"}}, {"cpu": "1", "requests.cpu": "1", "memory": "5k", "requests.memory": "5k", "limits.memory": "5k", "hugepages-2Mi": "6M", "requests.hugepages-2Mi": "6M"}),
        ({}, {"cpu": "1", "requests.cpu": "1", "memory": "5k", "requests.memory": "5k", "limits.memory": "5k"}),
    ],
    ids=str,
)  # fmt: skip
def test_pod_level_resources_override_the_containers(whole: Manifest, amounts: dict[str, str]) -> None:
    """Pod-level cpu, memory and huge pages count; pod-level limits stand in where no container has a request."""
    assert charged(pod(container({"cpu": 1}, {"memory": "5k"}), resources=whole)) == POD | amounts


def test_pod_level_limits_stand_in_for_missing_requests() -> None:
    """If no container has a request, the pod-level limit is the request."""
    found = charged(pod(container(), resources={"limits": {"cpu": 4}}))
    assert found == POD | {"cpu": "4", "requests.cpu": "4", "limits.cpu": "4"}


def test_only_the_qos_class_of_a_status_counts() -> None:
    """As in a create on the server: the phase is dropped, a given qosClass is kept."""
    busy = pod(container({"cpu": 1}))
    assert footprint(busy | {"status": {"phase": "Succeeded"}}) == footprint(busy)
    assert footprint(busy | {"status": {"qosClass": "BestEffort"}}).scopes == {"BestEffort"}
    assert footprint(pod(container()) | {"status": {"qosClass": "Burstable"}}).scopes == set()


TERM = {"topologyKey": "zone", "labelSelector": {}}


@pytest.mark.parametrize(
    ("manifest", "scopes"),
    [
        (pod(container()), {"BestEffort"}),
        (pod(container({"cpu": 0}, {"memory": 0})), {"BestEffort"}),
        (pod(container({"nvidia.com/gpu": 1})), {"BestEffort"}),
        (pod(container({"cpu": 1})), set()),
        (pod(container(None, {"memory": 1})), set()),
        (pod(container(), initContainers=[container({"cpu": 1})]), set()),
        (pod(container(), resources={"requests": {"cpu": 1}}), set()),
        (pod(container({"cpu": 1}), resources={"requests": {"cpu": 0}}), {"BestEffort"}),
        (pod(container({"cpu": 1}), resources={}), {"BestEffort"}),
        (pod(container({"cpu": 1}), resources=None), set()),
        (pod(container({"cpu": 1}), activeDeadlineSeconds=0), {"Terminating"}),
        (pod(container({"cpu": 1}), activeDeadlineSeconds=None), set()),
        (pod(container({"cpu": 1}), priorityClassName="high"), {"PriorityClass", "PriorityClass=high"}),
        (pod(container({"cpu": 1}), priorityClassName=""), set()),
        (pod(container({"cpu": 1}), affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}), set()),
        (pod(container({"cpu": 1}), affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM | {"namespaces": ["n"]}]}}), {"CrossNamespacePodAffinity"}),
        (pod(container({"cpu": 1}), affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM | {"namespaceSelector": {}}]}}), {"CrossNamespacePodAffinity"}),
        (pod(container({"cpu": 1}), affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM | {"namespaces": ["n"]}}]}}), {"CrossNamespacePodAffinity"}),
        (pod(container({"cpu": 1}), affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM | {"namespaces": []}}]}}), set()),
    ],
    ids=lambda each: str(sorted(each) if isinstance(each, set) else each),  # in the same order in every process
)  # fmt: skip
def test_the_scope_facts_of_a_pod_decide_which_quotas_apply(manifest: Manifest, scopes: set[str]) -> None:
    """Every scope of a ResourceQuota has a matching fact."""
    assert footprint(manifest).scopes == scopes


def claim(spec: Manifest, **metadata: Any) -> Manifest:
    """Return a PersistentVolumeClaim."""
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"} | metadata, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "amounts"),
    [
        (claim({}), {}),
        (claim({"resources": {"requests": {"storage": "1M"}}}), {"requests.storage": "1M"}),
        (claim({"resources": {"requests": {"storage": "1500m"}}}), {"requests.storage": "2"}),
        (
            claim({"storageClassName": "gold", "resources": {"requests": {"storage": "1M"}}}),
            {
                "requests.storage": "1M",
                "gold.storageclass.storage.k8s.io/requests.storage": "1M",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            },
        ),
        (
            claim({"storageClassName": "gold"}, annotations={"volume.beta.kubernetes.io/storage-class": "old"}),
            {"old.storageclass.storage.k8s.io/persistentvolumeclaims": "1"},
        ),
        (claim({"storageClassName": "gold"}, annotations={"volume.beta.kubernetes.io/storage-class": ""}), {}),
        (claim({"storageClassName": ""}), {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_is_charged_for_its_storage_and_under_its_class(manifest: Manifest, amounts: dict[str, str]) -> None:
    """Storage is rounded up to whole bytes; the beta annotation overrides the field, even if empty."""
    assert charged(manifest) == {"persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1"} | amounts


def test_a_claim_has_the_scope_of_its_volume_attributes_class() -> None:
    """Claims have no other scope."""
    assert footprint(claim({"volumeAttributesClassName": "fast"})).scopes == {
        "VolumeAttributesClass",
        "VolumeAttributesClass=fast",
    }
    assert not footprint(claim({})).scopes


def service(**spec: Any) -> Manifest:
    """Return a Service with two ports."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {"ports": [{"port": 1, "nodePort": 30001}, {"port": 2}]} | spec,
    }


def resource_claim(*requests: Manifest) -> Manifest:
    """Return a ResourceClaim with these device requests."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "spec": {"devices": {"requests": list(requests)}},
    }


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([{"exactly": {"deviceClassName": "gpu"}}], {"gpu": "1"}),
        ([{"exactly": {"deviceClassName": "gpu", "count": 5}}, {"deviceClassName": "gpu", "count": 2}], {"gpu": "7"}),
        ([{"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}], {"gpu": "32"}),
        (
            [{"firstAvailable": [{"deviceClassName": "big", "count": 1}, {"deviceClassName": "small", "count": 2}, {"deviceClassName": "small", "count": 4}]}],
            {"big": "1", "small": "4"},
        ),
        ([], {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_device_claim_is_charged_by_device_class(requests: list[Manifest], devices: dict[str, str]) -> None:
    """The largest alternative counts, All is the most a claim can hold, and each class is charged under both names."""
    expected = {f"{name}.deviceclass.resource.k8s.io/devices": amount for name, amount in devices.items()}
    expected |= {f"requests.deviceclass.resource.kubernetes.io/{name}": amount for name, amount in devices.items()}
    assert charged(resource_claim(*requests)) == {"count/resourceclaims.resource.k8s.io": "1"} | expected


@pytest.mark.parametrize(
    ("kind", "version", "names"),
    [
        ("ConfigMap", "v1", {"configmaps", "count/configmaps"}),
        ("Secret", "v1", {"secrets", "count/secrets"}),
        ("ResourceQuota", "v1", {"resourcequotas", "count/resourcequotas"}),
        ("ServiceAccount", "v1", {"count/serviceaccounts"}),
        ("Endpoints", "v1", {"count/endpoints"}),
        ("Ingress", "networking.k8s.io/v1", {"count/ingresses.networking.k8s.io"}),
        ("NetworkPolicy", "networking.k8s.io/v1", {"count/networkpolicies.networking.k8s.io"}),
        ("Gateway", "gateway.networking.k8s.io/v1", {"count/gateways.gateway.networking.k8s.io"}),
        ("SparkApplication", "sparkoperator.k8s.io/v1beta2", {"count/sparkapplications.sparkoperator.k8s.io"}),
        ("RayCluster", "ray.io/v1", {"count/rayclusters.ray.io"}),
        ("PyTorchJob", "kubeflow.org/v1", {"count/pytorchjobs.kubeflow.org"}),
        ("Elasticsearch", "elasticsearch.k8s.elastic.co/v1", {"count/elasticsearches.elasticsearch.k8s.elastic.co"}),
        ("Sandbox", "agents.example.com/v1", {"count/sandboxes.agents.example.com"}),
        ("Service", "serving.knative.dev/v1", {"count/services.serving.knative.dev"}),
        ("Pod", "example.com/v1", {"count/pods.example.com"}),
        ("Node", "example.com/v1", {"count/nodes.example.com"}),
        ("Namespace", "v1", set()),
        ("ClusterRole", "rbac.authorization.k8s.io/v1", set()),
        ("Event", "v1", set()),
        ("Event", "events.k8s.io/v1", set()),
    ],
)
def test_any_other_kind_is_counted_under_its_resource(kind: str, version: str, names: set[str]) -> None:
    """Namespaced kinds: count/RESOURCE.GROUP and, where one exists, the old short name. Events never count."""
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
    assert charged(manifest) == dict.fromkeys(names, "1")


def test_a_resource_known_from_the_url_is_used_as_given() -> None:
    """The caller's RESOURCE.GROUP needs neither kind nor apiVersion."""
    assert footprint({}, resource="data.example.com").amounts == {"count/data.example.com": parse_quantity(1)}
    assert footprint({"spec": {"containers": [{"name": "c"}]}}, resource="pods").amounts["pods"] == parse_quantity(1)


TEMPLATE = {"spec": {"containers": [container({"cpu": 2}, {"memory": "1k"})], "priorityClassName": "high"}}
ONE = {"cpu": "2", "requests.cpu": "2", "memory": "1k", "requests.memory": "1k", "limits.memory": "1k", **POD}


def job(**spec: Any) -> Manifest:
    """Return a Job with the pod template."""
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": TEMPLATE} | spec}


@pytest.mark.parametrize(
    ("manifest", "pods"),
    [
        (job(), 1),
        (job(parallelism=3), 3),
        (job(completions=5), 1),
        (job(parallelism=3, completions=5), 3),
        (job(parallelism=5, completions=3), 3),
        (job(parallelism=0), 0),
        (job(parallelism=3, suspend=True), 0),
    ],
    ids=str,
)
def test_a_job_is_estimated_with_the_pods_that_run_at_once(manifest: Manifest, pods: int) -> None:
    """The create itself is charged only the Job's count; the estimate is marked as estimated."""
    assert charged(manifest) == {"count/jobs.batch": "1"}
    found = footprint_of(manifest)
    expected = {name: parse_quantity(amount) * pods for name, amount in ONE.items() if pods}
    assert found.estimated
    assert found.kind == "Job"
    assert dict(found.demand.amounts) == expected | {"count/jobs.batch": parse_quantity(1)}
    assert found.demand.scopes == {"PriorityClass", "PriorityClass=high"}


def test_controllers_are_estimated_with_everything_they_create() -> None:
    """Replicas, their ReplicaSet, the claims of a StatefulSet, one run of a CronJob; no pods for DaemonSets."""
    apps = {"apiVersion": "apps/v1", "spec": {"replicas": 2, "template": TEMPLATE}}
    two = {name: format_quantity(parse_quantity(amount) * 2) for name, amount in ONE.items()}
    deployment = estimated(apps | {"kind": "Deployment"})
    assert deployment == two | {"count/deployments.apps": "1", "count/replicasets.apps": "1"}
    assert estimated(apps | {"kind": "ReplicaSet"}) == two | {"count/replicasets.apps": "1"}
    assert estimated(apps | {"kind": "DaemonSet"}) == {"count/daemonsets.apps": "1"}
    controller = {"apiVersion": "v1", "kind": "ReplicationController", "spec": {"template": TEMPLATE}}
    assert estimated(controller) == ONE | {"replicationcontrollers": "1", "count/replicationcontrollers": "1"}
    volume = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1M"}}}}
    stateful = apps | {
        "kind": "StatefulSet",
        "spec": {"replicas": 2, "template": TEMPLATE, "volumeClaimTemplates": [volume]},
    }
    claims = {"persistentvolumeclaims": "2", "count/persistentvolumeclaims": "2", "requests.storage": "2M"}
    assert estimated(stateful) == two | claims | {"count/statefulsets.apps": "1"}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}
    assert estimated(cron) == ONE | {"count/cronjobs.batch": "1", "count/jobs.batch": "1"}


def test_a_plain_kind_is_not_an_estimate() -> None:
    """The footprint of a pod is exact, not an estimate."""
    assert footprint_of(pod(container())) == Footprint("Pod", estimated=False, demand=footprint(pod(container())))


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        ([], "manifest: must be an object with fields such as kind and spec"),
        ("Pod", "manifest: must be an object with fields such as kind and spec"),
        ({}, "kind: required field is missing"),
        ({"kind": "Pod"}, "apiVersion: required field is missing"),
        ({"kind": 1, "apiVersion": "v1"}, "kind: must be a string, not a number"),
        ({"kind": "Pod", "apiVersion": True}, "apiVersion: must be a string, not a boolean"),
        ({"kind": "PodList", "apiVersion": "v1", "items": []}, "kind: PodList is a list: pass its items one by one"),
        ({"kind": "Pod", "apiVersion": "v1"}, "spec: required field is missing"),
        ({"kind": "Pod", "apiVersion": "v1", "spec": None}, "spec: required field is missing"),
        ({"kind": "Pod", "apiVersion": "v1", "spec": []}, "spec: must be an object, not a list"),
        ({"kind": "Pod", "apiVersion": "v1", "spec": {}}, "spec.containers: a pod needs at least one container"),
        ({"kind": "Pod", "apiVersion": "v1", "spec": {}, "status": "x"}, "status: must be an object, not a string"),
        (pod("x"), "spec.containers[0]: must be an object, not a string"),  # type: ignore[arg-type]
        (pod(container(), initContainers={}), "spec.initContainers: must be a list, not an object"),
        (pod(container({"cpu": "abc"})), 'spec.containers[0].resources.requests.cpu: "abc" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (pod(container(), container(None, {"memory": True})), "spec.containers[1].resources.limits.memory: true is not a quantity: write a number or a text such as 500m or 4Gi"),
        (pod(container({"cpu": "9e999"})), 'spec.containers[0].resources.requests.cpu: "9e999" is too large: a quantity may be at most 1e+30'),
        (pod(container({"cpu": -1})), "spec.containers[0].resources.requests.cpu: -1 is negative"),
        (pod(container({"cpu": "x" * 100})), f'spec.containers[0].resources.requests.cpu: "{"x" * 76}... is not a quantity: write a number such as 2, 500m or 4Gi'),
        (pod({"name": "c", "resources": [1]}), "spec.containers[0].resources: must be an object, not a list"),
        (pod({"name": "c", "resources": {"requests": "1"}}), "spec.containers[0].resources.requests: must be an object, not a string"),
        (pod(container(), overhead={"cpu": "x"}), 'spec.overhead.cpu: "x" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (pod(container(), resources={"limits": {"cpu": "x"}}), 'spec.resources.limits.cpu: "x" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (pod(container(), activeDeadlineSeconds="10"), 'spec.activeDeadlineSeconds: "10" is not a whole number of 0 or more'),
        (pod(container(), activeDeadlineSeconds=-1), "spec.activeDeadlineSeconds: -1 is not a whole number of 0 or more"),
        (pod(container(), priorityClassName=5), "spec.priorityClassName: must be a string, not a number"),
        (pod(container(), affinity={"podAffinity": []}), "spec.affinity.podAffinity: must be an object, not a list"),
        (claim({"resources": {"requests": {"storage": "big"}}}), 'spec.resources.requests.storage: "big" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (service(ports="http"), "spec.ports: must be a list, not a string"),
        (service(type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=[{"nodePort": "x"}]), 'spec.ports[0].nodePort: "x" is not a whole number of 0 or more'),
        (resource_claim({"exactly": {}}), "spec.devices.requests[0].deviceClassName: required field is missing"),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_manifest_gives_one_sentence_that_names_the_field(manifest: Any, sentence: str) -> None:
    """The message is the path of the field, then the problem; the error is a ValueError."""
    for read in (footprint, footprint_of):
        with pytest.raises(FieldError) as caught:
            read(manifest)
        assert str(caught.value) == sentence
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (job(template=None), "spec.template: required field is missing"),
        (job(template={}), "spec.template.spec: required field is missing"),
        (job(parallelism="many"), 'spec.parallelism: "many" is not a whole number of 0 or more'),
        (job(template={"spec": {"containers": [container({"cpu": "x"})]}}), 'spec.template.spec.containers[0].resources.requests.cpu: "x" is not a quantity: write a number such as 2, 500m or 4Gi'),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {}}}, "spec.jobTemplate.spec: required field is missing"),
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, "spec: required field is missing"),
        ({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": TEMPLATE, "volumeClaimTemplates": [{}]}}, "spec.volumeClaimTemplates[0].spec: required field is missing"),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_template_is_named_by_its_path_too(manifest: Manifest, sentence: str) -> None:
    """Estimates read templates and name the malformed field inside them."""
    with pytest.raises(FieldError) as caught:
        footprint_of(manifest)
    assert str(caught.value) == sentence


CPU = {"cpu": "1"}
OTHERS_NAMED = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["a"]}]}}


@pytest.mark.parametrize(
    "other",
    [
        pod(container(CPU)) | {"status": {"qosClass": "BestEffort"}},
        pod(container(CPU)) | {"kind": "Node"},
        pod(container({"cpu": "2"})),
        pod(container(CPU), container(CPU)),
        pod(container(CPU), initContainers=[container({"cpu": "2"})]),
        pod(container(CPU), initContainers=[container(CPU, restartPolicy="Always")]),
        pod(container(CPU), resources={"requests": {"cpu": "3"}}),
        pod(container(CPU), overhead=CPU),
        pod(container(CPU), activeDeadlineSeconds=5),
        pod(container(CPU), priorityClassName="high"),
        pod(container(CPU), affinity=OTHERS_NAMED),
    ],
    ids=str,
)
def test_pods_of_another_charge_are_of_another_shape(other: Manifest) -> None:
    """A shape is read once: what it left out would be charged as the first pod without it."""
    usual, found = footprint(pod(container(CPU)), resource="pods"), footprint(other, resource="pods")
    assert found != usual
    assert shape_of(other) != shape_of(pod(container(CPU)))


def test_what_is_not_charged_makes_no_other_shape() -> None:
    """A task's pod has a name, an image and arguments of its own, and is read once all the same."""
    named = pod(container(CPU, name="t-1", image="j", args=["--day", "2"], env=[{"name": "a"}]), nodeName="n")
    named |= {"metadata": {"name": "q"}, "status": {"phase": "Pending"}}
    assert shape_of(named) == shape_of(pod(container(CPU)))

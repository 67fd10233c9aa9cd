"""What Kubernetes' own controllers make of a manifest, and the rules that hold for the parts of every kind."""

# ruff: noqa: E501  # tables of manifests

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import Part, footprint_of, parts_of
from tests.reading.told_parts import EXAMPLES, example, told

Manifest = dict[str, Any]

POD = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}]}
TEMPLATE = {"spec": POD}
CLAIM = {"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}
STORED = "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi"


def job(**spec: Any) -> Manifest:
    """Return a Job."""
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": TEMPLATE} | spec}


def cron_job(**spec: Any) -> Manifest:
    """Return a CronJob of Jobs with two pods at once."""
    run = {"spec": {"template": TEMPLATE, "parallelism": 2}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": run} | spec}


def app(kind: str, **spec: Any) -> Manifest:
    """Return a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
    return {"apiVersion": "apps/v1", "kind": kind, "spec": {"template": TEMPLATE} | spec}


def with_pod(**spec: Any) -> Manifest:
    """Return a Job whose pod has more fields."""
    return job(template={"spec": POD | spec})


@pytest.mark.parametrize(
    ("manifest", "parts"),
    [
        (job(), ["1 Pod < Job @ spec.template: requests.cpu=1"]),
        (job(parallelism=3), ["3 Pod < Job @ spec.template: requests.cpu=1"]),
        (job(parallelism=3, completions=5), ["3 Pod < Job @ spec.template: requests.cpu=1"]),
        (job(parallelism=5, completions=3, completionMode="Indexed"), ["3 Pod < Job @ spec.template: requests.cpu=1"]),
        (job(parallelism=0), []),
        (job(parallelism=3, suspend=True), ["3 Pod < Job @ spec.template: requests.cpu=1 suspended"]),
        (job(activeDeadlineSeconds=60), ["1 Pod < Job @ spec.template: requests.cpu=1"]),
        (job(managedBy="kubernetes.io/job-controller"), ["1 Pod < Job @ spec.template: requests.cpu=1"]),
        (job(managedBy="kueue.x-k8s.io/multikueue"), []),
        (cron_job(), ["1 Job < CronJob", "2 Pod < Job @ spec.jobTemplate.spec.template: requests.cpu=1"]),
        (cron_job(concurrencyPolicy="Allow"), ["1 Job < CronJob", "2 Pod < Job @ spec.jobTemplate.spec.template: requests.cpu=1"]),
        (cron_job(suspend=True), ["1 Job < CronJob suspended", "2 Pod < Job @ spec.jobTemplate.spec.template: requests.cpu=1 suspended"]),
        (app("ReplicaSet", replicas=2), ["2 Pod < ReplicaSet @ spec.template: requests.cpu=1"]),
        (app("Deployment"), ["1 ReplicaSet < Deployment", "1 Pod < ReplicaSet @ spec.template: requests.cpu=1"]),
        (app("Deployment", replicas=4, strategy={"rollingUpdate": {"maxSurge": 4}}), ["1 ReplicaSet < Deployment", "4 Pod < ReplicaSet @ spec.template: requests.cpu=1"]),
        (app("Deployment", replicas=0), ["1 ReplicaSet < Deployment"]),
        (app("DaemonSet"), ["None Pod < DaemonSet @ spec.template: requests.cpu=1"]),
        ({"apiVersion": "v1", "kind": "ReplicationController", "spec": {"replicas": 2, "template": TEMPLATE}}, ["2 Pod < ReplicationController @ spec.template: requests.cpu=1"]),
        (app("StatefulSet", replicas=3, volumeClaimTemplates=[CLAIM]), ["3 Pod < StatefulSet @ spec.template: requests.cpu=1", f"3 PersistentVolumeClaim < StatefulSet: {STORED}"]),
    ],
    ids=str,
)  # fmt: skip
def test_kubernetes_own_kinds_tell_what_their_controllers_make(manifest: Manifest, parts: list[str]) -> None:
    """Counts, makers, the place of the pod template, the charge of one object; suspended ones are told, too."""
    assert told(manifest) == parts


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        (with_pod(activeDeadlineSeconds=9), "1 Pod < Job @ spec.template: requests.cpu=1 [Terminating]"),
        (with_pod(priorityClassName="high"), "1 Pod < Job @ spec.template: requests.cpu=1 [PriorityClass, PriorityClass=high]"),
        (with_pod(containers=[{"name": "c"}]), "1 Pod < Job @ spec.template [BestEffort]"),
        (with_pod(overhead={"cpu": "250m", "memory": "120Mi"}), "1 Pod < Job @ spec.template: requests.cpu=1250m requests.memory=120Mi"),
        (with_pod(containers=[{"name": "c", "resources": {"limits": {"cpu": 2, "nvidia.com/gpu": 1}}}]), "1 Pod < Job @ spec.template: limits.cpu=2 requests.cpu=2 requests.nvidia.com/gpu=1"),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_part_is_charged_as_the_pod_will_be(manifest: Manifest, part: str) -> None:
    """Scopes, limits that stand in for requests, overhead that the template spells out."""
    assert told(manifest) == [part]
    (found,) = parts_of(manifest)
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": manifest["spec"]["template"]["spec"]}
    assert found.demand == footprint(pod)
    assert {"pods", "count/pods"} <= set(found.demand.amounts)


def test_volumes_and_devices_that_a_pod_brings_along_are_parts_too() -> None:
    """A claim for each ephemeral volume and a ResourceClaim for each template, as many as there are pods."""
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": CLAIM}}, {"name": "x", "emptyDir": {}}]
    devices = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}, {"name": "own", "resourceClaimName": "mine"}]
    manifest = job(parallelism=3, template={"spec": POD | {"volumes": volumes, "resourceClaims": devices}})
    assert told(manifest)[1:] == [f"3 PersistentVolumeClaim < Pod: {STORED}", "3 ResourceClaim < Pod"]


@pytest.mark.parametrize(
    ("spec", "pods", "claims"),
    [
        ({"parallelism": 2, "completions": 5}, 2, 5),
        ({"parallelism": 5, "completions": 2}, 2, 2),
        ({"parallelism": 3}, 3, 3),
        ({"completions": 4}, 1, 4),
    ],
    ids=str,
)
def test_the_claims_of_pods_that_have_ended_stay_until_their_job_goes(spec: Manifest, pods: int, claims: int) -> None:
    """As many as the Job has completions; the ResourceClaims of a pod go when it ends."""
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": CLAIM}}]
    devices = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    manifest = job(template={"spec": POD | {"volumes": volumes, "resourceClaims": devices}}, **spec)
    assert {part.kind: part.count for part in parts_of(manifest)} == {
        "Pod": pods, "PersistentVolumeClaim": claims, "ResourceClaim": pods,
    }  # fmt: skip
    several = {"name": "work", "replicas": 3, "template": manifest}
    of_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [several]}}
    found = {part.kind: part.count for part in parts_of(of_set)}
    assert (found["Pod"], found["PersistentVolumeClaim"]) == (3 * pods, 3 * claims)
    assert parts_of(manifest | {"spec": manifest["spec"] | {"parallelism": 0}}) == ()


def test_a_bare_pod_stays_exact() -> None:
    """Its own footprint is what the server charges its create: no parts, nothing estimated."""
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": POD}
    pod["spec"] = POD | {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": CLAIM}}]}
    assert parts_of(pod) == ()
    assert footprint_of(pod).demand == footprint(pod)
    assert not footprint_of(pod).estimated


@pytest.mark.parametrize(
    ("version", "kind", "estimated"),
    [
        ("v1", "ConfigMap", False),
        ("networking.k8s.io/v1", "Ingress", False),
        ("gateway.networking.k8s.io/v1", "Gateway", False),
        ("policy/v1", "PodDisruptionBudget", False),
        ("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", True),
        ("serving.knative.dev/v1", "Service", True),
        ("example.com/v1", "Pod", True),
    ],
)
def test_an_unknown_kind_has_no_parts_and_is_estimated(version: str, kind: str, estimated: bool) -> None:
    """Kubernetes' own kinds that make nothing are exact; what a custom kind makes is unknown."""
    manifest = {"apiVersion": version, "kind": kind, "spec": {"replicas": 3}}
    found = footprint_of(manifest)
    assert (found.estimated, found.parts, found.demand) == (estimated, (), footprint(manifest))


def test_a_resource_known_from_the_url_decides_who_makes() -> None:
    """The caller's RESOURCE.GROUP needs neither kind nor apiVersion."""
    (part,) = parts_of({"kind": "Job", "spec": {"template": TEMPLATE}}, resource="jobs.batch")
    assert (part.count, part.made_by) == (1, "Job")


@pytest.mark.parametrize(
    "manifest",
    [
        *(example(path.stem) for path in sorted(EXAMPLES.glob("*.yaml"))),
        job(parallelism=3),
        app("DaemonSet"),
        app("StatefulSet", replicas=3, volumeClaimTemplates=[CLAIM]),
        cron_job(),
    ],
    ids=lambda manifest: f"{manifest['kind']} {manifest.get('metadata')}",
)
def test_the_footprint_of_everything_is_the_create_and_its_parts(manifest: Manifest) -> None:
    """Name by name: the create's own charge, and each part times its count where that is known."""
    found = footprint_of(manifest)
    expected = dict(footprint(manifest).amounts)
    for part in found.parts:
        for name, amount in part.demand.amounts.items():
            expected[name] = expected.get(name, 0) + amount * (part.count or 0)
    assert dict(found.demand.amounts) == {name: amount for name, amount in expected.items() if amount}
    assert found.parts == parts_of(manifest)
    assert found.estimated


@pytest.mark.parametrize("manifest", [job(parallelism=3, suspend=True), cron_job(suspend=True)])
def test_what_is_suspended_is_charged_nothing_yet(manifest: Manifest) -> None:
    """The parts say what resuming it will make."""
    assert footprint_of(manifest).demand.amounts == footprint(manifest).amounts
    assert [part for part in parts_of(manifest) if part.kind == "Pod" and part.suspended]


def test_more_than_sixteen_parts_are_refused_with_the_place() -> None:
    """Sixteen are accepted; the message names the first one beyond."""
    claims = [
        CLAIM | {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": f"c{n}"}}} for n in range(15)
    ]
    assert len(parts_of(app("StatefulSet", volumeClaimTemplates=claims))) == 16
    with pytest.raises(FieldError) as caught:
        parts_of(app("StatefulSet", volumeClaimTemplates=[*claims, CLAIM]))
    assert str(caught.value) == (
        "spec: PersistentVolumeClaim made by StatefulSet is part 17 of this manifest: "
        "at most 16 parts can be admitted together, split it"
    )


def test_the_scopes_of_the_whole_are_those_of_its_pods() -> None:
    """A claim has a scope of its own, which selects other quotas: its part tells it."""
    fast = {"spec": CLAIM["spec"] | {"volumeAttributesClassName": "fast"}}
    manifest = app("StatefulSet", volumeClaimTemplates=[fast], template={"spec": POD | {"priorityClassName": "high"}})
    found = footprint_of(manifest)
    assert found.demand.scopes == {"PriorityClass", "PriorityClass=high"}
    assert found.parts[1].demand.scopes == {"VolumeAttributesClass", "VolumeAttributesClass=fast"}


def test_equal_objects_are_one_part() -> None:
    """Two claim templates with the same charge make one part of twice as many claims."""
    claims = [CLAIM | {"metadata": {"name": name}} for name in ("data", "log")]
    parts: list[Part] = list(parts_of(app("StatefulSet", replicas=2, volumeClaimTemplates=claims)))
    assert [(part.kind, part.count) for part in parts] == [("Pod", 2), ("PersistentVolumeClaim", 4)]


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (job(parallelism=-1), "spec.parallelism: -1 is not a whole number of 0 or more"),
        (job(suspend="yes"), "spec.suspend: must be true or false, not a string"),
        (job(managedBy=True), "spec.managedBy: must be a string, not a boolean"),
        (app("Deployment", replicas=2.5), "spec.replicas: 2.5 is not a whole number of 0 or more"),
        (app("Deployment", template={"spec": {}}), "spec.template.spec.containers: a pod needs at least one container"),
        (app("StatefulSet", replicas=0, template={}), "spec.template.spec: required field is missing"),
        (app("StatefulSet", volumeClaimTemplates=[CLAIM | {"metadata": 3}]), "spec.volumeClaimTemplates[0].metadata: must be an object, not a number"),
        (app("StatefulSet", volumeClaimTemplates=[CLAIM | {"metadata": {"annotations": []}}]), "spec.volumeClaimTemplates[0].metadata.annotations: must be an object, not a list"),
        (cron_job(jobTemplate={"spec": {"template": {"spec": {"containers": [3]}}}}), "spec.jobTemplate.spec.template.spec.containers[0]: must be an object, not a number"),
        (with_pod(volumes={}), "spec.template.spec.volumes: must be a list, not an object"),
        (with_pod(volumes=[{"ephemeral": {"volumeClaimTemplate": {}}}]), "spec.template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec: required field is missing"),
        (with_pod(resourceClaims=[{"resourceClaimTemplateName": 1}]), "spec.template.spec.resourceClaims[0].resourceClaimTemplateName: must be a string, not a number"),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_maker_gives_one_sentence_that_names_the_field(manifest: Manifest, sentence: str) -> None:
    """The path is that of the user's manifest, also inside templates of templates, and for counts of zero."""
    for read in (parts_of, footprint_of):
        with pytest.raises(FieldError) as caught:
            read(manifest)
        assert str(caught.value) == sentence

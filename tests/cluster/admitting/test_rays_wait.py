"""Suspended RayClusters and RayJobs under a quota, with KubeRay's own operator on a real control plane."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, KINDS, WAIT, WAITS_FOR
from tests.cluster.admitting.jobs_at_work import BATCH, Jobs, admitting
from tests.cluster.admitting.managers import reconciling
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.talking import MERGE, Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
GROUP = "ray.io/v1"
NAME_LABEL = "ray.io/cluster"
"""The label that the pods of a RayCluster carry."""
KINDS_OF_RAY = ("rayclusters", "rayjobs", "rayservices")
RAY_CLUSTER, RAY_JOB = (next(each for each in KINDS if each.kind == kind) for kind in ("RayCluster", "RayJob"))
WORKERS = 2


@pytest.fixture
async def clusters(bed: Bed, kuberay_programs: GoPrograms, tmp_path: Path) -> AsyncIterator[Jobs]:
    """The RayClusters of a namespace; their operator works."""
    name = f"test-{secrets.token_hex(5)}"
    async with Api(bed.server) as api:
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        options = (f"--watch-namespace={name}", "--metrics-addr=127.0.0.1:0", "--enable-leader-election=false")
        fast = ("--qps=500", "--burst=500")
        async with reconciling(api, kuberay_programs, tmp_path, GROUP, KINDS_OF_RAY, *options, *fast):
            yield Jobs(api, name, RAY_CLUSTER, NAME_LABEL)


def template(container: str) -> JSON:
    """A pod of 1 CPU."""
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    return {"spec": {"containers": [{"name": container, "image": "rayproject/ray:2.46.0", "resources": resources}]}}


def spec(**more: Any) -> JSON:
    """A head and two workers: three pods of 1 CPU."""
    workers = {"groupName": "workers", "replicas": WORKERS, "minReplicas": WORKERS, "maxReplicas": WORKERS}
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
        "workerGroupSpecs": [{**workers, "rayStartParams": {}, "template": template("ray-worker")}],
        **more,
    }


def body(kind: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name, "labels": {WAIT: "true"}}, "spec": spec}


def begins(ray_job: JSON) -> bool:
    """Return whether KubeRay makes its cluster. It says so of a suspended one too, for a moment."""
    status = ray_job.get("status", {})
    admitted = ADMITTED in ray_job["metadata"].get("annotations", {})
    return admitted and status.get("jobDeploymentStatus") == "Initializing"


def has_seen_its_pods(ray_cluster: JSON) -> bool:
    """Return whether KubeRay knows that all run: a pod that is lost before that it misses for minutes."""
    return bool(ray_cluster.get("status", {}).get("readyWorkerReplicas") == WORKERS)


async def make_ready(jobs: Jobs, pod: JSON) -> None:
    """Say of a pod what a kubelet would."""
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": each, "status": "True"} for each in ("Ready", "ContainersReady")],
    }
    path = of_core(jobs.namespace, "pods", pod["metadata"]["name"], "status")
    made(await jobs.api.patch(path, {"status": status}, MERGE))


async def test_ray_clusters_are_let_in_as_wholes_one_after_another(bed: Bed, clusters: Jobs) -> None:
    """KubeRay makes no pod of one that is suspended; all pods of one that is let in carry its gang's label."""
    await clusters.limit(5)
    async with admitting(bed.server, namespaces=(clusters.namespace,)) as found:
        await clusters.create(body("RayCluster", "first", spec(suspend=True)))
        pods = await clusters.pods_of("first", 1 + WORKERS)
        assert len({pod["metadata"]["labels"][GANG_LABEL] for pod in pods}) == 1
        await clusters.create(body("RayCluster", "second", spec(suspend=True)))
        await clusters.until("second", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        assert await clusters.pods("second") == []
        await clusters.patch("first", {"spec": {"suspend": True}})  # KubeRay may make pods of a deleted one once more
        await clusters.pods_of("second", 1 + WORKERS)
        assert found.counts.admitted == {RAY_CLUSTER.resource: 2}
    assert await clusters.refusals() == []


async def test_a_worker_that_is_lost_gets_its_room_again(bed: Bed, clusters: Jobs) -> None:
    """Though another one waits that would fit into it. KubeRay may ask once before the quota has counted the loss."""
    await clusters.limit(3)
    async with admitting(bed.server, namespaces=(clusters.namespace,)) as found:
        await clusters.create(body("RayCluster", "first", spec(suspend=True)))
        pods = await clusters.pods_of("first", 1 + WORKERS)
        for pod in pods:
            await make_ready(clusters, pod)
        await clusters.until("first", has_seen_its_pods)
        alone = {**spec(suspend=True), "workerGroupSpecs": []}
        await clusters.create(body("RayCluster", "small", alone))
        await clusters.until("small", lambda _: found.states()["waiting"] == 1)
        lost = next(pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker")
        await clusters.api.delete(
            of_core(clusters.namespace, "pods", lost["metadata"]["name"]), params={"gracePeriodSeconds": "0"}
        )
        names = {pod["metadata"]["name"] for pod in pods} - {lost["metadata"]["name"]}
        await clusters.api.until(
            of_core(clusters.namespace, "pods"),
            lambda listed: len({pod["metadata"]["name"] for pod in listed["items"]} - names) == 1,
        )
        assert await clusters.pods("small") == []
        assert found.counts.admitted == {RAY_CLUSTER.resource: 1}


async def test_a_ray_job_has_room_for_its_cluster_and_for_the_pod_that_submits(bed: Bed, clusters: Jobs) -> None:
    """Its RayCluster and its Job are left alone, though KubeRay labels and annotates the cluster as the RayJob."""
    submitter = {"spec": {**template("submitter")["spec"], "restartPolicy": "Never"}}
    jobs = Jobs(clusters.api, clusters.namespace, RAY_JOB)
    await clusters.limit(1 + WORKERS + 1)
    whole = {"entrypoint": "true", "shutdownAfterJobFinishes": True, "suspend": True,
             "rayClusterSpec": spec(), "submitterPodTemplate": submitter}  # fmt: skip
    async with admitting(bed.server, namespaces=(clusters.namespace,)) as found:
        await jobs.create(body("RayJob", "train", whole))
        seen = await jobs.until("train", begins)
        await jobs.create(body("RayJob", "next", whole))
        pods = await clusters.pods_of(seen["status"]["rayClusterName"], 1 + WORKERS)
        for pod in pods:
            await make_ready(clusters, pod)
        made_jobs = of_group(BATCH, clusters.namespace, "jobs")
        await clusters.api.until(
            made_jobs, lambda listed: any(each["status"].get("active") for each in listed["items"])
        )
        assert found.counts.admitted == {RAY_JOB.resource: 1}
        assert found.states()["left alone"] == 2
        assert (await jobs.get("next"))["spec"]["suspend"]
    assert await clusters.refusals() == []

"""Suspended PyTorchJobs, TFJobs and MPIJobs under a quota, with Kubeflow's own controllers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, KINDS, WAIT, WAITS_FOR, AdmissibleKind
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.admitting.managers import reconciling
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.objects import made, of_core
from tests.cluster.talking import MERGE, Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
OF = "training.kubeflow.org/job-name"
WORKERS = 2
CONTAINER: JSON = {"image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}


def named(kind: str, version: str) -> AdmissibleKind:
    return next(each for each in KINDS if (each.kind, each.api_version) == (kind, f"kubeflow.org/{version}"))


PY_TORCH, TF, MPI = named("PyTorchJob", "v1"), named("TFJob", "v1"), named("MPIJob", "v2beta1")


@pytest.fixture
async def trained(bed: Bed, kubeflow_programs: GoPrograms, tmp_path: Path) -> AsyncIterator[tuple[Api, str]]:
    """A namespace whose training jobs are carried out."""
    name = f"test-{secrets.token_hex(5)}"
    async with Api(bed.server) as api:
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        await define_operators_kind(api, MPI.plural, f"{MPI.path}/{MPI.plural}")
        async with reconciling(api, kubeflow_programs, tmp_path, PY_TORCH.api_version, (PY_TORCH.plural, TF.plural)):
            yield api, name


def training_job(kind: AdmissibleKind, name: str, replicas: dict[str, int], container: str, **more: Any) -> JSON:
    """A job whose replicas ask for 1 CPU each."""
    pod = {"spec": {"containers": [{"name": container, **CONTAINER}]}}
    types = {each: {"replicas": number, "template": pod, **more} for each, number in replicas.items()}
    field = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}[kind.kind]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "labels": {WAIT: "true"}},
        "spec": {"runPolicy": {"suspend": True}, field: types},
    }


async def test_py_torch_jobs_are_let_in_as_wholes_one_after_another(bed: Bed, trained: tuple[Api, str]) -> None:
    api, namespace = trained
    jobs, replicas = Jobs(api, namespace, PY_TORCH, OF), {"Master": 1, "Worker": WORKERS}
    await jobs.limit(5)
    async with admitting(bed.server, namespaces=(namespace,)) as found:
        await jobs.create(training_job(PY_TORCH, "first", replicas, "pytorch"))
        pods = await jobs.pods_of("first", 1 + WORKERS)
        await jobs.create(training_job(PY_TORCH, "second", replicas, "pytorch"))
        await jobs.until("second", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        assert await jobs.pods("second") == []
        for pod in pods:
            await jobs.end(pod)
        await jobs.ended("first")
        await jobs.pods_of("second", 1 + WORKERS)
        assert found.counts.admitted == {PY_TORCH.resource: 2}
    assert await jobs.refusals() == []


async def test_a_replica_that_is_tried_again_has_its_room(bed: Bed, trained: tuple[Api, str]) -> None:
    """Though another job waits that would fit into it: the operator deletes what has failed, and makes it anew."""
    api, namespace = trained
    jobs = Jobs(api, namespace, TF, OF)
    await jobs.limit(WORKERS)
    async with admitting(bed.server, namespaces=(namespace,)) as found:
        await jobs.create(training_job(TF, "first", {"Worker": WORKERS}, "tensorflow", restartPolicy="ExitCode"))
        pods = await jobs.pods_of("first", WORKERS)
        await jobs.create(training_job(TF, "small", {"Worker": 1}, "tensorflow"))
        await jobs.until("small", lambda _: found.states()["waiting"] == 1)
        await fail(jobs, pods[0], code=143)
        uids = {pod["metadata"]["uid"] for pod in pods}
        await api.until(
            of_core(namespace, "pods"),
            lambda listed: len({pod["metadata"]["uid"] for pod in listed["items"]} - uids) == 1,
        )
        assert await jobs.pods("small") == []
        assert found.counts.admitted == {TF.resource: 1}


async def test_the_launcher_of_an_mpi_job_has_its_room_once(bed: Bed, trained: tuple[Api, str]) -> None:
    """Its Job was made while all was suspended, so that its pod lacks our label: it is known by who owns it."""
    api, namespace = trained
    jobs, single = Jobs(api, namespace, MPI, OF), Jobs(api, namespace)
    await jobs.limit(1 + WORKERS + 1)
    async with admitting(bed.server, namespaces=(namespace,), kinds=(JOB, MPI)) as found:
        await jobs.create(training_job(MPI, "first", {"Launcher": 1, "Worker": WORKERS}, "mpi"))
        pods = await jobs.pods_of("first", 1 + WORKERS)
        await single.create(job("single"))
        await single.pods_of("single", 1)
        await jobs.create(training_job(MPI, "second", {"Launcher": 1, "Worker": WORKERS}, "mpi"))
        await jobs.until("second", lambda _: found.states()["waiting"] == 1)
        await jobs.until("second", lambda _: found.states()["left alone"] == 2)  # the Jobs of both launchers
        for pod in pods:
            await jobs.end(pod)
        await jobs.ended("first")
        await jobs.pods_of("second", 1 + WORKERS)
        assert found.counts.admitted == {MPI.resource: 2, JOB.resource: 1}
    assert await jobs.refusals() == []


async def fail(jobs: Jobs, pod: JSON, *, code: int) -> None:
    """End a pod as a kubelet would whose container ends with this code."""
    ended = {
        "name": pod["spec"]["containers"][0]["name"],
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }
    status = {"phase": "Failed", "containerStatuses": [{**ended, "state": {"terminated": {"exitCode": code}}}]}
    path = of_core(jobs.namespace, "pods", pod["metadata"]["name"], "status")
    made(await jobs.api.patch(path, {"status": status}, MERGE))

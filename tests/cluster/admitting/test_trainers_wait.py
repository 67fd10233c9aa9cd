"""Suspended TrainJobs under a quota, with the controllers of Kubeflow's Trainer and of JobSet."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB_SET, KINDS, WAIT, WAITS_FOR
from tests.cluster.admitting.jobs_at_work import Jobs, admitting
from tests.cluster.admitting.jobset import controller as jobset
from tests.cluster.admitting.managers import reconciling
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.objects import made, of_group
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
GROUP = "trainer.kubeflow.org/v1alpha1"
KINDS_OF_TRAINER = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
TRAIN_JOB = next(kind for kind in KINDS if kind.kind == "TrainJob")
CONTAINER: JSON = {"name": "node", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}


@pytest.fixture
async def trains(
    bed: Bed, jobset_programs: GoPrograms, trainer_programs: GoPrograms, tmp_path: Path
) -> AsyncIterator[Jobs]:
    """The TrainJobs of a namespace with a runtime; both controllers work. Pods are known by their JobSet's name."""
    name = f"test-{secrets.token_hex(5)}"
    async with Api(bed.server) as api, jobset.managed(api, jobset_programs, tmp_path):
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        async with reconciling(api, trainer_programs, tmp_path, GROUP, KINDS_OF_TRAINER):
            made(await api.post(of_group(GROUP, name, "trainingruntimes"), runtime()))
            yield Jobs(api, name, TRAIN_JOB, jobset.NAME_LABEL)


def runtime() -> JSON:
    """A runtime whose nodes have 1 CPU; how many there are is the TrainJob's business."""
    pod = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": step, "spec": {"backoffLimit": 0, "template": pod}}}
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}}
    return {"apiVersion": GROUP, "kind": "TrainingRuntime", "metadata": {"name": "plain"}, "spec": spec}


def train_job(name: str, nodes: int) -> JSON:
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "plain"}
    spec = {"suspend": True, "runtimeRef": reference, "trainer": {"numNodes": nodes}}
    metadata = {"name": name, "labels": {WAIT: "true"}}
    return {"apiVersion": GROUP, "kind": "TrainJob", "metadata": metadata, "spec": spec}


async def test_train_jobs_are_let_in_by_the_pods_of_the_job_sets_that_the_trainer_makes(bed: Bed, trains: Jobs) -> None:
    """The Trainer makes a suspended JobSet at once, says in it how many nodes it has, and resumes it later itself."""
    sets = Jobs(trains.api, trains.namespace, JOB_SET)
    await trains.limit(4)
    async with admitting(bed.server, namespaces=(trains.namespace,)) as found:
        await trains.create(train_job("first", 3))
        pods = await trains.pods_of("first", 3)
        await trains.create(train_job("second", 2))
        await trains.until("second", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        assert await trains.pods("second") == []
        assert (await sets.get("second"))["spec"]["suspend"]
        for pod in pods:
            await trains.end(pod)
        await trains.ended("first")
        await trains.pods_of("second", 2)
        assert found.counts.admitted == {TRAIN_JOB.resource: 2}
    assert ADMITTED in (await trains.get("second"))["metadata"]["annotations"]
    assert await trains.refusals() == []


async def test_who_leads_next_knows_the_pods_that_run_and_keeps_their_room(bed: Bed, trains: Jobs) -> None:
    await trains.limit(3)
    async with admitting(bed.server, namespaces=(trains.namespace,)):
        await trains.create(train_job("first", 2))
        pods = await trains.pods_of("first", 2)
    async with admitting(bed.server, namespaces=(trains.namespace,)) as found:
        await trains.create(train_job("second", 1))
        await trains.pods_of("second", 1)
        await trains.create(train_job("third", 1))
        await trains.until("third", lambda _: found.states()["waiting"] == 1)
        for pod in pods:
            await trains.end(pod)
        await trains.ended("first")
        await trains.pods_of("third", 1)
    assert await trains.refusals() == []

"""A TrainJob waits for what its JobSet makes, which its controller has made, suspended, before; the test is both."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB_SET, KINDS, WAIT
from tests.cluster.admitting.jobs_at_work import Jobs, admitting
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made, of_core
from tests.cluster.talking import MERGE, Api
from tests.kit.watch_script import until

pytestmark = pytest.mark.long

JSON = dict[str, Any]
TRAIN_JOB = next(kind for kind in KINDS if kind.kind == "TrainJob")
POD: JSON = {
    "containers": [{"name": "node", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}],
    "restartPolicy": "Never",
}


def train_job(name: str) -> JSON:
    return {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": {WAIT: "true"}},
        "spec": {"suspend": True, "runtimeRef": {"name": "torch"}},
    }


def owned(by: JSON, name: str, body: JSON) -> JSON:
    owner = {key: by[key] for key in ("apiVersion", "kind")} | {key: by["metadata"][key] for key in ("name", "uid")}
    return {**body, "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]}}


async def make_job_set(sets: Jobs, of: JSON, nodes: int) -> JSON:
    """Make the JobSet of a TrainJob, as its controller does from the runtime that it names."""
    job = {"spec": {"parallelism": nodes, "completions": nodes, "template": {"spec": POD}}}
    spec = {"suspend": True, "replicatedJobs": [{"name": "node", "replicas": 1, "template": job}]}
    body = owned(of, of["metadata"]["name"], {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "spec": spec})
    return await sets.create(body)


async def run(api: Api, namespace: str, job_set: JSON, nodes: int) -> None:
    """Make the pods of a JobSet; its Jobs are left out, since a Job controller would think of them what it wants."""
    job_set = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", **job_set}
    for number in range(nodes):
        pod = owned(job_set, f"{job_set['metadata']['name']}-node-0-{number}", {"spec": POD})
        made(await api.post(of_core(namespace, "pods"), pod))


async def test_a_train_job_is_let_in_when_the_pods_of_its_job_set_fit(api: Api, server: Server, namespace: str) -> None:
    """Not before its JobSet exists, which stays as it is. The next leader knows its pods by their owners."""
    sets, trains = [await served(api, namespace, kind) for kind in (JOB_SET, TRAIN_JOB)]
    await trains.limit(4)
    async with admitting(server, namespaces=(namespace,)) as found:
        first = await trains.create(train_job("first"))
        assert not found.waiting()
        job_set = await make_job_set(sets, first, 3)
        running = await trains.until("first", lambda body: not body["spec"]["suspend"])
        assert ADMITTED in running["metadata"]["annotations"]
        assert (await sets.get("first"))["spec"]["suspend"]  # its controller resumes it
        await run(api, namespace, job_set, 3)

        second = await trains.create(train_job("second"))
        await make_job_set(sets, second, 2)
        waits = await trains.until("second", waits_for)
        assert waits["spec"]["suspend"]
    async with admitting(server, namespaces=(namespace,)) as found:
        third = await trains.create(train_job("third"))
        await make_job_set(sets, third, 1)
        await trains.until("third", lambda body: not body["spec"]["suspend"])  # the pods of the first count once
        ended = {"conditions": [{"type": "Complete", "status": "True", "reason": "x", "message": "x"}]}
        made(await api.patch(f"{trains.path('first')}/status", {"status": ended}, MERGE))
        for pod in await pods(api, namespace):
            await trains.end(pod)
        await trains.until("second", lambda body: not body["spec"]["suspend"])
        await until(lambda: found.states()["running"] == 2)


async def test_the_job_set_of_a_deleted_train_job_does_not_count(api: Api, server: Server, namespace: str) -> None:
    """It has the name of a new TrainJob until it is collected."""
    sets, trains = [await served(api, namespace, kind) for kind in (JOB_SET, TRAIN_JOB)]
    await trains.limit(4)
    async with admitting(server, namespaces=(namespace,)) as found:
        first = await trains.create(train_job("first"))
        await make_job_set(sets, {**first, "metadata": {**first["metadata"], "uid": "gone"}}, 1)
        second = await trains.create(train_job("second"))
        await make_job_set(sets, second, 1)
        await trains.until("second", lambda body: not body["spec"]["suspend"])
        assert (await trains.get("first"))["spec"]["suspend"]
        assert found.counts.admitted[TRAIN_JOB.resource] == 1


async def pods(api: Api, namespace: str) -> list[JSON]:
    found: list[JSON] = made(await api.get(of_core(namespace, "pods")))["items"]
    return found


def waits_for(body: JSON) -> bool:
    return "backoff-ctrl.dev/waits-for" in body["metadata"].get("annotations", {})

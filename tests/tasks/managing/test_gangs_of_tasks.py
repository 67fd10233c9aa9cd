"""Objects of which others make pods: created when all of them fit, and reserved for again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kubernetes import client

from backoff_ctrl.k8s.gate.clients.session_transport import CreateTransport
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.objects import object_of
from backoff_ctrl.k8s.kube.charges.parts import parts_of
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.manager.launch import Asked, Launch
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import JOB, task


@pytest.fixture
async def bench(sandbox: BackgroundSandbox) -> AsyncIterator[Bench]:
    """A manager whose ledger watches quotas: gangs need that."""
    async with Bench(sandbox.url, shared=True) as bench:
        yield bench


def job(name: str, pods: int, cpu: str = "1", **more: Any) -> TaskContext:
    """A task that is a Job of so many pods at once."""
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return task(name, type="job", spec={"template": {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}}, **more)


async def make_pod(bench: Bench, stored: JSON, number: int) -> None:
    """Make one of a Job's pods, as its controller does."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    metadata = stored["metadata"]
    template = stored["spec"]["template"]
    labels = {**template.get("metadata", {}).get("labels", {}), "job-name": metadata["name"]}
    about = {
        "name": f"{metadata['name']}-{number}",
        "labels": labels,
        "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata["uid"]}],
    }
    made = await bench.call("POST", "/api/v1/namespaces/team/pods", {"metadata": about, "spec": template["spec"]})
    assert made["http"] == 201, made


async def found(bench: Bench, name: str) -> JSON:
    return await bench.call("GET", f"/apis/batch/v1/namespaces/team/jobs/{name}")


async def test_a_job_is_created_when_all_its_pods_fit_and_its_pods_get_that_room(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    one, two = job("one", 3), job("two", 2)
    await bench.until(one, Phase.QUEUED)
    stored = await found(bench, "one-0")
    assert stored["spec"]["template"]["metadata"]["labels"][GANG_LABEL]
    waits = await bench.until(two, Phase.WAITING_FOR_RESOURCES, holds=lambda info: info.wait and info.wait.quota)
    assert waits.wait is not None
    assert (waits.wait.resource, waits.wait.asked, waits.wait.left) == ("requests.cpu", "2", "1")
    for number in range(3):
        await make_pod(bench, stored, number)
    info = await bench.until(one, Phase.RUNNING, holds=lambda info: info.reason == "3 pods")
    assert info.error is None
    for number in range(3):
        await bench.set_phase(f"one-0-{number}", "Succeeded")
    await bench.until(two, Phase.QUEUED)


@pytest.mark.long
async def test_a_job_that_never_fits_as_a_whole_is_refused_though_one_pod_of_it_would_fit(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    info = await bench.until(job("one", 5), Phase.PERMANENT_FAILURE)
    assert info.error is not None
    assert (info.error.code, info.error.kind) == ("ResourceRequestsExceedLimits", ErrorKind.USER)
    assert "http" in (await found(bench, "one-0"))
    assert (await found(bench, "one-0"))["http"] == 404


ADDED: dict[str, tuple[str, JSON, dict[str, str]]] = {
    "the default of a LimitRange": (
        "/api/v1/namespaces/team/limitranges",
        {"spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "1Gi"}}]}},
        {"requests.memory": "1Gi"},
    ),
    "the overhead of a RuntimeClass": (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}},
        {"requests.cpu": "2"},
    ),
    "the default StorageClass": (
        "/apis/storage.k8s.io/v1/storageclasses",
        {"provisioner": "example.com/none"},
        {"added.storageclass.storage.k8s.io/requests.storage": "1Gi"},
    ),
}


@pytest.mark.parametrize("added", ADDED)
async def test_what_the_cluster_adds_to_pods_is_weighed(bench: Bench, sandbox: BackgroundSandbox, added: str) -> None:
    """What the manifest alone asks for would fit."""
    path, body, hard = ADDED[added]
    about = {"name": "added", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    sandbox.create_quota("team", "q", hard)
    made = await bench.call("POST", path, {"metadata": about, **body})
    assert made["http"] == 201, made
    one = job("one", 2)
    spec = one.spec["template"]["spec"]["template"]["spec"]
    spec["runtimeClassName"] = "added" if "runtimeclasses" in path else None
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]
    info = await bench.until(one, Phase.PERMANENT_FAILURE)
    assert info.error is not None
    assert (info.error.code, info.error.kind) == ("ResourceRequestsExceedLimits", ErrorKind.USER)
    assert next(iter(hard)) in info.error.message
    assert (await found(bench, "one-0"))["http"] == 404


def _reserved(bench: Bench) -> bool:
    """Whether the manager's ledger has a gang, and knows the quota."""
    known = bench.manager.gate.ledger.snapshot().namespaces.get("team")
    return known is not None and bool(known.gangs) and "cpus" in known.quotas


class _SlowerThanTheWatch(CreateTransport):
    """A create whose object a watch shows in the moment in which its answer comes."""

    launch: Launch

    async def send(self, body: JSON) -> Answer:
        """Send; the watch is told before the create's own task goes on."""
        answer = await super().send(body)
        asyncio.get_running_loop().call_soon(self.launch.adopt, object_of(answer.json() or {}))
        return answer


async def test_a_create_that_was_just_answered_is_not_taken_for_an_earlier_one(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    """Else what is reserved for its pods would be given back before they are there."""
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    manifest = {**job("one", 3).spec["template"], "metadata": {"name": "one-0", "namespace": "team"}}
    creation = Creation(sandbox.url, "", "team", JOB.resource, manifest, key="uid-one/0")
    asked = Asked(("uid-one", 0), creation, partial(parts_of, resource=JOB.resource))
    async with ClusterSession(client.Configuration(host=sandbox.url)) as session:
        transport = _SlowerThanTheWatch(Objects(session), JOB, "team")
        ended = asyncio.Event()
        transport.launch = launch = Launch(asked, bench.manager.gate, transport, ended.set)
        while not launch.over:
            await ended.wait()
            ended.clear()
        assert launch.created
        assert _reserved(bench)


@pytest.mark.parametrize("lost", [False, True], ids=["with its state", "with its state lost"])
async def test_after_a_restart_a_living_job_is_followed_and_what_it_still_lacks_is_reserved_again(
    bench: Bench, sandbox: BackgroundSandbox, lost: bool
) -> None:
    """The room of its missing pods is not given to others, though nothing in the cluster shows that it is needed."""
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    one = job("one", 3)
    await bench.until(one, Phase.QUEUED)
    stored = await found(bench, "one-0")
    await make_pod(bench, stored, 0)
    if lost:
        bench.states.clear()
    await bench.restart(bench.url.replace("127.0.0.1", "localhost"))
    await bench.until(one, Phase.RUNNING)
    assert bench.manager.counts.launches.get(("job", "created")) is None
    while not _reserved(bench):
        await bench.tick()
    two = job("two", 2)
    info = await bench.until(two, Phase.WAITING_FOR_RESOURCES, holds=lambda info: info.wait and info.wait.quota)
    assert info.error is None
    assert (await found(bench, "two-0"))["http"] == 404


async def test_a_gang_that_waits_is_aborted_and_leaves_nothing_reserved(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    one, two, three = job("one", 3), job("two", 3), job("three", 1)
    await bench.until(one, Phase.QUEUED)
    await bench.until(two, Phase.WAITING_FOR_RESOURCES)
    assert (await bench.abort(two)).phase is Phase.ABORTED
    await bench.until(three, Phase.QUEUED)
    assert (await found(bench, "two-0"))["http"] == 404


async def ended_job(bench: Bench, how: str, one: TaskContext) -> None:
    """End the first Job, of which one pod of three was made."""
    place = "/apis/batch/v1/namespaces/team/jobs/one-0"
    if how == "failed":
        condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no luck"}
        body = {"status": {"failed": 1, "conditions": [condition]}}
        patched = await bench.call("PATCH", f"{place}/status", body, "application/merge-patch+json")
        assert patched["http"] == 200, patched
        await bench.until(one, Phase.RETRYABLE_FAILURE, Phase.PERMANENT_FAILURE)
    elif how == "aborted":
        assert (await bench.abort(one)).phase is Phase.ABORTED
    else:
        await bench.call("DELETE", place)


@pytest.mark.parametrize("how", ["failed", "aborted", "deleted by hand"])
async def test_what_is_reserved_for_the_pods_of_an_object_ends_with_it(
    bench: Bench, sandbox: BackgroundSandbox, how: str
) -> None:
    """Else a failed attempt would keep its own retry out for five minutes."""
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    one, two = job("one", 3), job("two", 3)
    await bench.until(one, Phase.QUEUED)
    await make_pod(bench, await found(bench, "one-0"), 0)
    await bench.until(two, Phase.WAITING_FOR_RESOURCES, holds=lambda info: info.wait and info.wait.quota)
    await ended_job(bench, how, one)
    began = asyncio.get_running_loop().time()
    await bench.until(two, Phase.QUEUED)  # three of four: the pod that was made takes one
    assert asyncio.get_running_loop().time() - began < 100


async def test_how_long_room_stays_reserved_is_a_setting(bench: Bench, sandbox: BackgroundSandbox) -> None:
    """Where no pod of the object ever appears."""
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    one = job("one", 3)
    config = one.config.model_copy(update={"reservation_limit": timedelta(seconds=0.3)})
    await bench.until(replace(one, config=config), Phase.QUEUED)
    await bench.until(job("two", 3), Phase.QUEUED)

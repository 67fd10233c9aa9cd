"""Jobs as tasks on a real Kubernetes: its controller makes the pods, from what is reserved for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox.followed import Server as KubeletServer
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from backoff_ctrl.k8s.tasks.builtin import builtin_entries
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from tests.cluster.control_plane.servers import Server
from tests.cluster.faults.storm import hung_up
from tests.cluster.quotas.quota_room import Room
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

pytestmark = [pytest.mark.long, pytest.mark.only_kubernetes("the sandbox has no controller that makes pods of Jobs")]

PODS = 3


@pytest.fixture
async def bench(server: Server) -> AsyncIterator[Bench]:
    jobs = [of_objects(each) for each in builtin_entries() if each.id == "job"]
    authority = str(server.certificate) if server.certificate else None
    token = server.token("tester")
    async with Bench(
        server.url, *jobs, shared=True, token=token, tls=server.ssl(), authority=authority, store="jobs"
    ) as bench:
        yield bench
    await hung_up()


def job(name: str, namespace: str) -> TaskContext:
    """A task that is a Job of three pods at once, whose events are told."""
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"parallelism": PODS, "completions": PODS, "template": template}
    written = {"template": {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}}
    config = K8sPluginConfig(send_object_events=True, delete_resource_on_finalize=True)
    uid = f"{namespace}-{name}"
    return task(name, type="job", namespace=namespace, spec=written, config=config, uid=uid)


async def test_jobs_run_one_after_the_other_though_the_manager_is_started_anew(
    bench: Bench, server: Server, room: Room
) -> None:
    """Two Jobs, room for one and a half: no half of one ever holds the room of the other; no Job is made twice."""
    await room.quota("cpus", {"requests.cpu": "4"})
    one, two = job("one", room.namespace), job("two", room.namespace)
    said: list[str] = []

    def note(info: PhaseInfo) -> PhaseInfo:
        said.extend(each.text for each in info.reasons)
        return info

    await bench.until(one, Phase.QUEUED, Phase.INITIALIZING, Phase.RUNNING)
    waits = await bench.until(two, Phase.WAITING_FOR_RESOURCES, holds=lambda info: info.wait and info.wait.quota)
    assert waits.wait is not None
    assert (waits.wait.quota, waits.wait.resource, waits.wait.asked) == ("cpus", "requests.cpu", "3")
    jobs = room.path("jobs.batch")
    uids = [each["metadata"]["uid"] for each in (await bench.call("GET", jobs))["items"]]
    assert len(uids) == 1
    await bench.restart()
    bench.states[two.metadata.uid, 0] = None  # what it had said of its wait is lost, too
    steps = [asyncio.create_task(_to_its_end(bench, each, note)) for each in (one, two)]
    kubelet = KubeletServer(server.url, {"Authorization": f"Bearer {server.token('admin')}"}, server.ssl())
    async with Kubelet(kubelet, namespace=room.namespace, finish_after=0.5):
        await asyncio.gather(*steps)
    found = (await bench.call("GET", jobs))["items"]
    assert len(found) == 2
    assert uids[0] in [each["metadata"]["uid"] for each in found]
    made = [each for each in said if each.startswith("SuccessfulCreate")]
    assert len(made) == len(set(made)) == 2 * PODS, said
    for each in (one, two):
        await bench.finalize(each)
    gone = await room.api.until(jobs, lambda listed: not listed["items"])
    assert gone["items"] == []


async def _to_its_end(bench: Bench, one: TaskContext, note: Any) -> None:
    def ended(info: PhaseInfo) -> bool:
        return note(info).phase is Phase.SUCCESS

    anything = [each for each in Phase if each is not Phase.SUCCESS and not each.is_terminal]
    await bench.until(one, Phase.SUCCESS, *anything, holds=ended)

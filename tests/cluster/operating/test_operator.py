"""``backoff-ctrl operator`` as people run it, on a real control plane: two replicas, Jobs and Tasks, and their ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.cluster.schema import NAME, definition
from backoff_ctrl.k8s.workloads.admitting.described import described_kinds
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, STAY_SUSPENDED, WAIT, WAITS_FOR
from tests.admitting.trains import train, written
from tests.cluster.admitting.jobs_at_work import Jobs, job
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.bed import Bed
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.objects import made, of_core
from tests.cluster.operating.replicas import LEADS, STANDS_BY, Replica, replica, run
from tests.cluster.operating.tenants import gone
from tests.cluster.proxying.crowd import free_port
from tests.cluster.talking import MERGE, Api

pytestmark = pytest.mark.long

SLEEP = {
    "apiVersion": "backoff-ctrl.dev/v1alpha1",
    "kind": "Task",
    "spec": {"type": "sleep", "custom": {"seconds": 0.1}},
}

SIGNAL = {
    "apiVersion": "backoff-ctrl.dev/v1alpha1",
    "kind": "Task",
    "metadata": {"name": "go"},
    "spec": {"type": "signal"},
}


async def defined(bed: Bed, api: Api, *, wanted: bool) -> None:
    """Define Tasks with what ``operator --print-crd`` prints, or take them away."""
    name = "tasks.backoff-ctrl.dev"
    if not wanted:
        await api.delete(f"{DEFINITIONS}/{name}")
        await gone(api, f"{DEFINITIONS}/{name}")
        return
    reply = await api.post(DEFINITIONS, json.loads(await run(bed, "operator", "--print-crd")))
    assert reply.status in {201, 409}, reply.text  # 409: another test has left it
    await api.until(f"{DEFINITIONS}/{name}", is_established)


async def test_a_leader_lets_jobs_in_and_another_replica_follows_it(bed: Bed, jobs: Jobs) -> None:
    """Killed, it is followed, and nothing is started twice; stopped, its Lease is free at once."""
    await jobs.limit(1)
    for name in ("first", "second"):
        await jobs.create(job(name))
        await asyncio.sleep(1.05)
    async with replica(bed, jobs.namespace) as one:
        await one.until("/metrics", LEADS)
        (pod,) = await jobs.pods_of("first", 1)
        text = await one.until("/metrics", 'backoff_ctrl_jobs{state="waiting"} 1')
        assert 'backoff_ctrl_jobs_admitted_total{kind="jobs.batch",how="reserved"} 1' in text
        async with replica(bed, jobs.namespace) as two:
            assert (await two.until("/readyz", " leads")).count("leads") == 1
            await two.until("/metrics", STANDS_BY)
            await one.end(signal.SIGKILL)
            await two.until("/metrics", LEADS)
            assert await jobs.running() == ["first"]
            await jobs.end(pod)
            await jobs.pods_of("second", 1)
            assert await jobs.refusals() == []
            async with replica(bed, jobs.namespace) as three:
                await three.until("/metrics", STANDS_BY)
                said = await two.end(signal.SIGTERM)
                assert (two.process.returncode, "Traceback" in said) == (0, False), said
                await three.until("/metrics", LEADS)


async def test_both_ports_of_the_leader_have_the_metrics_of_jobs_and_tasks(bed: Bed, jobs: Jobs) -> None:
    """``--admin`` as ``--probe-listen``; a standby has those of its election alone."""
    api = jobs.api
    await jobs.limit(1)
    there = await api.post(DEFINITIONS, definition())
    assert there.status in {201, 409}, there.text
    await api.until(f"{DEFINITIONS}/{NAME}", is_established)
    port = free_port()
    async with replica(bed, jobs.namespace, f"--admin=127.0.0.1:{port}") as one:
        await one.until("/metrics", LEADS)
        await jobs.create(job("first"))
        await jobs.pods_of("first", 1)
        await jobs.create(job("second"))
        made(await api.post(f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{jobs.namespace}/tasks", SIGNAL))
        admin = Replica(one.process, port)
        wanted = ('backoff_ctrl_jobs{state="waiting"} 1', 'backoff_ctrl_tasks{phase="Paused"} 1')
        for each in (one, admin):
            for text in wanted:
                await each.until("/metrics", text)
            _, text = await each.get("/metrics")
            assert 'backoff_ctrl_jobs_admitted_total{kind="jobs.batch",how="reserved"} 1' in text
        assert LEADS in (await admin.get("/metrics"))[1]


async def test_without_the_definition_jobs_are_let_in_and_once_it_is_there_tasks_are_carried_out(
    bed: Bed, jobs: Jobs
) -> None:
    await jobs.limit(5)
    await defined(bed, jobs.api, wanted=False)
    async with replica(bed, jobs.namespace) as only:
        await jobs.create(job("first"))
        await jobs.pods_of("first", 1)
        assert "operator --print-crd" in await only.until("/readyz", "Tasks are not carried out")

        await defined(bed, jobs.api, wanted=True)
        path = f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{jobs.namespace}/tasks"
        made(await jobs.api.post(path, {**SLEEP, "metadata": {"name": "nap"}}))
        await jobs.api.until(f"{path}/nap", lambda task: task.get("status", {}).get("phase") == "Success")
        container = {"image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
        body = {**SLEEP, "metadata": {"name": "train"}, "spec": {"type": "container", "container": container}}
        owner = made(await jobs.api.post(path, body))["metadata"]["uid"]
        task = await jobs.api.until(f"{path}/train", lambda task: (task.get("status") or {}).get("object"))
        assert task["metadata"]["finalizers"]  # whoever deletes it ends its pod first
        pod = made(await jobs.api.get(of_core(jobs.namespace, "pods", task["status"]["object"]["name"])))
        assert [each["uid"] for each in pod["metadata"]["ownerReferences"]] == [owner]
        made(await jobs.api.delete(f"{path}/train"))
        await gone(jobs.api, f"{path}/train")

        said = await only.end(signal.SIGTERM)
        assert said.count("has no kind tasks.backoff-ctrl.dev") == 1, said
    await defined(bed, jobs.api, wanted=False)


async def test_a_namespace_that_is_deleted_under_load_leaves_no_object(bed: Bed, jobs: Jobs) -> None:
    """Tasks run, wait and are created in it, Jobs run and wait; then all of it goes, and what is kept for it, too."""
    doomed = Jobs(jobs.api, f"{jobs.namespace}-doomed")
    made(await jobs.api.post("/api/v1/namespaces", {"metadata": {"name": doomed.namespace}}))
    await jobs.limit(2)
    await doomed.limit(5)
    await defined(bed, jobs.api, wanted=True)
    container = {"image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
    body = {**SLEEP, "spec": {"type": "container", "container": container}}
    tasks = f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{doomed.namespace}/tasks"

    under_load = asyncio.Event()

    async def create_on() -> int:
        """Create Tasks, some hundred a minute, until the namespace takes no more; return how many it took."""
        for number in count():
            if number == 6:
                under_load.set()
            await asyncio.sleep(0.1)
            reply = await jobs.api.post(tasks, {**body, "metadata": {"name": f"t{number}"}})
            if reply.status != 201:
                assert reply.status in {403, 404}, reply
                return number
        raise AssertionError

    async with replica(bed, jobs.namespace, f"--namespace={doomed.namespace}") as only:
        await only.until("/metrics", LEADS)
        for number in range(4):
            await doomed.create(job(f"j{number}", parallelism=2, completions=2))
        creating = asyncio.create_task(create_on())
        quota = of_core(doomed.namespace, "resourcequotas", "q")
        await jobs.api.until(quota, lambda found: found["status"].get("used", {}).get("requests.cpu") == "5")
        await only.until("/metrics", 'backoff_ctrl_tasks{phase="WaitingForResources"}')
        await under_load.wait()
        made(await jobs.api.delete(f"/api/v1/namespaces/{doomed.namespace}"))
        await gone(jobs.api, f"/api/v1/namespaces/{doomed.namespace}")
        assert await creating > 5
        await jobs.create(job("whole", parallelism=2, completions=2))
        await jobs.pods_of("whole", 2)
        text = await only.until("/metrics", 'backoff_ctrl_jobs{state="running"} 1')
        left = [line for line in text.splitlines() if doomed.namespace in line and " 0" not in line]
        assert not [line for line in left if "_waiting{" in line or "reserved" in line or "backoff_ctrl_gangs" in line]
        assert 'backoff_ctrl_jobs{state="waiting"} 0' in text
        assert not re.search(r"^backoff_ctrl_tasks\{.*\} [1-9]", text, re.MULTILINE), text
        said = await only.end(signal.SIGTERM)
        assert "Traceback" not in said, said
    await defined(bed, jobs.api, wanted=False)


async def test_people_see_what_waits_and_let_it_go_without_an_operator(bed: Bed, jobs: Jobs) -> None:
    await jobs.limit(1)
    for name in ("first", "second", "third"):
        await jobs.create(job(name))
        await asyncio.sleep(1.05)
    async with replica(bed, jobs.namespace):
        await jobs.pods_of("first", 1)
        await jobs.until("second", lambda body: "backoff-ctrl.dev/waits-for" in body["metadata"].get("annotations", {}))
    listed = (await run(bed, "jobs", "list", "-n", jobs.namespace)).splitlines()
    assert [line.split()[1] for line in listed[1:]] == ["Job/second", "Job/third"]
    assert "q requests.cpu: asked 1, left 0" in listed[1]
    found: dict[str, Any] = json.loads(await run(bed, "jobs", "list", "--json", "-n", jobs.namespace))
    assert [each["name"] for each in found["items"]] == ["second", "third"]

    await run(bed, "jobs", "release", "nobody", "-n", jobs.namespace, code=2)
    await run(bed, "jobs", "release", "-n", jobs.namespace, code=2)
    assert "second was let go" in await run(bed, "jobs", "release", "job/second", "-n", jobs.namespace)
    assert "third was let go" in await run(bed, "jobs", "release", "--all", "-n", jobs.namespace)
    assert await jobs.running() == ["first", "second", "third"]
    assert "No Job waits" in await run(bed, "jobs", "list", "-n", jobs.namespace)


async def test_what_is_suspended_again_and_what_its_namespace_asks_for_is_listed_and_let_go_by_uninstall(
    bed: Bed, jobs: Jobs
) -> None:
    await jobs.limit(1)
    await jobs.create(job("again"))
    made(await jobs.api.patch(f"/api/v1/namespaces/{jobs.namespace}", {"metadata": {"labels": {WAIT: "true"}}}, MERGE))
    await jobs.create(job("kept", annotations={STAY_SUSPENDED: "true"}))
    async with replica(bed, jobs.namespace):
        for times in range(2):
            await jobs.until("again", lambda body: not body["spec"]["suspend"])  # a pod may be left of the first time
            await jobs.pods_of("again", 1)
            await jobs.patch("again", {"spec": {"suspend": True}})
            noted = f'"times": {times + 1}'
            await jobs.until("again", lambda body, noted=noted: noted in body["metadata"]["annotations"][ADMITTED])
        await jobs.until("again", lambda body: "refused" in body["metadata"]["annotations"].get(WAITS_FOR, ""))
        await jobs.create(job("first", asks=False))
        await jobs.pods_of("first", 1)
        await jobs.create(job("second", asks=False))
        await jobs.until("second", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
    listed = (await run(bed, "jobs", "list", "-n", jobs.namespace)).splitlines()
    rows = {line.split()[1]: line for line in listed[1:]}
    assert {*rows} == {"Job/again", "Job/second"}
    assert "has suspended it twice within 10 minutes" in rows["Job/again"]
    assert "remove the annotation backoff-ctrl.dev/admitted" in rows["Job/again"]
    assert re.search("Jobs: [0-9]+ let go", await run(bed, "uninstall", "--yes"))
    assert await jobs.running() == ["again", "first", "second"]


async def test_a_kind_that_a_file_describes_waits_listed_and_is_let_in(bed: Bed, jobs: Jobs, tmp_path: Path) -> None:
    kinds = f"--kinds={written(tmp_path)}"
    trains = await served(jobs.api, jobs.namespace, described_kinds([tmp_path / "trains.yaml"])[-1])
    await trains.limit(1)
    await trains.create(train("local", 1))
    assert "Train/local" in await run(bed, "jobs", "list", "-n", jobs.namespace, kinds)
    async with replica(bed, jobs.namespace, kinds) as one:
        await trains.until("local", lambda body: body["spec"]["halted"] is False)
        await one.until("/metrics", 'backoff_ctrl_jobs_admitted_total{kind="trains.example.com",how="reserved"} 1')

"""What a user with the role ``edit`` in one namespace writes on objects there stops nothing elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Callable

import pytest

from backoff_ctrl.k8s.kube.answers.bounded_json import PartlyRead, read_json
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import JSON as JSON_TYPE
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import Kind
from backoff_ctrl.k8s.tasks.cluster.schema import written
from tests.cluster.admitting.jobs_at_work import job
from tests.cluster.control_plane.bed import Bed
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.objects import made, of_group
from tests.cluster.operating.replicas import LEADS, Replica, replica, run
from tests.cluster.operating.tenants import TASKS, Tenants, gone, tenants_of
from tests.kit.odd_objects import odd_job
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long

RUNS = {"metadata": {"name": "odd"}, "spec": {"type": "signal"}}


@pytest.fixture
async def tenants(bed: Bed) -> AsyncIterator[Tenants]:
    async with tenants_of(bed) as found:
        yield found
        api, odd = found.api, found.his.path("odd")
        await api.delete(odd, {"propagationPolicy": "Background"})  # the next test counts its own
        await gone(api, odd)


async def named(found: Replica, words: str, *, still: bool = True) -> None:
    """Wait until /readyz names an object, or no longer; the metric counts it beside those of other tests."""
    async with asyncio.timeout(PATIENCE):
        while (words in (await found.get("/readyz"))[1]) is not still:  # noqa: ASYNC110 - it is polled, as by people
            await asyncio.sleep(0.1)
    counted = re.search(r"^backoff_ctrl_operator_partly_read (\d+)$", (await found.get("/metrics"))[1], re.MULTILINE)
    assert counted is not None
    assert int(counted[1]) >= still


async def test_a_job_that_is_nested_deeply_stops_no_other(bed: Bed, tenants: Tenants) -> None:
    """Others are let in after a restart, all can be released, and the operator names the object and ends."""
    his, other = tenants.his, tenants.other
    await his.limit(0)
    await other.limit(1)
    await his.create(job("odd"))
    await tenants.nest(his.path("odd"))
    async with replica(bed, other.namespace, everywhere=True) as found:
        await found.until("/metrics", LEADS)
        await other.create(job("first"))
        await other.until("first", lambda seen: not seen["spec"].get("suspend"))
        await named(found, f"{his.namespace}/odd of jobs in all namespaces is read only in part")
        await other.create(job("second"))
        said = await run(bed, "jobs", "release", "--all", "-A")
        assert "second" in said
        assert "odd" in said
        for path in (other.path("second"), his.path("odd")):
            assert not read_json((await tenants.api.get(path)).text.encode())["spec"].get("suspend")
        async with asyncio.timeout(30):
            log = await found.end(signal.SIGTERM)
        assert found.process.returncode == 0, log
        assert log.count(f"{his.namespace}/odd of jobs") == 1


async def test_the_room_of_a_job_that_is_nested_deeply_comes_back(bed: Bed, tenants: Tenants) -> None:
    """It runs already when that is written, and is deleted."""
    his = tenants.his
    await his.limit(1)
    async with replica(bed, his.namespace, everywhere=True) as found:
        await found.until("/metrics", LEADS)
        await his.create(job("odd"))
        await his.until("odd", lambda seen: seen["status"].get("active"))  # later writes would tidy the fields
        await tenants.nest(his.path("odd"))
        await named(found, f"{his.namespace}/odd of jobs")
        await his.create(job("next"))
        assert (await tenants.api.delete(his.path("odd"), {"propagationPolicy": "Foreground"})).status == 200
        await his.until("next", lambda seen: not seen["spec"].get("suspend"))
        await named(found, f"{his.namespace}/odd of jobs", still=False)


async def test_a_task_that_is_nested_deeply_can_be_deleted(bed: Bed, tenants: Tenants) -> None:
    """Another's Task runs meanwhile."""
    api = tenants.api
    name = "tasks.backoff-ctrl.dev"
    made(await api.post(DEFINITIONS, json.loads(written())))
    await api.until(f"{DEFINITIONS}/{name}", is_established)
    his, other = (of_group(TASKS, each.namespace, "tasks") for each in (tenants.his, tenants.other))
    await api.until(his, lambda found: "items" in found)
    async with replica(bed, tenants.other.namespace, everywhere=True) as found:
        await found.until("/metrics", LEADS)
        odd = {"apiVersion": TASKS, "kind": "Task", **RUNS}
        made(await api.post(his, odd))
        await api.until(f"{his}/odd", lambda task: task.get("status", {}).get("phase") == "Paused")
        await tenants.nest(f"{his}/odd")
        await named(found, f"{tenants.his.namespace}/odd of tasks")
        assert (await api.delete(f"{his}/odd")).status == 200
        await gone(api, f"{his}/odd")
        sleep = {"metadata": {"name": "quick"}, "spec": {"type": "sleep", "custom": {"seconds": 0.1}}}
        made(await api.post(other, {"apiVersion": TASKS, "kind": "Task", **sleep}))
        await api.until(f"{other}/quick", lambda task: task.get("status", {}).get("phase") == "Success")


async def test_no_page_is_lost_whatever_is_written(bed: Bed, tenants: Tenants, say: Callable[[str], None]) -> None:
    """Every object that the server has stored is on the pages that are read, and what is whole is as it was sent."""
    rng, his, number = random.Random(4), tenants.his, int(os.environ.get("BACKOFF_TEST_FUZZ", "120"))
    stored: set[str] = set()
    room = asyncio.Semaphore(16)

    async def create(body: bytes) -> None:
        async with (
            room,
            tenants.editor.post(his.path(), data=io.BytesIO(body), headers={"Content-Type": JSON_TYPE}) as answer,
        ):
            if answer.status == 201:
                stored.add(read_json(await answer.read())["metadata"]["name"])

    await asyncio.gather(*(create(odd_job(rng, each)) for each in range(number)))
    assert len(stored) > number / 3
    configuration = find_place(None, str(bed.server.kubeconfig("tester")), None, None).configuration
    async with ClusterSession(configuration) as session:
        kind = Kind("/apis/batch/v1", "jobs", frozenset({"Job"}))
        pages = [page async for page in ClusterSource(session).pages(kind, his.namespace)]
    found = [each for page in pages for each in page["items"]]
    assert {each["metadata"]["name"] for each in found} == stored
    assert all(each["spec"]["template"] for each in found)
    partly = sum(isinstance(each, PartlyRead) for each in found)
    say(f"{number} sent, {len(stored)} stored, {len(pages)} pages, {partly} read only in part")
    assert partly

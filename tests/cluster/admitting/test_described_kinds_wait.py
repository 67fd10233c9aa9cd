"""Custom resources that wait because a file describes their operator, which the test is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.workloads.admitting.described import described_kinds
from backoff_ctrl.k8s.workloads.admitting.jobs import list_jobs, release
from backoff_ctrl.k8s.workloads.admitting.kinds import WAITS_FOR, AdmissibleKind
from tests.admitting.trains import train, written
from tests.cluster.admitting.jobs_at_work import Jobs, admitting
from tests.cluster.admitting.trains_at_work import OF, served
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made, of_core
from tests.cluster.talking import MERGE, Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]


@pytest.fixture
def kinds(tmp_path: Path) -> tuple[AdmissibleKind, ...]:
    return described_kinds([written(tmp_path)])


@pytest.fixture
async def trains(api: Api, namespace: str, kinds: tuple[AdmissibleKind, ...]) -> AsyncIterator[Jobs]:
    found = await served(api, namespace, kinds[-1])
    operator = asyncio.create_task(operate(found))
    yield found
    operator.cancel()
    await asyncio.wait({operator})


async def operate(trains: Jobs) -> None:
    """Make the pods of each Train that may run, once, of its templates with their labels."""
    done: set[str] = set()
    async with trains.api.watch(trains.path()) as events:
        async for event in events:
            body = event["object"]
            if not body["spec"]["halted"] and body["metadata"]["name"] not in done:
                done.add(body["metadata"]["name"])
                for number, wagon in enumerate(body["spec"]["wagons"]):
                    for seat in range(wagon["count"]):
                        made(await trains.api.post(of_core(trains.namespace, "pods"), pod(body, number, seat)))


def pod(of: JSON, wagon: int, seat: int) -> JSON:
    name, uid = of["metadata"]["name"], of["metadata"]["uid"]
    template = of["spec"]["wagons"][wagon]["template"]
    owner = {"apiVersion": of["apiVersion"], "kind": "Train", "name": name, "uid": uid, "controller": True}
    labels = {OF: name, **template.get("metadata", {}).get("labels", {})}
    metadata = {"name": f"{name}-{wagon}-{seat}", "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


async def arrive(trains: Jobs, name: str) -> None:
    for each in await trains.pods(name):
        await trains.end(each)
    made(await trains.api.patch(f"{trains.path(name)}/status", {"status": {"phase": "Arrived"}}, MERGE))


async def test_they_are_let_in_as_wholes_and_say_what_they_wait_for(
    server: Server, trains: Jobs, kinds: tuple[AdmissibleKind, ...]
) -> None:
    """The suspended object gets an annotation; of one that never fits it says so."""
    await trains.limit(3)
    async with admitting(server, namespaces=(trains.namespace,), kinds=kinds) as found:
        await trains.create(train("first", 1, 2))
        pods = await trains.pods_of("first", 3)
        assert len({each["metadata"]["labels"][GANG_LABEL] for each in pods}) == 1
        await trains.create(train("second", 2, 1))
        await trains.create(train("huge", 4))
        seen = await trains.until("second", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        assert json.loads(seen["metadata"]["annotations"][WAITS_FOR])["resource"] == "requests.cpu"
        seen = await trains.until("huge", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        assert json.loads(seen["metadata"]["annotations"][WAITS_FOR])["reason"] == "refused"
        assert await trains.running() == ["first"]
        await arrive(trains, "first")
        await trains.pods_of("second", 3)
        await arrive(trains, "second")
        assert found.counts.admitted == {"trains.example.com": 2}


async def test_they_are_listed_and_released_by_their_description(
    server: Server, trains: Jobs, kinds: tuple[AdmissibleKind, ...]
) -> None:
    """Without the description, the command does not list them."""
    configuration = find_place(None, str(server.kubeconfig("tester")), None, None).configuration
    await trains.create(train("one", 1))
    here = (trains.namespace,)
    assert (await list_jobs(configuration, namespaces=here)).jobs == []
    assert [each.label for each in (await list_jobs(configuration, namespaces=here, kinds=kinds)).jobs] == [
        f"Train {trains.namespace}/one"
    ]
    assert [each.error for each in await release(configuration, by="me", namespaces=here, kinds=kinds)] == [""]
    await trains.pods_of("one", 1)

"""Two replicas under all that a user with the role ``edit`` in one namespace can do, and under faults of their own.

After each attack a Job of another namespace starts as soon as before; the figures are printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED
from tests.cluster.admitting.jobs_at_work import Jobs, job
from tests.cluster.conftest import Say
from tests.cluster.control_plane.bed import API, Bed
from tests.cluster.faults.storm import meanwhile
from tests.cluster.objects import made, of_group
from tests.cluster.operating.replicas import LEADS, STANDS_BY, Replica, begin, run
from tests.cluster.operating.tenants import Tenants, tenants_of
from tests.cluster.talking import MERGE
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.scheduled

JSON = dict[str, Any]
BEYOND: Final = 1.0
"""Seconds by which an attack may delay the start of another's Job."""
ENDS_WITHIN: Final = 30.0
"""Seconds that Kubernetes grants a pod."""
CHAINS: Final = int(os.environ.get("BACKOFF_TEST_CHAINS", "2500"))
STARTS: Final = 5
AWAY: Final = 12.0
"""Seconds without an API server: longer than a Lease is renewed for, shorter than it lasts."""
LEASES: Final = "coordination.k8s.io/v1"


@pytest.fixture
async def tenants(bed: Bed) -> AsyncIterator[Tenants]:
    async with tenants_of(bed) as found:
        yield found


class Attacks:
    """What the editor does; each attack stays."""

    def __init__(self, tenants: Tenants, replicas: list[Replica], stack: AsyncExitStack) -> None:
        self._tenants = tenants
        self._replicas = replicas
        self._stack = stack
        self._at_once = asyncio.Semaphore(16)

    async def nested_fields(self) -> None:
        his = self._tenants.his
        for number in range(5):
            await self._create(job(f"nested-{number}"))
            await self._tenants.nest(his.path(f"nested-{number}"))

    async def owners_out_of_a_path(self) -> None:
        for number in range(10):
            owner = {"apiVersion": "batch/v1", "kind": "Flow", "name": "../" * 8 + "healthz", "uid": f"u{number}"}
            await self._create(owned(job(f"path-{number}"), owner))

    async def chains_of_owners(self) -> None:
        """Each of other objects: more than are remembered."""
        await asyncio.gather(*(self._chain(number) for number in range(CHAINS)))

    async def _chain(self, number: int) -> None:
        above = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"a-{number}", "uid": f"a-{number}"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"r-{number}"}
        template = job("x")["spec"]["template"]
        template = {**template, "metadata": {"labels": {"app": "x"}}, "spec": {**template["spec"]}}
        template["spec"]["restartPolicy"] = "Always"
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template}
        path = of_group("apps/v1", self._tenants.his.namespace, "replicasets")
        uid = (await self._post(path, owned({"metadata": {"name": f"r-{number}"}, "spec": spec}, above)))["uid"]
        await self._create(owned(job(f"chain-{number}"), {**owner, "uid": uid}))

    async def a_wrong_name_under_a_real_uid(self) -> None:
        found = made(await self._tenants.api.get(self._tenants.other.path()))["items"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "wrong", "uid": found[0]["metadata"]["uid"]}
        await self._create(owned(job("wrong-name"), owner))

    async def many_that_wait(self) -> None:
        await asyncio.gather(*(self._create(job(f"waits-{number}")) for number in range(500)))

    async def a_large_job(self) -> None:
        await self._create(job("large", parallelism=100_001, completions=100_001))

    async def annotations_of_ours(self) -> None:
        for number in range(20):
            said = json.dumps({"at": "9999-12-31T00:00:00Z", "times": 2, "pods": 10**9})
            await self._create(job(f"marked-{number}", annotations={ADMITTED: said}))

    async def connections(self) -> None:
        """300 silent ones, and 300 that ask again and again, to the probes of each replica."""
        for replica in self._replicas:
            for _ in range(300):
                _, writer = await asyncio.open_connection("127.0.0.1", replica.port, local_addr=("127.0.0.9", 0))
                self._stack.callback(writer.close)
            for _ in range(4):
                asking = asyncio.ensure_future(ask_on(replica.port))
                self._stack.callback(asking.cancel)

    async def large_objects_edited_on_and_on(self) -> None:
        """A megabyte of brackets on each of three, in other words each time."""

        async def edit(name: str) -> None:
            for number in count():
                said = {"metadata": {"annotations": {"odd": f"{number}" + "[{" * 100_000}}}
                sending = self._tenants.editor.patch(
                    self._tenants.his.path(name), json=said, headers={"Content-Type": MERGE}
                )
                try:
                    async with sending as answer:
                        await answer.read()
                except aiohttp.ClientError:  # the server is away
                    await asyncio.sleep(0.1)

        for number in range(3):
            await self._create(job(f"edited-{number}"))
            editing = asyncio.ensure_future(edit(f"edited-{number}"))
            self._stack.callback(editing.cancel)

    async def _create(self, body: JSON) -> None:
        await self._post(self._tenants.his.path(), body)

    async def _post(self, path: str, body: JSON) -> JSON:
        async with self._at_once, self._tenants.editor.post(path, json=body) as answer:
            assert answer.status == 201, await answer.text()
            found: JSON = (await answer.json())["metadata"]
            return found


def owned(body: JSON, owner: JSON) -> JSON:
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [{**owner, "controller": True}]}}


async def ask_on(port: int) -> None:
    while True:
        with suppress(OSError, EOFError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            try:
                for _ in range(50):
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    await reader.readuntil(b"\r\n\r\n")
            finally:
                writer.close()


async def start(jobs: Jobs, name: str) -> float:
    """Return the seconds from the creation of a Job until it is let in."""
    began = time.monotonic()
    await jobs.create(job(name))
    await jobs.until(name, lambda seen: not seen["spec"].get("suspend"))
    return time.monotonic() - began


async def starts(jobs: Jobs, word: str) -> float:
    return statistics.median([await start(jobs, f"{word}-{number}") for number in range(STARTS)])


async def one_leads(replicas: list[Replica]) -> Replica:
    """Wait until one of these leads and the others stand by."""
    async with asyncio.timeout(PATIENCE):
        while True:
            texts = [(await each.get("/metrics"))[1] for each in replicas]
            if sum(LEADS in text for text in texts) == 1 and sum(STANDS_BY in text for text in texts) == len(texts) - 1:
                return replicas[next(number for number, text in enumerate(texts) if LEADS in text)]
            await asyncio.sleep(0.1)


async def test_attacks_delay_no_other_tenant(bed: Bed, tenants: Tenants, say: Say, tmp_path: Path) -> None:
    his, other, api = tenants.his, tenants.other, tenants.api
    await his.limit(0)
    await other.limit(9_999, 9_999)
    lease = of_group(LEASES, other.namespace, "leases", "backoff-ctrl-operator")
    async with AsyncExitStack() as stack:
        replicas = []
        for number in range(2):
            out = stack.enter_context((tmp_path / f"{number}.log").open("wb"))  # thousands of lines fill a pipe
            place = bed.server.kubeconfig("tester"), [other.namespace]
            replicas.append(await begin(*place, everywhere=True, out=out))
            stack.push_async_callback(replicas[-1].end, signal.SIGKILL)
            await replicas[0].until("/metrics", LEADS)
        before = await starts(other, "before")
        say(f"another tenant's Job starts after {before:.2f} s without an attack")
        attacks = Attacks(tenants, replicas, stack)
        work: list[Callable[[], Awaitable[None]]] = [
            attacks.nested_fields,
            attacks.owners_out_of_a_path,
            attacks.a_wrong_name_under_a_real_uid,
            attacks.many_that_wait,
            attacks.a_large_job,
            attacks.annotations_of_ours,
            attacks.connections,
            attacks.large_objects_edited_on_and_on,
            attacks.chains_of_owners,
        ]
        late: dict[str, float] = {}
        for attack in work:
            name = attack.__name__
            doing = asyncio.ensure_future(attack())
            during = await start(other, f"during-{name.replace('_', '-')}")
            await doing
            after = await starts(other, f"after-{name.replace('_', '-')}")
            say(f"{name}: {during:.2f} s meanwhile, {after:.2f} s afterwards")
            late[name] = after - before
            assert [(await each.get("/livez"))[0] for each in replicas] == [200, 200]
        assert not {name: each for name, each in late.items() if each > BEYOND}
        await faults(bed, replicas, tenants, lease, say)

        await other.limit(0)
        await other.create(job("released"))
        said = await run(bed, "jobs", "release", "--all", "-A")
        assert "released" in said
        assert not (await other.get("released"))["spec"].get("suspend")
        for each in (await one_leads(replicas), *replicas):
            if each.process.returncode is None:
                began = time.monotonic()
                await each.end(signal.SIGTERM)
                log = (tmp_path / f"{replicas.index(each)}.log").read_text()
                say(f"ended {time.monotonic() - began:.1f} s after SIGTERM")
                assert time.monotonic() - began < ENDS_WITHIN
                assert "Traceback" not in log
                assert each.process.returncode == 0, log
        assert made(await api.get(lease))["spec"]["holderIdentity"] == ""


async def faults(bed: Bed, replicas: list[Replica], tenants: Tenants, lease: str, say: Say) -> None:
    """Clocks that jump, a leader that is stopped and goes on, an API server that is away: one leads, and Jobs start.

    The Lease is written as a clock that has jumped would: the time in it is the writer's.
    """
    other, api = tenants.other, tenants.api
    for jump in (timedelta(days=-1), timedelta(days=1)):
        leader = await one_leads(replicas)
        at = (datetime.now(UTC) + jump).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        made(await api.patch(lease, {"spec": {"renewTime": at}}, MERGE))
        await start(other, f"jumped-{'on' if jump.days > 0 else 'back'}")
        assert await one_leads(replicas) is leader
    leader = await one_leads(replicas)
    (follower,) = (each for each in replicas if each is not leader)
    leader.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    await start(other, "stopped")
    say(f"a Job starts {time.monotonic() - began:.1f} s after its leader was stopped")
    await follower.until("/metrics", LEADS)
    leader.process.send_signal(signal.SIGCONT)
    assert await one_leads(replicas) is follower
    await start(other, "continued")
    bed.stop(API, grace=0.0)
    async with meanwhile(AWAY):
        pass
    bed.start(API)
    bed.renew_controllers()
    began = time.monotonic()
    await api.until(lease, lambda found: found["spec"]["holderIdentity"])
    await start(other, "away")
    say(f"a Job starts {time.monotonic() - began:.1f} s after the API server came back")
    await one_leads(replicas)
    found = made(await api.get(other.path()))["items"]
    assert all(each["status"].get("active", 0) <= 1 for each in found)

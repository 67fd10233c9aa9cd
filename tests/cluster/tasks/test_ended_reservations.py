"""What is reserved for the pods of a task's object ends with the object: the next one is created at once.

A JobSet of five in a quota of five, of which one pod was made and has ended: what is left is a reservation.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from kubernetes import client

from backoff_ctrl.k8s.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.plugins.registry import registry
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.faults.storm import hung_up
from tests.cluster.talking import MERGE
from tests.tasks.tasks_written import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.cluster.control_plane.servers import Server
    from tests.cluster.quotas.quota_room import Room
    from tests.cluster.talking import Api

JSON = dict[str, Any]
PODS: Final = 5
SOON: Final = 5.0
"""Seconds in which the next object must be there: without the end of the reservation it would be five minutes."""


class Tasks:
    """A manager of tasks in a namespace, and the objects it makes."""

    def __init__(self, store: SqliteStore, room: Room) -> None:
        self.store = store
        self._room = room
        self._base = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{room.namespace}/jobsets"

    async def create(self, name: str, retries: int) -> None:
        """Ask for a JobSet of five pods."""
        container = {"name": "main", "image": "busybox:1"}
        template = {"spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [container]}}
        job = {"parallelism": PODS, "completions": PODS, "backoffLimit": 0, "template": template}
        spec = {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]}
        written = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
        task = {
            "apiVersion": "backoff-ctrl.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name, "namespace": self._room.namespace},
            "spec": {"type": "jobset", "template": written, "retries": {"user": retries, "system": retries}},
        }
        await self.store.create([wish_of(read_task(task))])

    async def made(self, start: str) -> JSON:
        """Wait for the object whose name begins so."""

        def found(listed: JSON) -> JSON | None:
            return next((each for each in listed["items"] if each["metadata"]["name"].startswith(start)), None)

        stored = found(await self._room.api.until(self._base, found))
        assert stored is not None
        return stored

    async def phase(self, name: str, phase: str) -> None:
        """Wait until a task is in a phase."""

        async def holds() -> bool:
            return (await self.store.get(self._room.namespace, name)).status.phase == phase

        await until(holds, 60)

    async def one_pod(self, stored: JSON) -> None:
        """Make one of its pods, as its Job's controller would, and let it fail; the quota counts it no longer."""
        template = stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert GANG_LABEL in labels
        owner = {key: stored["metadata"][key] for key in ("name", "uid")}
        metadata = {
            "name": f"{stored['metadata']['name']}-w-0",
            "labels": labels,
            "ownerReferences": [{**owner, "apiVersion": stored["apiVersion"], "kind": stored["kind"]}],
        }
        made = await self._room.create("pods", {"metadata": metadata, "spec": template["spec"]})
        await self._used("1")
        path = self._room.path("pods", made["metadata"]["name"], "status")
        assert (await self._room.api.patch(path, {"status": {"phase": "Failed"}}, MERGE)).status == 200
        await self._used("0")

    async def _used(self, pods: str) -> None:
        def holds(quota: JSON) -> bool:
            return bool(quota["status"]["used"]["pods"] == pods)

        await self._room.api.until(self._room.path("resourcequotas", "five"), holds)

    async def end(self, how: str, stored: JSON) -> None:
        """End the object."""
        path = f"{self._base}/{stored['metadata']['name']}"
        if how == "failed":
            now = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
            condition = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed", **now}
            status = {"conditions": [condition], "terminalState": "Failed"}
            reply = await self._room.api.patch(f"{path}/status", {"status": status}, MERGE)
            assert reply.status == 200, reply.text
        elif how == "aborted":
            await self.store.request_abort(self._room.namespace, "one")
        else:
            assert (await self._room.api.delete(path)).status == 200


@pytest.fixture
async def tasks(server: Server, api: Api, room: Room, tmp_path: Path) -> AsyncIterator[Tasks]:
    """A store with its manager, which may do what the tester may, by a role."""
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{room.namespace}/jobsets"
    await define_operators_kind(api, "jobsets", path)
    await room.quota("five", {"pods": str(PODS)})
    configuration = client.Configuration(host=server.url)
    configuration.api_key = {"authorization": f"Bearer {server.token('tester')}"}
    if server.certificate:
        configuration.ssl_ca_cert = str(server.certificate)
    async with SqliteStore(tmp_path / "tasks.db") as store:
        manager = Manager(store, through_plugins(registry(), configuration), K8sPluginConfig)
        work = asyncio.create_task(manager.run())
        yield Tasks(store, room)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
    await hung_up()


@pytest.mark.long
@pytest.mark.parametrize("how", ["failed", "aborted", "deleted by hand"])
async def test_the_next_object_is_created_at_once(tasks: Tasks, how: str, say: Callable[[str], None]) -> None:
    """After a failure the task's next attempt; else another task, which waits."""
    again = how == "failed"
    await tasks.create("one", retries=int(again))
    stored = await tasks.made("one-")
    await tasks.one_pod(stored)
    if not again:
        await tasks.create("two", retries=0)
        await tasks.phase("two", "WaitingForResources")
    clock = asyncio.get_running_loop().time
    began = clock()
    await tasks.end(how, stored)
    following = await tasks.made("two-" if not again else f"{stored['metadata']['name'].removesuffix('0')}1")
    took = clock() - began
    say(f"a JobSet of {PODS}, {how}: {following['metadata']['name']} was created {took:.2f} s later")
    assert took < SOON

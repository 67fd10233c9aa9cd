"""A kube-apiserver that is killed and started again, several times, under gangs, creates and tasks that wait.

``python -m tests.cluster.faults.restarts --times 5`` prints what became of them, and exits with 1 if one was refused.
For about a second after its start the server denies everything to whoever is no administrator: their roles are not
loaded yet. All that waits is asked for by users with roles, and is the first that they ever send there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from backoff_ctrl import waiting
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.gangs import create_gang
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.cluster.control_plane.bed import API, Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.faults.storm import small_pod
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import MERGE, Api
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio
from tests.kit.patience import PATIENCE
from tests.tasks.tasks_written import until
from tests.tasks.workload.running import ManagerProcess

JSON = dict[str, Any]
MEMBERS: Final = 3
"""Pods of a gang."""
SORTS: Final = {"observed": 1, "learned": 1, "gangs": MEMBERS, "tasks": 1}
"""What waits, each in a namespace of its own, and how many pods each is."""


@dataclass
class Survived:
    """What became of all that waited."""

    restarts: int
    each: int
    came: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SORTS, 0))
    failed: list[str] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)
    denied: int = 0
    """Creates that were sent, and denied for lack of rights."""

    @property
    def good(self) -> bool:
        """Whether none was refused, and each is stored once."""
        stored = {sort: self.each * pods for sort, pods in SORTS.items()}
        return not self.failed and set(self.came.values()) == {self.each} and self.stored == stored

    def __str__(self) -> str:
        came = ", ".join(f"{count} of {self.each} {sort}" for sort, count in self.came.items())
        said = (
            f"{self.restarts} restarts: {came} came in, {len(self.failed)} refused; {self.denied} creates were denied"
        )
        return "\n".join([f"{said}; stored: {self.stored}", *self.failed])


class Waiting:
    """Creates, gangs and tasks that wait for quota, with one more of each than there are to be restarts."""

    def __init__(self, bed: Bed, admin: Api, folder: Path, restarts: int) -> None:
        self._bed = bed
        self._folder = folder
        self._rooms = {sort: Room(admin, f"restarts-{sort}") for sort in SORTS}
        self._tasks: list[asyncio.Task[None]] = []
        self.told = Survived(restarts, restarts + 1)

    async def run(self) -> None:
        """Let them wait, restart the server, and let one of each in at each restart, and the last at the end."""
        async with AsyncExitStack() as stack:
            for sort, room in self._rooms.items():
                made = await room.api.post("/api/v1/namespaces", {"metadata": {"name": room.namespace}})
                assert made.status == 201, made.text
                await room.quota("q", {"pods": str(SORTS[sort])})
                for number in range(SORTS[sort]):
                    await room.create("pods", pod(f"first-{number}", spec={"schedulerName": "nobody"}))
            await self._begin(stack)
            for number in range(1, self.told.restarts + 1):
                await self._restart(number)
                await self._all_came(number)
            await self._raise_quotas(self.told.each)
            await self._all_came(self.told.each)
            await asyncio.gather(*self._tasks)
            self.told.denied = self._gate.counts.refused["rbac"]
            for sort, room in self._rooms.items():
                self.told.stored[sort] = len((await room.api.get(room.path("pods"))).json["items"]) - SORTS[sort]

    async def _begin(self, stack: AsyncExitStack) -> None:
        server = self._bed.server
        for sort, user in (("observed", "creator"), ("learned", "learner"), ("gangs", "creator")):
            place = find_place(None, str(server.kubeconfig(user)), None, None)
            made = await stack.enter_async_context(AsyncGatedApiClient(aio_configuration(place.configuration)))
            self._gate = made.gate
            for number in range(self.told.each):
                self._tasks.append(asyncio.create_task(self._one(sort, aio.CoreV1Api(made), number)))
        self._store = await stack.enter_async_context(SqliteStore(self._folder / "tasks.db"))
        manager = ManagerProcess(server, self._folder / "tasks.db", self._folder, "creator")
        stack.callback(manager.close)
        manager.start()
        await self._store.create([wish_of(read_task(self._task(number))) for number in range(self.told.each)])

        async def all_wait() -> bool:
            assert not self.told.failed, self.told
            phases = [each.status.phase for each in await self._store.list()]
            waits = len(self._gate.waiting())
            return waits >= 3 * self.told.each and set(phases) == {"WaitingForResources"}

        await until(all_wait, PATIENCE)

    def _task(self, number: int) -> JSON:
        container = {"image": "busybox:1"}
        template = {"spec": {"containers": [{"name": "main", **container}], "restartPolicy": "Never"}}
        job = {"type": "job", "template": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}}
        return {
            "apiVersion": "backoff-ctrl.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": f"t{number}", "namespace": self._rooms["tasks"].namespace},
            "spec": job if number % 2 else {"type": "container", "container": container},
        }

    async def _one(self, sort: str, core: Any, number: int) -> None:
        namespace = self._rooms[sort].namespace
        named = small_pod(number)
        named["metadata"] |= {"name": f"row-{number}"} if number % 2 else {}
        try:
            if sort == "gangs":
                await create_gang(core, [small_pod(number)] * MEMBERS, namespace=namespace, timeout=None)
            else:
                with waiting(timeout=None):
                    await core.create_namespaced_pod(namespace, named)
            self.told.came[sort] += 1
        except Exception as error:  # noqa: BLE001 - the account names it
            self.told.failed.append(f"{sort} {number}: {type(error).__name__}: {error}")

    # -- restarts ---------

    async def _restart(self, number: int) -> None:
        """Room comes right before the server is killed, or before it knows the roles of others than administrators."""
        before = number % 2
        if before:
            await self._raise_quotas(number)
        await asyncio.to_thread(self._bed.stop, API, grace=0)
        starts = asyncio.create_task(asyncio.to_thread(self._bed.start, API))
        if not before:
            await self._raise_quotas(number)
        await starts
        await asyncio.to_thread(self._bed.renew_controllers)  # they count anew what was charged, and never stored

    async def _raise_quotas(self, number: int) -> None:
        """Let so many of each in: the limit is written as the controller would do it, which may not run now."""

        async def written(room: Room, hard: JSON) -> bool:
            try:
                for part, body in (("", {"spec": hard}), ("status", {"status": hard})):
                    reply = await room.api.patch(room.path("resourcequotas", "q", part), body, MERGE)
                    if reply.status != 200:
                        return False
            except OSError:
                return False
            return True

        for sort, pods in SORTS.items():
            hard = {"hard": {"pods": str((1 + number) * pods)}}
            await until(lambda room=self._rooms[sort], hard=hard: written(room, hard), PATIENCE)  # type: ignore[misc]

    async def _all_came(self, number: int) -> None:
        """Wait until so many of each are in, or one was refused."""

        async def came() -> bool:
            statuses = [each.status for each in await self._store.list()]
            self.told.came["tasks"] = sum(each.object is not None for each in statuses)
            wrong = [each for each in statuses if each.attempt or "Failure" in each.phase]
            self.told.failed += [f"a task: {each}" for each in wrong]
            assert not self.told.failed, self.told
            return min(self.told.came.values()) >= number

        try:
            await until(came, PATIENCE)
        except TimeoutError:
            raise AssertionError(f"not all are in after restart {number}: {self.told} {self._gate.waiting()}") from None


async def restarted(bed: Bed, folder: Path, times: int) -> Survived:
    """Restart the API server so often under all that waits; return what became of that."""
    async with Api(bed.server, "admin") as admin:
        waits = Waiting(bed, admin, folder, times)
        await waits.run()
        return waits.told


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults.restarts", description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args(arguments).times
    with tempfile.TemporaryDirectory() as folder, Bed(wanted(), kcm_qps=500) as bed:
        told = asyncio.run(restarted(bed, Path(folder), times))
    sys.stdout.write(f"{told}\n")
    return 0 if told.good else 1


if __name__ == "__main__":
    sys.exit(_main())

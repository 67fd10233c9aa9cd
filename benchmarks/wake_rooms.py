"""The setting of ``wake``: namespaces with a quota of pods, the clients that create pods, and calls that free room."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from kubernetes.aio import client as aio

from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from tests.cluster.talking import STRATEGIC, Api
from tests.kit.aio_configuration import aio_configuration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.control_plane.servers import Server

    TellIn = Callable[[str], object]

USER: Final = "creator"
"""A user that creates pods and may watch quotas, like any account with the role `view`."""
LEARNER: Final = "learner"
"""A user that creates pods and may watch pods, but not quotas."""
CONNECTIONS: Final = 64
AFTER_REFUSAL: Final = 0.05
"""Seconds after a refusal until the bare loop tries again, if no quota event comes before."""
POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "p-", "labels": {"app": "bench"}},
    "spec": {
        "restartPolicy": "Never",
        "schedulerName": "nobody",
        "containers": [{"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "100m"}}}],
    },
}
_CALLS = re.compile(r"^apiserver_request_total\{([^}]*)\} (\d+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Room:
    """A namespace with a quota of pods. ``pods`` are the names of pods that can be released, oldest first."""

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = name
        self.pods: deque[str] = deque()
        self._path = f"/api/v1/namespaces/{name}"

    async def release(self, *, by_status: bool = False) -> float:
        """Release the oldest pod: delete it, or mark it Succeeded (``by_status``). Return the time of the answer."""
        return await (self.finish if by_status else self.delete)(self.pods.popleft())

    async def delete(self, pod: str) -> float:
        """Delete a pod without a grace period. Return the time of the answer."""
        reply = await self.api.delete(f"{self._path}/pods/{pod}", params={"gracePeriodSeconds": "0"})
        assert reply.status == 200, reply.text
        return time.perf_counter()

    async def finish(self, pod: str) -> float:
        """Mark a pod Succeeded. Return the time of the answer."""
        said = {"status": {"phase": "Succeeded"}}
        reply = await self.api.patch(f"{self._path}/pods/{pod}/status", said, STRATEGIC)
        assert reply.status == 200, reply.text
        return time.perf_counter()

    async def open(self, hard: int) -> None:
        """Create the namespace and its quota, and wait until the quota is enforced."""
        await self.api.post("/api/v1/namespaces", {"metadata": {"name": self.name}})
        quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": str(hard)}}}
        await self.api.post(f"{self._path}/resourcequotas", quota)
        await self.api.until(f"{self._path}/resourcequotas/team", lambda seen: seen.get("status", {}).get("hard"))

    async def close(self) -> None:
        """Delete all pods with one call, since the namespace controller deletes them one by one; then the namespace."""
        await self.api.delete(f"{self._path}/pods", params={"gracePeriodSeconds": "0"})
        await self.api.delete(self._path)


@asynccontextmanager
async def room(api: Api, name: str, hard: int) -> AsyncIterator[Room]:
    """A room that is closed at the end of the block."""
    made = Room(api, name)
    await made.open(hard)
    try:
        yield made
    finally:
        await made.close()


class Creator(Protocol):
    """A client that creates pods: through the gate, or in a bare loop."""

    label: str
    refused: int

    async def fill(self, room: Room, pods: int, tell_in: TellIn) -> None:
        """Create this many pods, however long it takes; ``tell_in`` is called with the name of each."""


class Gated:
    """The gated client with its default wiring: all creates are started at once and wait in line."""

    label = "gate"

    def __init__(self, server: Server, user: str = USER) -> None:
        self.client = AsyncGatedApiClient(configuration(server, user))
        self._core: Any = aio.CoreV1Api(self.client)

    @property
    def refused(self) -> int:
        """The number of creates that a quota has refused so far."""
        return self.client.gate.counts.refused["quota"]

    async def fill(self, room: Room, pods: int, tell_in: TellIn) -> None:
        """Start this many creates at once and await them."""

        async def one() -> None:
            made = await self._core.create_namespaced_pod(room.name, POD)
            tell_in(made.metadata.name)

        async with asyncio.TaskGroup() as group:
            for _ in range(pods):
                group.create_task(one())

    async def close(self) -> None:
        """Stop what was started, and close the connections."""
        await self.client.close()


class Bare:
    """The simplest loop without the gate: watch the quota, and create while it has room.

    It uses the same API client and a minimal watch; it has no order, no fairness and one kind of pod. It does count its
    creates in flight: otherwise every quota event would trigger a burst.
    """

    label = "bare loop"

    def __init__(self, server: Server, api: Api) -> None:
        self.client = aio.ApiClient(configuration(server))
        self._core: Any = aio.CoreV1Api(self.client)
        self._api = api
        self.refused = 0

    async def fill(self, room: Room, pods: int, tell_in: TellIn) -> None:
        """Create pods on quota events until this many exist."""
        path = f"/api/v1/namespaces/{room.name}/resourcequotas"
        listed = (await self._api.get(path)).json
        left, under_way, used, hard = pods, 0, 0, 0
        done = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def look(quota: Any) -> None:
            nonlocal used, hard
            status = quota["status"]
            used, hard = int(status["used"]["pods"]), int(status["hard"]["pods"])
            go()

        def go() -> None:
            nonlocal left, under_way
            while left and used + under_way < hard:
                left, under_way = left - 1, under_way + 1
                task = asyncio.create_task(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        async def one() -> None:
            nonlocal left, under_way
            try:
                made = await self._core.create_namespaced_pod(room.name, POD)
            except aio.ApiException as refusal:
                if refusal.status not in {403, 409}:
                    raise
                self.refused += refusal.status == 403
                left, under_way = left + 1, under_way - 1
                asyncio.get_running_loop().call_later(AFTER_REFUSAL, go)
                return
            under_way -= 1
            tell_in(made.metadata.name)
            if left or under_way:
                go()
            else:
                done.set()

        async def follow() -> None:
            since = {"resourceVersion": listed["metadata"]["resourceVersion"]}
            async with self._api.watch(path, since) as events:
                async for event in events:
                    if event["type"] == "MODIFIED":
                        look(event["object"])

        watch = asyncio.create_task(follow())
        look(listed["items"][0])
        await done.wait()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    async def close(self) -> None:
        """Stop what was started, and close the connections."""
        await self.client.close()


class Blind:
    """Another client in the namespace: it creates without looking at the quota and retries when refused."""

    def __init__(self, server: Server, *, pause: float = 0.1) -> None:
        self._client = aio.ApiClient(configuration(server))
        self._core: Any = aio.CoreV1Api(self._client)
        self._pause = pause
        self.refused = 0

    async def create(self, room: Room) -> str:
        """Create one pod, retrying until it succeeds."""
        while True:
            try:
                return str((await self._core.create_namespaced_pod(room.name, POD)).metadata.name)
            except aio.ApiException as refusal:
                if refusal.status not in {403, 409}:
                    raise
                self.refused += 1
            await asyncio.sleep(self._pause)

    async def close(self) -> None:
        """Stop what was started, and close the connections."""
        await self._client.close()


def configuration(server: Server, user: str = USER) -> Any:
    """Return the configuration of asyncio clients for this user."""
    found = aio_configuration(find_place(None, str(server.kubeconfig(user)), None, None).configuration)
    found.connection_pool_maxsize = CONNECTIONS
    return found


async def server_calls(api: Api) -> Counter[tuple[str, str, str]]:
    """Return the server's count of answers by (verb, resource, code); a watch is counted when it ends."""
    text = (await api.get("/metrics", accept="text/plain")).text
    found: Counter[tuple[str, str, str]] = Counter()
    for labels, number in _CALLS.findall(text):
        named = dict(_LABEL.findall(labels))
        if not named.get("subresource") and named.get("resource") in {"pods", "resourcequotas"}:
            found[named["verb"], named["resource"], named["code"]] += int(number)
    return found

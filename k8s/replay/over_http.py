"""The same replay over real HTTP: a cluster at a URL, counted at the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from backoff_ctrl.quantities import parse_quantity
from k8s.answers import Answer, NotSent, OutcomeUnknown
from k8s.watching import QuotaWatch

from .clients import Ancestor, Plain
from .gating import Gated, faster
from .runs import Result, count, replay
from .workload import POD_LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from types import TracebackType

    from k8s.desk import Desk

    from .clients import Client
    from .workload import Pod, Workload

log = logging.getLogger(__name__)

CONNECTIONS: Final = 64
READY_SECONDS: Final = 20.0


class HttpCluster:
    """An API server's pods and quotas over HTTP. Use it as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tasks: set[asyncio.Task[None]] = set()
        self.admitted_at: dict[str, float] = {}  # by POD_LABEL, seconds of the loop's clock
        self.listed = asyncio.Event()  # set once an observing gate knows every quota
        self.usage: list[tuple[float, str, dict[str, int]]] = []  # (when, namespace, used), as watched

    async def __aenter__(self) -> Self:
        """Connect."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS), timeout=aiohttp.ClientTimeout(total=60)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what was spawned and disconnect."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):  # the replay does without, but not without a word
                log.warning("something beside the replay failed: %s: %s", type(outcome).__name__, outcome)
        await self._session.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the replay until the cluster is left."""
        task = asyncio.create_task(work)
        self._tasks.add(task)

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        """POST a pod."""
        answer = await self._ask("POST", f"namespaces/{namespace}/pods", body)
        if answer.status == 201:
            name = body["metadata"]["labels"][POD_LABEL]
            self.admitted_at.setdefault(name, asyncio.get_running_loop().time())
        return answer

    async def look_up(self, namespace: str, name: str) -> Answer:
        """GET a pod."""
        return await self._ask("GET", f"namespaces/{namespace}/pods/{name}")

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        try:
            async with self._session.request(method, f"{self._url}/api/v1/{path}", json=body) as response:
                return Answer(response.status, dict(response.headers), await response.read())
        except aiohttp.ClientConnectorError as error:
            raise NotSent(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OutcomeUnknown(str(error)) from error

    async def creates(self) -> Mapping[str, int]:
        """Return the sandbox's own count of creates: seen, created, refused."""
        async with self._session.get(f"{self._url}/sandbox/counters") as response:
            counts: dict[str, dict[str, int]] = await response.json()
            return counts["creates"]

    async def stored(self) -> Counter[str]:
        """Count the pods that there are, by POD_LABEL: a pod that was created twice is there twice."""
        answer = await self._ask("GET", "pods")
        found = json.loads(answer.body)
        return Counter(pod["metadata"]["labels"][POD_LABEL] for pod in found["items"])

    async def record_usage(self) -> None:
        """Note every change of every quota until cancelled: for the picture."""
        loop = asyncio.get_running_loop()
        async for event in self._quota_events():
            quota = event["object"]
            used = (quota.get("status") or {}).get("used") or {}
            amounts = {name: parse_quantity(amount) for name, amount in used.items()}
            self.usage.append((loop.time(), quota["metadata"]["namespace"], amounts))

    async def _quota_events(self) -> AsyncIterator[dict[str, Any]]:
        query = {"watch": "true", "timeoutSeconds": "3600"}
        silence = aiohttp.ClientTimeout(total=None)
        url = f"{self._url}/api/v1/resourcequotas"
        async with self._session.get(url, params=query, timeout=silence) as response:
            async for line in response.content:
                event: dict[str, Any] = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event

    def observing(self) -> Callable[[Desk], None]:
        """Feed a desk as the product does: through the official client's list and watch."""

        def observe(desk: Desk) -> None:
            self.spawn(_watch(desk, self._url, self.listed))

        return observe


async def _watch(desk: Desk, url: str, listed: asyncio.Event) -> None:
    from kubernetes.aio.client import ApiClient, Configuration  # noqa: PLC0415

    from k8s.quota_source import ClientSource  # noqa: PLC0415

    class Announcing(ClientSource):
        """Says when the list is in: a watch begins after it."""

        async def watch_quotas(self, namespace: str | None, version: str) -> AsyncIterator[Mapping[str, Any]]:
            listed.set()
            async for event in super().watch_quotas(namespace, version):
                yield event

    async with ApiClient(Configuration(host=url)) as client:
        await QuotaWatch(desk, Announcing(client)).run()


def make_client(name: str, cluster: HttpCluster, *, seed: int, factor: float) -> Plain | Ancestor | Gated:
    """Make one of the four clients, every duration of its schedule divided by ``factor``."""
    from backoff_ctrl.policy import Policy  # noqa: PLC0415

    match name:
        case "plain":
            return Plain(cluster, seed=seed, factor=factor)
        case "ancestor":
            return Ancestor(cluster, factor=factor)
        case "gate_learning":
            return Gated(cluster, seed=seed, policy=faster(Policy(), factor))
        case "gate_observing":
            return Gated(cluster, seed=seed, policy=faster(Policy(), factor), observe=cluster.observing())
        case _:
            raise ValueError(f"there is no client {name}")


async def get_ready(client: Client, cluster: HttpCluster) -> None:
    """Let a gate that observes know every quota before the first pod arrives. ``TimeoutError`` if it can't."""
    if isinstance(client, Gated) and client.observes:
        client.start()
        async with asyncio.timeout(READY_SECONDS):
            await cluster.listed.wait()


async def run_over_http(
    url: str, name: str, workload: Workload, factor: float, on_placed: Callable[[Pod], None] | None = None
) -> tuple[Result, list[tuple[float, str, dict[str, int]]], dict[str, float]]:
    """Replay through one client at ``url``; times in the result are those of the trace's scale.

    Gives the result, the usage of the quotas and the admission times.
    """
    quick = workload.faster(factor)
    loop = asyncio.get_running_loop()
    async with HttpCluster(url) as cluster:
        cluster.spawn(cluster.record_usage())
        client = make_client(name, cluster, seed=workload.seed, factor=factor)
        await get_ready(client, cluster)
        began = loop.time()
        try:
            await replay(quick, client, on_placed)
        finally:
            if isinstance(client, Gated):
                with contextlib.suppress(asyncio.CancelledError):
                    await client.gate.aclose()
        counts, stored = await cluster.creates(), await cluster.stored()
        at = {pod: (when - began) * factor for pod, when in cluster.admitted_at.items()}
        usage = [((when - began) * factor, space, used) for when, space, used in cluster.usage]
    result = count(workload, creates=counts["seen"], refused=counts["refused"], admitted=stored, admitted_at=at)
    return result, usage, at

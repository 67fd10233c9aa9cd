"""The replay over real HTTP: on a sandbox, or on any cluster in the replay's own namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.replay.clients.gated import Gated, faster
from backoff_ctrl.k8s.replay.clients.plain import Ancestor, Plain
from backoff_ctrl.k8s.watching.watch import QuotaWatch

from .apart import set_apart
from .runs import Result, count, replay
from .workload import POD_LABEL, QUOTA_NAME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Mapping
    from types import TracebackType

    from backoff_ctrl.k8s.cluster.finding import ClusterAccess
    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.replay.clients.plain import Client
    from backoff_ctrl.k8s.watching.objects import Kind

    from .workload import Pod, Workload

log = logging.getLogger(__name__)

CONNECTIONS: Final = 64
READY_SECONDS: Final = 20.0


class HttpCluster:
    """An API server's pods and quotas over HTTP. An async context manager.

    ``place`` is a real cluster, of which only ``namespaces`` are used. Without it ``url`` is that of a sandbox, which
    counts creates itself.
    """

    def __init__(
        self,
        url: str,
        *,
        place: ClusterAccess | None = None,
        namespaces: Collection[str] = (),
        through: str | None = None,
    ) -> None:
        """``through`` is the URL of a proxy before it, to which creates are sent."""
        self._url = url
        self._through = through
        self._place = place
        self._namespaces = namespaces
        self._detour: Mapping[str, Any] = {} if place is None else place.detour
        self._counts = {"seen": 0, "created": 0, "refused": 0}
        self._tasks: set[asyncio.Task[None]] = set()
        self.admitted_at: dict[str, float] = {}  # by POD_LABEL, seconds of the loop's clock
        self.listed = asyncio.Event()  # set once an observing gate has listed every quota
        self.usage: list[tuple[float, str, dict[str, int]]] = []  # (time, namespace, used) of each watch event

    async def __aenter__(self) -> Self:
        """Open the HTTP session; connections are made when needed."""
        tls = True if self._place is None else self._place.tls()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0 if self._through else CONNECTIONS, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=60),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the spawned tasks and disconnect."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):  # logged only: the result of the replay stands without it
                log.warning("a background task of the replay failed: %s: %s", type(outcome).__name__, outcome)
        await self._session.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background until the context ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        """POST a pod."""
        if self._place is not None:
            body = set_apart(body)
        answer = await self._ask("POST", f"namespaces/{namespace}/pods", body, self._through)
        self._counts["seen"] += 1
        self._counts["refused"] += answer.status == 403
        self._counts["created"] += answer.status == 201
        if answer.status == 201:
            name = body["metadata"]["labels"][POD_LABEL]
            self.admitted_at.setdefault(name, asyncio.get_running_loop().time())
        return answer

    async def look_up(self, namespace: str, name: str) -> Answer:
        """GET a pod."""
        return await self._ask("GET", f"namespaces/{namespace}/pods/{name}")

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, through: str | None = None
    ) -> Answer:
        try:
            url = f"{through or self._url}/api/v1/{path}"
            async with self._session.request(
                method, url, json=body, headers=self._headers(), **self._detour
            ) as response:
                return Answer(response.status, dict(response.headers), await response.read())
        except aiohttp.ClientConnectorError as error:
            raise NotSent(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OutcomeUnknown(str(error)) from error

    def _headers(self) -> dict[str, str]:
        return {} if self._place is None else self._place.headers()

    def _everywhere(self, resource: str) -> list[str]:
        """Return the paths that list a resource: one for a whole sandbox, one per namespace of a cluster."""
        if self._place is None:
            return [resource]
        return [f"namespaces/{namespace}/{resource}" for namespace in self._namespaces]

    async def creates(self) -> Mapping[str, int]:
        """Return the numbers of creates (seen, created, refused): as counted by the sandbox, or by the answers."""
        if self._place is not None:
            return self._counts
        async with self._session.get(f"{self._url}/sandbox/counters") as response:
            counts: dict[str, dict[str, int]] = await response.json()
            return counts["creates"]

    async def stored(self) -> Counter[str]:
        """Count the existing pods by POD_LABEL: a pod that was created twice counts twice."""
        found: Counter[str] = Counter()
        for path in self._everywhere("pods"):
            answer = await self._ask("GET", path)
            found.update(pod["metadata"]["labels"][POD_LABEL] for pod in json.loads(answer.body)["items"])
        return found

    async def furnish(self, quotas: Mapping[str, Mapping[str, str]]) -> None:
        """Give a sandbox these namespaces, each with a quota of this ``spec.hard``."""
        for namespace, hard in quotas.items():
            named = {"metadata": {"name": namespace}}
            await self._ask("POST", "namespaces", {"apiVersion": "v1", "kind": "Namespace", **named})
            path = f"namespaces/{namespace}/resourcequotas"
            quota = {"metadata": {"name": QUOTA_NAME}, "spec": {"hard": dict(hard)}}
            body = {"apiVersion": "v1", "kind": "ResourceQuota", **quota}
            if not (await self._ask("POST", path, body)).ok:  # it is there, of an earlier workload
                await self._ask("PUT", f"{path}/{QUOTA_NAME}", body)

    async def clear_away(self) -> None:
        """Delete the pods of a sandbox that have ended, and forget what was recorded."""
        self.admitted_at.clear()
        self.usage.clear()
        for item in json.loads((await self._ask("GET", "pods?fieldSelector=status.phase%3DSucceeded")).body)["items"]:
            where = item["metadata"]
            await self._ask("DELETE", f"namespaces/{where['namespace']}/pods/{where['name']}?gracePeriodSeconds=0")

    def record_usage(self) -> None:
        """Record every change of the quotas in ``usage`` until the context ends, for the picture."""
        for path in self._everywhere("resourcequotas"):
            self.spawn(self._record(path))

    async def _record(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        async for event in self._quota_events(path):
            quota = event["object"]
            used = (quota.get("status") or {}).get("used") or {}
            amounts = {name: parse_quantity(amount) for name, amount in used.items()}
            self.usage.append((loop.time(), quota["metadata"]["namespace"], amounts))

    async def _quota_events(self, path: str) -> AsyncIterator[dict[str, Any]]:
        query = {"watch": "true", "timeoutSeconds": "3600"}
        silence = aiohttp.ClientTimeout(total=None)
        url = f"{self._url}/api/v1/{path}"
        async with self._session.get(
            url, params=query, timeout=silence, headers=self._headers(), **self._detour
        ) as response:
            async for line in response.content:
                event: dict[str, Any] = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event

    def observing(self) -> Callable[[Ledger], None]:
        """Return what makes a ledger observe the quotas, through the official client's list and watch."""

        def observe(ledger: Ledger) -> None:
            self.spawn(self._watch(ledger))

        return observe

    async def _watch(self, ledger: Ledger) -> None:
        from backoff_ctrl.k8s.cluster.finding import find_place  # noqa: PLC0415
        from backoff_ctrl.k8s.cluster.session import ClusterSession  # noqa: PLC0415
        from backoff_ctrl.k8s.watching.source import ClusterSource  # noqa: PLC0415

        place, listed = self._place, self.listed
        unlisted: set[str | None] = {None} if place is None else set(self._namespaces)

        class Announcing(ClusterSource):
            """Sets ``listed`` once every list is complete: a watch begins after each."""

            async def watch(self, kind: Kind, namespace: str | None, version: str) -> AsyncGenerator[object, None]:
                unlisted.discard(namespace)
                if not unlisted:
                    listed.set()
                async for event in super().watch(kind, namespace, version):
                    yield event

        reached = place or find_place(self._url, None, None, None)
        async with ClusterSession(reached.configuration) as session:
            namespaces = None if place is None else self._namespaces
            await QuotaWatch(ledger, namespaces).run(Announcing(session))

    async def run_pods(self, namespace: str) -> None:
        """Act as the kubelet of a real cluster's namespace until cancelled, since no node runs the replay's pods."""
        from backoff_ctrl.k8s.sandbox.kubelet.kubelet import Kubelet, Server  # noqa: PLC0415

        assert self._place is not None
        server = Server(self._url, self._headers(), self._place.tls(), self._detour)
        async with Kubelet(server, namespace=namespace, starts=False):
            await asyncio.Event().wait()


def make_client(name: str, cluster: HttpCluster, *, seed: int, factor: float) -> Plain | Ancestor | Gated:
    """Make one of the clients, with every duration of its schedule divided by ``factor``."""
    from backoff_ctrl.engine.policy import Policy  # noqa: PLC0415

    match name:
        case "plain" | "proxy":
            return Plain(cluster, seed=seed, factor=factor)
        case "ancestor":
            return Ancestor(cluster, factor=factor)
        case "gate_learning":
            return Gated(cluster, seed=seed, policy=faster(Policy(), factor))
        case "gate_observing":
            return Gated(cluster, seed=seed, policy=faster(Policy(), factor), observe=cluster.observing())
        case _:
            raise ValueError(f"there is no client named {name!r}")


async def get_ready(client: Client, cluster: HttpCluster) -> None:
    """Let an observing gate list every quota before the first pod arrives. Raises ``TimeoutError`` if it can't."""
    if isinstance(client, Gated) and client.observes:
        client.start()
        async with asyncio.timeout(READY_SECONDS):
            await cluster.listed.wait()


async def run_over_http(
    url: str,
    name: str,
    workload: Workload,
    factor: float,
    on_placed: Callable[[Pod], None] | None = None,
    *,
    place: ClusterAccess | None = None,
    through: str | None = None,
) -> tuple[Result, list[tuple[float, str, dict[str, int]]], dict[str, float]]:
    """Replay through one client at ``url``; times in the result are seconds of the trace.

    ``place`` is a real cluster that has the workload's namespaces; without it ``url`` is that of a sandbox.
    ``through`` is the URL of a proxy before it, to which creates are sent.
    Returns the result, the quotas' use over time and the admission times. Raises ``ReplayError``.
    """
    quick = workload.faster(factor)
    loop = asyncio.get_running_loop()
    async with HttpCluster(url, place=place, namespaces=list(workload.quotas), through=through) as cluster:
        cluster.record_usage()
        if place is not None:
            for namespace in workload.quotas:
                cluster.spawn(cluster.run_pods(namespace))
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

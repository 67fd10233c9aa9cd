"""Storm: 300 creates through the gated client, under a quota that makes them wait, while something breaks.

Whatever breaks, in the end every create exists exactly once and none is waiting: ``Storm.account`` asks the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.gating import waiting
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.sandbox.followed import Server as KubeletServer
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import MERGE, Api
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

CREATES: Final = 300
HARD: Final = 30
"""Pods that the quota allows at a time."""
RUNS_FOR: Final = 0.25
"""Seconds that a pod runs before the fake kubelet sets it to Succeeded."""
ROW: Final = "row"
"""The label with the number of the create that a pod comes from."""
QUOTA: Final = "team"

ROUNDS: Final = 3
"""How often a storm is measured at the most, before it counts as slow."""


def small_pod(row: int) -> dict[str, Any]:
    containers = [{"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "10m"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "storm-", "labels": {ROW: str(row)}},
        "spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": containers},
    }


@dataclass
class Account:
    """What the server has in the end, and what the gate experienced."""

    creates: int
    stored: Counter[int]
    refused: Counter[str]
    sent: int
    seconds: float
    failed: dict[int, BaseException]
    left_over: list[str] = field(default_factory=list)
    """Creates that are still waiting or in flight, and tickets that have not ended."""

    @property
    def twice(self) -> list[int]:
        return sorted(row for row, pods in self.stored.items() if pods > 1)

    @property
    def lost(self) -> list[int]:
        return sorted(set(range(self.creates)) - set(self.stored))

    def must_be_whole(self) -> None:
        """Assert that each create exists exactly once and succeeded, and that none is waiting."""
        assert not self.failed, _told(self.failed)
        assert (self.twice, self.lost) == ([], [])
        assert self.left_over == []


class Storm:
    """A namespace with a quota, a fake kubelet and a gated client. Use it as an async context manager.

    With ``gate`` None the client is wired by default: it observes the quotas of a namespace where a create waits.
    """

    def __init__(
        self,
        server: Server,
        namespace: str,
        *,
        hard: int = HARD,
        user: str = "creator",
        gate: AsyncGate | None = None,
    ) -> None:
        self.server = server
        self.namespace = namespace
        self.user = user
        self._hard = hard
        self._gate = gate
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._began = time.monotonic()
        self.came: list[float] = []
        """When each create was answered with success."""
        self.failed: dict[int, BaseException] = {}
        self.begun = 0

    async def __aenter__(self) -> Self:
        """Create the namespace and its quota; start the kubelet and the client."""
        self.admin = await self._stack.enter_async_context(Api(self.server, "admin"))
        made = await self.admin.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        assert made.status == 201, made.text
        await self.make_quota(self._hard)
        await self.start_kubelet()
        self.client = self.make_client(self.server)
        self._stack.push_async_callback(self._close)
        counts = self.client.gate.counts  # clients of one process share them
        self._sent_before, self._refused_before = counts.sent, counts.refused.copy()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client and the kubelet, and delete the namespace."""
        await self._stack.aclose()
        async with Api(self.server, "admin") as admin:
            await admin.delete(f"/api/v1/namespaces/{self.namespace}")

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    async def start_kubelet(self) -> None:
        """Start a kubelet for the pods; a new one lists all pods, whatever an earlier one did with them."""
        headers = {"Authorization": f"Bearer {self.server.token('admin')}"}
        at = KubeletServer(self.server.url, headers, self.server.ssl())
        kubelet = Kubelet(at, namespace=self.namespace, finish_after=RUNS_FOR, starts=False)
        await self._stack.enter_async_context(kubelet)

    def make_client(self, server: Server) -> AsyncGatedApiClient:
        place = find_place(None, str(server.kubeconfig(self.user)), None, None)
        return AsyncGatedApiClient(aio_configuration(place.configuration), gate=self._gate)

    # -- the quota ---------

    @property
    def _quotas(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/resourcequotas"

    async def make_quota(self, hard: int) -> None:
        """Create the quota, and wait until it is enforced."""
        made = await self.admin.post(self._quotas, {"metadata": {"name": QUOTA}, "spec": _spec(hard)})
        assert made.status == 201, made.text
        await self._enforced(hard)

    async def edit_quota(self, hard: int) -> None:
        """Change the limit of the quota, and wait until it is enforced."""
        await self.admin.patch(f"{self._quotas}/{QUOTA}", {"spec": _spec(hard)}, MERGE)
        await self._enforced(hard)

    async def delete_quota(self) -> None:
        await self.admin.delete(f"{self._quotas}/{QUOTA}")

    async def admission_sees(self, hard: int) -> None:
        """Wait until a create is refused by this limit: admission follows quotas by its own watch."""
        pods, asked = f"/api/v1/namespaces/{self.namespace}/pods", {"dryRun": "All"}
        async with asyncio.timeout(PATIENCE):
            while f"limited: pods={hard}" not in (await self.admin.post(pods, small_pod(0), params=asked)).text:
                pass

    async def _enforced(self, hard: int) -> None:
        def holds(quota: dict[str, Any]) -> bool:
            return bool(quota.get("status", {}).get("hard", {}).get("pods") == str(hard))

        await self.admin.until(f"{self._quotas}/{QUOTA}", holds)

    # -- the creates ---------

    async def until_observed(self, *, seen: bool = True) -> None:
        """Wait until the gate observes the quotas here, or no longer does."""
        async with asyncio.timeout(2 * PATIENCE):
            while self.observes is not seen:  # noqa: ASYNC110 - the gate has no callback for this
                await asyncio.sleep(0.02)

    @property
    def observes(self) -> bool:
        """Whether the gate observes the quotas of the namespace and receives every change."""
        seen = self.client.gate.ledger.snapshot().namespaces.get(self.namespace)
        return seen is not None and seen.observing

    def begin(
        self, rows: Iterable[int] = range(CREATES), *, through: AsyncGatedApiClient | None = None, keyed: bool = False
    ) -> None:
        core: Any = aio.CoreV1Api(through or self.client)
        for row in rows:
            self.begun += 1
            task = asyncio.create_task(self._create(core, row, f"row-{row}" if keyed else None))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def begin_again(self) -> None:
        """Start as many creates again, with new numbers."""
        self.begin(range(self.begun, self.begun + CREATES))

    async def _create(self, core: Any, row: int, key: str | None) -> None:
        try:
            with waiting(key=key):
                await core.create_namespaced_pod(self.namespace, small_pod(row))
            self.came.append(time.monotonic())
        except Exception as error:  # noqa: BLE001 - the account names it
            self.failed[row] = error
        self._news.set()

    async def until_in(self, creates: int) -> None:
        await self._until(lambda: len(self.came) >= creates)

    async def recovered(self, since: float) -> float:
        """Wait for the next create that succeeds after that moment; returns how many seconds after."""
        await self._until(lambda: bool(self.came) and self.came[-1] > since)
        return next(each for each in self.came if each > since) - since

    async def quiet(self) -> None:
        """Wait until no create is in flight, and none has succeeded for a second."""
        async with asyncio.timeout(2 * PATIENCE):
            came = -1
            while came < len(self.came) or self._under_way:
                came = len(self.came)
                await asyncio.sleep(1.0)

    @property
    def _under_way(self) -> int:
        return self.client.gate.ledger.snapshot().namespaces[self.namespace].outstanding

    async def _until(self, holds: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    assert not self.failed, f"{len(self.came)} succeeded, but {_told(self.failed)}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{len(self.came)} succeeded after {PATIENCE:.0f} s more: {self._why()}") from None

    def _why(self) -> str:
        """What the first creates in line wait for, and what the gate knows about the namespace."""
        gate = self.client.gate
        snapshot = gate.ledger.snapshot()
        return f"{gate.waiting()[:3]} {snapshot.namespaces.get(self.namespace)} {snapshot.flows} {gate.counts}"

    async def _phases(self) -> dict[str, int]:
        """The number of pods by phase: finished pods make room as soon as the controllers see them."""
        listed = (await self.admin.get(f"/api/v1/namespaces/{self.namespace}/pods")).json
        return dict(Counter(str(pod["status"].get("phase")) for pod in listed["items"]))

    async def account(self) -> Account:
        """Wait until every create has ended, as long as there is progress, and count what the server has."""
        while self._tasks:
            ended, _ = await asyncio.wait(set(self._tasks), timeout=2 * PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                phases = await self._phases()
                raise AssertionError(f"{len(self._tasks)} creates do not end; pods by phase: {phases}; {self._why()}")
        seconds = (max(self.came) if self.came else time.monotonic()) - self._began
        ledger = self.client.gate.ledger
        left_over = [line for line in self.client.gate.waiting() if f" {self.namespace}/" in line]
        seen = ledger.snapshot().namespaces.get(self.namespace)
        if seen is not None and (seen.waiting or seen.outstanding):
            left_over.append(f"{seen.waiting} waiting, {seen.outstanding} tickets not ended")
        counts = ledger.counts
        stored = await stored_rows(self.admin, self.namespace)
        refused, sent = counts.refused - self._refused_before, counts.sent - self._sent_before
        return Account(self.begun, stored, refused, sent, seconds, self.failed, left_over)


class Pace:
    """How long a storm takes: alone, and beside a fault that must not affect it.

    The speed of the machine varies, so the two are measured in turns, and the best of each counts.
    """

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.alone: list[float] = []
        self.beside: list[float] = []

    async def measure(self, into: list[float]) -> Account:
        """Start a storm, wait until all creates have succeeded, and record how many seconds that took."""
        began = time.monotonic()
        self._storm.begin_again()
        account = await self._storm.account()
        into.append(max(self._storm.came) - began)
        return account

    def unhurt(self) -> bool:
        """Whether the fault does not slow the storm noticeably."""
        return min(self.beside) <= 1.5 * min(self.alone) + 1.0


async def stored_rows(admin: Api, namespace: str) -> Counter[int]:
    listed = (await admin.get(f"/api/v1/namespaces/{namespace}/pods")).json
    return Counter(int(pod["metadata"]["labels"][ROW]) for pod in listed["items"])


@asynccontextmanager
async def meanwhile(seconds: float) -> AsyncIterator[None]:
    """Let a fault last for what is in the block, and at least this many seconds."""
    ends = asyncio.get_running_loop().time() + seconds
    yield
    await asyncio.sleep(ends - asyncio.get_running_loop().time())


async def hung_up() -> None:
    """Wait until the server has answered the close of each TLS connection: aiohttp does not wait for aborted ones."""
    selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    async with asyncio.timeout(PATIENCE):
        while len(selector.get_map()) > 1:  # noqa: ASYNC110 - one is the loop's own; sockets have no callback for this
            await asyncio.sleep(0.01)


def _told(failed: dict[int, BaseException]) -> str:
    row, error = next(iter(failed.items()))
    return f"{len(failed)} failed, such as row {row}: {type(error).__name__}: {error}"


def _spec(hard: int) -> dict[str, Any]:
    return {"hard": {"pods": str(hard)}}

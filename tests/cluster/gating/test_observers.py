"""Changes of quotas, pods, permissions and servers are observed, and take effect at once"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from backoff_ctrl.engine.look.explaining import NamespaceSnapshot
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, waiting
from backoff_ctrl.k8s.gate.observing.quotas import QuotaWatch
from backoff_ctrl.k8s.kube.answers.bounded_json import Trim
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import QUOTAS, WatchedKind
from backoff_ctrl.k8s.kube.watching.status import WatchState
from tests.cluster.control_plane.bed import API, Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.faults.storm import hung_up
from tests.cluster.objects import of_core, pod
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import MERGE, Api
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio as client
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import ONE, until

pytestmark = pytest.mark.long
NEVER_BY_TIMER = Policy(base=60, cap=60)  # every admission follows from an observation
ROLES = "/apis/rbac.authorization.k8s.io/v1"


class Noting(ClusterSource):
    """Records the version from which each watch of quotas starts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.versions: list[int] = []

    async def watch(
        self, kind: WatchedKind, namespace: str | None, version: str, trim: Trim | None = None
    ) -> AsyncGenerator[object, None]:
        if kind is QUOTAS:
            self.versions.append(int(version))
        async for each in super().watch(kind, namespace, version, trim):
            yield each


class Observing:
    """An observing gate of one user, and what it sees."""

    def __init__(self, api: AsyncGatedApiClient, watch: QuotaWatch, source: Noting) -> None:
        self.ledger = api.gate.ledger
        self.core: Any = client.CoreV1Api(api)
        self.watch = watch
        self.source = source

    def left(self, namespace: str, quota: str = "q", resource: str = "pods") -> int | None:
        """Whole units of headroom that the engine has observed; None where it observes nothing."""
        found = self.ledger.snapshot().namespaces.get(namespace)
        ceiling = found and found.quotas.get(quota, {}).get(resource)
        return (ceiling.limited - ceiling.used) // ONE if ceiling and ceiling.source == "observed" else None

    def of(self, namespace: str) -> NamespaceSnapshot:
        return self.ledger.snapshot().namespaces[namespace]

    def state(self, namespace: str) -> WatchState | None:
        status = self.watch.record.of(namespace)
        return None if status is None else status.state

    async def waiter(self, namespace: str, body: Any) -> asyncio.Task[Any]:
        """Start a create, and wait until it waits."""
        waits = asyncio.Event()
        with waiting(on_wait=lambda _: waits.set()):
            task: asyncio.Task[Any] = asyncio.ensure_future(self.core.create_namespaced_pod(namespace, body))
        await asyncio.wait({asyncio.ensure_future(waits.wait()), task}, return_when="FIRST_COMPLETED", timeout=45)
        assert waits.is_set()
        return task


@contextlib.asynccontextmanager
async def observing(
    server: Server, namespaces: list[str] | None, user: str = "tester", watch_seconds: float = 290, **settings: Any
) -> AsyncIterator[Observing]:
    configuration = aio_configuration(find_place(None, str(server.kubeconfig(user)), None, None).configuration)
    gate = AsyncGate(policy=NEVER_BY_TIMER)
    async with AsyncGatedApiClient(configuration, gate=gate) as api, ClusterSession(configuration) as session:
        source = Noting(session, watch_seconds=watch_seconds)
        watch = QuotaWatch(api.gate.ledger, namespaces, **settings)
        task = asyncio.ensure_future(watch.run(source))
        try:
            yield Observing(api, watch, source)
        finally:
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
async def _connections_end() -> AsyncIterator[None]:
    """Let TLS connections close: they take a moment longer than their session, and warn if the loop ends before."""
    yield
    await hung_up()


async def edit(room: Room, pods: str) -> None:
    reply = await room.api.patch(room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": pods}}}, MERGE)
    assert reply.status == 200, reply.text


async def test_raising_a_quota_admits_a_waiting_create_at_once(server: Server, room: Room) -> None:
    """Its timers would take a minute; the change is observed and the create is sent."""
    await room.quota("q", {"pods": "0"})
    async with observing(server, [room.namespace]) as seen:
        await until(lambda: seen.left(room.namespace) == 0)
        task = await seen.waiter(room.namespace, pod("first"))
        await edit(room, "1")

        made = await asyncio.wait_for(task, PATIENCE)
        assert made.metadata.name == "first"


async def test_an_idle_watch_resumes_from_its_bookmarks(server: Server, room: Room) -> None:
    """While only other objects change, each stream starts from the last bookmark."""
    await room.quota("q", {"pods": "3"})
    async with observing(server, [room.namespace], watch_seconds=4) as seen:
        await until(lambda: seen.left(room.namespace) == 3)
        for number in range(5):
            await room.create("configmaps", {"metadata": {"name": f"c{number}"}})
        await until(lambda: len(seen.source.versions) >= 3, PATIENCE)
        counts = seen.watch.record.counts

        if server.kind == "sandbox":  # a real one shows a newer version only once its cache has received one
            assert seen.source.versions[-1] > seen.source.versions[0]
        assert (counts.relists, counts.reconnects, counts.expired) == (2, 0, 0)  # of quotas and of pods
        assert counts.resumed >= 2


@pytest.mark.parametrize("how", ["deleted", "finished"])
async def test_a_recount_that_misses_live_pods_admits_no_create(server: Server, room: Room, how: str) -> None:
    """By the status the quota is empty, but the gate knows two live pods, and waits until one of them ends."""
    await room.quota("q", {"pods": "2", "configmaps": "9"})
    async with observing(server, [room.namespace]) as seen:
        await until(lambda: seen.left(room.namespace) == 2 and seen.of(room.namespace).ends_told)
        for name in ("first", "second"):
            await seen.core.create_namespaced_pod(room.namespace, pod(name))
        await until(lambda: seen.left(room.namespace) == seen.of(room.namespace).answered_holds == 0)
        task = await seen.waiter(room.namespace, pod("third"))

        less = {"status": {"used": {"pods": "0", "configmaps": "7"}}}
        reply = await room.api.patch(room.path("resourcequotas", "q", "status"), less, MERGE)
        assert reply.status == 200, reply.text
        await until(lambda: seen.left(room.namespace, resource="configmaps") == 2)
        assert seen.left(room.namespace) == 0
        assert not task.done()

        if how == "deleted":
            await room.delete("pods", "first", gracePeriodSeconds="0")
        else:
            await room.finish("first", "Succeeded")
        await asyncio.wait_for(task, PATIENCE)


# -- permissions ---------


@contextlib.asynccontextmanager
async def allowed(admin: Api, namespace: str, role: str) -> AsyncIterator[None]:
    """Give `nobody` the rights of a role in a namespace; waits until the server applies each change."""
    base = f"{ROLES}/namespaces/{namespace}/rolebindings"
    body = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
    }
    reply = await admin.post(base, body)
    assert reply.status == 201, reply.text
    yield
    reply = await admin.delete(f"{base}/{role}")
    assert reply.status == 200, reply.text


async def test_losing_and_regaining_a_permission_is_noticed(kubernetes: Server, real_namespace: str) -> None:
    """Observing, then learning, then observing again: changes in between count, and the state tells which it is."""
    async with Api(kubernetes, "admin") as admin:
        room = Room(admin, real_namespace)
        await room.quota("q", {"pods": "3"})
        settings: Any = {"user": "nobody", "watch_seconds": 1.5, "ask_again": 0.5}
        async with contextlib.AsyncExitStack() as permission:
            await permission.enter_async_context(allowed(admin, real_namespace, "view"))
            async with observing(kubernetes, [real_namespace], **settings) as seen:
                await until(lambda: seen.state(real_namespace) is WatchState.QUOTAS)
                assert seen.left(real_namespace) == 3

                await permission.aclose()
                await until(lambda: seen.state(real_namespace) is WatchState.LEARNING)
                await until(lambda: seen.left(real_namespace) is None)
                status = seen.watch.record.of(real_namespace)
                assert status is not None
                assert 'resourcequotas is forbidden: User "nobody" cannot' in status.why
                assert seen.watch.record.counts.forbidden > 0

                await edit(room, "7")
                await room.until_hard({"pods": "7"})
                async with allowed(admin, real_namespace, "view"):
                    await until(lambda: seen.state(real_namespace) is WatchState.QUOTAS)
                    await until(lambda: seen.left(real_namespace) == 7)


@pytest.mark.parametrize("how", ["deleted", "finished"])
async def test_a_user_who_may_not_see_quotas_sees_pods_end(kubernetes: Server, real_namespace: str, how: str) -> None:
    """When another client's pod ends, the waiting create is sent long before its timer."""
    async with Api(kubernetes, "admin") as admin:
        room = Room(admin, real_namespace)
        await room.quota("q", {"pods": "1"})
        async with observing(kubernetes, [real_namespace], "learner") as seen:
            await until(lambda: seen.state(real_namespace) is WatchState.PODS)
            await room.create("pods", pod("holder"))
            task = await seen.waiter(real_namespace, pod("next"))
            if how == "deleted":
                await room.delete("pods", "holder", gracePeriodSeconds="0")
            else:
                await room.finish("holder", "Succeeded")

            made = await asyncio.wait_for(task, PATIENCE)
            assert made.metadata.name == "next"


# -- quotas over namespaces ---------


# -- a server that goes and comes ---------


async def test_a_restarted_api_server_is_found_again(binaries: Binaries, say: Callable[[str], None]) -> None:
    """The loss is reported, the list is repeated by itself, and a waiting create is sent after the next change."""
    with Bed(binaries, say=say) as bed:
        async with Api(bed.server) as api, observing(bed.server, ["default"], longest_pause=2) as seen:
            room = Room(api, "default")
            await room.quota("q", {"pods": "1"})
            await until(lambda: seen.left("default") == 1)
            await seen.core.create_namespaced_pod("default", pod("holder"))
            task = await seen.waiter("default", pod("next"))
            relists = seen.watch.record.counts.relists

            await asyncio.to_thread(bed.stop, API, grace=0)
            await until(lambda: seen.state("default") is WatchState.LEARNING)
            bed_down = seen.watch.record.of("default")
            await asyncio.to_thread(bed.start, API)
            ready = time.monotonic()
            await until(lambda: seen.state("default") is WatchState.QUOTAS, PATIENCE)
            say(f"the watch was back {time.monotonic() - ready:.2f} s after the API server was ready")
            assert seen.watch.record.counts.relists > relists
            assert bed_down is not None

            reply = await api.patch(room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": "2"}}}, MERGE)
            assert reply.status == 200, reply.text
            made = await asyncio.wait_for(task, PATIENCE)
            assert made.metadata.name == "next"
            assert [each["metadata"]["name"] for each in (await api.get(of_core("default", "pods"))).json["items"]] == [
                "holder",
                "next",
            ]
        await hung_up()

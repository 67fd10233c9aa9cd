"""All kinds of callers at one gate: threads, asynchronous requests and asyncio wait in one line."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client as sync

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient, waiting
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.kube.watching.status import WatchState
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

EACH = 40


def pod(name: str) -> Any:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{name}-"}, "spec": spec}


@pytest.mark.long
async def test_callers_of_all_kinds_get_their_turn_through_one_gate(sandbox: BackgroundSandbox) -> None:
    """120 creates with room for 4, each deleted once created: all are made exactly once, and no hold is left."""
    sandbox.create_quota("team", "q", {"pods": "4"})
    gate = Gate(policy=Policy(base=0.02, cap=0.1))
    with GatedApiClient(sync.Configuration(host=sandbox.url), gate=gate, pool_threads=4) as blocking:
        async with AsyncGatedApiClient(aio.Configuration(host=sandbox.url), gate=gate) as looping:
            names = await asyncio.wait_for(
                asyncio.gather(
                    asyncio.to_thread(from_threads, sync.CoreV1Api(blocking)),
                    asyncio.to_thread(asynchronously, sync.CoreV1Api(blocking)),
                    from_the_loop(aio.CoreV1Api(looping)),
                ),
                50,
            )

    made = [name for each in names for name in each]
    assert len(set(made)) == 3 * EACH
    assert sandbox.counters.of("team").created == 3 * EACH
    namespace = gate.ledger.snapshot().namespaces["team"]
    assert (namespace.waiting, namespace.outstanding, gate.counts.failed_open) == (0, 0, 0)


def from_threads(core: Any) -> list[str]:
    def one(number: int) -> str:
        made = core.create_namespaced_pod("team", pod(f"thread-{number}"))
        core.delete_namespaced_pod(made.metadata.name, "team", grace_period_seconds=0)
        return str(made.metadata.name)

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(EACH)))


def asynchronously(core: Any) -> list[str]:
    """Each is deleted once it is ready; the waiting ones hold none of the four threads."""
    pending = [core.create_namespaced_pod("team", pod(f"pool-{number}"), async_req=True) for number in range(EACH)]

    def end(each: Any) -> str:
        name = str(each.get(50).metadata.name)
        core.delete_namespaced_pod(name, "team", grace_period_seconds=0)
        return name

    with ThreadPoolExecutor(EACH) as pool:
        return list(pool.map(end, pending))


async def from_the_loop(core: Any) -> list[str]:
    async def one(number: int) -> str:
        made = await core.create_namespaced_pod("team", pod(f"loop-{number}"))
        await core.delete_namespaced_pod(made.metadata.name, "team", grace_period_seconds=0)
        return str(made.metadata.name)

    return list(await asyncio.gather(*[one(number) for number in range(EACH)]))


def test_a_shared_ledger_watches_where_a_create_waits(sandbox: BackgroundSandbox) -> None:
    """By default, the first create that waits in a namespace starts the watch there."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    met = threading.Event()
    with GatedApiClient(sync.Configuration(host=sandbox.url)) as api:
        core: Any = sync.CoreV1Api(api)
        observed = threading.Event()
        ledger: Any = api.gate.ledger
        tell = ledger.watching

        def watching(namespace: str) -> None:
            tell(namespace)
            observed.set()

        ledger.watching = watching  # the real method, which now also signals the test
        first = core.create_namespaced_pod("team", pod("first"))
        with waiting(on_wait=lambda _: met.set()):
            second = core.create_namespaced_pod("team", pod("second"), async_req=True)
        assert met.wait(PATIENCE)
        assert observed.wait(PATIENCE)
        source = api.gate.ledger.snapshot().namespaces["team"].quotas["q"]["pods"].source
        sight = api.sight
        seen = sight and sight.of("team")

        core.delete_namespaced_pod(first.metadata.name, "team", grace_period_seconds=0)
        second.get(45)

    assert source == "observed"
    assert seen is not None
    assert (seen.state, seen.why) == (WatchState.QUOTAS, "")


def test_a_watch_that_cannot_begin_stops_no_create(sandbox: BackgroundSandbox) -> None:
    """The watch only helps: the create still waits for its turn, and the failure is counted."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    asked: list[str] = []
    told = threading.Event()

    class Broken(Subscriber):
        def blocked(self, namespace: str) -> None:
            asked.append(namespace)
            told.set()
            raise RuntimeError("can't start new thread")

    gate = Gate(policy=Policy(base=0.02, cap=0.1))
    gate.ledger.subscribe(Broken())
    with GatedApiClient(sync.Configuration(host=sandbox.url), gate=gate) as api:
        core: Any = sync.CoreV1Api(api)
        first = core.create_namespaced_pod("team", pod("first"))
        second = core.create_namespaced_pod("team", pod("second"), async_req=True)
        assert told.wait(PATIENCE)
        core.delete_namespaced_pod(first.metadata.name, "team", grace_period_seconds=0)
        made = second.get(45)

    assert made.metadata.name.startswith("second-")
    assert asked == ["team"] * gate.counts.failed_open

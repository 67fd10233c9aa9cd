"""Many creates at once: few in flight where nothing is known, and each stored exactly once, whatever goes wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.aio import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import GateClosed
from backoff_ctrl.k8s.creates.naming import CREATE_ID
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gated.aio_client import AsyncGatedApiClient, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.sandbox import BackgroundSandbox

CREATES = 1000
DELAY = 0.3


def pod(number: int) -> Any:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"p{number}-"}, "spec": spec}


@pytest.mark.parametrize("room", [pytest.param("4", id="full"), pytest.param("5000", id="roomy"), None])
async def test_a_thousand_creates_into_an_unknown_namespace_keep_at_most_16_in_flight(
    sandbox: BackgroundSandbox, room: str | None
) -> None:
    """Answers take 300 ms, so that the server would see a thousand in flight if all were sent at once."""
    if room is not None:
        sandbox.create_quota("team", "q", {"pods": room})
    sandbox.faults.answer_delay_s = DELAY
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=AsyncGate()) as api:
        core: Any = client.CoreV1Api(api)
        counts = sandbox.counters.of("team")
        tasks = [asyncio.ensure_future(core.create_namespaced_pod("team", pod(n))) for n in range(CREATES)]
        if room == "4":
            await until_in(tasks, lambda: counts.created == 4)
            await asyncio.wait(tasks, timeout=2)  # meanwhile nothing else is created, and few are sent
        else:
            await until_in(tasks, lambda: counts.created > 50 and counts.max_in_flight > 8)
    ends = await asyncio.gather(*tasks, return_exceptions=True)

    made = [end for end in ends if not isinstance(end, BaseException)]
    assert len(made) == counts.created
    assert all(isinstance(end, GateClosed) for end in ends if isinstance(end, BaseException))
    if room == "4":
        assert (len(made), counts.refused <= 8, counts.max_in_flight <= 16) == (4, True, True)
    else:
        assert len(made) > 50
        assert 8 < counts.max_in_flight <= 16  # it grows: 1, 2, 4, ... 16
    namespace = api.gate.ledger.snapshot().namespaces["team"]
    assert (namespace.outstanding, namespace.waiting) == (0, 0)


async def until_in(tasks: list[asyncio.Task[Any]], enough: Callable[[], bool]) -> None:
    """Wait until so many creates have succeeded."""
    async with asyncio.timeout(45):
        for made in asyncio.as_completed(tasks):
            await made
            if enough():
                return


async def test_every_create_is_made_exactly_once_under_all_faults(sandbox: BackgroundSandbox) -> None:
    """Lost answers, resets after storing, quota conflicts and overload: of 150 creates 150 exist, none twice."""
    sandbox.create_quota("team", "q", {"pods": "1000"})
    faults = sandbox.faults
    faults.reset_share = faults.unknown_outcome_share = faults.quota_conflict_share = 0.1
    faults.quota_timeout_share = 0.05
    gate = AsyncGate(policy=Policy(base=0.01, cap=0.1, brake_base=0.01))
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        core: Any = client.CoreV1Api(api)
        made = await asyncio.gather(*[core.create_namespaced_pod("team", pod(n)) for n in range(150)])
        there = (await core.list_namespaced_pod("team")).items

    assert len({each.metadata.uid for each in made}) == 150
    assert {each.metadata.uid for each in there} == {each.metadata.uid for each in made}
    assert all(CREATE_ID in each.metadata.annotations for each in there)
    assert gate.counts.refused.total() > 10  # faults did occur


async def test_overload_is_waited_out_as_the_server_asks(sandbox: BackgroundSandbox) -> None:
    """A 429 in plain text with Retry-After: no create fails, and few are sent while it lasts."""
    sandbox.faults.overload_share, sandbox.faults.retry_after_s = 1.0, 0
    gate = AsyncGate(policy=Policy(base=0.05, cap=0.2, retry_after_window=0.05))
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        core: Any = client.CoreV1Api(api)
        refused = asyncio.Semaphore(0)
        with waiting(on_wait=lambda why: refused.release() if why and why.reason == "overload" else None):
            tasks = [asyncio.ensure_future(core.create_namespaced_pod("team", pod(n))) for n in range(40)]
        for _ in range(5):
            await refused.acquire()
        sandbox.faults.clear()
        await asyncio.wait_for(asyncio.gather(*tasks), 45)

    assert sandbox.counters.creates.max_in_flight <= 16
    assert sandbox.counters.creates.created == 40

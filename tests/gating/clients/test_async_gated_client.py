"""``AsyncGatedApiClient`` and ``AsyncGate``: gated creates on asyncio, and what cancellation does to them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, waiting
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from tests.kit.gated_creates import core_of, pod
from tests.kit.official import aio
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, scripted_server

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


class Met(asyncio.Event):
    """An ``on_wait`` callback as an event: set when the create waits in line."""

    def __call__(self, explanation: object) -> None:
        self.set()


async def fill(sandbox: BackgroundSandbox, core: Any) -> str:
    sandbox.create_quota("team", "q", {"pods": "1"})
    return str((await core.create_namespaced_pod("team", pod())).metadata.name)


async def test_cancelled_in_line_a_create_leaves_it(sandbox: BackgroundSandbox) -> None:
    """Nothing more is sent, and the line is empty."""
    async with AsyncGatedApiClient(aio.Configuration(host=sandbox.url), gate=AsyncGate()) as api:
        core, met = aio.CoreV1Api(api), Met()
        await fill(sandbox, core)
        with waiting(on_wait=met):
            task = asyncio.ensure_future(core.create_namespaced_pod("team", pod()))
        await met.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    namespace = api.gate.ledger.snapshot().namespaces["team"]
    assert (namespace.waiting, namespace.outstanding, api.gate.counts.waiting) == (0, 0, 0)


async def test_cancelled_after_it_was_sent_a_create_goes_on_and_keeps_its_hold() -> None:
    """The server may store it: only the answer ends the hold."""
    arrived, go_on = threading.Event(), threading.Event()

    def answer(seen: Seen) -> Any:
        arrived.set()
        assert go_on.wait(PATIENCE)
        return 201, seen.body

    with scripted_server(answer) as server:
        async with AsyncGatedApiClient(aio.Configuration(host=server.url), gate=AsyncGate()) as api:
            task = asyncio.ensure_future(aio.CoreV1Api(api).create_namespaced_pod("team", pod("ghost")))
            await asyncio.to_thread(arrived.wait, 45)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            outstanding = api.gate.ledger.snapshot().namespaces["team"].outstanding
            go_on.set()
            await api.gate.drain()

    assert outstanding == 1
    assert api.gate.ledger.snapshot().namespaces["team"].outstanding == 0
    assert api.gate.counts.admitted == 1


async def test_an_async_client_on_a_gate_for_threads_is_woken_in_its_loop(sandbox: BackgroundSandbox) -> None:
    """A sync client's delete, in a thread, makes room for an aio create."""
    gate = Gate(policy=Policy(base=0.05, cap=0.1))
    configuration = aio.Configuration(host=sandbox.url)
    async with AsyncGatedApiClient(configuration, gate=gate) as api:
        core, met = aio.CoreV1Api(api), Met()
        name = await fill(sandbox, core)
        with waiting(on_wait=met):
            task = asyncio.ensure_future(core.create_namespaced_pod("team", pod("woken")))
        await met.wait()
        with GatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as other:
            await asyncio.to_thread(core_of(other).delete_namespaced_pod, name, "team", grace_period_seconds=0)

        assert (await asyncio.wait_for(task, PATIENCE)).metadata.name == "woken"

"""A plain client, the sidecar and the sandbox over real connections; the rest is in ``holding``, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import socket

import aiohttp
import pytest

from backoff_ctrl.k8s.lab.sandbox import Sandbox
from backoff_ctrl.k8s.sidecar.finding import upstream_at
from backoff_ctrl.k8s.sidecar.holding.holding import open_holding
from backoff_ctrl.k8s.sidecar.listening import Listener
from backoff_ctrl.k8s.sidecar.passing import Shared
from backoff_ctrl.k8s.sidecar.upstream import ApiServer
from tests.kit.patience import PATIENCE
from tests.proxying.holding.in_memory import pod
from tests.proxying.passing.wire import until

PODS = "/api/v1/namespaces/team/pods"


async def test_a_create_waits_for_room_and_gets_in_by_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """Not refused once: the quotas were listed before the first create, and watched as soon as one waited."""
    caplog.set_level(logging.INFO)
    async with Sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "1"})
        server = ApiServer(upstream_at(sandbox.url))
        holding, bound = open_holding(server, None), socket.create_server(("127.0.0.1", 0))
        listener = Listener(Shared(server, holding), bound)
        await listener.start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{bound.getsockname()[1]}") as session:
            async with session.post(PODS, json=pod("first")) as first:
                assert first.status == 201
            waiting = asyncio.create_task(session.post(PODS, json=pod("second")))
            await until(lambda: "pods team/second waits" in caplog.text)
            async with session.delete(f"{PODS}/first", params={"gracePeriodSeconds": 0}) as gone:
                assert gone.status == 200
            async with await asyncio.wait_for(waiting, PATIENCE) as second:
                assert (second.status, (await second.json())["metadata"]["name"]) == (201, "second")
        assert sandbox.counters.creates.refused == 0
        await holding.close()
        await listener.close(5)
        server.close()

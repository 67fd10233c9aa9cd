"""A create that the API server answers with errors alone ends after a while: the platform has failed, and says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
from aiohttp import ClientSession, web

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

SAID = 'Internal error occurred: failed calling webhook "check.example.com": connection refused'
STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": SAID, "reason": "InternalError",
          "code": 500}  # fmt: skip
QUICK = Policy(base=0.01, cap=0.02)


@dataclass
class Front:
    """A server in front of a sandbox; while it is broken it answers creates as one whose webhook fails."""

    sandbox: str
    broken: bool = True
    creates: int = 0
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            self.creates += 1
            if self.broken:
                return web.Response(status=500, text=json.dumps(STATUS), content_type="application/json")
        headers = {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
        async with (
            ClientSession() as session,
            session.request(
                request.method, self.sandbox + request.path_qs, data=await request.read(), headers=headers
            ) as said,
        ):
            response = web.StreamResponse(status=said.status, headers={"Content-Type": said.headers["Content-Type"]})
            await response.prepare(request)
            async for piece in said.content.iter_any():
                await response.write(piece)
            return response


@asynccontextmanager
async def front(sandbox: BackgroundSandbox) -> AsyncIterator[Front]:
    made = Front(sandbox.url)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("limit", [0.5, 0.0, 3600.0])
async def test_errors_alone_end_it_after_the_limit_that_the_platform_sets(
    bench: Bench, sandbox: BackgroundSandbox, limit: float
) -> None:
    """With 0, or in a shorter time, it is tried on, and costs no retry: it is created once the server can."""
    config = K8sPluginConfig(create_error_limit=timedelta(seconds=limit))
    async with front(sandbox) as server, Bench(server.url, policy=QUICK) as desk:
        one = task(config=config)
        if limit == 0.5:
            info = await desk.until(one, Phase.RETRYABLE_FAILURE)
            assert info.error is not None
            assert (info.error.code, info.error.kind) == ("CreateFailed", ErrorKind.SYSTEM)
            assert (
                "answered with errors for 500ms, at last: Internal error occurred: failed calling webhook"
                in info.reason
            )
            assert await bench.pods() == []
            return
        await desk.until(one, Phase.NOT_READY, holds=lambda info: "it is retried" in info.reason)
        while server.creates < 25:
            await desk.step(one)
            await desk.tick()
        server.broken = False
        await desk.until(one, Phase.QUEUED)
        assert await bench.pods() == ["one-0"]

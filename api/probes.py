"""Applications of aiohttp.web on a port, and what Kubernetes and Prometheus ask of those that run in a pod."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final

from aiohttp import web

from backoff_ctrl.k8s.status.metrics import CONTENT_TYPE

SHUTDOWN: Final = 5.0
"""Seconds for answers under way when the server ends."""


async def serving_at(
    app: web.Application, address: tuple[str, int], context: ssl.SSLContext | None, ends: AsyncExitStack
) -> tuple[str, web.Server]:
    """Serve an application until ``ends`` closes; return where it is, and its connections. Raises ``OSError``.

    Bodies are not decompressed: no API server compresses its requests, and 0.2 MB may become 200.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN, auto_decompress=False)
    await runner.setup()
    ends.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, *address, ssl_context=context).start()
    host, port = runner.addresses[0][:2]
    shown = f"[{host}]" if ":" in host else host
    assert runner.server is not None
    return f"{'https' if context else 'http'}://{shown}:{port}", runner.server


def probes(
    ready: Callable[[], tuple[bool, Iterable[str]]],
    metrics: Callable[[], Awaitable[bytes]],
    stuck: Callable[[], str] = lambda: "",
) -> list[web.RouteDef]:
    """Return ``/livez``, ``/readyz`` and ``/metrics``.

    ``ready`` returns whether it is, and lines for people; ``stuck`` why only a new process can go on, if so.
    """

    async def livez(_: web.Request) -> web.Response:
        why = stuck()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    async def readyz(_: web.Request) -> web.Response:
        is_ready, lines = ready()
        return web.Response(text="".join(f"{line}\n" for line in lines), status=200 if is_ready else 503)

    async def written(_: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE})

    return [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", written)]

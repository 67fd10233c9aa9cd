"""What Kubernetes and Prometheus ask of what runs in a pod."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from backoff_ctrl.k8s.status.metrics import CONTENT_TYPE


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

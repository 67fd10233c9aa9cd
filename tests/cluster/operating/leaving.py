"""``backoff-ctrl uninstall`` as a process, and a way to the API server on which it is killed at any of its writes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web

from backoff_ctrl.api.operator.stopped import MANAGER, STOPPED
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

LEAVE: Final = (
    *("uninstall", "--yes", "--namespace=gates"),
    *("--operator=backoff-ctrl-operator", "--webhook=backoff-ctrl-webhooks-gates"),
)
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/gates/deployments/backoff-ctrl-operator"
HOOKS: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}/backoff-ctrl-webhooks-gates"
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)


Refused = tuple[str, str]
"""The method and the end of the path of what is refused with 403."""
NOTHING: Final[Refused] = ("", "")


class Way:
    """A way to the API server that keeps back the answer to one write, by its number, and refuses what it should.

    Those that the server has carried out count.
    """

    def __init__(self, server: Server, last: int, refused: Refused = NOTHING) -> None:
        self.reached = asyncio.Event()
        self._held = asyncio.Event()
        self.writes: list[tuple[str, str]] = []
        """What was written: the method and the path of each."""
        self._server = server
        self._last = last
        self._refused = refused

    def go_on(self, last: int = 0) -> None:
        """Give the answer that is kept back, and keep back that of another write."""
        self.reached.clear()
        self._last = last
        held, self._held = self._held, asyncio.Event()
        held.set()

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        if request.method == self._refused[0] and request.path.endswith(self._refused[1]):
            return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)
        headers = {"Authorization": f"Bearer {self._server.token('admin')}"}
        headers |= {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
        url, body = f"{self._server.url}{request.rel_url}", await request.read()
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, data=body, headers=headers, ssl=self._server.ssl() or True) as answer,
        ):
            if request.method in {"PATCH", "DELETE", "PUT"} and answer.ok:
                self.writes.append((request.method, request.path))
                if len(self.writes) == self._last:
                    await answer.read()
                    self.reached.set()
                    await self._held.wait()
            passed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            with suppress(ConnectionError):  # the process was killed
                await passed.prepare(request)
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
            return passed


@asynccontextmanager
async def way(
    server: Server, folder: Path, last: int = 0, refused: Refused = NOTHING
) -> AsyncIterator[tuple[Way, Path]]:
    """Yield a way, and a kubeconfig that leads over it."""
    made = Way(server, last, refused)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.pass_on)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config: Any = {"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "u", "user": {}}]}
    config["clusters"] = [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}]
    config["contexts"] = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    file = folder / "way.yaml"
    file.write_text(yaml.safe_dump(config))
    try:
        yield made, file
    finally:
        made.go_on()
        await runner.cleanup()


async def killed(server: Server, folder: Path, last: int) -> list[tuple[str, str]] | None:
    """Run the command until the API server has carried out this write, and kill it; return its writes.

    None: it ended well before, without such a write.
    """
    async with way(server, folder, last) as (made, kubeconfig):
        process = await begun(kubeconfig)
        ending = asyncio.ensure_future(process.communicate())
        reached = asyncio.ensure_future(made.reached.wait())
        try:
            await asyncio.wait({ending, reached}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reached.cancel()
            if process.returncode is None:
                process.kill()
            said = (await ending)[0].decode()
        is_killed = made.reached.is_set()
    assert process.returncode == (-9 if is_killed else 0), said
    return made.writes if is_killed else None


async def begun(kubeconfig: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "backoff_ctrl", *LEAVE, f"--kubeconfig={kubeconfig}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def ended(kubeconfig: Path) -> tuple[int | None, str]:
    """Run the command to its end; return its exit code, and what it said."""
    process = await begun(kubeconfig)
    said = (await process.communicate())[0].decode()
    return process.returncode, said


async def standing(api: Api) -> list[Any]:
    """Return how many replicas there are and which webhooks, with what is noted on each; no field of them is ours."""
    found = []
    for path in (DEPLOYMENT, *HOOKS):
        body = (await api.get(path)).json
        managers = {each.get("manager") for each in body["metadata"].get("managedFields", [])}  # the sandbox has none
        assert MANAGER not in managers, path
        note = body["metadata"].get("annotations", {}).get(STOPPED) or ""
        found.append((body["spec"]["replicas"] if path == DEPLOYMENT else body["webhooks"], note))
    return found

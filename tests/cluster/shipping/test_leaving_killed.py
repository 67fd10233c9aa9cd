"""``backoff-ctrl uninstall`` that is killed on its way, as with its node: the next run puts back what was there.

Each process is killed while it waits for the answer to one of its writes, which the API server has carried out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml
from aiohttp import web

from backoff_ctrl.api.operating.stopped import MANAGER, STOPPED
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.shipping.installed import Account, account_with, chart
from tests.cluster.shipping.rendering import CHART, JSON
from tests.cluster.shipping.test_chart_comes_and_goes import crowd, stranded
from tests.cluster.talking import Api
from tests.patience import PATIENCE

pytestmark = pytest.mark.long
HERE: Final = ("backoff-ctrl", "--namespace=gates")
LEAVE: Final = (
    *("uninstall", "--yes", "--namespace=gates"),
    *("--operator=backoff-ctrl-operator", "--webhook=backoff-ctrl-webhooks-gates"),
)
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/gates/deployments/backoff-ctrl-operator"
HOOKS: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}/backoff-ctrl-webhooks-gates"
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
KILLED_AT: Final = (1, 3, 7)
"""Writes of a run: two for each of the three objects that are stopped; Jobs were let go before, then Tasks are."""
REPLICAS: Final = 3


class Way:
    """A way to the API server that keeps back the answer to one write, by its number."""

    def __init__(self, server: Server, last: int) -> None:
        self.reached = asyncio.Event()
        self._server = server
        self._last = last
        self._writes = 0

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {"Authorization": f"Bearer {self._server.token('admin')}"}
        headers |= {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
        url, body = f"{self._server.url}{request.rel_url}", await request.read()
        writes = request.method in {"PATCH", "DELETE", "PUT"}
        self._writes += writes
        number = self._writes
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, data=body, headers=headers, ssl=self._server.ssl() or True) as answer,
        ):
            if writes and number == self._last:
                await answer.read()
                self.reached.set()
                await asyncio.Event().wait()
            passed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await passed.prepare(request)
            with suppress(ConnectionError):  # the process was killed
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
            return passed


@asynccontextmanager
async def way(server: Server, folder: Path, last: int) -> AsyncIterator[tuple[Way, Path]]:
    made = Way(server, last)
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
        await runner.cleanup()


async def killed(server: Server, folder: Path, last: int) -> None:
    """Run the command until the API server has carried out this write, and kill it."""
    async with way(server, folder, last) as (made, kubeconfig):
        process = await begun(kubeconfig)
        try:
            async with asyncio.timeout(PATIENCE):
                await made.reached.wait()
        finally:
            process.kill()
            said = (await process.communicate())[0].decode()
    assert process.returncode == -9, said


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
        managers = {each.get("manager") for each in body["metadata"]["managedFields"]}
        assert MANAGER not in managers, path
        note = body["metadata"].get("annotations", {}).get(STOPPED) or ""
        found.append((body["spec"]["replicas"] if path == DEPLOYMENT else body["webhooks"], note))
    return found


@pytest.fixture
async def gates(bed: Bed, helm_program: GoPrograms) -> AsyncIterator[Api]:
    """The chart with its operator in namespace ``gates``, and what waits for it in ``team``."""
    async with Api(bed.server, "admin") as api:
        for name in ("gates", "team"):
            assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        chart(bed, "install", *HERE, str(CHART), values=values())
        await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
        assert (await api.delete(HOOKS[1])).status == 200  # no webhook runs that would judge them
        await crowd(api, "team", "early", jobs=2, tasks=2)
        chart(bed, "upgrade", *HERE, str(CHART), values=values())
        yield api


def values(replicas: int = REPLICAS, seconds: int = 2) -> JSON:
    webhooks = {"timeoutSeconds": seconds}
    return {"injection": {"enabled": False}, "operator": {"enabled": True, "replicas": replicas}, "webhooks": webhooks}


async def who_fails(api: Api) -> Account:
    """Return an account with all that the command needs, but the right on Tasks."""
    kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations", "namespaces", "deployments", "leases"]
    rule = {"verbs": ["get", "list", "patch", "delete"], "apiGroups": ["*"], "resources": [*kinds, "jobs"]}
    return await account_with(api, "gates", "leaver", [rule])


async def test_what_a_killed_one_has_stopped_is_put_back_by_one_that_fails(
    bed: Bed, gates: Api, tmp_path: Path
) -> None:
    """Wherever it was killed. Helm may change both afterwards, and the last run succeeds."""
    api = gates
    before = await standing(api)
    assert (before[0], [len(each[0]) for each in before[1:]]) == ((REPLICAS, ""), [2, 1])
    failing = (await who_fails(api)).kubeconfig(tmp_path)
    assert (await ended(failing))[0] == 1
    assert await standing(api) == before
    for number in KILLED_AT:
        await killed(bed.server, tmp_path, number)
        assert (await api.get(DEPLOYMENT)).json["spec"]["replicas"] == 0
        code, said = await ended(failing)
        assert (code, "Tasks: GET /apis/backoff-ctrl.dev/v1alpha1/tasks: 403" in said) == (1, True), said
        assert await standing(api) == before, (number, said)

    await killed(bed.server, tmp_path, 6)  # and no other run follows: Helm starts it again
    chart(bed, "upgrade", *HERE, str(CHART), values=values(replicas=4, seconds=5))
    after = await standing(api)
    assert (after[0], {each["timeoutSeconds"] for each in after[1][0]}) == ((4, ""), {5})

    await killed(bed.server, tmp_path, 6)
    code, said = await ended(bed.server.kubeconfig("admin"))
    assert (code, said.splitlines()[-1]) == (0, "the webhooks: removed")
    assert await stranded(api, "team") == []
    assert (await api.get(DEPLOYMENT)).json["spec"]["replicas"] == 0
    assert [(await api.get(path)).status for path in HOOKS] == [404, 404]
    noted = (await api.get(DEPLOYMENT)).json["metadata"]["annotations"][STOPPED]
    assert json.loads(noted) == {"was": 4}

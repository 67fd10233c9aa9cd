"""What client-go sends over our TLS is read as it was meant, and client-go reads a marked body as it is meant."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.sidecar.authority import Serving, TlsFiles
from backoff_ctrl.k8s.sidecar.http.payload import Form, Payload, marked, read
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.kit.kubeconfigs import write_kubeconfig

INVALID = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}
PODS = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}


class Recorder:
    """An API server that keeps what it is sent, and answers a create with its own body, marked."""

    def __init__(self) -> None:
        self.creates: list[Payload] = []
        self.over = asyncio.Event()

    async def pods(self, request: web.Request) -> web.StreamResponse:
        """Answer a create, a list, or a watch that tells nothing."""
        if request.method == "POST":
            sent = Payload(await request.read(), request.headers["Content-Type"].encode())
            self.creates.append(sent)
            answer = marked(sent, f"drawn-{len(self.creates)}", {CREATE_ID: "1"})
            assert answer is not None
            return web.Response(status=201, body=answer, content_type=request.content_type)
        if "sendInitialEvents" in request.query:
            return web.json_response(INVALID, status=422)
        if "watch" not in request.query:
            return web.json_response(PODS)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        await self.over.wait()
        return stream


async def test_a_typed_client_and_the_sidecar_understand_each_other(creators: GoPrograms, tmp_path: Path) -> None:
    """Three pods in protobuf: read with prefix and spec, and taken back by Go under the names that were drawn."""
    serving, recorder = Serving(TlsFiles(tmp_path / "authority", tmp_path / "account", tmp_path / "real")), Recorder()
    app = web.Application()
    app.router.add_route("*", "/api/v1/namespaces/team-a/pods", recorder.pods)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving.context)
    await site.start()
    try:
        url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        trust: dict[str, Any] = {"certificate-authority": str(tmp_path / "account" / "ca.crt")}
        config = write_kubeconfig(tmp_path / "config", url, **trust)
        program = await asyncio.create_subprocess_exec(
            creators.path("creator"), "-kubeconfig", config, "-namespace", "team-a", "-prefix", "go-", "-count", "3",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await program.communicate()
    finally:
        recorder.over.set()
        await runner.cleanup()
    said: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [each["name"] for each in said if each["what"] == "created"] == ["drawn-1", "drawn-2", "drawn-3"], said
    for payload in recorder.creates:
        assert payload.form is Form.PROTOBUF
        found = read(payload)
        assert found is not None
        assert found["metadata"] == {"generateName": "go-"}
        assert [each["name"] for each in found["spec"]["containers"]] == ["c"]
        assert footprint(found, resource="pods").scopes == {"BestEffort"}

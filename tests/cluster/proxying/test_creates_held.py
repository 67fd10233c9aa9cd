"""Creators in Go behind the sidecar, on a real API server: protobuf both ways, client-go's own retries, TLS."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.proxy.holding.holding import Holding, open_holding
from backoff_ctrl.k8s.proxy.holding.settings import HoldSettings
from backoff_ctrl.k8s.proxy.listening import Listener
from backoff_ctrl.k8s.proxy.passing import Shared
from backoff_ctrl.k8s.proxy.place import place_of_kubeconfig
from backoff_ctrl.k8s.proxy.upstream import ApiServer
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


@asynccontextmanager
async def sidecar(server: Server, own: str, settings: HoldSettings) -> AsyncIterator[tuple[Holding, str]]:
    """Run a sidecar in front of a server, with an account of its own; give its room and its address.

    client-go sends no token over plain HTTP, so the account is that of the creator, too.
    """
    upstream = ApiServer(place_of_kubeconfig(server.kubeconfig(own)), use_own=True)
    holding = open_holding(upstream, settings)
    bound = socket.create_server(("127.0.0.1", 0))
    listener = Listener(Shared(upstream, holding), bound)
    await listener.start()
    try:
        yield holding, f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        await holding.close()
        await listener.close(5)
        upstream.close()


@pytest.mark.long
@pytest.mark.parametrize("how", [("creator", "protobuf", 8.0), ("learner", "json", 0.3)], ids=["watches", "learns"])
async def test_an_impatient_client_go_program_gets_every_pod_once(
    how: tuple[str, str, float],
    kubernetes: Server,
    real_api: Api,
    real_namespace: str,
    creators: GoPrograms,
    tmp_path: Path,
) -> None:
    """Six workers, a quota of two pods: all get in, and there are six pods in all.

    Where the sidecar watches, they wait on their requests; where it learns, they are put off and come again.
    """
    own, content, hold = how
    room = Room(real_api, real_namespace)
    await room.quota("q", {"pods": "2"})
    async with sidecar(kubernetes, own, HoldSettings(hold=hold)) as (holding, url):
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(url=url))
        given = ["--kubeconfig", str(kubeconfig), "--namespace", real_namespace, "--count", "6", "--parallel", "6"]
        given += ["--patience", "3s", "--tries", "30", "--pause", "50ms"]
        media_type = "application/json" if content == "json" else "application/vnd.kubernetes.protobuf"
        program = await asyncio.create_subprocess_exec(
            creators.path("creator"), *given, "--content", media_type, stdout=asyncio.subprocess.PIPE
        )
        said: list[dict[str, Any]] = []
        assert program.stdout is not None
        async for line in program.stdout:
            said.append(json.loads(line))
            if said[-1]["what"] == "created":  # its pod makes room for the next
                gone = await real_api.delete(
                    f"/api/v1/namespaces/{real_namespace}/pods/{said[-1]['name']}", params={"gracePeriodSeconds": "0"}
                )
                assert gone.status == 200, gone.text
        assert await program.wait() == 0, said
        created = {each["name"] for each in said if each["what"] == "created"}
        assert len(created) == 6
        assert {each["name"] for each in said if each["what"] == "seen"} <= created, "no pod beside them"
        failed = {each.get("code", 0) for each in said if each["what"] == "failed"}
        assert failed <= {0, 429}, "put off, or its own patience: never a quota's refusal"
        assert holding._gate.counts.failed_open == 0
        assert holding._gate.ledger.is_watched(real_namespace) is (own == "creator")

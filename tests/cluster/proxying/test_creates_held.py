"""Creators in Go behind the sidecar, on a real API server: protobuf both ways, client-go's own retries, TLS."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api


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
    options = (f"--hold={hold}", "--use-own-credentials")  # client-go sends no token over plain HTTP
    async with proxy(kubernetes.kubeconfig(own), tmp_path, *options) as running:
        kubeconfig = running.kubeconfig("unused")
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

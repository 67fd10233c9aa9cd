"""An operator with one worker behind the sidecar: its own delete would free the room that its create waits for."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

HOLD, HOLD_TOTAL = 1.0, 4.0
MARGIN = 12.0
"""Seconds beside the hold: client-go's own waits between two tries, and controller-runtime's before the next turn."""


@pytest.mark.long
async def test_one_worker_does_not_stall_past_the_total_of_holds(
    kubernetes: Server, real_api: Api, real_namespace: str, creators: GoPrograms, tmp_path: Path
) -> None:
    """The create is handed back in time, the delete behind it makes room, and each pod is made once."""
    room = Room(real_api, real_namespace)
    await room.quota("q", {"pods": "1"})
    settings = ("--hold", str(HOLD), "--hold-total", str(HOLD_TOTAL), "--use-own-credentials")
    async with proxy(kubernetes.kubeconfig("tester"), tmp_path, *settings) as running:
        operator = await asyncio.create_subprocess_exec(
            creators.path("operator"),
            "-kubeconfig",
            running.kubeconfig("unused"),
            "-namespace",
            real_namespace,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said = _Said(operator)
        try:
            await room.create("configmaps", _wanting("first"))
            await said.until("created", "first")
            await room.create("configmaps", _wanting("second"))
            await said.until("waits", "second", running.folder / "proxy.log")
            began = time.monotonic()
            await room.delete("configmaps", "first")
            await said.until("deleted", "first")
            assert time.monotonic() - began < HOLD_TOTAL + MARGIN
            await said.until("created", "second")
        finally:
            operator.kill()
            await operator.wait()
        assert [each["name"] for each in said.lines if each["what"] == "created"] == ["first", "second"]
        assert await running.stop() == 0


def _wanting(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": "tests"}}}


class _Said:
    """The lines of the operator."""

    def __init__(self, operator: asyncio.subprocess.Process) -> None:
        self.lines: list[dict[str, Any]] = []
        self._operator = operator

    async def until(self, what: str, name: str, log: Path | None = None) -> None:
        """Wait for a line; with ``log``, for one of the proxy that says that the pod waits."""
        async with asyncio.timeout(PATIENCE):
            while not (self._waits(log, name) if log else self._has(what, name)):
                if log:
                    await asyncio.sleep(0.02)
                else:
                    assert self._operator.stdout is not None
                    line = await self._operator.stdout.readline()
                    assert line, "the operator ended"
                    self.lines.append(json.loads(line))

    def _has(self, what: str, name: str) -> bool:
        return any((each["what"], each.get("name")) == (what, name) for each in self.lines)

    @staticmethod
    def _waits(log: Path, name: str) -> bool:
        return f"/{name} waits" in log.read_text()

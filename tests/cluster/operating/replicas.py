"""Replicas of ``backoff-ctrl operator`` as processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import aiohttp

from tests.cluster.control_plane.bed import Bed
from tests.cluster.proxying.crowd import free_port
from tests.kit.patience import PATIENCE

LEADS, STANDS_BY = (f"\nbackoff_ctrl_operator_leader {value}\n" for value in (1, 0))  # whole lines: help says 1, too
PROGRAM = (sys.executable, "-m", "backoff_ctrl")


class Replica:
    """One process, and what it answers to probes."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def get(self, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def until(self, path: str, wanted: str) -> str:
        """Wait until an answer has this text."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    _, text = await self.get(path)
                    if wanted in text:
                        return text
                except (aiohttp.ClientError, TimeoutError):  # it listens, and may still load
                    assert self.process.returncode is None, await self.end(signal.SIGKILL)
                await asyncio.sleep(0.1)

    async def end(self, number: signal.Signals) -> str:
        """Send a signal, and return what the process has written, unless that goes elsewhere."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        out, _ = await self.process.communicate()
        return (out or b"").decode()


async def begin(
    kubeconfig: Path,
    namespaces: Sequence[str],
    *options: str,
    everywhere: bool = False,
    out: int | IO[bytes] = subprocess.PIPE,
) -> Replica:
    """Start a process that looks after these namespaces, or ``everywhere``; its Lease is in the first."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        "operator",
        f"--kubeconfig={kubeconfig}",
        *(f"--namespace={each}" for each in namespaces if not everywhere),
        f"--lease-namespace={namespaces[0]}",
        f"--probe-listen=127.0.0.1:{port}",
        *options,
        stdout=out,
        stderr=subprocess.STDOUT,
        env={**os.environ, "BACKOFF_CTRL_GATE": f"operator-{port}"},
    )
    return Replica(process, port)


@asynccontextmanager
async def replica(bed: Bed, namespace: str, *options: str, everywhere: bool = False) -> AsyncIterator[Replica]:
    """Run a replica, and kill it at the end of the block."""
    found = await begin(bed.server.kubeconfig("tester"), [namespace], *options, everywhere=everywhere)
    try:
        yield found
    finally:
        await found.end(signal.SIGKILL)


async def run(bed: Bed, *words: str, code: int = 0) -> str:
    """Return what a command of ours prints, which ends with this code."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *words,
        f"--kubeconfig={bed.server.kubeconfig('tester')}",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == code, out.decode()
    return out.decode()

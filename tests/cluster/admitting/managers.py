"""An operator's own controller manager beside a real API server."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import aiohttp

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.proxying.crowd import free_port
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

POLL: Final = 0.05
_TAIL: Final = 2000


@asynccontextmanager
async def reconciling(
    api: Api,
    programs: GoPrograms,
    folder: Path,
    group: str,
    plurals: Sequence[str],
    *options: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Define kinds of a group and version, and run their manager, one that needs no webhook."""
    for plural in plurals:
        await define_operators_kind(api, plural, f"/apis/{group}/{plural}")
    await api.until(f"/apis/{group}", lambda found: {each["name"] for each in found["resources"]} >= {*plurals})
    health = free_port()
    command: tuple[str | Path, ...] = (
        programs.path("manager"),
        f"--kubeconfig={api.server.kubeconfig('admin')}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        *options,
    )
    async with running(programs.title, command, health, folder, environment):
        yield


@asynccontextmanager
async def running(
    name: str,
    command: Sequence[str | Path],
    health: int,
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Run a manager once it is ready at its port for ``health``, until the block ends; its log is in the folder."""
    log = folder / f"{name}.log"
    with Guardian(folder / f"{name}-guard") as guardian, log.open("wb") as words:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=words, stderr=words, start_new_session=True, env={**os.environ, **environment}
        )
        guardian.watch(process.pid)
        try:
            if not await _is_ready(process, f"http://127.0.0.1:{health}/readyz"):
                raise RuntimeError(f"the manager of {name} has ended: {log.read_text()[-_TAIL:]}")
            yield
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            guardian.forget(process.pid)


async def _is_ready(process: Process, url: str) -> bool:
    """Wait until it is ready, or has ended."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
        while process.returncode is None:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return True
            await asyncio.sleep(POLL)
    return False

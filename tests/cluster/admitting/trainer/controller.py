"""Kubeflow's Trainer beside a real API server: its definitions and its reconcilers; it needs JobSet's controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.cluster.admitting.managers import running
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.proxying.crowd import free_port
from tests.cluster.talking import Api

GROUP: Final = "trainer.kubeflow.org/v1alpha1"


@asynccontextmanager
async def managed(api: Api, programs: GoPrograms, folder: Path) -> AsyncIterator[None]:
    """Have the TrainJobs of this server carried out; the log is in the folder."""
    for plural in ("trainjobs", "trainingruntimes", "clustertrainingruntimes"):
        await define_operators_kind(api, plural, f"/apis/{GROUP}/{plural}")
    health = free_port()
    command = (
        programs.path("manager"),
        f"--kubeconfig={api.server.kubeconfig('admin')}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
    )
    async with running("trainer", command, health, folder):
        yield

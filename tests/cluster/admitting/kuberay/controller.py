"""KubeRay's operator beside a real API server: its definitions and its reconcilers; it needs no webhook."""

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

GROUP: Final = "ray.io/v1"
NAME_LABEL: Final = "ray.io/cluster"
"""The label that the pods of a RayCluster carry."""


@asynccontextmanager
async def managed(api: Api, programs: GoPrograms, folder: Path, namespace: str) -> AsyncIterator[None]:
    """Have RayClusters and RayJobs of a namespace carried out; the log is in the folder."""
    for plural in ("rayclusters", "rayjobs", "rayservices"):
        await define_operators_kind(api, plural, f"/apis/{GROUP}/{plural}")
    health = free_port()
    command = (
        programs.path("manager"),
        f"--kubeconfig={api.server.kubeconfig('admin')}",
        f"--watch-namespace={namespace}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        "--metrics-addr=127.0.0.1:0",
        "--enable-leader-election=false",
        "--qps=500",
        "--burst=500",
    )
    async with running("kuberay", command, health, folder):
        yield

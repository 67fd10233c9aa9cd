"""Conformance tests of Kubernetes pass through the proxy as they pass without it, and those of quota on the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.conformance.suite import WITHOUT_NODES, run
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.talking import MERGE, Api

NODE: Final = "/api/v1/nodes/conformance"
READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}


@asynccontextmanager
async def ready_node(api: Api) -> AsyncIterator[None]:
    """A node that nothing runs on: the suite begins with none less."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "conformance"}}
    assert (await api.post("/api/v1/nodes", body)).status == 201
    try:
        assert (await api.patch(f"{NODE}/status", READY, MERGE)).status == 200
        assert (await api.patch(NODE, {"spec": {"taints": None}}, MERGE)).status == 200
        yield
    finally:
        await api.delete(NODE)


@pytest.mark.long
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_a_part_of_the_suite_passes(
    tls: bool, kubernetes: Server, real_api: Api, conformance: GoPrograms, tmp_path: Path
) -> None:
    """All that was asked for ran and passed, through a proxy that gives the quota's own answers at once.

    Over plain HTTP client-go sends no token of a kubeconfig: there the proxy adds its own.
    """
    quick = ("--hold", "0.2", "--hold-total", "0.2", "--answer", "quota")
    own = "creator" if tls else "tester"
    options = quick if tls else (*quick, "--use-own-credentials")
    async with (
        ready_node(real_api),
        proxy(kubernetes.kubeconfig(own), tmp_path, *options, tls=tls) as running,
    ):
        report = await run(
            conformance.path("e2e.test"),
            running.kubeconfig(kubernetes.token("tester")),
            WITHOUT_NODES,
            tmp_path,
            within=400,
        )
        assert await running.stop() == 0
    assert not report.failed, "\n".join(report.failed)
    missing = [each for each in WITHOUT_NODES if not any(each in name for name in report.passed)]
    assert not missing, f"{missing}\n{report.output[-3000:]}"


OF_QUOTAS: Final = {
    "life": ["should create a ResourceQuota and capture the life of a (pod|service|repl|pers|ResourceClaim)"],
    "long-life": ["should create a ResourceQuota and capture the life of a (configMap|secret|custom)"],
    "scopes": ["should verify ResourceQuota with"],
    "rest": ["should verify ResourceQuota's (prio|multi|.*2 pvcs)", "ResourceQuota should (manage|be able|apply)",
             "ensure its status is promptly calculated"],
}  # fmt: skip
"""Upstream's tests of ResourceQuota, but for two: one needs a driver of devices, one a class that no API has."""


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_upstreams_tests_of_quotas_pass_on_the_sandbox(
    sandbox: Server, conformance: GoPrograms, tmp_path: Path
) -> None:
    """27 of 29, conformance tests and others, in four processes at once: they mostly sleep."""
    async with Api(sandbox) as api, ready_node(api):
        kubeconfig, suite = sandbox.kubeconfig("admin"), conformance.path("e2e.test")
        folders = {name: tmp_path / name for name in OF_QUOTAS}
        for folder in folders.values():
            folder.mkdir()
        reports = await asyncio.gather(
            *(run(suite, kubeconfig, focus, folders[name], 800, conformance=False) for name, focus in OF_QUOTAS.items())
        )
    failed = [each for report in reports for each in report.failed]
    assert not failed, "\n".join(failed)
    passed = {each for report in reports for each in report.passed}
    assert len(passed) == 27, sorted(passed)

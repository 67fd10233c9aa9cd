"""The chart on the sandbox: whoever has no cluster can look at what it installs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import USERS, Server
from tests.cluster.objects import names
from tests.cluster.shipping.rendering import CHART, helm
from tests.cluster.talking import Api

DEPLOYMENTS = "/apis/apps/v1/namespaces/gates/deployments"


@pytest.fixture
def empty(binaries: Binaries, tmp_path: Path) -> Iterator[Server]:
    """A sandbox of the test's own: the chart has objects of the whole cluster."""
    with running_sandbox() as running:
        yield Server("sandbox", 36, running.url, None, tmp_path, {user: user for user in USERS}, lambda: None)


async def test_helm_installs_upgrades_and_uninstalls_the_chart(empty: Server, helm_program: GoPrograms) -> None:
    """With server-side apply, as Helm 4 does; its objects are there, and then gone."""
    places = {f"HELM_{each}_HOME": str(empty.folder / each) for each in ("CACHE", "CONFIG", "DATA")}

    def run(*words: str) -> None:
        done = helm(*words, "--namespace=gates", KUBECONFIG=str(empty.kubeconfig()), **places)
        assert done.returncode == 0, done.stderr

    async with Api(empty) as api:
        run("install", "gate", str(CHART), "--create-namespace")
        assert names((await api.get(DEPLOYMENTS)).json) == ["gate-backoff-ctrl-inject"]
        run("upgrade", "gate", str(CHART), "--set=gateway.enabled=true")
        assert names((await api.get(DEPLOYMENTS)).json) == ["gate-backoff-ctrl-gateway", "gate-backoff-ctrl-inject"]
        run("rollback", "gate", "1", "--no-hooks")  # no node runs the hook's pod here
        assert names((await api.get(DEPLOYMENTS)).json) == ["gate-backoff-ctrl-inject"]
        run("uninstall", "gate")
        assert (await api.get(DEPLOYMENTS)).json["items"] == []
        roles = (await api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")).json
        assert roles["items"] == []

"""A kind that the chart's values describe, on a real Kubernetes: the webhook suspends it, the operator lets it in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from backoff_ctrl.k8s.workloads.admitting.described import described_kinds
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, SUSPENDED_BY, WEBHOOK
from tests.admitting.trains import DESCRIPTION, train, written
from tests.cluster.admitting.jobs_at_work import Jobs
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.shipping.installed import chart, running
from tests.cluster.shipping.rendering import CHART, JSON
from tests.cluster.shipping.test_operator_webhooks import NAME, called
from tests.cluster.talking import Api

VALUES: JSON = {
    "injection": {"enabled": False},
    "operator": {"enabled": True, "kinds": [yaml.safe_load(DESCRIPTION)]},
}
pytestmark = pytest.mark.long


@pytest.fixture
async def trains(bed: Bed, helm_program: GoPrograms, tmp_path: Path) -> AsyncIterator[Jobs]:
    async with Api(bed.server, "admin") as api:
        for name in ("gates", "gates-canary", "team"):
            assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        yield await served(api, "team", described_kinds([written(tmp_path)])[-1])


async def test_a_described_kind_is_suspended_and_let_in_with_the_rights_that_the_chart_gives(
    bed: Bed, trains: Jobs, tmp_path: Path
) -> None:
    api = trains.api
    chart(bed, "install", "backoff-ctrl", str(CHART), "--namespace=gates", values=VALUES)
    await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
    services = "/api/v1/namespaces/gates/services"
    assert (await api.delete(f"{services}/{NAME}")).status == 200
    here = {"metadata": {"name": NAME}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    assert (await api.post(services, here)).status == 201  # no proxy of a node routes addresses of the cluster here
    folders = tmp_path / "webhooks", tmp_path / "operator"
    for folder in folders:
        folder.mkdir()
    await trains.limit(1)
    async with called(api, folders[0]), running(api, "gates", "operator", folders[1]):
        body = await trains.create(train("local", 1, halted=False))
        assert (body["spec"]["halted"], body["metadata"]["annotations"][SUSPENDED_BY]) == (True, WEBHOOK)
        body = await trains.until("local", lambda found: found["spec"]["halted"] is False)
        assert ADMITTED in body["metadata"]["annotations"]

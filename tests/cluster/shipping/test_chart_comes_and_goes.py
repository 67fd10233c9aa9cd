"""The chart is installed, taken away and installed again, its operator switched off and on: nothing is stranded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backoff_ctrl.k8s.cluster.election import Election
from backoff_ctrl.k8s.cluster.finding import find_place
from backoff_ctrl.k8s.cluster.session import ClusterSession
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.shipping.installed import account, chart
from tests.cluster.shipping.rendering import CHART, JSON
from tests.cluster.talking import Api

pytestmark = pytest.mark.long
VALUES: JSON = {"operator": {"enabled": True}}
"""The rest are defaults: the webhook of the sidecar is on."""
LEASES = {
    "backoff-ctrl-operator": "backoff-ctrl-operator",
    "backoff-ctrl-inject": "backoff-ctrl-inject",
    "backoff-ctrl-webhooks": "backoff-ctrl-webhooks",
}
"""The account that takes each Lease."""


@pytest.fixture
async def api(bed: Bed) -> AsyncIterator[Api]:
    async with Api(bed.server, "admin") as made:
        yield made


async def test_it_is_installed_and_uninstalled_three_times(
    bed: Bed, api: Api, helm_program: GoPrograms, tmp_path: Path
) -> None:
    """Each Lease is taken in between, by its account: it stays Helm's, which takes it away."""
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": "again"}})).status == 201
    leases = "/apis/coordination.k8s.io/v1/namespaces/again/leases"
    here = ("backoff-ctrl", "--namespace=again")
    for _ in range(3):
        assert "STATUS: deployed" in chart(bed, "install", *here, str(CHART), values=VALUES)
        for lease, name in LEASES.items():
            await taken(api, "again", lease, name, tmp_path)
        chart(bed, "uninstall", *here, "--no-hooks")
        assert (await api.get(leases)).json["items"] == []


async def taken(api: Api, namespace: str, lease: str, name: str, folder: Path) -> None:
    """Take a Lease as the process of this account does, and renew it."""
    mine = await account(api, namespace, name)
    await mine.until(f"update leases.coordination.k8s.io/{lease}", allowed=True)
    place = find_place(None, str(mine.kubeconfig(folder)), None, None)
    async with ClusterSession(place.configuration) as session:
        election = Election(session, namespace, lease, "one")
        assert await election.attempt()
        assert await election.attempt()

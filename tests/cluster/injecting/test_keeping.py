"""The Secret with the webhook's certificates is the chart's: what others wrote there stays when they are renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backoff_ctrl.api.webhooks.certificates import LEAF_LIFE, Installation, Keeper
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from tests.cluster.talking import Api


async def test_what_others_wrote_into_the_secret_stays(api: Api, namespace: str) -> None:
    """Labels, annotations and further keys, at the first write and at a renewal."""
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    marks = {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": namespace},
    }
    body = {"metadata": {"name": "hook", **marks}, "type": "Opaque", "data": {"ca.crt": "eA=="}}
    assert (await api.post(secrets, body)).status == 201
    place = Installation(namespace, "hook", "hook", "hook", ())
    now = datetime.now(UTC)
    leaves = set()
    async with ClusterSession(
        find_place(None, str(api.server.kubeconfig("admin")), None, None).configuration
    ) as session:
        keeper = Keeper(session, place, "one", lambda: now)
        for _ in range(2):
            await keeper.turn()
            found = (await api.get(f"{secrets}/hook")).json
            assert {name: found["metadata"].get(name) for name in marks} == marks
            assert (found["type"], found["data"]["ca.crt"]) == ("Opaque", "eA==")
            leaves.add(found["data"]["tls.crt"])
            now += LEAF_LIFE - timedelta(days=1)
    assert len(leaves) == 2

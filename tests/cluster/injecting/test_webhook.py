"""A real API server calls the webhook: what becomes of pods, of their charges, and what when the webhook is away."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.api.injection.counting import pods_without_sidecar
from backoff_ctrl.api.injection.sidecar import ACCOUNT_PATH, NAME, TOKEN_PATH
from backoff_ctrl.k8s.charges.footprint import footprint
from backoff_ctrl.k8s.cluster.finding import find_place
from backoff_ctrl.k8s.cluster.session import ClusterSession
from backoff_ctrl.k8s.watching.source import ClusterSource
from tests.cluster.control_plane.bed import Bed
from tests.cluster.injecting import webhook as hook
from tests.cluster.talking import Api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cluster.control_plane.binaries import Binaries
    from tests.cluster.control_plane.servers import Server
    from tests.cluster.talking import JSON

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(binaries: Binaries) -> Iterator[Server]:
    """A control plane whose pods get the token of their service account."""
    with Bed(binaries, accounts=True, kcm_qps=500) as bed:
        yield bed.server


@asynccontextmanager
async def team(api: Api) -> AsyncIterator[str]:
    """A namespace whose account is there: a pod is refused before."""
    name = f"test-{secrets.token_hex(5)}"
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.status == 201, made.text
    await api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", bool)
    yield name


async def created(api: Api, namespace: str, pod: JSON) -> JSON:
    """Create a pod; return it as it is stored."""
    reply = await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
    assert reply.status == 201, reply.text
    return reply.json


def containers(pod: JSON) -> list[str]:
    """Return the names of all containers, in their order."""
    return [each["name"] for key in ("initContainers", "containers") for each in pod["spec"].get(key, ())]


async def test_a_labelled_pod_comes_back_with_the_sidecar_and_is_charged_for_it(cluster: Server) -> None:
    """An unlabelled one is untouched. With the webhook away pods are created as they are, and counted."""
    async with Api(cluster, "admin") as api, team(api) as own, team(api) as namespace:
        quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
        hard = {"pods": "9", "requests.cpu": "4", "limits.cpu": "9", "requests.memory": "4Gi", "limits.memory": "9Gi"}
        assert (await api.post(quotas, {"metadata": {"name": "all"}, "spec": {"hard": hard}})).status == 201
        scoped = {"hard": {"pods": "5"}, "scopes": ["NotBestEffort"]}
        assert (await api.post(quotas, {"metadata": {"name": "scoped"}, "spec": scoped})).status == 201
        await api.until(f"{quotas}/all", lambda quota: "used" in quota.get("status", {}))
        await api.until(f"{quotas}/scoped", lambda quota: "used" in quota.get("status", {}))
        asked = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}}
        assert (await api.post(f"/api/v1/namespaces/{own}/services", hook.service())).status == 201
        with hook.webhook(cluster, own, "--image=gate:1") as port:
            assert (await api.post(hook.HOOKS, hook.configuration(own, port))).status == 201
            await hook.trusted(api)
            plain = await created(api, namespace, hook.pod("plain", labelled=False, container=asked))
            pod = await created(api, namespace, hook.pod("creator", container=asked))
        away = await created(api, namespace, hook.pod("while-it-is-away", container=asked))

        assert containers(plain) == containers(away) == ["main"]
        assert containers(pod) == [NAME, "main"]
        main, sidecar = pod["spec"]["containers"][0], pod["spec"]["initContainers"][0]
        mounts = {mount["mountPath"]: mount["name"] for mount in main["volumeMounts"]}
        assert mounts[ACCOUNT_PATH] == "backoff-ctrl-account"
        assert mounts[TOKEN_PATH].startswith("kube-api-access-")  # the one that the server's own admission made
        assert (sidecar["image"], sidecar["restartPolicy"]) == ("gate:1", "Always")
        assert pod["status"]["qosClass"] == plain["status"]["qosClass"] == "Burstable"
        found = await api.until(f"{quotas}/all", lambda quota: quota["status"]["used"]["pods"] == "3")
        amounts: dict[str, int] = {}
        for each in (plain, pod, away):
            for name, amount in footprint(each, resource="pods").amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
        from backoff_ctrl.engine.quantities import parse_quantity  # noqa: PLC0415

        assert {name: parse_quantity(text) for name, text in found["status"]["used"].items()} == {
            name: amounts[name] for name in hard
        }
        async with ClusterSession(find_place(None, str(cluster.kubeconfig("admin")), None, None).configuration) as own_:
            without = await pods_without_sidecar(ClusterSource(own_))
        assert without[namespace] == 1
        await api.delete(f"{hook.HOOKS}/{hook.NAME}")


async def test_qualities_and_exceptions_as_the_server_sees_them(cluster: Server) -> None:
    """It validates what the webhook makes of each: a Guaranteed, a BestEffort pod, one of the node's network."""
    async with Api(cluster, "admin") as api, team(api) as own:
        assert (await api.post(f"/api/v1/namespaces/{own}/services", hook.service())).status == 201
        assert (await api.post(f"{hook.HOOKS}", hook.configuration(own, 1))).status == 201
        limits = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
        with hook.webhook(cluster, own) as port:
            hooks = await hook.trusted(api)
            hooks["webhooks"][0]["clientConfig"]["service"]["port"] = port
            assert (await api.put(f"{hook.HOOKS}/{hook.NAME}", hooks)).status == 200
            guaranteed = await created(api, own, hook.pod("guaranteed", container=limits))
            best = await created(api, own, hook.pod("best-effort"))
            twice = await created(api, own, hook.pod("prepared", initContainers=[{"name": "prepare", "image": "i"}]))
            refused = await api.post(
                f"/api/v1/namespaces/{own}/pods", hook.pod("on-the-node", hostNetwork=True, container=limits)
            )
            silent = await created(api, own, hook.pod("no-token", automountServiceAccountToken=False))
        assert (guaranteed["status"]["qosClass"], best["status"]["qosClass"]) == ("Guaranteed", "BestEffort")
        assert containers(guaranteed) == containers(best) == [NAME, "main"]
        assert containers(twice) == [NAME, "prepare", "main"]
        assert containers(refused.json) == ["main"]
        assert "it uses the node's network" in refused.headers["Warning"]
        assert containers(silent) == ["main"]
        await api.delete(f"{hook.HOOKS}/{hook.NAME}")

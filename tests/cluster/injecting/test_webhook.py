"""A real API server calls the webhook: what becomes of pods, of their charges, and what when the webhook is away."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from backoff_ctrl.api.webhooks.certificates import Keeper, Place
from backoff_ctrl.api.webhooks.counting import pods_without_sidecar
from backoff_ctrl.api.webhooks.server import InjectionSettings, Webhook, serve
from backoff_ctrl.api.webhooks.sidecar import ACCOUNT_PATH, NAME, TOKEN_PATH
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.injecting import webhook as hook
from tests.cluster.talking import JSON, Api
from tests.kit.patience import PATIENCE

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
            whole = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
            shared = await created(api, own, hook.pod("shared", resources=whole, container=limits))
            taken = await created(
                api, own, hook.pod("taken", volumes=[{"name": "backoff-ctrl-account", "emptyDir": {}}])
            )
            silent = await created(api, own, hook.pod("no-token", automountServiceAccountToken=False))
        assert (guaranteed["status"]["qosClass"], best["status"]["qosClass"]) == ("Guaranteed", "BestEffort")
        assert containers(guaranteed) == containers(best) == [NAME, "main"]
        assert containers(twice) == [NAME, "prepare", "main"]
        assert containers(refused.json) == ["main"]
        assert "it uses the node's network" in refused.headers["Warning"]
        assert containers(silent) == containers(taken) == ["main"]
        assert containers(shared) == [NAME, "main"]
        assert not any("cpu" in each for each in shared["spec"]["initContainers"][0]["resources"].values())
        await api.delete(f"{hook.HOOKS}/{hook.NAME}")


async def test_certificates_change_under_an_api_server_that_calls_all_the_while(cluster: Server) -> None:
    """Authority and leaf both: after each step a labelled pod has its sidecar. One replica writes at a time."""
    configuration = find_place(None, str(cluster.kubeconfig("admin")), None, None).configuration
    async with Api(cluster, "admin") as api, team(api) as own, ClusterSession(configuration) as session:
        assert (await api.post(f"/api/v1/namespaces/{own}/services", hook.service())).status == 201
        place = Place(own, hook.NAME, hook.NAME, hook.NAME)
        settings = InjectionSettings(("127.0.0.1", 0), place=place, who="one")
        now = datetime.now(UTC)
        clock = [now - timedelta(days=3400)]  # its authority is old today
        webhook = Webhook(settings, session, lambda: clock[0])
        said: asyncio.Queue[str] = asyncio.Queue()
        over = asyncio.Event()
        serving = asyncio.create_task(serve(webhook, settings, over, said.put_nowait))
        port = int((await said.get()).rpartition(":")[2])
        assert (await api.post(hook.HOOKS, hook.configuration(own, port))).status == 201
        clock[0] = now - timedelta(hours=14)  # no certificate may begin later than today
        path = f"/api/v1/namespaces/{own}/secrets/{hook.NAME}"
        bundles, secret = [""], (await api.get(path)).json
        leaves = {secret["data"]["tls.crt"]}
        for step in range(6):
            await webhook.look()
            bundle = (await hook.trusted(api))["webhooks"][0]["clientConfig"]["caBundle"]
            if bundle != bundles[-1]:
                bundles.append(bundle)
                await known(api, own, step)
            secret = (await api.get(path)).json
            leaves.add(secret["data"]["tls.crt"])
            pod = await created(api, own, hook.pod(f"step-{step}"))
            assert containers(pod) == [NAME, "main"], step
            clock[0] += timedelta(hours=2)
        served = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
        assert webhook.counts.certificate_ends == served.not_valid_after_utc.timestamp()
        assert [base64.b64decode(each).count(b"BEGIN") for each in bundles] == [0, 1, 2, 1]  # the old, both, the new
        assert len(leaves) == 3
        other = Keeper(session, place, "two", lambda: clock[0] - timedelta(hours=2) + timedelta(days=80))
        kept = await other.turn()  # a leaf is due, but another replica writes
        assert (await api.get(f"/api/v1/namespaces/{own}/secrets/{hook.NAME}")).json == secret
        assert kept.leaf == base64.b64decode(secret["data"]["tls.crt"])
        over.set()
        await serving
        await api.delete(f"{hook.HOOKS}/{hook.NAME}")


async def known(api: Api, namespace: str, step: int) -> None:
    """Return once the API server works with the webhooks as they were written before.

    It learns of a later one after them, and that one shows: nobody answers it, so what it is asked about is refused.
    """
    canary = hook.configuration(namespace, 1)
    canary["metadata"]["name"] = label = f"canary-{step}"
    canary["webhooks"][0] |= {"failurePolicy": "Fail", "clientConfig": {"url": "https://127.0.0.1:1/"}}
    canary["webhooks"][0]["objectSelector"] = {"matchLabels": {"canary": label}}
    assert (await api.post(hook.HOOKS, canary)).status == 201
    asked = hook.pod(label, labelled=False)
    asked["metadata"]["labels"] = {"canary": label}
    async with asyncio.timeout(PATIENCE):
        pods = f"/api/v1/namespaces/{namespace}/pods"
        while (await api.post(pods, asked, params={"dryRun": "All"})).status == 201:
            pass
    await api.delete(f"{hook.HOOKS}/{label}")

"""The chart is installed, taken away and installed again, its operator switched off and on: nothing is stranded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from backoff_ctrl.k8s.kube.cluster.election import Election
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.workloads.admitting.kinds import SUSPENDED_BY, WAIT, WEBHOOK
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.shipping.installed import account, account_with, chart, hooks_run
from tests.cluster.shipping.rendering import CHART, JSON
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long
HERE: Final = ("backoff-ctrl", "--namespace=gates")
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


@pytest.fixture
async def gates(bed: Bed, api: Api, helm_program: GoPrograms) -> AsyncIterator[Api]:
    """Namespaces ``gates``, where nothing is installed, and ``team``."""
    for name in ("gates", "team"):
        assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status in (201, 409)
    yield api
    chart(bed, "uninstall", *HERE, "--no-hooks", "--ignore-not-found")


async def test_it_is_installed_and_uninstalled_three_times(bed: Bed, gates: Api, tmp_path: Path) -> None:
    """Each Lease is taken in between, by its account: it stays Helm's, which takes it away."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/gates/leases"
    for _ in range(3):
        assert "STATUS: deployed" in chart(bed, "install", *HERE, str(CHART), values=VALUES)
        for lease, name in LEASES.items():
            await taken(gates, "gates", lease, name, tmp_path)
        chart(bed, "uninstall", *HERE, "--no-hooks")
        assert (await gates.get(leases)).json["items"] == []


async def taken(api: Api, namespace: str, lease: str, name: str, folder: Path) -> None:
    """Take a Lease as the process of this account does, and renew it."""
    mine = await account(api, namespace, name)
    await mine.until(f"update leases.coordination.k8s.io/{lease}", allowed=True)
    place = find_place(None, str(mine.kubeconfig(folder)), None, None)
    async with ClusterSession(place.configuration) as session:
        election = Election(session, namespace, lease, "one")
        assert await election.attempt()
        assert await election.attempt()


def waiting_job(name: str) -> JSON:
    marks = {"labels": {WAIT: "true"}, "annotations": {SUSPENDED_BY: WEBHOOK}}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}
    return {"metadata": {"name": name, **marks}, "spec": {"suspend": True, "template": template}}


async def crowd(api: Api, namespace: str, round_: str, *, jobs: int = 10, tasks: int = 3) -> None:
    """Have Jobs and Tasks wait in a namespace, as webhooks and operator leave them."""
    for number in range(jobs):
        made = await api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", waiting_job(f"{round_}-{number}"))
        assert made.status == 201, made.text
    for number in range(tasks):
        metadata = {"name": f"{round_}-{number}", "finalizers": [FINALIZER]}
        spec = {"type": "container", "container": {"image": "busybox"}}
        body = {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": metadata, "spec": spec}
        made = await api.post(f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{namespace}/tasks", body)
        assert made.status == 201, made.text


async def stranded(api: Api, namespace: str) -> list[str]:
    """Return what can't go on without an operator: Jobs that are suspended, Tasks that can't be deleted."""
    jobs = (await api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")).json["items"]
    tasks = (await api.get(f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{namespace}/tasks")).json["items"]
    found = [each["metadata"]["name"] for each in jobs if each["spec"]["suspend"]]
    return [*found, *(each["metadata"]["name"] for each in tasks if each["metadata"].get("finalizers"))]


async def operators(api: Api) -> list[str]:
    """Return what is there of the operator: Deployments, and the configurations of its webhooks that call it."""
    found = (await api.get("/apis/apps/v1/namespaces/gates/deployments")).json["items"]
    left = [each["metadata"]["name"] for each in found if each["spec"]["replicas"]]
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        hooks = await api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}/backoff-ctrl-webhooks-gates")
        left += [kind] if hooks.status == 200 and hooks.json.get("webhooks") else []
    return sorted(left)


ON: JSON = {"injection": {"enabled": False}, "operator": {"enabled": True}}
OFF: JSON = {"injection": {"enabled": False}, "gateway": {"enabled": True}}
WHOLE = [
    "backoff-ctrl-operator",
    "backoff-ctrl-webhooks",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
]


async def test_the_operator_is_switched_off_and_on_and_rolled_back_and_strands_nothing(
    bed: Bed, gates: Api, tmp_path: Path
) -> None:
    """Ten Jobs and three Tasks wait each time; a hook that can't work stops helm before anything is removed."""
    api = gates
    chart(bed, "install", *HERE, str(CHART), values=OFF)
    chart(bed, "upgrade", *HERE, str(CHART), values=OFF)  # no operator: no pod is started, and nothing waits for one
    chart(bed, "upgrade", *HERE, str(CHART), values=ON)
    notes = " ".join(chart(bed, "get", "notes", *HERE).split())
    assert "first a hook lets all Jobs run that wait" in notes
    assert "backoff-ctrl uninstall -n gates --operator backoff-ctrl-operator" in notes
    await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
    await unjudged(api)
    await crowd(api, "team", "first")

    async with hooks_run(api, "gates", tmp_path, fail=True):
        with pytest.raises(AssertionError, match="pre-upgrade"):
            await asyncio.to_thread(chart, bed, "upgrade", *HERE, str(CHART), values=OFF)
    assert ((await operators(api))[:2], len(await stranded(api, "team"))) == (WHOLE[:2], 13)

    async with hooks_run(api, "gates", tmp_path) as said:
        said_by_helm = await asyncio.to_thread(chart, bed, "upgrade", *HERE, str(CHART), values=OFF)
    assert "Jobs: 10 let go" in said
    assert "Tasks: 3 let go" in said
    assert "OPERATOR: switched off. A hook has let all Jobs run that waited" in said_by_helm
    assert (await operators(api), await stranded(api, "team")) == (["backoff-ctrl-gateway"], [])

    chart(bed, "upgrade", *HERE, str(CHART), values=ON)
    assert await operators(api) == WHOLE
    await unjudged(api)
    await crowd(api, "team", "second")
    async with hooks_run(api, "gates", tmp_path) as said:
        await asyncio.to_thread(chart, bed, "rollback", *HERE, "1")
    assert "Jobs: 10 let go" in said
    assert (await operators(api), await stranded(api, "team")) == (["backoff-ctrl-gateway"], [])
    assert (await api.delete("/api/v1/namespaces/team")).status == 200
    async with asyncio.timeout(PATIENCE):
        while (await api.get("/api/v1/namespaces/team")).status != 404:
            pass


async def test_what_cant_be_let_go_keeps_its_operator(bed: Bed, gates: Api, tmp_path: Path) -> None:
    """An account without the right on Tasks: that is said, and the operator and its webhooks are put back."""
    api = gates
    chart(bed, "install", *HERE, str(CHART), values=ON)
    await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
    rules = [
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations validatingwebhookconfigurations"),
        ("", "namespaces"),
        ("apps", "deployments"),
        ("coordination.k8s.io", "leases"),
        ("batch", "jobs"),
    ]
    verbs = ["get", "list", "patch", "delete"]
    given = [{"verbs": verbs, "apiGroups": [group], "resources": kinds.split()} for group, kinds in rules]
    mine = await account_with(api, "gates", "leaver", given)
    before = await operators(api)
    command = [
        sys.executable, "-m", "backoff_ctrl", "uninstall", "--yes", "--namespace=gates",
        "--operator=backoff-ctrl-operator", "--webhook=backoff-ctrl-webhooks-gates",
        f"--kubeconfig={mine.kubeconfig(tmp_path)}",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode == 1, said
    assert "Tasks: GET /apis/backoff-ctrl.dev/v1alpha1/tasks: 403" in said
    assert "the operator: started again" in said
    assert (await operators(api), before) == (before, WHOLE)


async def unjudged(api: Api) -> None:
    """Have Tasks created without the webhook, which does not run here: the configuration stays, but calls for none."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/backoff-ctrl-webhooks-gates"
    hooks = (await api.get(path)).json["webhooks"]
    for each in hooks:
        each["namespaceSelector"] = {"matchLabels": {"none": "has-this"}}
    assert (await api.patch(path, {"webhooks": hooks}, MERGE)).status == 200

"""`backoff-ctrl holders`: its account of a namespace agrees with what the server charges"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.main import run
from tests.cluster.control_plane.servers import Server
from tests.cluster.quotas.quota_room import JSON, Room, claim, pod, selector, service
from tests.cluster.talking import JSON_PATCH, MERGE, Api

FINALIZER = "example.com/hold"
ATTEMPTS = 3
"""Tries for a state that the quota controller's resync, every 5 minutes, may correct before the test sees it."""


class Asking:
    """The command, run for one namespace."""

    def __init__(self, room: Room, capsys: pytest.CaptureFixture[str]) -> None:
        self.room = room
        self._capsys = capsys

    async def page(self, *options: str, code: int = 0) -> str:
        return "".join(await self._said(*options, code=code))

    async def document(self) -> JSON:
        found: JSON = json.loads((await self._said("--json"))[0])
        return found

    async def run(self, command: str, *options: str) -> str:
        """Return the output of another command, which asks the same namespace."""
        return (await self._said(*options, command=command))[0]

    async def _said(self, *options: str, code: int = 0, command: str = "holders") -> tuple[str, str]:
        config = str(self.room.api.server.kubeconfig())
        asked = [command, "-n", self.room.namespace, "--kubeconfig", config, *options]
        found = await asyncio.to_thread(run, asked)
        said = self._capsys.readouterr()
        assert found == code, said
        return said.out, said.err

    async def resources(self, quota: str = "q") -> dict[str, JSON]:
        """The entry of each resource of a quota."""
        (found,) = [each for each in (await self.document())["quotas"] if each["name"] == quota]
        return {each["resource"]: each for each in found["resources"]}


@pytest.fixture
def asking(room: Room, capsys: pytest.CaptureFixture[str]) -> Asking:
    return Asking(room, capsys)


def held(resource: JSON) -> dict[str, str]:
    return {holder["owner"]: holder["amount"] for holder in resource["holders"]}


async def replica_set(room: Room, name: str = "web") -> JSON:
    """Create an owner whose controller does not run; returns a reference to it."""
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    made = await room.create("replicasets.apps", {"metadata": {"name": name}, "spec": spec})
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }


async def test_every_charge_has_its_holder(room: Room, asking: Asking) -> None:
    """For all kinds, the amounts of the holders of a resource, by owner, add up to what the server shows as used."""
    charged = {
        "pods": "20",
        "requests.cpu": "20",
        "limits.memory": "20Gi",
        "count/pods": "20",
        "services": "9",
        "services.nodeports": "9",
        "persistentvolumeclaims": "9",
        "requests.storage": "90Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "90Gi",
        "count/jobs.batch": "9",
        "count/replicasets.apps": "9",
        "count/secrets": "9",
    }
    await room.quota("q", charged)
    owner = await replica_set(room)
    for name, cpu in (("a", "2"), ("b", "1500m")):
        await room.create("pods", pod(name, {"cpu": cpu}, {"memory": "1Gi"}, ownerReferences=[owner]))
    await room.create("pods", pod("single", {"cpu": "1"}, {"memory": "512Mi"}))
    await room.create("services", service("s", "NodePort", 2))
    await room.create("persistentvolumeclaims", claim("c", "3Gi", storageClassName="fast"))
    job = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", **pod()["spec"]}}}
    await room.create("jobs.batch", {"metadata": {"name": "j"}, "spec": job})
    await room.create("secrets", {"metadata": {"name": "key"}, "stringData": {"password": "hunter2"}})

    found = await asking.resources()
    used = await room.used()

    assert {name: each["used"] for name, each in found.items()} == used
    assert [
        name for name, each in found.items() if (each["leaked"], each["overdue"], each["uncounted"]) != ("0",) * 3
    ] == []
    assert held(found["requests.cpu"]) == {"ReplicaSet/web": "3500m", "Pod/single": "1"}
    assert held(found["limits.memory"]) == {"ReplicaSet/web": "2Gi", "Pod/single": "512Mi"}
    assert held(found["services.nodeports"]) == {"Service/s": "2"}
    assert held(found["fast.storageclass.storage.k8s.io/requests.storage"]) == {"PersistentVolumeClaim/c": "3Gi"}
    assert held(found["count/jobs.batch"]) == {"Job/j": "1"}
    assert held(found["count/replicasets.apps"]) == {"replicasets.apps/web": "1"}
    assert held(found["count/secrets"]) == {"Secret/key": "1"}
    assert found["requests.cpu"]["holders"][0]["percent"] == 77.8
    page = await asking.page()
    assert "No quota is full, no deletion is stuck and no charge is leaked; the fullest" in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 100


EXTENDED = "requests.example.com/accelerator"


@pytest.fixture
async def device_class(room: Room) -> AsyncIterator[str]:
    """Make a device class that stands for an extended resource."""
    if room.api.server.minor < 36:
        pytest.skip("extended resources of device classes are charged since v1.36")
    name = f"accelerators-{room.namespace}"
    spec = {"extendedResourceName": "example.com/accelerator"}
    reply = await room.api.post("/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": name}, "spec": spec})
    assert reply.status == 201, reply.text
    yield name
    await room.api.delete(f"/apis/resource.k8s.io/v1/deviceclasses/{name}")


def devices(name: str, device_class: str, count: int) -> JSON:
    exactly = {"deviceClassName": device_class, "count": count}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.only_kubernetes("the sandbox does not support extended resources that map to a DeviceClass")
async def test_claims_hold_the_extended_resource_of_their_device_class(
    room: Room, asking: Asking, device_class: str
) -> None:
    """Beside pods that ask for it by its own name. Its whole charge is given back."""
    await room.known_to_quota(EXTENDED)
    await room.quota("q", {EXTENDED: "9"})
    for name, count in (("a", 2), ("b", 1)):
        await room.create("resourceclaims.resource.k8s.io", devices(name, device_class, count))
    await room.create("pods", pod("p", limits={"example.com/accelerator": "1"}))
    await room.until_used({EXTENDED: "4"})

    found = (await asking.resources())[EXTENDED]

    assert (found["used"], found["leaked"], found["overdue"], found["uncounted"]) == ("4", "0", "0", "0")
    assert held(found) == {"ResourceClaim/a": "2", "ResourceClaim/b": "1", "Pod/p": "1"}
    assert "no charge is leaked" in await asking.page()


@pytest.mark.only_kubernetes("the sandbox does not support extended resources that map to a DeviceClass")
@pytest.mark.parametrize(("count", "verdict"), [(1, "now"), (2, "wait"), (3, "never")])
async def test_explain_knows_the_extended_resource_of_a_device_class(
    room: Room, asking: Asking, device_class: str, count: int, verdict: str, tmp_path: Path
) -> None:
    """As the server does, which is asked, too."""
    await room.known_to_quota(EXTENDED)
    await room.quota("q", {EXTENDED: "2"})
    await room.create("resourceclaims.resource.k8s.io", devices("a", device_class, 1))
    await room.admission_is_current()
    (tmp_path / "claim.yaml").write_text(json.dumps(devices("b", device_class, count)))

    said = await asking.run("explain", "-f", str(tmp_path / "claim.yaml"), "--confirm", "--json")

    document = json.loads(said)
    assert (document["verdict"], document["confirmation"]["agrees"]) == (verdict, True), said
    assert document["footprint"]["amounts"][EXTENDED] == str(count)
    if verdict != "now":
        assert [each["resource"] for each in document["blockers"]] == [EXTENDED]


async def test_each_quota_has_the_holders_that_its_scopes_match(room: Room, asking: Asking) -> None:
    """Terminating, BestEffort, a PriorityClass in a selector: each quota's sum is what the server charges to it."""
    await room.quota("all", {"pods": "9"})
    await room.quota("timed", {"pods": "9"}, scopes=["Terminating"])
    await room.quota("untimed", {"pods": "9", "requests.cpu": "9"}, scopes=["NotTerminating", "NotBestEffort"])
    critical = selector("PriorityClass", "In", "system-cluster-critical")
    await room.quota("critical", {"pods": "9"}, scopeSelector=critical)
    await room.create("pods", pod("timed", spec={"activeDeadlineSeconds": 600}))
    await room.create("pods", pod("plain"))
    await room.create("pods", pod("busy", {"cpu": "1"}, spec={"priorityClassName": "system-cluster-critical"}))

    document = await asking.document()

    found = {each["name"]: each["resources"] for each in document["quotas"]}
    sets = {quota: sorted(held(each[0])) for quota, each in found.items()}
    assert sets == {
        "all": ["Pod/busy", "Pod/plain", "Pod/timed"],
        "timed": ["Pod/timed"],
        "untimed": ["Pod/busy"],
        "critical": ["Pod/busy"],
    }
    for quota, resources in found.items():
        assert {each["resource"]: each["used"] for each in resources} == await room.used(quota)
    assert document["ok"] is True
    page = await asking.page("--quota", "critical")
    assert "quota critical (scopes: PriorityClass In system-cluster-critical)" in page
    assert "quota all" not in page


@pytest.mark.long
async def test_a_charge_without_an_object_is_a_leak(room: Room, asking: Asking) -> None:
    """Creating a name that exists is charged, but stores no object: the leak is listed, with the time when it is given
    back at the latest; the next release does give it back."""
    await room.quota("q", {"pods": "2", "requests.cpu": "9"})
    await room.create("pods", pod("x", {"cpu": "1"}))
    found: dict[str, JSON] = {}
    for _ in range(ATTEMPTS):
        refused = await room.api.post(room.path("pods"), pod("x", {"cpu": "1"}))
        assert refused.status == 409, refused.text
        found = await asking.resources()
        if found["pods"]["used"] == "2":
            break

    assert [found[name]["leaked"] for name in ("pods", "requests.cpu")] == ["1", "1"]
    assert held(found["pods"]) == {"Pod/x": "1"}
    page = await asking.page()
    assert "pods: 2 of 2 used (100%): FULL" in page
    assert "(leaked: held by no object)" in page
    assert "Next: 1 of pods of q is charged but used by no object" in page
    assert "within 5 minutes" in " ".join(page.split())

    await room.controller_is_current()
    await room.delete("pods", "x")
    await room.until_used({"pods": "0", "requests.cpu": "0"})
    assert "No quota is full, no deletion is stuck and no charge is leaked" in await asking.page()


async def overdue(room: Room, name: str) -> None:
    """Create a pod whose node never confirms its deletion, and wait until the server would no longer charge it."""
    await room.create("pods", pod(name, {"cpu": "1"}, spec={"nodeName": "lost-node"}, finalizers=[FINALIZER]))
    reply = await room.delete("pods", name, gracePeriodSeconds="1")
    ends = datetime.fromisoformat(reply.json["metadata"]["deletionTimestamp"]).timestamp() + 1
    await room.api.until(room.path("pods", name), lambda _: datetime.now(UTC).timestamp() > ends + 1)


@pytest.mark.long
async def test_a_pod_that_is_stuck_in_deletion_is_listed(room: Room, asking: Asking) -> None:
    """With its finalizer and node. What it no longer holds, but was not given back, is overdue until the next release;
    its count stays."""
    await room.quota("q", {"count/pods": "9", "pods": "9", "requests.cpu": "9"})
    await room.create("pods", pod("spare", {"cpu": "1"}))
    document: JSON = {}
    cpu: JSON = {}
    for attempt in range(ATTEMPTS):
        await overdue(room, f"x{attempt}")
        document = await asking.document()
        cpu = next(each for each in document["quotas"][0]["resources"] if each["resource"] == "requests.cpu")
        if cpu["overdue"] == "1":
            break

    stuck = document["stuck"][-1]
    assert cpu["overdue"] == "1"
    assert (cpu["leaked"], held(cpu)) == ("0", {"Pod/spare": "1"})
    assert (stuck["node"], stuck["finalizers"], stuck["owner"]) == ("lost-node", [FINALIZER], f"Pod/{stuck['pod']}")
    assert stuck["overdue"]["requests.cpu"] == "1"
    assert document["ok"] is False
    page = await asking.page()
    assert "pods stuck in deletion: 1" in page
    assert f"finalizer {FINALIZER}" in page

    await room.delete("pods", "spare")
    there = len(document["stuck"])
    await room.until_used({"count/pods": str(there), "pods": "0", "requests.cpu": "0"})
    found = await asking.resources()
    assert found["requests.cpu"]["overdue"] == "0"
    assert found["count/pods"]["holders"][0]["freed_by"] == "finalizers"
    freed = [{"op": "remove", "path": "/metadata/finalizers"}]
    for each in range(there):
        assert (await room.api.patch(room.path("pods", f"x{each}"), freed, JSON_PATCH)).status == 200


async def test_finished_pods_hold_only_their_count(room: Room, asking: Asking) -> None:
    """A finished pod holds `count/pods` alone; if that is full, the advice is to delete such pods."""
    await room.quota("q", {"count/pods": "2", "pods": "2"})
    for name in "xy":
        await room.create("pods", pod(name))
    await room.finish("x", "Succeeded")
    await room.until_used({"count/pods": "2", "pods": "1"})

    found = await asking.resources()

    assert held(found["pods"]) == {"Pod/y": "1"}
    ended = {each["owner"]: (each["finished"], each["freed_by"]) for each in found["count/pods"]["holders"]}
    assert ended == {"Pod/x": (1, "finished"), "Pod/y": (0, "hand")}
    assert "delete pods --field-selector=status.phase=Succeeded" in " ".join((await asking.page()).split())


async def test_a_deadline_tells_when_room_comes(room: Room, asking: Asking) -> None:
    """A running pod gives its charge back at its deadline, counted from its start, at the latest."""
    await room.quota("q", {"pods": "1"})
    await room.create("pods", pod("x", spec={"activeDeadlineSeconds": 3600}))
    assert "1h after it starts" in (await asking.page()).replace("60m", "1h")
    begun = datetime.now(UTC)
    status = {"status": {"phase": "Running", "startTime": f"{begun:%Y-%m-%dT%H:%M:%SZ}"}}
    reply = await room.api.patch(room.path("pods", "x", "status"), status, MERGE)
    assert reply.status == 200, reply.text

    (holder,) = (await asking.resources())["pods"]["holders"]

    assert holder["freed_by"] == "deadline"
    over = datetime.fromisoformat(holder["freed_at"]) - begun
    assert 3598 <= over.total_seconds() <= 3600
    assert "wait up to 59m until Pod/x frees 1" in " ".join((await asking.page()).split())


@pytest.mark.long
async def test_long_lists_are_read_in_pages(room: Room, asking: Asking) -> None:
    """More objects than fit on one page are all listed; the number of listed objects is shown on stderr."""
    await room.api.until(room.path("configmaps", "kube-root-ca.crt"), bool)  # every namespace is given one
    await room.quota("q", {"count/configmaps": "9999"})
    there = len((await room.api.get(room.path("configmaps"))).json["items"])
    limit = asyncio.Semaphore(20)

    async def make(number: int) -> None:
        async with limit:
            await room.create("configmaps", {"metadata": {"name": f"c{number}"}})

    async with asyncio.TaskGroup() as makers:
        for number in range(1050):
            makers.create_task(make(number))
    page = await asking.page()

    assert f"listing configmaps: {1050 + there}" in page
    (found,) = (await asking.resources()).values()
    assert len(found["holders"]) == 1050 + there == int(found["used"])
    assert (found["leaked"], found["uncounted"]) == ("0", "0")


async def test_a_namespace_without_quotas_has_no_holders(room: Room, asking: Asking) -> None:
    """That is a valid answer, not an error."""
    assert f"Namespace {room.namespace} has no quota" in await asking.page()
    assert "quota q does not exist" in await asking.page("--quota", "q", code=2)


async def test_a_missing_namespace_is_an_error(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt namespace has no quotas either; that must not look like a valid answer."""
    arguments = ["holders", "-n", "taem", "--kubeconfig", str(server.kubeconfig())]
    assert await asyncio.to_thread(run, arguments) == 2
    assert "namespace taem does not exist" in capsys.readouterr().err


# -- rights: the sandbox denies nothing ---------


async def ask_as(user: str, server: Server, namespace: str, *options: str) -> int:
    """Run the command as a user with fewer rights."""
    arguments = ["holders", "-n", namespace, "--kubeconfig", str(server.kubeconfig(user)), *options]
    return await asyncio.to_thread(run, arguments)


@pytest.mark.parametrize("user", ["learner", "nobody"])
async def test_a_user_who_may_not_list_quotas_learns_what_to_ask_for(
    kubernetes: Server, real_namespace: str, user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with the verb and the role, and exit code 2."""
    code = await ask_as(user, kubernetes, real_namespace)
    (sentence,) = capsys.readouterr().err.splitlines()

    assert code == 2
    assert "may not list resourcequotas" in sentence
    assert "ask for a role that allows list on resourcequotas" in sentence
    assert "such as view" in sentence


async def test_a_kind_that_may_not_be_listed_is_left_out_and_reported(
    kubernetes: Server, real_api: Api, real_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The role view may list pods but no Secrets: only the pods' holders are listed; exit code 1."""
    room = Room(real_api, real_namespace)
    await room.quota("q", {"pods": "3", "secrets": "9"})
    await room.create("pods", pod("x"))
    await room.create("secrets", {"metadata": {"name": "key"}})

    code = await ask_as("creator", kubernetes, real_namespace, "--json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)

    assert code == 1
    found = {each["resource"]: each for each in document["quotas"][0]["resources"]}
    assert held(found["pods"]) == {"Pod/x": "1"}
    assert (found["secrets"]["used"], found["secrets"]["leaked"], found["secrets"]["unread"]) == ("1", "0", ["secrets"])
    assert "ask for a role that allows list on secrets" in document["unread"]["secrets"]
    assert await ask_as("creator", kubernetes, real_namespace) == 1
    assert "Not listed: this account may not list secrets" in capsys.readouterr().out

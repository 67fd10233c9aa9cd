"""Quota: when a charge is given back"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from tests.cluster.quotas.quota_room import JSON, Room, claim, pod
from tests.cluster.talking import JSON_PATCH, MERGE

EVERYTHING = {"pods": "9", "count/pods": "9", "requests.cpu": "9"}
NOTHING = {"count/pods": "0", "pods": "0", "requests.cpu": "0"}
ONE = {"count/pods": "1", "pods": "1", "requests.cpu": "1"}
ONLY_COUNTED = {"count/pods": "1", "pods": "0", "requests.cpu": "0"}


async def charged(room: Room, name: str = "x", **spec: JSON | str | int) -> None:
    """Create a quota, and a pod that is charged to it."""
    await room.quota("q", EVERYTHING)
    await room.create("pods", pod(name, {"cpu": "1"}, spec=dict(spec)))
    assert await room.used() == ONE


async def nudge(room: Room, used: JSON) -> None:
    """Cause a recount by a release in the namespace, and wait until ``used`` has these amounts."""
    await room.create("pods", pod("spare", {"cpu": "1"}))
    await room.delete("pods", "spare")
    await room.until_used(used)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_gives_back_everything_but_its_count(room: Room, phase: str) -> None:
    """`pods`, cpu and the rest are given back with the phase; `count/pods` only when the object is gone."""
    await charged(room)
    await room.finish("x", phase)
    await room.until_used(ONLY_COUNTED)

    await room.delete("pods", "x")
    await room.until_used(NOTHING)


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
async def test_a_pod_in_any_other_phase_keeps_its_charge(room: Room, phase: str) -> None:
    """A running pod keeps its whole charge, even at a recount."""
    await charged(room)
    await room.finish("x", phase)

    await nudge(room, ONE)


async def test_a_pod_without_a_node_is_given_back_as_soon_as_it_is_deleted(room: Room) -> None:
    """No node has to confirm: the pod is gone at once, even with a grace period."""
    await charged(room)
    await room.delete("pods", "x")

    await room.until_used(NOTHING)
    assert (await room.api.get(room.path("pods", "x"))).status == 404


async def test_a_pod_deleted_without_grace_is_given_back_at_once(room: Room) -> None:
    """With `gracePeriodSeconds=0` the server does not wait for the node."""
    await charged(room, nodeName="some-node")
    await room.delete("pods", "x", gracePeriodSeconds="0")

    await room.until_used(NOTHING)


async def test_a_terminating_pod_keeps_its_charge(room: Room) -> None:
    """During its grace period a pod on a node is charged as before."""
    await charged(room, nodeName="some-node")
    reply = await room.delete("pods", "x", gracePeriodSeconds="600")
    assert reply.json["metadata"]["deletionGracePeriodSeconds"] == 600

    await nudge(room, ONE)


async def test_a_terminating_pod_gives_back_when_it_finishes(room: Room) -> None:
    """Once the node reports a final phase, the grace period no longer matters."""
    await charged(room, nodeName="some-node")
    await room.delete("pods", "x", gracePeriodSeconds="600")
    await room.finish("x", "Succeeded")

    await room.until_used(ONLY_COUNTED)


@pytest.mark.long
async def test_an_expired_grace_period_counts_twice_and_only_at_the_next_release(room: Room) -> None:
    """A pod whose node never confirms stays charged until deletionTimestamp, which includes the grace period, plus the
    grace period again. Even then it is given back only by the next release in the namespace."""
    await room.quota("q", EVERYTHING)
    expired = None
    for grace in (4, 12, 40):  # a busy machine may be too slow to observe what happens within a short one
        expired = expired or await held_while_in_grace(room, grace)
    assert expired is not None, "too slow to tell"

    assert not await given_back(room, before=expired + 1.5)
    await nudge(room, ONLY_COUNTED)


async def held_while_in_grace(room: Room, grace: int) -> float | None:
    """Delete a pod on a node that never answers: it stays charged, release or not. Returns the time at which its grace
    period is over for the second time (Unix seconds), or None if this was checked too late; then the pod is removed."""
    await room.create("pods", pod("x", {"cpu": "1"}, spec={"nodeName": "lost-node"}))
    assert await room.used() == ONE
    reply = await room.delete("pods", "x", gracePeriodSeconds=str(grace))
    expired = datetime.fromisoformat(reply.json["metadata"]["deletionTimestamp"]).timestamp() + grace
    held = not await given_back(room, before=expired - grace + 0.5)
    await room.create("pods", pod("spare", {"cpu": "1"}))
    await room.delete("pods", "spare")
    quota = room.path("resourcequotas", "q")
    await room.api.until(quota, lambda found: bool(found["status"]["used"] in (ONE, ONLY_COUNTED)))
    held = held and await room.used() == ONE
    if datetime.now(UTC).timestamp() < expired:
        assert held
        return expired
    await room.delete("pods", "x", gracePeriodSeconds="0")
    await room.until_used(NOTHING)
    return None


async def given_back(room: Room, before: float) -> bool:
    """Whether everything but the count is given back before this time (Unix seconds)."""
    while datetime.now(UTC).timestamp() < before:
        if await room.used() == ONLY_COUNTED:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_finalizer_keeps_only_the_count(room: Room) -> None:
    """A deleted pod with a finalizer gives its cpu back; `count/pods` follows when the object is gone."""
    await room.quota("q", EVERYTHING)
    await room.create("pods", pod("x", {"cpu": "1"}, finalizers=["example.com/hold"]))
    reply = await room.delete("pods", "x", gracePeriodSeconds="0")
    assert reply.json["metadata"]["finalizers"] == ["example.com/hold"]
    await room.until_used(ONLY_COUNTED)

    await room.controller_is_current()
    freed = [{"op": "remove", "path": "/metadata/finalizers"}]
    assert (await room.api.patch(room.path("pods", "x"), freed, JSON_PATCH)).status == 200
    await room.until_used(NOTHING)


@pytest.mark.parametrize(
    ("resource", "body"),
    [("secrets", {"metadata": {"name": "x"}}), ("persistentvolumeclaims", claim("x"))],
)
async def test_a_finalizer_keeps_the_count_of_any_object(room: Room, resource: str, body: JSON) -> None:
    """A terminating object still exists and is counted."""
    await room.quota("q", {f"count/{resource}": "1"})
    held = {**body, "metadata": {"name": "x", "finalizers": ["example.com/hold"]}}
    await room.create(resource, held)
    await room.delete(resource, "x")
    assert "exceeded quota: q" in await room.refused(resource, {**body, "metadata": {"name": "y"}})

    await room.controller_is_current()
    freed = {"metadata": {"finalizers": None}}
    await room.api.patch(room.path(resource, "x"), freed, MERGE)
    await room.until_used({f"count/{resource}": "0"})


async def test_deleting_all_pods_gives_everything_back(room: Room) -> None:
    """Deleting the collection releases each pod."""
    await room.quota("q", EVERYTHING)
    for name in "abc":
        await room.create("pods", pod(name, {"cpu": "1"}))
    await room.controller_is_current()
    reply = await room.api.delete(room.path("pods"))
    assert reply.status == 200

    await room.until_used(NOTHING)


async def test_what_is_given_back_can_be_used_again(room: Room) -> None:
    """After a release the next pod fits."""
    await room.quota("q", {"pods": "1"})
    await room.create("pods", pod("x"))
    await room.refused("pods", pod("y"))
    await room.finish("x", "Succeeded")
    await room.until_used({"pods": "0"})

    await room.until_created("pods", pod("y"))
    await room.until_used({"pods": "1"})


async def test_a_pod_that_finished_before_its_quota_is_not_charged(room: Room) -> None:
    """A new quota counts only unfinished pods; `count/pods` counts all."""
    for name in "ab":
        await room.create("pods", pod(name, {"cpu": "1"}))
    await room.finish("a", "Failed")

    await room.quota_after("q", EVERYTHING, {"count/pods": "2", "pods": "1", "requests.cpu": "1"})


async def test_every_charge_and_release_changes_the_resource_version_of_a_quota(room: Room) -> None:
    """A watch of quotas shows each charge and each release as a separate event."""
    await room.quota("q", {"pods": "9"})
    await room.create("pods", pod("x"))
    async with room.api.watch(room.path("resourcequotas")) as events:
        seen = [(await anext(events))["object"]["status"]["used"]["pods"]]
        await room.create("pods", pod("y"))
        seen.append((await anext(events))["object"]["status"]["used"]["pods"])
        await room.delete("pods", "x")
        seen.append((await anext(events))["object"]["status"]["used"]["pods"])

    assert seen == ["1", "2", "1"]


@pytest.mark.only_kubernetes("The sandbox does not record who changed a status.")
async def test_the_quota_shows_whether_a_charge_or_a_recount_wrote_it(room: Room) -> None:
    """The manager that last changed a value is the API server after a charge, the quota controller after a recount."""

    async def recounted() -> frozenset[str]:
        return read_quota((await room.api.get(room.path("resourcequotas", "q"))).json).recounted

    await charged(room)
    assert await recounted() == frozenset()

    await room.delete("pods", "x")
    await room.until_used(NOTHING)
    assert await recounted() == EVERYTHING.keys()

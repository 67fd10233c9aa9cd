"""Quota: when what was charged is given back"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.charges.quotas import read_quota
from tests.cluster.quotas.quota_room import claim, pod
from tests.cluster.talking import JSON_PATCH, MERGE

if TYPE_CHECKING:
    from tests.cluster.quotas.quota_room import JSON, Room

EVERYTHING = {"pods": "9", "count/pods": "9", "requests.cpu": "9"}
NOTHING = {"count/pods": "0", "pods": "0", "requests.cpu": "0"}
ONE = {"count/pods": "1", "pods": "1", "requests.cpu": "1"}
ONLY_COUNTED = {"count/pods": "1", "pods": "0", "requests.cpu": "0"}


async def charged(room: Room, name: str = "x", **spec: JSON | str | int) -> None:
    """A quota, and a pod that it was charged for."""
    await room.quota("q", EVERYTHING)
    await room.create("pods", pod(name, {"cpu": "1"}, spec=dict(spec)))
    assert await room.used() == ONE


async def nudge(room: Room, used: JSON) -> None:
    """A release in the namespace: what is used is counted again, and must then be this."""
    await room.create("pods", pod("spare", {"cpu": "1"}))
    await room.delete("pods", "spare")
    await room.until_used(used)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_gives_back_all_but_its_count(room: Room, phase: str) -> None:
    """``pods``, cpu and the rest come back with the phase; ``count/pods`` only when the object is gone."""
    await charged(room)
    await room.finish("x", phase)
    await room.until_used(ONLY_COUNTED)

    await room.delete("pods", "x")
    await room.until_used(NOTHING)


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
async def test_a_pod_in_any_other_phase_holds_what_it_has(room: Room, phase: str) -> None:
    """Running gives nothing back, not even when everything is counted again."""
    await charged(room)
    await room.finish("x", phase)

    await nudge(room, ONE)


async def test_a_pod_that_no_node_has_is_given_back_as_soon_as_it_is_deleted(room: Room) -> None:
    """Without a node there is nobody to wait for: the pod is gone at once, whatever its grace."""
    await charged(room)
    await room.delete("pods", "x")

    await room.until_used(NOTHING)
    assert (await room.api.get(room.path("pods", "x"))).status == 404


async def test_a_pod_deleted_without_grace_is_given_back_at_once(room: Room) -> None:
    """With ``gracePeriodSeconds=0`` nobody waits for the node."""
    await charged(room, nodeName="some-node")
    await room.delete("pods", "x", gracePeriodSeconds="0")

    await room.until_used(NOTHING)


async def test_a_pod_that_is_being_deleted_holds_what_it_has(room: Room) -> None:
    """Within its grace a pod on a node is charged as before."""
    await charged(room, nodeName="some-node")
    reply = await room.delete("pods", "x", gracePeriodSeconds="600")
    assert reply.json["metadata"]["deletionGracePeriodSeconds"] == 600

    await nudge(room, ONE)


async def test_a_pod_that_is_being_deleted_gives_back_when_it_finishes(room: Room) -> None:
    """The node says that it has ended: its phase counts, not its grace."""
    await charged(room, nodeName="some-node")
    await room.delete("pods", "x", gracePeriodSeconds="600")
    await room.finish("x", "Succeeded")

    await room.until_used(ONLY_COUNTED)


@pytest.mark.long
async def test_an_expired_grace_counts_twice_and_only_at_the_next_release(room: Room) -> None:
    """A pod that its node never confirms is held until deletionTimestamp, which already holds the grace, plus the
    grace once more; and even then nothing fires by itself: the namespace's next release gives it back."""
    await room.quota("q", EVERYTHING)
    expired = None
    for grace in (4, 12, 40):  # a busy machine may be too slow to tell what happens within a short one
        expired = expired or await held_while_in_grace(room, grace)
    assert expired is not None, "too slow to tell"

    assert not await given_back(room, before=expired + 1.5)
    await nudge(room, ONLY_COUNTED)


async def held_while_in_grace(room: Room, grace: int) -> float | None:
    """Delete a pod on a node that never answers: the charge stays, release or not. Returns when its grace is over
    for the second time (Unix seconds), or None where the look came too late; then the pod is taken away."""
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
    """Whether all but the count is given back before this time (Unix seconds)."""
    while datetime.now(UTC).timestamp() < before:
        if await room.used() == ONLY_COUNTED:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_finalizer_holds_the_count_and_nothing_else(room: Room) -> None:
    """A deleted pod that a finalizer holds gives its cpu back; ``count/pods`` comes with the object's end."""
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
    [("configmaps", {"metadata": {"name": "x"}}), ("persistentvolumeclaims", claim("x"))],
)
async def test_a_finalizer_holds_the_count_of_any_object(room: Room, resource: str, body: JSON) -> None:
    """What is being deleted is still there, and counted."""
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
    """A deletion of the whole list releases each."""
    await room.quota("q", EVERYTHING)
    for name in "abc":
        await room.create("pods", pod(name, {"cpu": "1"}))
    await room.controller_is_current()
    reply = await room.api.delete(room.path("pods"))
    assert reply.status == 200

    await room.until_used(NOTHING)


async def test_what_is_given_back_can_be_taken_again(room: Room) -> None:
    """After a release the next pod fits."""
    await room.quota("q", {"pods": "1"})
    await room.create("pods", pod("x"))
    await room.refused("pods", pod("y"))
    await room.finish("x", "Succeeded")
    await room.until_used({"pods": "0"})

    await room.until_created("pods", pod("y"))
    await room.until_used({"pods": "1"})


async def test_a_finished_pod_that_existed_before_its_quota_is_not_charged(room: Room) -> None:
    """A new quota counts only what has not ended, and ``count/pods`` all that is there."""
    for name in "ab":
        await room.create("pods", pod(name, {"cpu": "1"}))
    await room.finish("a", "Failed")

    await room.quota_after("q", EVERYTHING, {"count/pods": "2", "pods": "1", "requests.cpu": "1"})


async def test_the_resource_version_of_a_quota_changes_with_every_charge_and_release(room: Room) -> None:
    """A watch of quotas shows each charge and each release as an event of its own."""
    await room.quota("q", {"pods": "9"})
    await room.create("pods", pod("x"))
    async with room.api.watch(room.path("resourcequotas")) as events:
        seen = [(await anext(events))["object"]["status"]["used"]["pods"]]
        await room.create("pods", pod("y"))
        seen.append((await anext(events))["object"]["status"]["used"]["pods"])
        await room.delete("pods", "x")
        seen.append((await anext(events))["object"]["status"]["used"]["pods"])

    assert seen == ["1", "2", "1"]


@pytest.mark.only_kubernetes("The sandbox does not say who changed a status.")
async def test_the_quota_tells_a_charge_from_a_recount(room: Room) -> None:
    """A value belongs to who changed it last: the API server by a charge, the quota controller by a recount."""

    async def recounted() -> frozenset[str]:
        return read_quota((await room.api.get(room.path("resourcequotas", "q"))).json).recounted

    await charged(room)
    assert await recounted() == frozenset()

    await room.delete("pods", "x")
    await room.until_used(NOTHING)
    assert await recounted() == EVERYTHING.keys()

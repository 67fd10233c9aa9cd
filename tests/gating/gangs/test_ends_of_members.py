"""A gang that keeps its room hears of its members' ends: by their label or their owners, and after a watch was cut."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.k8s.gate.creates.creation import OptionError
from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.gate.gangs import gang_of
from tests.gating.gangs.test_owned_pods import BORN, JOB, PODS, SPEC, Cluster, cluster, owned_by, owner
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import elapse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backoff_ctrl.k8s.gate.gangs import AdmittedGang

LABEL = "of-an-earlier-process"
LIVING = {**JOB, "metadata": {"name": "whole", "uid": "job-1", "creationTimestamp": BORN}}
MEMBER = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": SPEC}


@asynccontextmanager
async def keeping(at: Cluster, count: int = PODS, **options: Any) -> AsyncIterator[AdmittedGang]:
    """Keep the room of a living Job's pods."""
    asked = gang_of("team", [(MEMBER, count)], made_from=LIVING, keeps=True, **options)
    async with at.gate.gang(asked) as admitted:
        yield admitted


def put(at: Cluster, name: str, label: str = "", phase: str = "Running", **metadata: Any) -> None:
    """A pod of the Job changes; it carries a gang's label, if any."""
    labels = {GANG_LABEL: label} if label else {}
    body = owned_by(owner("job-1"), labels=labels, **metadata) | {"status": {"phase": phase}}
    at.server.put("pods", "team", name, body)


def counts(admitted: AdmittedGang) -> tuple[int, int]:
    """Return how many members live, and how many may still be made."""
    return admitted.drawn, admitted.undrawn


@in_virtual_time
async def test_a_pod_that_finishes_or_is_deleted_gives_its_room_back_to_its_gang() -> None:
    """It is known by its label; later changes of a pod that has finished mean nothing."""
    async with cluster() as at, keeping(at) as admitted:
        for name in ("p-0", "p-1"):
            put(at, name, admitted.label)
        await elapse(1)
        assert counts(admitted) == (2, 0)
        put(at, "p-0", admitted.label, "Failed")
        await elapse(1)
        assert counts(admitted) == (1, 1)
        put(at, "p-0", admitted.label, "Failed")
        at.server.remove("pods", "team", "p-1")
        await elapse(1)
        assert counts(admitted) == (0, 2)
        put(at, "p-2", admitted.label)
        await elapse(1)
        assert counts(admitted) == (1, 1)
        assert not at.seen.ledger.counts.failed_open


@in_virtual_time
@pytest.mark.parametrize("labelled", [True, False])
async def test_a_deleted_pod_gives_its_room_back_as_soon_as_no_quota_charges_it(labelled: bool) -> None:
    """Without a grace period that is at once, though the finalizer of the Job controller keeps it for a second."""
    deleted = {"deletionTimestamp": BORN, "finalizers": ["batch.kubernetes.io/job-tracking"]}
    async with cluster() as at, keeping(at) as admitted:
        label = admitted.label if labelled else ""
        put(at, "p-0", label)
        await elapse(1)
        put(at, "p-0", label, "Pending", **deleted, deletionGracePeriodSeconds=30)
        await elapse(1)
        assert counts(admitted) == (1, 1)
        put(at, "p-0", label, "Pending", **deleted, deletionGracePeriodSeconds=0)
        await elapse(1)
        assert counts(admitted) == (0, 2)
        at.server.remove("pods", "team", "p-0")
        await elapse(1)
        assert counts(admitted) == (0, 2)
        assert not at.seen.ledger.counts.failed_open


@in_virtual_time
async def test_what_ended_while_the_watch_was_cut_is_known_when_it_has_listed_again() -> None:
    """One pod has finished, and one is gone."""
    async with cluster() as at, keeping(at, 3) as admitted:
        for number in range(3):
            put(at, f"p-{number}", admitted.label)
        await elapse(1)
        at.server.cut(plural="pods")
        at.server.remove("pods", "team", "p-0")
        put(at, "p-1", admitted.label, "Succeeded")
        at.server.forget_history()
        await elapse(60)
        assert counts(admitted) == (1, 2)


@in_virtual_time
@pytest.mark.parametrize("cut", [False, True])
async def test_members_that_are_known_by_their_owners_are_followed_too(cut: bool) -> None:
    """Their metadata does not say that they have finished: after a cut they are read again."""
    async with cluster() as at, keeping(at) as admitted:
        put(at, "p-0")
        put(at, "p-1")
        await elapse(1)
        assert counts(admitted) == (2, 0)
        if cut:
            at.server.cut(plural="pods")
            put(at, "p-0", phase="Failed")
            at.server.remove("pods", "team", "p-1")
            at.server.forget_history()
            await elapse(60)
            assert counts(admitted) == (0, 2)
        else:
            at.server.remove("pods", "team", "p-1")
            await elapse(1)
            assert counts(admitted) == (1, 1)


@in_virtual_time
async def test_pods_with_the_label_are_not_looked_for_by_their_owners() -> None:
    """Though such a gang lasts: one that carries the label shows that it is passed on."""
    async with cluster() as at, keeping(at) as admitted:
        put(at, "p-0", admitted.label)
        await elapse(60)
        assert at.pod_streams == 3  # the Job is not ours: whether its template has the label is not known

    async with cluster() as at, at.gate.gang(gang_of("team", [(JOB, 1)], keeps=True)) as admitted:
        metadata = {"uid": "job-1", "creationTimestamp": BORN}
        admitted.stored({**admitted.labelled("jobs.batch", JOB), "metadata": metadata}, "jobs.batch")
        put(at, "p-0", admitted.label)
        await elapse(60)
        assert (admitted.drawn, at.pod_streams) == (1, 2)


@in_virtual_time
async def test_after_a_restart_it_adopts_what_lives_and_hears_of_its_end() -> None:
    """It keeps its label, so that those pods are known; one that is read as a pod that ended is none."""
    async with cluster() as at:
        for number in range(PODS):
            put(at, f"p-{number}", LABEL)
        async with keeping(at, PODS + 1, standing=True, label=LABEL) as admitted:
            assert admitted.label == LABEL
            for number in range(PODS):
                body = owned_by(owner("job-1"), labels={GANG_LABEL: LABEL})
                assert admitted.adopt(at.server.uid("pods", "team", f"p-{number}"), body)
            assert counts(admitted) == (PODS, 1)
            await elapse(1)
            assert counts(admitted) == (PODS, 1)
            at.server.remove("pods", "team", "p-0")
            await elapse(1)
            assert counts(admitted) == (PODS - 1, 2)
            assert not admitted.adopt("odd", {"spec": 5})


@in_virtual_time
async def test_it_outlasts_its_block_and_ends_with_its_object() -> None:
    """Or when it is given back; its members are forgotten."""
    async with cluster() as at:
        async with keeping(at) as admitted:
            put(at, "p-0", admitted.label)
            await elapse(1)
        assert counts(admitted) == (1, 1)
        assert at.seen.ledger.gangs.is_member(uid := at.server.uid("pods", "team", "p-0"))
        at.seen.ledger.gangs.object_ended("job-1")
        assert admitted.over
        assert not at.seen.ledger.gangs.is_member(uid)


@in_virtual_time
async def test_it_shrinks_and_grows() -> None:
    """What was asked for beside becomes part of it, with the pods that are known by then."""
    async with cluster() as at, keeping(at, 3) as admitted:
        put(at, "p-0", admitted.label)
        await elapse(1)
        admitted.resize([2])
        assert counts(admitted) == (1, 1)
        async with keeping(at, 2) as more:
            put(at, "p-1", more.label)
            await elapse(1)
            admitted.absorb(more)
            assert more.over
        assert counts(admitted) == (2, 2)
        at.server.remove("pods", "team", "p-1")
        await elapse(1)
        assert counts(admitted) == (1, 3)
        with pytest.raises(GangError):
            admitted.resize([1, 1])
        with pytest.raises(GangError):
            admitted.absorb(more)
        assert not at.seen.ledger.counts.failed_open


@in_virtual_time
async def test_where_nothing_is_reserved_nothing_is_kept() -> None:
    """The gate does not enforce: all of it does nothing."""
    async with cluster() as at:
        at.seen.ledger.mode = lambda _: "off"
        async with keeping(at) as admitted:
            admitted.resize([1])
            admitted.absorb(admitted)
            assert not admitted.adopt("a", MEMBER)
            assert admitted.over


def test_a_limit_makes_no_sense_for_it() -> None:
    """It would be without effect."""
    with pytest.raises(OptionError, match="leave out the limit"):
        gang_of("team", [(MEMBER, 1)], keeps=True, limit=5)


OTHERS = {**JOB, "metadata": {"name": "others", "uid": "job-2", "creationTimestamp": BORN}}


@asynccontextmanager
async def of_a_tenant(at: Cluster, label: str = "") -> AsyncIterator[AdmittedGang]:
    """Keep the room of a Job that runs in another namespace."""
    asked = gang_of("tenant", [(MEMBER, PODS)], made_from=OTHERS, keeps=True, standing=True, label=label)
    async with at.gate.gang(asked) as admitted:
        yield admitted


@in_virtual_time
@pytest.mark.parametrize("labelled", [True, False])
async def test_pods_of_another_namespace_are_no_members_whatever_they_carry(labelled: bool) -> None:
    """Who may write there names the label of a gang, or the uid of its object as the owner."""
    async with cluster() as at, keeping(at) as admitted, of_a_tenant(at) as own:
        labels = {GANG_LABEL: admitted.label} if labelled else {}
        at.server.put("pods", "tenant", "strange", owned_by(owner("job-1"), labels=labels))
        at.server.put("pods", "tenant", "own", owned_by(owner("job-2"), labels={GANG_LABEL: own.label}))
        await elapse(10)
        assert counts(own) == (1, PODS - 1)  # its namespace is watched
        assert counts(admitted) == (0, PODS)


@in_virtual_time
async def test_a_gang_of_another_namespace_with_the_same_label_takes_no_members() -> None:
    """The annotation of a Job that was let in names its gang, and its user may write there."""
    async with cluster() as at, keeping(at) as admitted:
        async with of_a_tenant(at, admitted.label) as forged:
            put(at, "p-0", admitted.label)
            await elapse(1)
            assert (counts(admitted), counts(forged)) == ((1, PODS - 1), (0, PODS))
        put(at, "p-1", admitted.label)
        await elapse(1)
        assert counts(admitted) == (PODS, 0)

"""Pods that others make for a gang are known by their owners where they lack the gang's label. In virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.expected_pods import LATE
from backoff_ctrl.k8s.gate.gangs import gang_of
from backoff_ctrl.k8s.gate.observing.gangs import BURST, CHECK, RATE
from backoff_ctrl.k8s.gate.observing.quotas import QuotaWatch
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import Observed, ScriptedServer, elapse, observed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from backoff_ctrl.k8s.gate.gangs import AdmittedGang

PODS = 2
BORN = "2026-05-01T12:00:00Z"
SPEC = {"containers": [{"name": "c", "image": "i"}]}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "whole"},
    "spec": {"parallelism": PODS, "completions": PODS, "template": {"spec": SPEC}},
}
JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "set"},
    "spec": {"replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": JOB["spec"]}}]},
}


def owned_by(*owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A pod's body with these owners."""
    return {
        "kind": "Pod",
        "spec": SPEC,
        "metadata": {"ownerReferences": list(owners), "creationTimestamp": BORN, **metadata},
    }


def owner(uid: str, kind: str = "Job", name: str = "whole", version: str = "batch/v1") -> dict[str, Any]:
    """A controller in ``ownerReferences``."""
    return {"uid": uid, "kind": kind, "name": name, "apiVersion": version, "controller": True}


class Cluster:
    """A watched namespace with room for everything."""

    def __init__(self, server: ScriptedServer, seen: Observed) -> None:
        self.server = server
        self.seen = seen
        self.gate = AsyncGate(ledger=seen.ledger)

    @asynccontextmanager
    async def gang(self, manifest: dict[str, Any]) -> AsyncIterator[AdmittedGang]:
        """Admit the gang of one manifest, whose own create is drawn by hand."""
        async with self.gate.gang(gang_of("team", [(manifest, 1)])) as admitted:
            assert admitted.gang is not None
            yield admitted

    def stored(self, admitted: AdmittedGang, uid: str, resource: str = "jobs.batch", created: str = BORN) -> None:
        """The gang's object was stored, without the gang's label."""
        admitted.stored({"metadata": {"uid": uid, "creationTimestamp": created}}, resource)

    def pod(self, name: str, *owners: dict[str, Any], **metadata: Any) -> None:
        """A pod appears."""
        self.server.put("pods", "team", name, owned_by(*owners, **metadata))

    @property
    def pod_streams(self) -> int:
        """The watches of pods that are open."""
        return self.server.open_streams["pods", "team"]


class WatchesGangs(Subscriber):
    """Passes gangs on to the watch."""

    def __init__(self, watch: QuotaWatch) -> None:
        """Nothing is passed on yet."""
        self._watch = watch

    def gang_made(self, namespace: str) -> None:
        """Watch its pods."""
        self._watch.add_gang(namespace)


@asynccontextmanager
async def cluster(margin: float = 60.0) -> AsyncIterator[Cluster]:
    """Start to watch it."""
    server = ScriptedServer()
    server.quota(hard="100")
    async with observed(server) as seen:
        seen.watch.gang_margin = margin
        seen.ledger.subscribe(WatchesGangs(seen.watch))
        await elapse(0.1)
        yield Cluster(server, seen)


@in_virtual_time
async def test_the_pods_of_a_job_are_known_without_a_label() -> None:
    """Their controller is what the gang created: each takes its part out of what is reserved, once."""
    async with cluster() as at, at.gang(JOB) as admitted:
        at.stored(admitted, "job-1")
        at.pod("stranger", owner("job-2", name="other"))
        for number in range(PODS + 1):
            assert admitted.drawn == number
            at.pod(f"p-{number}", owner("job-1"))
            await elapse(0.5)
            at.pod(f"p-{number}", owner("job-1"))  # changed: counts once, and is read once
            await elapse(0.5)
            assert at.server.count("get", "pods") == number + 1
            if admitted.over:
                break
        assert (number, admitted.drawn, admitted.over) == (PODS - 1, PODS, True)


@in_virtual_time
async def test_pods_that_were_there_before_the_watch_began_count() -> None:
    """Its first list has them."""
    async with cluster() as at, at.gang(JOB) as admitted:
        at.pod("p-0", owner("job-1"), creationTimestamp="2026-05-01T11:59:30Z")  # by a server whose clock is late
        at.stored(admitted, "job-1")
        await elapse(0.5)
        assert admitted.drawn == 1


@in_virtual_time
async def test_a_pod_that_is_told_before_the_answer_to_its_owners_create_counts() -> None:
    """The watch may be quicker than the answer: then the pod is nobody's at first."""
    async with cluster() as at:
        async with at.gang(JOB) as first:
            at.stored(first, "job-1")
            await elapse(0.5)
        async with at.gang(JOB) as second:
            at.pod("p-0", owner("job-2"))
            await elapse(0.5)
            assert second.drawn == 0
            at.stored(second, "job-2")
            await elapse(0.5)
            assert second.drawn == 1


@in_virtual_time
async def test_a_chain_of_owners_is_looked_up_once() -> None:
    """JobSet, Job, pods: one look-up of the Job for all of its pods."""
    async with cluster() as at, at.gang(JOB_SET) as admitted:
        at.stored(admitted, "set-1", "jobsets.jobset.x-k8s.io")
        reference = owner("set-1", "JobSet", "set", "jobset.x-k8s.io/v1alpha2")
        at.server.put("jobs", "team", "whole", owned_by(reference))
        above = owner(at.server.uid("jobs", "team", "whole"))
        for number in range(PODS):
            at.pod(f"p-{number}", above)
        await elapse(1)
        assert admitted.drawn == PODS
        assert at.server.count("get", "jobs") == 1


@in_virtual_time
async def test_a_pod_may_own_the_others() -> None:
    """A SparkApplication's driver makes the executors: its owner is known from the watch, and nothing is looked up."""
    async with cluster() as at, at.gang(JOB) as admitted:
        at.stored(admitted, "app-1")
        at.pod("driver", owner("app-1", "SparkApplication", "app", "sparkoperator.k8s.io/v1beta2"))
        at.pod("executor", owner(at.server.uid("pods", "team", "driver"), "Pod", "driver", "v1"))
        await elapse(1)
        assert admitted.drawn == PODS
        assert at.server.count("get", "pods") == PODS  # each is read whole


@in_virtual_time
async def test_an_owner_of_the_same_name_but_another_uid_proves_nothing() -> None:
    """It was deleted and made again: whose the first one was is no longer known."""
    async with cluster() as at, at.gang(JOB_SET) as admitted:
        at.stored(admitted, "set-1", "jobsets.jobset.x-k8s.io")
        at.server.put("jobs", "team", "whole", owned_by(owner("set-1", "JobSet", "set")))
        at.pod("p-0", owner("an-earlier-one"))
        await elapse(1)
        assert admitted.drawn == 0


@in_virtual_time
async def test_a_pod_that_was_replaced_before_it_was_read_counts_once() -> None:
    """A StatefulSet makes the next one under the same name."""
    async with cluster() as at, at.gang(JOB) as admitted:
        at.stored(admitted, "job-1")
        await elapse(0.5)
        at.pod("p-0", owner("job-1"))
        at.server.remove("pods", "team", "p-0")
        at.pod("p-0", owner("job-1"))
        await elapse(1)
        assert admitted.drawn == 1


@in_virtual_time
async def test_pods_that_are_gone_cost_no_look_up() -> None:
    """Neither at once, nor when the next gang has created something."""
    async with cluster() as at, at.gang(JOB_SET) as admitted:
        at.stored(admitted, "set-1", "jobsets.jobset.x-k8s.io")
        await elapse(0.5)
        at.pod("gone", owner("n-1"))
        at.server.remove("pods", "team", "gone")
        await elapse(1)
        assert at.server.count("get", "jobs") == 0


@in_virtual_time
async def test_a_circle_of_owners_ends() -> None:
    """Whoever writes pods can make one."""
    async with cluster() as at, at.gang(JOB_SET) as admitted:
        at.stored(admitted, "set-1", "jobsets.jobset.x-k8s.io")
        at.server.put("jobs", "team", "whole", owned_by())
        circle = owner(at.server.uid("jobs", "team", "whole"))
        at.server.put("jobs", "team", "whole", owned_by(circle, circle))
        at.pod("p-0", circle)
        await elapse(1)
        assert (admitted.drawn, at.server.count("get", "jobs")) == (0, 1)


@in_virtual_time
async def test_what_a_gang_created_is_forgotten_with_it() -> None:
    """When all pods are made, when it is given back and the next one comes, and when the engine had to be replaced."""
    async with cluster() as at:
        ledger = at.seen.ledger
        async with at.gang(JOB) as made:
            at.stored(made, "job-1")
            for number in range(PODS):
                at.pod(f"p-{number}", owner("job-1"))
            await elapse(1)
            assert (made.over, ledger.gangs.label_of("job-1")) == (True, None)
        async with at.gang(JOB) as left:
            at.stored(left, "job-2")
            left.give_back()
        async with at.gang(JOB) as last:
            assert ledger.gangs.label_of("job-2") is None
            assert ledger.gangs.look_for("team") is not None
            ledger.engine.act(lambda *_: 1 / 0)
            assert ledger.gangs.look_for("team") is None
            assert not last.over


@in_virtual_time
async def test_where_pods_may_not_be_watched_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again, more and more rarely."""
    async with cluster() as at:
        at.server.forbidden.add(("pods", "team"))
        async with at.gang(JOB):
            await elapse(250)
    assert len([record for record in caplog.records if "the pods of gangs in team" in record.message]) == 1


@in_virtual_time
async def test_look_ups_are_few() -> None:
    """Pods older than what the gang created cost none, and those of strangers one for each owner, at a limited rate."""
    async with cluster() as at, at.gang(JOB_SET) as admitted:
        at.stored(admitted, "set-1", "jobsets.jobset.x-k8s.io")
        await elapse(0.5)
        for number in range(300):
            at.pod(f"old-{number}", owner(f"o-{number}"), creationTimestamp="2026-05-01T11:00:00Z")
        await elapse(5)
        assert at.server.count("get", "jobs") == 0
        for number in range(300):
            at.pod(f"a-{number}", owner(f"n-{number % 100}"))
        await elapse(2)
        assert 0 < at.server.count("get", "jobs") <= BURST + 2 * RATE + 1
        await elapse(100)
        assert at.server.count("get", "jobs") == 100


@in_virtual_time
async def test_after_a_restart_what_a_living_object_still_lacks_is_reserved_and_known_by_its_owner() -> None:
    """It waits for nothing and outlasts its block; the label of its pods is of a gang that nobody knows any more."""
    async with cluster() as at:
        living = {**JOB, "metadata": {"uid": "job-1", "creationTimestamp": BORN}}
        member = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": SPEC}
        asked = gang_of("team", [(member, PODS)], standing=True, made_from=living)
        async with at.gate.gang(asked) as admitted:
            assert (admitted.undrawn, admitted.drawn) == (PODS, 0)
        assert admitted.undrawn == PODS
        at.pod("p-0", owner("job-1"), labels={"backoff-ctrl.dev/gang": "of an earlier process"})
        await elapse(1)
        assert (admitted.undrawn, admitted.drawn) == (PODS - 1, 1)
        at.pod("p-1", owner("job-1"))
        await elapse(1)
        assert admitted.over


@in_virtual_time
async def test_where_owners_may_not_be_read_that_is_said_once_and_the_label_remains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """403: nothing is asked again, and pods with the label count."""
    async with cluster() as at, at.gang(JOB_SET) as admitted:
        at.server.forbidden.add(("jobs", "team"))
        at.stored(admitted, "set-1", "jobsets.jobset.x-k8s.io")
        for number in range(20):
            at.pod(f"a-{number}", owner(f"n-{number}"))
        await elapse(5)
        assert (at.server.count("get", "jobs"), admitted.drawn) == (1, 0)
        at.pod("labelled", owner("n-99"), labels={"backoff-ctrl.dev/gang": admitted.label})
        await elapse(1)
        assert admitted.drawn == 1
    said = [record.message for record in caplog.records if "may not be read" in record.message]
    assert len(said) == 1
    assert said[0].startswith(
        "jobs of batch/v1 in team may not be read, so the pods that a gang's objects make through"
    )


@in_virtual_time
async def test_pods_whose_operator_drops_the_label_are_known_late() -> None:
    """The gang's object carries the label, its pods do not: after a while they are told by their owner."""
    async with cluster() as at, at.gang(JOB) as admitted:
        metadata = {"uid": "job-1", "creationTimestamp": BORN}
        admitted.stored({**admitted.labelled("jobs.batch", JOB), "metadata": metadata}, "jobs.batch")
        at.pod("p-0", owner("job-1"))
        await elapse(LATE / 2)
        assert (admitted.drawn, at.pod_streams) == (0, 2)  # the ends of pods, and pods with the label
        await elapse(LATE + CHECK)
        assert (admitted.drawn, at.pod_streams) == (1, 3)


@in_virtual_time
async def test_the_watch_ends_with_the_last_gang_after_a_margin() -> None:
    """And begins again with the next one."""
    async with cluster(margin=20.0) as at:
        alone = at.pod_streams
        for _ in range(2):
            async with at.gang(JOB) as admitted:
                at.stored(admitted, f"job-{admitted.label}")
                await elapse(60)
                assert at.pod_streams == alone + 2
                admitted.give_back()
                await elapse(10)
                assert at.pod_streams == alone + 2
            await elapse(20 + 2 * CHECK)
            assert at.pod_streams == alone

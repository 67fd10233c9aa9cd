"""Suspended JobSets under a quota, with JobSet's own controller on a real control plane: let in as wholes."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, KINDS, STAY_SUSPENDED, WAIT, WAITS_FOR
from tests.cluster.admitting.jobs_at_work import BATCH, Jobs, admitting, job
from tests.cluster.admitting.jobset.controller import GROUP, NAME_LABEL, managed
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
JOB_SET = next(each for each in KINDS if each.kind == "JobSet")
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


@pytest.fixture
async def sets(bed: Bed, jobset_programs: GoPrograms, tmp_path: Path) -> AsyncIterator[Jobs]:
    """The JobSets of a namespace; their controller works."""
    async with Api(bed.server) as api, managed(api, jobset_programs, tmp_path):
        name = f"test-{secrets.token_hex(5)}"
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        yield Jobs(api, name, JOB_SET, NAME_LABEL)


def replicated(name: str, replicas: int = 1, pods: int = 1, **rest: Any) -> JSON:
    """Some equal Jobs of so many pods each, which fail with their first pod; the Jobs carry the label, too."""
    spec = job(name, parallelism=pods, completions=pods, backoffLimit=0)["spec"]
    del spec["suspend"]
    template = {"metadata": {"labels": {WAIT: "true"}}, "spec": spec}
    return {"name": name, "replicas": replicas, "template": template, **rest}


def job_set(name: str, *parts: JSON, **spec: Any) -> JSON:
    """A suspended JobSet: without ``parts`` a driver and two Jobs of two workers, five pods of 1 CPU."""
    replicated_jobs = [*parts] or [replicated("driver"), replicated("workers", 2, 2)]
    metadata = {"name": name, "labels": {WAIT: "true"}}
    spec = {"suspend": True, "replicatedJobs": replicated_jobs, **spec}
    return {"apiVersion": GROUP, "kind": "JobSet", "metadata": metadata, "spec": spec}


async def finish(sets: Jobs, name: str, number: int) -> None:
    """Let all pods of a JobSet succeed, and wait until it is complete."""
    for pod in await sets.pods_of(name, number):
        await sets.end(pod)
    await sets.ended(name)


async def of_attempt(sets: Jobs, attempt: str, number: int) -> list[JSON]:
    """Wait until so many pods live that were made after so many restarts."""

    def those(listed: JSON) -> list[JSON]:
        return [each for each in listed["items"] if each["metadata"]["labels"][ATTEMPT] == attempt]

    return those(await sets.api.until(of_core(sets.namespace, "pods"), lambda listed: len(those(listed)) == number))


def of_set(listed: JSON, name: str) -> list[JSON]:
    return [each for each in listed["items"] if each["metadata"]["labels"][NAME_LABEL] == name]


async def test_job_sets_are_let_in_as_wholes_one_after_another_and_their_jobs_are_left_alone(
    bed: Bed, sets: Jobs
) -> None:
    await sets.limit(5)
    async with admitting(bed.server, namespaces=(sets.namespace,)) as found:
        for number in range(3):
            await sets.create(job_set(f"s{number}"))
            if not number:
                await sets.pods_of("s0", 5)
        await sets.until("s2", lambda _: found.states()["left alone"] == 9)
        for name in ("s0", "s1", "s2"):
            pods = await sets.pods_of(name, 5)
            assert await sets.running() == [name]
            assert len({pod["metadata"]["labels"][GANG_LABEL] for pod in pods}) == 1
            await finish(sets, name, 5)
        assert found.counts.admitted == {JOB_SET.resource: 3}
    children = made(await sets.api.get(of_group(BATCH, sets.namespace, "jobs")))["items"]
    assert len(children) == 9
    assert not any(ADMITTED in each["metadata"].get("annotations", {}) for each in children)
    assert await sets.refusals() == []


async def test_its_pods_draw_on_the_room_that_is_reserved(bed: Bed, sets: Jobs) -> None:
    """Beside two JobSets whose pods live there is room for exactly what the quota has left, in one line with Jobs."""
    await sets.limit(12)
    jobs = Jobs(sets.api, sets.namespace)
    async with admitting(bed.server, namespaces=(sets.namespace,)):
        for name in ("a", "b"):
            await sets.create(job_set(name))
            await sets.pods_of(name, 5)
        await jobs.create(job("small", parallelism=2, completions=2))
        await jobs.pods_of("small", 2)
        await sets.create(job_set("c"))
        assert await sets.running() == ["a", "b"]
        await finish(sets, "a", 5)
        await sets.pods_of("c", 5)
    assert await sets.refusals() == []


async def test_a_job_set_that_restarts_keeps_its_room(bed: Bed, sets: Jobs) -> None:
    """Its Jobs and pods are all deleted and made anew, though another one waits for the room that this leaves."""
    await sets.limit(5)
    async with admitting(bed.server, namespaces=(sets.namespace,)) as found:
        await sets.create(job_set("first", failurePolicy={"maxRestarts": 2}))
        pod, *_ = await sets.pods_of("first", 5)
        await sets.create(job_set("second"))
        await sets.until("second", lambda _: found.states()["waiting"] == 1)
        for attempt in ("1", "2"):
            await sets.end(pod, "Failed")
            pod, *_ = await of_attempt(sets, attempt, 5)
            assert await sets.running() == ["first"]
        await sets.end(pod, "Failed")  # once too often
        await sets.ended("first")
        await finish(sets, "second", 5)
    assert await sets.refusals() == []


async def test_room_for_what_starts_later_is_reserved_from_the_start(bed: Bed, sets: Jobs) -> None:
    """Nobody can hold back the workers once the preparation is complete."""
    await sets.limit(4)
    after = [{"name": "prepare", "status": "Complete"}]
    async with admitting(bed.server, namespaces=(sets.namespace,)) as found:
        await sets.create(job_set("first", replicated("prepare"), replicated("workers", 2, 2, dependsOn=after)))
        (pod,) = await sets.pods_of("first", 1)
        await sets.create(job_set("second", replicated("only", 2)))
        await sets.until("second", lambda _: found.states()["waiting"] == 1)
        await sets.end(pod)
        await sets.pods_of("first", 4)
        assert await sets.running() == ["first"]
        await finish(sets, "first", 4)
        await finish(sets, "second", 2)
    assert await sets.refusals() == []


async def test_a_job_set_that_is_deleted_gives_its_room_back(bed: Bed, sets: Jobs) -> None:
    await sets.limit(5)
    async with admitting(bed.server, namespaces=(sets.namespace,)):
        await sets.create(job_set("first"))
        await sets.pods_of("first", 5)
        await sets.create(job_set("second"))
        await sets.create(job_set("never"))
        assert (await sets.api.delete(sets.path("never"))).status == 200
        assert (await sets.api.delete(sets.path("first"))).status == 200
        # The garbage collector learns of a new kind within 30 seconds.
        await sets.api.until(of_core(sets.namespace, "pods"), lambda listed: not of_set(listed, "first"))
        await sets.pods_of("second", 5)
        await finish(sets, "second", 5)
    assert await sets.refusals() == []


async def test_a_job_set_that_its_user_resumes_is_followed(bed: Bed, sets: Jobs) -> None:
    """It has the next room without waiting; suspended to stay so, it gives that room back."""
    await sets.limit(5)
    async with admitting(bed.server, namespaces=(sets.namespace,)):
        await sets.create(job_set("first"))
        await sets.pods_of("first", 5)
        await sets.create(job_set("second"))
        await sets.create(job_set("small", replicated("only")))
        await sets.patch("small", {"spec": {"suspend": False}})
        await sets.until("small", lambda body: ADMITTED in body["metadata"].get("annotations", {}))
        await finish(sets, "first", 5)
        await sets.api.until(of_core(sets.namespace, "pods"), lambda listed: of_set(listed, "small"))
        assert await sets.running() == ["small"]
        stays = {"metadata": {"annotations": {STAY_SUSPENDED: "true"}}}
        await sets.patch("small", {"spec": {"suspend": True}, **stays})
        await sets.pods_of("second", 5)
        assert await sets.running() == ["second"]
    assert all("small-only" in each for each in await sets.refusals())  # its user let it in without room


async def test_whoever_leads_next_keeps_the_room_of_a_job_set_that_restarts(bed: Bed, sets: Jobs) -> None:
    """It restarts while nobody leads; its pods of then and of later are known as its own."""
    await sets.limit(5)
    async with admitting(bed.server, namespaces=(sets.namespace,)):
        await sets.create(job_set("first", failurePolicy={"maxRestarts": 2}))
        pod, *_ = await sets.pods_of("first", 5)
        await sets.create(job_set("second"))
    before = (await sets.get("first"))["metadata"]["annotations"][ADMITTED]
    await sets.end(pod, "Failed")
    async with admitting(bed.server, namespaces=(sets.namespace,)) as found:
        pod, *_ = await of_attempt(sets, "1", 5)
        await sets.end(pod, "Failed")
        await of_attempt(sets, "2", 5)
        assert await sets.running() == ["first"]
        await finish(sets, "first", 5)
        await finish(sets, "second", 5)
        assert found.counts.admitted == {JOB_SET.resource: 1}
    assert (await sets.get("first"))["metadata"]["annotations"][ADMITTED] == before
    assert await sets.refusals() == []


async def test_a_job_set_that_could_never_fit_says_so(bed: Bed, sets: Jobs) -> None:
    await sets.limit(4)
    async with admitting(bed.server, namespaces=(sets.namespace,)) as found:
        await sets.create(job_set("huge"))
        seen = await sets.until("huge", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        message = json.loads(seen["metadata"]["annotations"][WAITS_FOR])["message"]
        assert "5" in message, message
        assert [(each["name"], each["state"]) for each in found.waiting()] == [("huge", "refused")]
        await sets.limit(5)
        await sets.pods_of("huge", 5)
    assert await sets.refusals() == []

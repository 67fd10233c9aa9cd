"""Suspended Jobs under a quota, on a real control plane: let in in order, with room of their own, nothing harmed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.kube.charges.parts import Part, parts_of
from backoff_ctrl.k8s.workloads.admitting.kinds import (
    ADMITTED,
    JOB,
    MIN_PARALLELISM,
    PARALLELISM,
    STAY_SUSPENDED,
    SUSPENDED_BY,
    WAITS_FOR,
    WEBHOOK,
)
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.control_plane.bed import Bed
from tests.cluster.objects import made, of_core
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long


async def test_jobs_are_let_in_one_by_one_in_their_order_and_the_job_controller_is_never_refused(
    bed: Bed, jobs: Jobs
) -> None:
    await jobs.limit(2)
    for number in range(5):
        await jobs.create(job(f"j{number}"))
        await asyncio.sleep(1.05)  # the server's times have whole seconds
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found:
        for number in range(5):
            for name in (f"j{each}" for each in range(number, min(number + 2, 5))):
                await jobs.pods_of(name, 1)
            assert await jobs.running() == sorted(f"j{each}" for each in range(number, min(number + 2, 5)))
            (pod,) = await jobs.pods(f"j{number}")
            await jobs.end(pod)
            await jobs.until(f"j{number}", lambda body: body["status"].get("completionTime"))
        assert found.counts.admitted["jobs.batch"] == 5
    assert await jobs.refusals() == []


async def test_what_nobody_asks_for_and_what_its_user_suspends_is_left_alone(bed: Bed, jobs: Jobs) -> None:
    """An unlabelled Job runs or stays suspended as without us; one whose user keeps it suspended stays so, too."""
    await jobs.limit(10)
    await jobs.create(job("asks"))
    await jobs.create(job("by-webhook", asks=False, annotations={SUSPENDED_BY: WEBHOOK}))
    await jobs.create(job("suspended", asks=False))
    await jobs.create(job("plain", asks=False, suspend=False))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found:
        for name in ("asks", "by-webhook", "plain"):
            await jobs.pods_of(name, 1)
        kept = {"metadata": {"annotations": {STAY_SUSPENDED: "true"}}}
        await jobs.patch("asks", {**kept, "spec": {"suspend": True}})
        await jobs.pods_of("asks", 0)
        await jobs.create(job("last"))
        await jobs.pods_of("last", 1)

        assert await jobs.running() == ["by-webhook", "last", "plain"]
        assert found.counts.admitted["jobs.batch"] == 3
        assert ADMITTED not in (await jobs.get("plain"))["metadata"].get("annotations", {})
        await jobs.patch("asks", {"metadata": {"annotations": {STAY_SUSPENDED: None}}})
        await jobs.pods_of("asks", 1)


async def test_a_jobs_room_stays_its_own_until_the_job_makes_no_more_pods(bed: Bed, jobs: Jobs) -> None:
    """A pod that fails is made again in its own room, though another Job waits for it; one that has succeeded makes
    way as soon as the rest of the Job needs less.
    """
    await jobs.limit(2)
    await jobs.create(job("first", parallelism=2, completions=3))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        one, other = await jobs.pods_of("first", 2)
        await jobs.create(job("second"))
        await jobs.end(one, "Failed")
        await jobs.until("first", lambda body: body["status"].get("failed"))
        assert len(await jobs.pods_of("first", 2)) == 2
        await jobs.end(other)  # one of three: two are left
        await jobs.until("first", lambda body: body["status"].get("succeeded"))
        third, fourth = await jobs.pods_of("first", 2)
        assert await jobs.running() == ["first"]
        await jobs.end(third)  # one is left
        await jobs.pods_of("second", 1)
        await jobs.end(fourth)
        await jobs.until("first", lambda body: body["status"].get("completionTime"))
    assert await jobs.refusals() == []


async def test_whoever_leads_next_starts_nothing_twice_and_forgets_nothing(bed: Bed, jobs: Jobs) -> None:
    """The room of what runs is its own again, though its pods fail while nobody leads."""
    await jobs.limit(2)
    await jobs.create(job("first", parallelism=2, completions=2))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        pods = await jobs.pods_of("first", 2)
        await jobs.create(job("second"))
    before = json.loads((await jobs.get("first"))["metadata"]["annotations"][ADMITTED])
    await jobs.end(pods[0], "Failed")
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found:
        await jobs.until("first", lambda body: body["status"].get("failed"))
        living = await jobs.pods_of("first", 2)
        assert await jobs.running() == ["first"]
        await jobs.end(living[0])
        await jobs.pods_of("second", 1)
        await jobs.end(living[1])
        await jobs.until("first", lambda body: body["status"].get("completionTime"))
        assert found.counts.admitted["jobs.batch"] == 1
    assert json.loads((await jobs.get("first"))["metadata"]["annotations"][ADMITTED]) == before
    assert await jobs.refusals() == []


async def test_a_job_that_others_resume_has_its_room_without_waiting(bed: Bed, jobs: Jobs) -> None:
    await jobs.limit(1)
    await jobs.create(job("first"))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        (pod,) = await jobs.pods_of("first", 1)
        await jobs.create(job("third"))
        await jobs.create(job("second"))
        await jobs.patch("second", {"spec": {"suspend": False}})
        await jobs.until("second", lambda body: ADMITTED in body["metadata"].get("annotations", {}))
        await jobs.end(pod)
        await jobs.until("first", lambda body: body["status"].get("completionTime"))
        (pod,) = await jobs.pods_of("second", 1)
        await jobs.end(pod)
        await jobs.pods_of("third", 1)
    assert not [refusal for refusal in await jobs.refusals() if "third" in refusal], "it was let in beside the second"


async def test_an_elastic_job_begins_with_what_fits_and_grows(bed: Bed, jobs: Jobs) -> None:
    await jobs.limit(3)
    await jobs.create(job("wide", parallelism=4, completions=8, annotations={MIN_PARALLELISM: "2"}))
    await jobs.create(job("wrong", parallelism=2, completions=2, annotations={MIN_PARALLELISM: "9"}))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        await jobs.pods_of("wide", 3)
        assert await jobs.running() == ["wide"]
        await jobs.limit(4)
        await jobs.until("wide", lambda body: body["spec"]["parallelism"] == 4)
        await jobs.pods_of("wide", 4)
        assert PARALLELISM not in (await jobs.get("wide"))["metadata"]["annotations"]
    assert await jobs.refusals() == []


async def test_a_job_grows_by_a_few_patches_not_by_one_a_pod(bed: Bed, jobs: Jobs) -> None:
    """Where no quota counts, one a pod would be sent without end; the generation of a Job counts them."""
    await jobs.limit(3, pods=999)
    body = job("wide", parallelism=600, annotations={MIN_PARALLELISM: "1"})
    body["spec"]["template"]["spec"]["serviceAccountName"] = "none"  # none of these pods is stored
    await jobs.create(body)
    generations = []
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        await jobs.until("wide", lambda body: not body["spec"]["suspend"])
        await jobs.until("wide", lambda body: body["spec"]["parallelism"] == 3)
        for number in (400, 600):
            if number == 400:
                await jobs.limit(number, pods=999)
            else:
                made(await jobs.api.delete(of_core(jobs.namespace, "resourcequotas", "q")))
            grown = await jobs.until("wide", lambda body, number=number: body["spec"]["parallelism"] == number)
            generations.append(grown["metadata"]["generation"])
    assert generations[0] <= 4 + 10, generations
    assert generations[1] - generations[0] <= 4, generations


async def test_people_are_told_what_a_job_waits_for_and_that_it_never_fits(bed: Bed, jobs: Jobs) -> None:
    await jobs.limit(1)
    await jobs.create(job("first"))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found:
        await jobs.pods_of("first", 1)
        await jobs.create(job("second"))
        await jobs.create(job("huge", parallelism=5, completions=5))
        seen = await jobs.until("second", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        said = json.loads(seen["metadata"]["annotations"][WAITS_FOR])
        assert (said["quota"], said["resource"], said["left"], said["place"]) == ("q", "requests.cpu", "0", 1)
        seen = await jobs.until("huge", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        assert "5" in json.loads(seen["metadata"]["annotations"][WAITS_FOR])["message"]
        assert {(each["name"], each["state"]) for each in found.waiting()} == {
            ("second", "waiting"),
            ("huge", "refused"),
        }
        await jobs.limit(7)
        await jobs.pods_of("huge", 5)
        assert WAITS_FOR not in (await jobs.get("huge"))["metadata"]["annotations"]


async def test_limit_ranges_count_and_modes_let_everything_in(bed: Bed, jobs: Jobs) -> None:
    """Pods that name no CPU are charged the default of the LimitRange; where the mode is off nothing waits."""
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "2"}}]}
    made(await jobs.api.post(of_core(jobs.namespace, "limitranges"), {"metadata": {"name": "l"}, "spec": limits}))
    await jobs.limit(3)
    bare = job("bare", parallelism=2, completions=2)
    del bare["spec"]["template"]["spec"]["containers"][0]["resources"]
    await jobs.create(bare)
    await jobs.create(job("small"))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        await jobs.pods_of("small", 1)
        assert await jobs.running() == ["small"]
    ledger = Ledger(RuntimeAlarms(), mode="off")
    async with admitting(bed.server, gate=AsyncGate(ledger=ledger), namespaces=(jobs.namespace,), kinds=(JOB,)) as off:
        await jobs.pods_of("bare", 1)  # the quota refuses the other
        assert off.counts.ungated["jobs.batch"] == 1


async def test_who_may_lead_no_more_lets_nothing_in(bed: Bed, jobs: Jobs) -> None:
    """Another process may lead by now, and has its own belief of the room."""
    await jobs.limit(1)
    await jobs.create(job("first"))
    leads, asked = False, asyncio.Event()

    def certain() -> bool:
        asked.set()
        return leads

    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,), certain=certain) as found:
        await asyncio.wait_for(asked.wait(), PATIENCE)
        assert found.states()["granted"] == 1
        assert await jobs.running() == []
        leads = True
        await jobs.pods_of("first", 1)


async def test_a_job_that_others_resume_while_it_is_let_in_takes_its_room_once(bed: Bed, jobs: Jobs) -> None:
    """Its pods are known though none carries the label of its gang."""
    await jobs.limit(2)
    await jobs.create(job("first"))
    leads, asked = False, asyncio.Event()

    def certain() -> bool:
        asked.set()
        return leads

    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,), certain=certain):
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await jobs.patch("first", {"spec": {"suspend": False}})
        await jobs.pods_of("first", 1)
        leads = True
        await jobs.until("first", lambda body: ADMITTED in body["metadata"].get("annotations", {}))
        await jobs.create(job("second"))
        await jobs.pods_of("second", 1)


async def test_a_job_gets_the_pods_that_it_grew_by_though_the_first_patch_failed(bed: Bed, jobs: Jobs) -> None:
    await jobs.limit(2)
    await jobs.create(job("wide", parallelism=4, completions=8, annotations={MIN_PARALLELISM: "2"}))
    leads, refused = True, asyncio.Event()

    def certain() -> bool:
        if not leads:
            refused.set()
        return leads

    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,), certain=certain):
        await jobs.pods_of("wide", 2)
        leads = False
        await jobs.limit(3)
        await asyncio.wait_for(refused.wait(), PATIENCE)
        leads = True
        await jobs.pods_of("wide", 3)


async def test_an_error_of_ours_lets_a_job_in_and_harms_no_other(
    bed: Bed, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails open: it is counted as ungated."""

    def fails(body: Mapping[str, Any]) -> tuple[Part, ...]:
        if body["metadata"]["name"] == "bad":
            raise ZeroDivisionError
        return parts_of(body, resource="jobs.batch")

    await jobs.limit(5)
    for name in ("bad", "good"):
        await jobs.create(job(name))
    kind = replace(JOB, makes=fails)
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(kind,)) as found:
        for name in ("bad", "good"):
            await jobs.pods_of(name, 1)
        assert "ZeroDivisionError" in caplog.text
        assert (found.counts.admitted["jobs.batch"], found.counts.ungated["jobs.batch"]) == (1, 1)

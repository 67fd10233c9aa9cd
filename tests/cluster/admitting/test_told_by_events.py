"""An event on an object that does not wait as its user asked: it says why, and what to do."""

from __future__ import annotations

import asyncio

import pytest

from backoff_ctrl.k8s.workloads.admitting.kinds import (
    JOB,
    KINDS,
    MIN_PARALLELISM,
    PRIORITY,
    SUSPENDED_BY,
    WAIT,
    WEBHOOK,
    AdmissibleKind,
)
from backoff_ctrl.k8s.workloads.admitting.priorities import MAX_PRIORITY
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import definition, establish, fresh_group, retire
from tests.cluster.objects import made, of_core
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

RAY_JOB = next(kind for kind in KINDS if kind.kind == "RayJob")


async def told(jobs: Jobs, name: str, reason: str) -> str:
    """Wait for the event on an object, and return what it says."""
    for _ in range(500):
        events = made(await jobs.api.get(of_core(jobs.namespace, "events")))["items"]
        for each in events:
            if (each["involvedObject"]["name"], each["reason"]) == (name, reason):
                return str(each["message"])
        await asyncio.sleep(0.02)
    raise AssertionError(f"there is no event {reason} on {name}")


async def test_a_kind_whose_operator_is_too_old_to_suspend_it(api: Api, server: Server, namespace: str) -> None:
    """The webhook has suspended it, but the server drops a field that its definition does not have."""
    group = fresh_group()
    await establish(api, definition(group))
    thing = AdmissibleKind(f"{group}/v1", "Thing", "things", makes=lambda _: ())
    jobs = Jobs(api, namespace, thing)
    await api.until(jobs.path(), lambda listed: "items" in listed)
    async with admitting(server, namespaces=(namespace,), kinds=(thing,)):
        metadata = {"name": "old", "annotations": {SUSPENDED_BY: WEBHOOK}}
        await jobs.create(
            {
                "apiVersion": thing.api_version,
                "kind": "Thing",
                "metadata": metadata,
                "spec": {"size": 1, "suspend": True},
            }
        )
        said = await told(jobs, "old", "NotWaiting")
    assert "suspend" not in (await jobs.get("old"))["spec"]
    await retire(api, f"things.{group}")
    assert "the definition of Thing in this cluster has no field spec.suspend" in said
    assert "Install a version of its operator" in said


async def test_a_ray_job_that_keeps_its_cluster(api: Api, server: Server, namespace: str) -> None:
    jobs = await served(api, namespace, RAY_JOB)
    async with admitting(server, namespaces=(namespace,), kinds=(RAY_JOB,)):
        await jobs.create(
            {
                "apiVersion": RAY_JOB.api_version,
                "kind": "RayJob",
                "metadata": {"name": "keeps", "labels": {WAIT: "true"}},
                "spec": {"entrypoint": "true", "rayClusterSpec": {"headGroupSpec": {}}},
            }
        )
        assert "set spec.shutdownAfterJobFinishes" in await told(jobs, "keeps", "NotWaiting")


@pytest.mark.parametrize(
    ("annotation", "value", "sentence"),
    [
        (MIN_PARALLELISM, "9", f"{MIN_PARALLELISM} is 9, above its parallelism of 1: it waits for 1"),
        (MIN_PARALLELISM, "two", f"{MIN_PARALLELISM} must be a whole number of 1 or more, not 'two'"),
        (
            PRIORITY,
            "100",
            f"{PRIORITY} is 100 but counts as 0: more has to be allowed by the annotation {MAX_PRIORITY}",
        ),
        (PRIORITY, "high", f"{PRIORITY} must be a whole number, not 'high': its PriorityClass counts"),
    ],
)
async def test_an_annotation_that_does_not_count_as_it_stands(
    api: Api, server: Server, namespace: str, annotation: str, value: str, sentence: str
) -> None:
    """The Job waits all the same."""
    jobs = Jobs(api, namespace)
    await jobs.limit(0)
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)) as found:
        await jobs.create(job("asks", annotations={annotation: value}))
        assert sentence in await told(jobs, "asks", "AnnotationIgnored")
        assert [each["name"] for each in found.waiting()] == ["asks"]

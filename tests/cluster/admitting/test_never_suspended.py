"""What can't be suspended, though it is asked for, runs: an event on it says why, and what to do."""

from __future__ import annotations

import asyncio

import pytest

from backoff_ctrl.k8s.admitting.kinds import KINDS, SUSPENDED_BY, WAIT, WEBHOOK, AdmissibleKind
from tests.cluster.admitting.jobs_at_work import Jobs, admitting
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import definition, establish, fresh_group
from tests.cluster.objects import made, of_core
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

RAY_JOB = next(kind for kind in KINDS if kind.kind == "RayJob")


async def told(jobs: Jobs, name: str) -> str:
    """Wait for the event on an object, and return what it says."""
    for _ in range(500):
        events = made(await jobs.api.get(of_core(jobs.namespace, "events")))["items"]
        if found := [each["message"] for each in events if each["involvedObject"]["name"] == name]:
            return str(found[0])
        await asyncio.sleep(0.02)
    raise AssertionError(f"there is no event on {name}")


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
        said = await told(jobs, "old")
    assert "suspend" not in (await jobs.get("old"))["spec"]
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
        assert "set spec.shutdownAfterJobFinishes" in await told(jobs, "keeps")

"""Who leads next begins with what the API server shows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.sandbox import Sandbox
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB
from tests.admitting.objects import merged
from tests.cluster.admitting.jobs_at_work import job
from tests.kit.patience import PATIENCE


async def test_what_runs_has_its_room_before_anybody_who_waits() -> None:
    """Its pods have just ended, and its next ones are not made yet: nothing in the quota shows that it needs room."""
    async with Sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"requests.cpu": "4"})
        runs = job("b-runs", suspend=False, annotations={ADMITTED: "{}"}, parallelism=2, completions=4)
        runs["metadata"]["ownerReferences"] = owners(sandbox, 6)  # who stands above it has to be asked for
        for body in (job("a-waits", parallelism=4, completions=4), runs):
            sandbox.create(sandbox.kind("jobs", "batch"), "team", body)
        place = find_place(sandbox.url, None, None, "team")
        async with Admitting(place.configuration, namespaces=("team",), kinds=(JOB,), events=False) as admitting:
            leading = asyncio.create_task(admitting.lead())
            waits = await until_it_waits(admitting)
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading
        assert (waits["reason"], waits["left"]) == ("quota", "2")
        assert not admitting.counts.admitted


async def test_what_was_let_in_while_its_watch_was_cut_has_its_room_too() -> None:
    """A watch that breaks often comes back later and later: whoever leads next reads all once more."""
    async with Sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"requests.cpu": "4"})
        for name in ("a-waits", "b-runs"):
            sandbox.create(sandbox.kind("jobs", "batch"), "team", job(name, parallelism=3, completions=3))
        place = find_place(sandbox.url, None, None, "team")
        async with Admitting(place.configuration, namespaces=("team",), kinds=(JOB,), events=False) as admitting:
            await admitting._read.wait()
            await admitting._stop_following()  # none of its watches comes back
            path = "/apis/batch/v1/namespaces/team/jobs/b-runs"
            headers = {"Content-Type": "application/merge-patch+json"}
            async with aiohttp.ClientSession(sandbox.url) as session:
                answer = await session.patch(path, json={"spec": {"suspend": False}}, headers=headers)
                assert answer.status == 200
            leading = asyncio.create_task(admitting.lead())
            waits = await until_it_waits(admitting)
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading
        assert (waits["name"], waits["left"]) == ("a-waits", "1")


@pytest.mark.parametrize(("suspended", "reported"), [(False, 0), (True, 1)])
async def test_the_answer_to_our_own_patch_is_reported_only_where_it_shows_no_running_job(
    suspended: bool, reported: int
) -> None:
    """Its case goes on by the answer. But a webhook of others may suspend it at once: it waits again."""
    async with Sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"requests.cpu": "0"})
        stored = sandbox.create(sandbox.kind("jobs", "batch"), "team", job("first"))
        place = find_place(sandbox.url, None, None, "team")
        async with Admitting(place.configuration, namespaces=("team",), kinds=(JOB,), events=False) as admitting:
            leading = asyncio.create_task(admitting.lead())
            await until_it_waits(admitting)
            answer = merged(stored, {"metadata": {"resourceVersion": "999999"}, "spec": {"suspend": suspended}})
            assert admitting._noted(JOB, answer, resumed=True).is_suspended is suspended
            assert len(admitting._dirty) == reported
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading


def owners(sandbox: Sandbox, number: int) -> list[dict[str, Any]]:
    """Make a chain of objects, each controlled by the one before; return the reference to the last."""
    above: list[dict[str, Any]] = []
    for each in range(number):
        metadata = {"name": f"o{each}", "ownerReferences": above}
        uid = sandbox.create(sandbox.kind("configmaps"), "team", {"metadata": metadata})["metadata"]["uid"]
        above = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{each}", "uid": uid, "controller": True}]
    return above


async def until_it_waits(admitting: Admitting) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            assert not admitting.counts.admitted
            for each in admitting.waiting():
                if each.get("quota"):
                    return each
            await asyncio.sleep(0)

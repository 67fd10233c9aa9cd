"""An API server that is away for a moment decides about no object: what it did not say is asked again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backoff_ctrl.k8s.admitting.kinds import KINDS, PRIORITY
from backoff_ctrl.k8s.admitting.surroundings import MAX_PRIORITY, Surroundings
from backoff_ctrl.k8s.cluster.finding import find_place
from backoff_ctrl.k8s.cluster.session import ClusterSession
from backoff_ctrl.k8s.plugins.manager.objects import Objects
from backoff_ctrl.k8s.watching.informer import ClusterSource
from tests.cluster.admitting.jobs_at_work import job
from tests.scripted_server import scripted_server

OWNER = {"apiVersion": "batch/v1", "kind": "Flow", "name": "f", "uid": "u1", "controller": True}
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u2", "controller": True}


@asynccontextmanager
async def surroundings(answer: Callable[[], tuple[int, Any]]) -> AsyncIterator[Surroundings]:
    with scripted_server(lambda _: answer()) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            yield Surroundings(Objects(session), ClusterSource(session), KINDS)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_who_stands_above_is_asked_until_it_is_said(status: int) -> None:
    """Else a JobSet's Job would wait by itself, beside its JobSet."""
    there = {"apiVersion": "v1", "kind": "Flow", "metadata": {"name": "f", "uid": "u1", "ownerReferences": [JOB_SET]}}
    answers: list[tuple[int, Any]] = [(status, {}), (status, {}), (200, there)]
    async with surroundings(lambda: answers.pop(0)) as around:
        chain = await around.above({"metadata": {"namespace": "team", "ownerReferences": [OWNER]}})
    assert [owner.kind for owner in chain] == ["Flow", "JobSet"]
    assert not answers


@pytest.mark.parametrize("status", [403, 404])
async def test_what_may_not_be_read_ends_the_chain_and_is_remembered(status: int) -> None:
    answers: list[tuple[int, Any]] = [(status, {})]
    async with surroundings(lambda: answers.pop(0)) as around:
        for _ in range(2):
            chain = await around.above({"metadata": {"namespace": "team", "ownerReferences": [OWNER]}})
            assert [owner.kind for owner in chain] == ["Flow"]


TOO_HIGH = (
    f"{PRIORITY} is 9 but counts as 7: more has to be allowed by the annotation {MAX_PRIORITY} of a ResourceQuota of "
    "its namespace"
)


async def test_whether_a_priority_is_allowed_is_asked_until_it_is_said() -> None:
    """Else a Job would be let in ungated, or lose its place, because a read failed."""
    quotas = {"items": [{"metadata": {"annotations": {MAX_PRIORITY: "7"}}}, {"metadata": {}}]}
    answers: list[tuple[int, Any]] = [(503, {}), (500, {}), (200, quotas)]
    async with surroundings(lambda: answers.pop(0)) as around:
        assert await around.priority(job("first", annotations={PRIORITY: "9"}), ()) == (7, TOO_HIGH)
    assert not answers

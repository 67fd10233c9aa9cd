"""What waits is listed and released through the API server, with no operator; an operator that comes leaves it so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from backoff_ctrl.k8s.admitting.jobs import JobsError, list_jobs, release
from backoff_ctrl.k8s.admitting.kinds import JOB, RELEASED_BY
from backoff_ctrl.k8s.cluster.finding import find_place
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.talking import Api

pytestmark = pytest.mark.long


@pytest.fixture
async def jobs(real_api: Api, real_namespace: str) -> AsyncIterator[Jobs]:
    yield Jobs(real_api, real_namespace)


@pytest.fixture
def configuration(kubernetes: Server) -> Any:
    return find_place(None, str(kubernetes.kubeconfig("tester")), None, None).configuration


async def test_what_waits_is_released_by_name_or_all_of_it(kubernetes: Server, jobs: Jobs, configuration: Any) -> None:
    await jobs.limit(1)
    for name in ("a", "b", "c"):
        await jobs.create(job(name))
    await jobs.create(job("held", asks=False))
    here = (jobs.namespace,)

    assert [each.name for each in await list_jobs(configuration, namespaces=here)] == ["a", "b", "c"]
    with pytest.raises(JobsError, match="nothing of the name held waits"):
        await release(configuration, "held", by="me", namespaces=here)
    assert [each.error for each in await release(configuration, "job/b", by="me", namespaces=here)] == [""]
    assert (await jobs.get("b"))["metadata"]["annotations"][RELEASED_BY] == "me"
    assert await jobs.running() == ["b"]
    async with admitting(kubernetes, namespaces=here, kinds=(JOB,)):
        await jobs.pods_of("b", 1)
        assert await jobs.running() == ["b"]
    assert len(await release(configuration, by="me", namespaces=here)) == 2
    assert await jobs.running() == ["a", "b", "c"]
    assert await list_jobs(configuration, namespaces=here) == []
    made(await jobs.api.delete(f"/api/v1/namespaces/{jobs.namespace}"))


async def test_whoever_may_not_list_is_told_so(kubernetes: Server) -> None:
    configuration = find_place(None, str(kubernetes.kubeconfig("nobody")), None, None).configuration
    with pytest.raises(JobsError, match=r"can't list jobs\.batch in all namespaces: 403"):
        await list_jobs(configuration)

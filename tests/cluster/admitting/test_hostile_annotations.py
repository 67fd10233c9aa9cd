"""Annotations that a user writes on a Job: they harm no other Job, and cause no internal error."""

from __future__ import annotations

import asyncio
import json

import pytest

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.workloads.admitting.jobs import list_jobs, release
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB, MIN_PARALLELISM, PARALLELISM, PRIORITY, WAITS_FOR
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long

DEEP = "[" * 100_000
LONG = "1" * 5_000
LIES = json.dumps(
    {
        "name": "another",
        "namespace": "kube-system",
        "kind": "Pod",
        "place": 10**4000,
        "estimate": "soon",
        "quota": [[1]],
    }
)


@pytest.mark.parametrize(
    "annotation", [{MIN_PARALLELISM: LONG}, {MIN_PARALLELISM: "1", PARALLELISM: LONG}, {PRIORITY: LONG}]
)
async def test_a_number_without_end_lets_no_job_in(
    api: Api, server: Server, namespace: str, annotation: dict[str, str]
) -> None:
    """It waits in its turn, as without the annotation."""
    jobs = Jobs(api, namespace)
    await jobs.limit(0)
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)) as found:
        await jobs.create(job("odd", annotations=annotation))
        await jobs.until("odd", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        assert found.counts.ungated.total() == 0


async def test_a_job_of_more_pods_than_a_gang_may_have_overtakes_no_other(
    api: Api, server: Server, namespace: str
) -> None:
    """It is refused until it asks for fewer; then it waits in its turn."""
    jobs = Jobs(api, namespace)
    await jobs.limit(0)
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)) as found:
        await jobs.create(job("huge", parallelism=100_001, completions=100_001))
        async with asyncio.timeout(PATIENCE):
            while found.states()["refused"] != 1:  # noqa: ASYNC110 - a count, polled
                await asyncio.sleep(0.05)
        (listed,) = found.waiting()
        assert "100001 objects of one kind" in json.dumps(listed)
        assert (await jobs.get("huge"))["spec"]["suspend"]
        assert found.counts.ungated.total() == 0
        made(await api.patch(jobs.path("huge"), {"spec": {"parallelism": 1}}, MERGE))
        await jobs.until("huge", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))


@pytest.mark.parametrize("said", [DEEP, "{" * 100_000, "5", LIES], ids=["deep", "objects", "number", "lies"])
async def test_a_waiting_job_is_listed_and_released_with_any_annotation(
    api: Api, server: Server, namespace: str, said: str
) -> None:
    jobs, configuration = (
        Jobs(api, namespace),
        find_place(None, str(server.kubeconfig("tester")), None, None).configuration,
    )
    await jobs.create(job("odd", annotations={WAITS_FOR: said}))
    await jobs.create(job("plain"))
    found = (await list_jobs(configuration, namespaces=(namespace,), kinds=(JOB,))).jobs
    assert [(each.label, dict(each.waits_for)) for each in found] == [
        (f"Job {namespace}/{name}", {}) for name in ("odd", "plain")
    ]
    assert [each.document()["name"] for each in found] == ["odd", "plain"]
    freed = await release(configuration, by="me", namespaces=(namespace,), kinds=(JOB,))
    assert [each.error for each in freed] == ["", ""]


async def test_a_running_job_is_followed_with_any_annotation(api: Api, server: Server, namespace: str) -> None:
    """A new leader reads there with what it was let in."""
    jobs = Jobs(api, namespace)
    await jobs.limit(1)
    await jobs.create(job("odd", suspend=False, annotations={ADMITTED: DEEP}))
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)) as found:
        await jobs.create(job("next"))
        await jobs.until("next", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        assert found.gate.ledger.counts.failed_open == 0

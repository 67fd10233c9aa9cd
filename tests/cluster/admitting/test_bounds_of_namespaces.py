"""An object beyond the bound of its namespace, or of one object: an event says what to do, and all others start."""

from __future__ import annotations

from typing import Any, Final

import pytest

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.watching.shares import BESIDE, Shares, size_of
from backoff_ctrl.k8s.workloads.admitting import admitting as leading
from backoff_ctrl.k8s.workloads.admitting.jobs import list_jobs, release
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB, WAITS_FOR
from backoff_ctrl.k8s.workloads.admitting.shape import shaped
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.admitting.test_told_by_events import told
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
CONTAINERS: Final = 1_500
"""So many are more than the operator keeps of one object."""


def large(name: str) -> JSON:
    body = job(name)
    spec = body["spec"]["template"]["spec"]
    spec["containers"] = [{**spec["containers"][0], "name": f"c{each}"} for each in range(CONTAINERS)]
    return body


def is_let_in(body: JSON) -> bool:
    return body["spec"]["suspend"] is False and ADMITTED in body["metadata"].get("annotations", {})


def is_told(body: JSON) -> bool:
    return WAITS_FOR in body["metadata"].get("annotations", {})


async def test_a_job_that_is_too_large_gets_an_event_with_a_remedy_and_is_released(
    api: Api, server: Server, namespace: str
) -> None:
    jobs, here = Jobs(api, namespace), (namespace,)
    configuration = find_place(None, str(server.kubeconfig("tester")), None, None).configuration
    await jobs.limit(10)
    await jobs.create(large("large"))
    async with admitting(server, namespaces=here, kinds=(JOB,)) as found:
        said = await told(jobs, "large", "TooLarge")
        assert "split it, or release it (backoff-ctrl jobs release)" in said
        await jobs.create(job("small"))
        await jobs.until("small", is_let_in)
        await jobs.until("large", is_told)
        (listed,) = (await list_jobs(configuration, namespaces=here)).jobs
        assert (listed.name, listed.document()["reason"]) == ("large", "refused")
        assert "more than the operator keeps of one object" in listed.document()["message"]
        assert found.waiting()[0]["message"] == listed.document()["message"]
        assert found.beyond() == [f"Job {namespace}/large: {listed.document()['message']}"]
        assert [each.error for each in await release(configuration, by="me", namespaces=here)] == [""]
        stored = await jobs.until("large", lambda body: body["spec"]["suspend"] is False)
        assert len(stored["spec"]["template"]["spec"]["containers"]) == CONTAINERS
        assert "no room is kept for the pods that it still makes" in await told(jobs, "large", "NotWaiting")


async def test_one_that_is_created_anew_and_smaller_is_let_in(api: Api, server: Server, namespace: str) -> None:
    jobs = Jobs(api, namespace)
    await jobs.limit(10)
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)) as found:
        await jobs.create(large("large"))
        await told(jobs, "large", "TooLarge")
        made(await api.delete(jobs.path("large"), {"propagationPolicy": "Background"}))
        await api.until(jobs.path(), lambda listed: not listed["items"])
        await jobs.create(job("large"))
        await jobs.until("large", is_let_in)
        assert found.beyond() == []


async def test_a_job_beyond_the_bound_of_its_namespace_is_let_in_once_others_have_gone(
    api: Api, server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again, since the watch does not report it."""
    monkeypatch.setattr(leading, "RETRY", 0.2)
    jobs = Jobs(api, namespace)
    await jobs.limit(1)
    stored = await jobs.create(job("a"))
    room_for_two = 2 * (size_of(shaped(JOB, stored), 1 << 30) + BESIDE) + BESIDE
    await jobs.create(job("b"))
    shares = Shares(of_namespace=room_for_two, guaranteed=0)
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,), shares=shares) as found:
        await jobs.until("a", is_let_in)
        await jobs.create(job("c"))
        said = await told(jobs, "c", "TooLarge")
        assert "it waits until other objects have gone" in said
        assert len(found.beyond()) == 1
        for name in ("a", "b"):
            await jobs.until(name, is_let_in)
            made(await api.delete(jobs.path(name), {"propagationPolicy": "Foreground"}))
        await jobs.until("c", is_let_in)
        assert found.beyond() == []

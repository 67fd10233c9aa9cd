"""The simulated Job controller makes the pods of Jobs at the pace of Kubernetes' own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.job_controller import JobController, _conditions, _is_complete, _wanted
from backoff_ctrl.k8s.lab.sandbox.kubelet import RUN_SECONDS, Kubelet
from tests.sandbox.talking import MERGE, PODS, ask

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import Sandbox

JOBS = "/apis/batch/v1/namespaces/team/jobs"
EVENTS = "/api/v1/namespaces/team/events"


def job(name: str, run_seconds: float | None = None, **spec: Any) -> dict[str, Any]:
    annotations = {} if run_seconds is None else {RUN_SECONDS: str(run_seconds)}
    pod = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def status_of(sandbox: Sandbox, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = sandbox.get(sandbox.kind("jobs", "batch"), "team", name).get("status", {})
    return found


def true_conditions(sandbox: Sandbox, name: str) -> list[str]:
    return [each["type"] for each in status_of(sandbox, name).get("conditions", []) if each["status"] == "True"]


def uses(sandbox: Sandbox, pods: str) -> bool:
    return sandbox.used("team", "q") == {"pods": pods}


async def pods_of(session: aiohttp.ClientSession, *phases: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await ask(session, "GET", PODS))[1]["items"]
    return [pod for pod in found if pod["status"].get("phase", "Pending") in phases]


async def fail(session: aiohttp.ClientSession, pod: Mapping[str, Any]) -> None:
    path = f"{PODS}/{pod['metadata']['name']}/status"
    await ask(session, "PATCH", path, {"status": {"phase": "Failed"}}, content_type=MERGE)


async def test_a_job_runs_so_many_pods_at_a_time_until_it_is_complete(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    async with Kubelet(Server(sandbox.url)), JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("work", 0.01, completions=3, parallelism=2))
        await sandbox.until(lambda: true_conditions(sandbox, "work") == ["Complete"])
        status = status_of(sandbox, "work")
        assert (status["succeeded"], status["active"], status["failed"]) == (3, 0, 0)
        assert status["startTime"] <= status["completionTime"]
        pods = await pods_of(session, "Succeeded")
        assert len(pods) == 3
        assert {pod["metadata"]["ownerReferences"][0]["name"] for pod in pods} == {"work"}
        assert {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in pods} == {"work"}


async def test_a_refused_job_is_looked_at_after_its_pause_although_room_came_earlier(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    sandbox.create_quota("team", "q", {"pods": "1"})
    async with JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("first"))
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "1"})
        await ask(session, "POST", JOBS, job("second"))
        await sandbox.until(lambda: sandbox.counters.of("team").refused == 1)
        (pod,) = await pods_of(session, "Pending")
        await ask(session, "DELETE", f"{JOBS}/first")
        await ask(session, "DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})
        assert await pods_of(session, "Pending") == []  # there is room, and nobody uses it

        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "1"})
        said = [each for each in (await ask(session, "GET", EVENTS))[1]["items"] if each["reason"] == "FailedCreate"]
        assert [each["involvedObject"]["name"] for each in said] == ["second"]
        assert "exceeded quota: q" in said[0]["message"]


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    sandbox.create_quota("team", "q", {"pods": "5"})
    async with JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("work", suspend=True, parallelism=2))
        await sandbox.until(lambda: true_conditions(sandbox, "work") == ["Suspended"])
        assert sandbox.used("team", "q") == {"pods": "0"}
        for suspended, pods in ((False, "2"), (True, "0")):
            await ask(session, "PATCH", f"{JOBS}/work", {"spec": {"suspend": suspended}}, content_type=MERGE)
            await sandbox.until(partial(uses, sandbox, pods))
        await sandbox.until(lambda: "startTime" not in status_of(sandbox, "work"))


async def test_a_job_whose_pods_fail_more_often_than_it_may_has_failed(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    async with JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("work", backoffLimit=0, parallelism=2, completions=2))
        await sandbox.until(lambda: status_of(sandbox, "work").get("active") == 2)
        one, _ = await pods_of(session, "Pending")
        await fail(session, one)
        await sandbox.until(lambda: true_conditions(sandbox, "work") == ["Failed"])
        assert status_of(sandbox, "work")["failed"] == 1


async def test_a_failed_pod_is_replaced_after_a_pause(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    async with JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("work"))
        await sandbox.until(lambda: status_of(sandbox, "work").get("active") == 1)
        (pod,) = await pods_of(session, "Pending")
        await fail(session, pod)
        await sandbox.until(lambda: status_of(sandbox, "work").get("failed") == 1)
        assert status_of(sandbox, "work")["active"] == 0
        assert await pods_of(session, "Pending") == []


async def test_pods_are_created_in_batches_that_double_until_one_is_refused(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """One, two and four: so many refusals are one look's at the most."""
    sandbox.create_quota("team", "q", {"pods": "3"})
    async with JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("work", parallelism=20, completions=20))
        await sandbox.until(lambda: status_of(sandbox, "work").get("active") == 3)
        assert sandbox.counters.of("team").refused == 4


async def test_a_second_controller_takes_over_the_pods_that_are_there(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    sandbox.create_quota("team", "q", {"pods": "9"})
    async with JobController(Server(sandbox.url)):
        await ask(session, "POST", JOBS, job("work", parallelism=2, completions=3))
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "2"})
    async with Kubelet(Server(sandbox.url), finish_after=0.01), JobController(Server(sandbox.url)):
        await sandbox.until(lambda: true_conditions(sandbox, "work") == ["Complete"])
    assert len(await pods_of(session, "Succeeded")) == 3


@pytest.mark.parametrize(
    ("spec", "succeeded", "active", "wanted", "complete"),
    [
        ({"parallelism": 4, "completions": 10}, 0, 0, 4, False),
        ({"parallelism": 4, "completions": 10}, 8, 1, 2, False),
        ({"parallelism": 4, "completions": 10}, 10, 0, 0, True),
        ({"parallelism": 3}, 0, 0, 3, False),
        ({"parallelism": 3}, 1, 2, 2, False),
        ({"parallelism": 3}, 1, 0, 0, True),
        ({"parallelism": 0, "completions": 1}, 0, 0, 0, False),
    ],
)
def test_how_many_pods_a_job_wants(
    spec: dict[str, Any], succeeded: int, active: int, wanted: int, complete: bool
) -> None:
    assert (_wanted(spec, succeeded, active), _is_complete(spec, succeeded, active)) == (wanted, complete)


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    stored = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": "then"}
    held = _conditions({"conditions": [stored]}, failed=False, complete=False, suspended=True)
    assert held == [stored]
    (resumed,) = _conditions({"conditions": [stored]}, failed=False, complete=False, suspended=False)
    assert (resumed["status"], resumed["reason"]) == ("False", "JobResumed")
    assert resumed["lastTransitionTime"] != "then"

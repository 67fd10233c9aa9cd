"""A Task that has ended runs once more when ``spec.again`` is raised."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import managed, path, task
from tests.cluster.tasks.custom_resources.test_owning import PODS, pod_of

REAL = pytest.mark.only_kubernetes("the sandbox checks no rules in CEL")


async def end(api: Api, namespace: str, phase: str, attempt: int) -> dict[str, Any]:
    """Let the pod of an attempt end, and return the Task once it has ended."""
    pod = await pod_of(api, namespace, "train")
    assert pod["metadata"]["name"].endswith(f"-{attempt}")
    status = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
    made(await api.patch(status, {"status": {"phase": phase}}, MERGE))
    ended = await api.until(path(namespace, "train"), lambda found: (found.get("status") or {}).get("endedAt"))
    await api.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")  # one that failed is gone
    return ended


async def ask_again(api: Api, namespace: str, times: int) -> None:
    made(await api.patch(path(namespace, "train"), {"spec": {"again": times}}, MERGE))


def condition(found: dict[str, Any], name: str) -> str:
    (held,) = [each["status"] for each in found["status"]["conditions"] if each["type"] == name]
    return str(held)


async def test_it_runs_once_more_with_another_pod_and_all_its_retries(kind: Api, namespace: str) -> None:
    """Each raise is one more run; the history goes on, the conditions begin anew."""
    async with managed(kind.server, namespace, Registry([PODS])):
        made(await kind.post(path(namespace), task("train")))
        failed = await end(kind, namespace, "Failed", 0)
        assert (failed["status"]["phase"], condition(failed, "Failed")) == ("PermanentFailure", "True")
        await ask_again(kind, namespace, 1)
        await kind.until(path(namespace, "train"), lambda found: condition(found, "Failed") == "False")
        succeeded = await end(kind, namespace, "Succeeded", 1)
        assert (succeeded["status"]["phase"], succeeded["status"]["again"]) == ("Success", 1)
        phases = [each["phase"] for each in succeeded["status"]["history"]]
        assert "PermanentFailure" in phases
        assert phases[-1] == "Success"


async def test_a_raise_counts_without_a_leader_and_one_before_the_end_counts_after_it(
    kind: Api, namespace: str
) -> None:
    async with managed(kind.server, namespace, Registry([PODS])):
        made(await kind.post(path(namespace), task("train")))
        await pod_of(kind, namespace, "train")
        await ask_again(kind, namespace, 1)
        pod = await pod_of(kind, namespace, "train")
        status = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
        made(await kind.patch(status, {"status": {"phase": "Succeeded"}}, MERGE))
        await kind.until(path(namespace, "train"), lambda found: found["status"].get("attempt") == 1)
        made(await kind.delete(status.removesuffix("/status")))
        await end(kind, namespace, "Succeeded", 1)
    await ask_again(kind, namespace, 2)
    async with managed(kind.server, namespace, Registry([PODS])):
        assert (await end(kind, namespace, "Succeeded", 2))["status"]["again"] == 2


async def test_a_new_task_begins_with_the_number_it_has(kind: Api, namespace: str) -> None:
    async with managed(kind.server, namespace, Registry([PODS])):
        made(await kind.post(path(namespace), task("train", again=3)))
        ended = await end(kind, namespace, "Succeeded", 0)
        assert ended["status"]["again"] == 3
        assert ended["status"]["try"] == 1


@REAL
async def test_it_only_grows_and_what_was_aborted_does_not_run_again(kind: Api, namespace: str) -> None:
    made(await kind.post(path(namespace), task("train", again=2)))
    for again in (1, None):
        reply = await kind.patch(path(namespace, "train"), {"spec": {"again": again}}, MERGE)
        assert (reply.status, "it counts how often the task runs again: raise it" in reply.text) == (422, True)
    made(await kind.patch(path(namespace, "train"), {"spec": {"abort": True}}, MERGE))
    reply = await kind.patch(path(namespace, "train"), {"spec": {"again": 3}}, MERGE)
    assert (reply.status, "a task that was aborted does not run again" in reply.text) == (422, True)

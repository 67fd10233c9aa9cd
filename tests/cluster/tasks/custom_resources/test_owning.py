"""A Task owns its object: a delete of the one ends the other, and no object is left over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import managed, path, task
from tests.kit.patience import PATIENCE
from tests.tasks.small_plugins import JOB, JobPlugin, PodPlugin, entry

PODS = entry(PodPlugin(), "container")
UNHELD = {"metadata": {"finalizers": None}}
BOTH = Registry([PODS, entry(JobPlugin(), "job", kind=JOB)])


async def pod_of(api: Api, namespace: str, name: str) -> dict[str, Any]:
    """The pod of a task, as soon as it is there."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    label = {"labelSelector": f"backoff-ctrl.dev/task-name={name}"}
    async with asyncio.timeout(PATIENCE):
        while not (found := (await api.get(pods, params=label)).json["items"]):  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.02)
    (pod,) = found
    return dict(pod)


async def gone(api: Api, *paths: str) -> None:
    async with asyncio.timeout(PATIENCE):
        for each in paths:
            while (await api.get(each)).status != 404:  # noqa: ASYNC110 - another process deletes it
                await asyncio.sleep(0.02)


async def test_deleting_a_task_ends_its_pod(kind: Api, namespace: str) -> None:
    """Both have our finalizer, the pod names its owner; its labels are what people look for."""
    async with managed(kind.server, namespace, BOTH, inject_finalizer=True):
        created = made(await kind.post(path(namespace), task("train", project="vision", domain="x" * 80)))
        pod = await pod_of(kind, namespace, "train")
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "name": "train", "controller": True,
            "uid": created["metadata"]["uid"], "blockOwnerDeletion": True,
        }  # fmt: skip
        labels = pod["metadata"]["labels"]
        assert labels["backoff-ctrl.dev/project"] == "vision"
        assert len(labels["backoff-ctrl.dev/domain"]) == 63
        assert pod["metadata"]["finalizers"] == [FINALIZER]
        there = (await kind.get(path(namespace, "train"))).json
        assert there["metadata"]["finalizers"] == [FINALIZER]
        made(await kind.delete(path(namespace, "train")))
        await gone(kind, path(namespace, "train"), f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")


async def test_a_setting_leaves_the_pod_without_an_owner(kind: Api, namespace: str) -> None:
    """As the settings say. The Task's own finalizer still ends its pod."""
    async with managed(kind.server, namespace, BOTH, disable_inject_owner_references=True):
        made(await kind.post(path(namespace), task("train")))
        pod = await pod_of(kind, namespace, "train")
        assert {"ownerReferences", "finalizers"} & pod["metadata"].keys() == set()
        made(await kind.delete(path(namespace, "train")))
        await gone(kind, path(namespace, "train"), f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")


async def test_an_ended_task_needs_no_manager_to_go(kind: Api, namespace: str) -> None:
    """Its finalizer went with its end; one that can't be built never had one, and says why."""
    async with managed(kind.server, namespace, BOTH):
        made(await kind.post(path(namespace), task("train")))
        made(await kind.post(path(namespace), task("wrong", container=None)))
        pod = (await pod_of(kind, namespace, "train"))["metadata"]["name"]
        status = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
        made(await kind.patch(status, {"status": {"phase": "Succeeded"}}, MERGE))
        for name, phase in (("train", "Success"), ("wrong", "PermanentFailure")):
            ended = await kind.until(path(namespace, name), lambda found: found.get("status", {}).get("endedAt"))
            assert ended["status"]["phase"] == phase
            await kind.until(path(namespace, name), lambda found: not found["metadata"].get("finalizers"))
        assert (await kind.get(path(namespace, "wrong"))).json["status"]["conditions"][2]["reason"] == "InvalidSpec"
    for name in ("train", "wrong"):
        made(await kind.delete(path(namespace, name)))
        await gone(kind, path(namespace, name))


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, "to the garbage collector"),
        ({"inject_finalizer": True}, f"with its finalizer: take {FINALIZER} off, then it can go"),
        ({"disable_inject_owner_references": True}, "to you"),
    ],
    ids=["owned", "held", "unowned"],
)
async def test_a_task_without_its_plugin_is_let_go(
    kind: Api, namespace: str, settings: dict[str, Any], left: str
) -> None:
    """An event says so, and to whom its pod is left. While it is not deleted it waits for its plugin."""
    async with managed(kind.server, namespace, BOTH, **settings):
        made(await kind.post(path(namespace), task("train")))
        await pod_of(kind, namespace, "train")
        await kind.until(path(namespace, "train"), lambda found: found.get("status", {}).get("phase") == "Queued")
    without = Registry([entry(JobPlugin(), "job", kind=JOB)])
    async with managed(kind.server, namespace, without, **settings):
        await kind.until(
            path(namespace, "train"), lambda found: "is not enabled" in found.get("status", {}).get("reason", "")
        )
        made(await kind.delete(path(namespace, "train")))
        await gone(kind, path(namespace, "train"))
    events = (await kind.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")).json["items"]
    (told,) = [each for each in events if each["regarding"]["kind"] == "Task"]
    assert (told["reason"], told["note"].endswith(f" is left {left}")) == ("LetGo", True), told["note"]
    if "inject_finalizer" in settings:
        pod = await pod_of(kind, namespace, "train")
        made(await kind.patch(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", UNHELD, MERGE))


async def test_a_task_that_can_not_be_read_any_more_fails_and_its_pod_ends(kind: Api, namespace: str) -> None:
    """Such as one of a newer version: it has failed, and its pod is ended, not left behind with a finalizer."""
    async with managed(kind.server, namespace, BOTH, inject_finalizer=True):
        made(await kind.post(path(namespace), task("train")))
        pod = (await pod_of(kind, namespace, "train"))["metadata"]["name"]
        await kind.until(path(namespace, "train"), lambda found: found.get("status", {}).get("phase") == "Queued")
    made(await kind.patch(path(namespace, "train"), {"spec": {"needs": [{"task": "a", "ended": "Soon"}]}}, MERGE))
    async with managed(kind.server, namespace, BOTH, inject_finalizer=True):
        found = await kind.until(path(namespace, "train"), lambda found: found["status"].get("endedAt"))
        await gone(kind, f"/api/v1/namespaces/{namespace}/pods/{pod}")
    assert found["status"]["code"] == "InvalidSpec"
    assert found["status"]["reason"].startswith("spec.needs[0].ended: ")


@pytest.mark.parametrize("phase", ["Success", "RetryableFailure"])
async def test_an_end_that_a_user_has_written_does_not_count(kind: Api, namespace: str, phase: str) -> None:
    """The next manager asks what has become of the attempt: no object is left behind, and no object is made twice."""
    async with managed(kind.server, namespace, BOTH, inject_finalizer=True):
        made(await kind.post(path(namespace), task("train")))
        pod = (await pod_of(kind, namespace, "train"))["metadata"]["name"]
        await kind.until(path(namespace, "train"), lambda found: found.get("status", {}).get("phase") == "Queued")
    made(await kind.patch(path(namespace, "train") + "/status", {"status": {"phase": phase}}, MERGE))
    place = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    async with managed(kind.server, namespace, BOTH, inject_finalizer=True):
        await kind.until(path(namespace, "train"), lambda found: found["status"]["phase"] == "Queued")
        made(await kind.patch(f"{place}/status", {"status": {"phase": "Succeeded"}}, MERGE))
        found = await kind.until(path(namespace, "train"), lambda found: found["status"].get("endedAt"))
        await kind.until(place, lambda found: not found["metadata"].get("finalizers"))
    assert (found["status"]["phase"], found["status"]["try"]) == ("Success", 1)


async def test_a_task_that_is_gone_by_force_is_forgotten(kind: Api, namespace: str) -> None:
    """A user takes its finalizer off: the manager ends what it has begun, and writes no further status."""
    async with managed(kind.server, namespace, BOTH) as store:
        made(await kind.post(path(namespace), task("train")))
        pod = (await pod_of(kind, namespace, "train"))["metadata"]["name"]
        made(await kind.delete(path(namespace, "train")))
        await kind.patch(path(namespace, "train"), {"metadata": {"finalizers": None}}, MERGE)
        await gone(kind, path(namespace, "train"), f"/api/v1/namespaces/{namespace}/pods/{pod}")
        assert await store.list() == []


@pytest.mark.only_kubernetes("the sandbox empties a namespace at once")
async def test_a_namespace_that_is_deleted_under_load_leaves_no_object(kind: Api, namespace: str) -> None:
    """Tasks that run, that wait for quota, that need others, and that come while it goes."""
    place = f"/api/v1/namespaces/{namespace}"
    made(await kind.post(f"{place}/resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "5"}}}))
    async with managed(kind.server, namespace, BOTH, inject_finalizer=True):
        for number in range(40):
            needs = {"needs": [f"t{number - 1}"]} if number % 4 == 3 else {}
            made(await kind.post(path(namespace), task(f"t{number}", **needs)))
        await kind.until(f"{place}/pods", lambda found: found["items"])  # whichever came first in line
        made(await kind.delete(place))
        await gone(kind, place)

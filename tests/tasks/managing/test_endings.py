"""Aborting before, while and after the create, and cleaning up: twice is no error, and others are not hurt."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.request import Request, urlopen

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.tasks.plugins.protocol import AbortBehavior, PluginError, PluginProperties
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import AbortingPlugin, PodPlugin, entry, task

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u-1"}
FINALIZED = K8sPluginConfig(inject_finalizer=True)
POD = "/api/v1/namespaces/team/pods/one-0"
MERGE = "application/merge-patch+json"


async def test_what_was_never_begun_is_aborted_without_a_create(bench: Bench, sandbox: BackgroundSandbox) -> None:
    assert (await bench.abort(task())).phase is Phase.ABORTED
    assert (await bench.step(task())).phase is Phase.ABORTED
    assert (await bench.abort(task())).phase is Phase.ABORTED
    await bench.finalize(task())
    assert await bench.pods() == []


async def test_what_waits_leaves_the_line_and_the_next_one_gets_its_place(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.create_quota("team", "cpus", {"requests.cpu": "1"})
    first, second, third = task("first"), task("second"), task("third")
    await bench.until(first, Phase.QUEUED)
    await bench.until(second, Phase.WAITING_FOR_RESOURCES)
    await bench.until(third, Phase.WAITING_FOR_RESOURCES)
    assert (await bench.abort(second)).phase is Phase.ABORTED
    await bench.set_phase("first-0", "Succeeded")
    await bench.until(third, Phase.QUEUED)
    assert (await bench.abort(second)).phase is Phase.ABORTED
    assert await bench.pods() == ["first-0", "third-0"]


async def test_a_create_that_was_sent_is_answered_first_and_its_object_then_deleted(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.faults.answer_delay_s = 0.3
    one = task()
    launched = await bench.step(one)
    assert launched.phase is Phase.NOT_READY
    while not await bench.pods():
        await bench.tick()
    assert (await bench.abort(one)).phase is Phase.ABORTED
    assert await bench.pods() == []
    assert (await bench.step(one)).phase is Phase.ABORTED


async def test_a_create_that_the_server_has_not_stored_yet_is_not_forgotten(sandbox: BackgroundSandbox) -> None:
    """The abort ends when the create is answered: else the object would appear behind it."""
    arrived, release = asyncio.Event(), asyncio.Event()

    async def pass_on(request: web.Request) -> web.Response:
        if request.method == "POST":
            arrived.set()
            await release.wait()
        if request.path.endswith("/pods") and request.method == "GET":
            return web.json_response({"kind": "Status", "code": 403}, status=403)  # no watch: each step reads
        async with http.request(request.method, request.path_qs, data=await request.read()) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")

    slow = web.Application()
    slow.router.add_route("*", "/{path:.*}", pass_on)
    async with ClientSession(sandbox.url, headers={"Content-Type": "application/json"}) as http, TestServer(slow) as at:
        async with Bench(str(at.make_url("")).rstrip("/")) as bench:
            await bench.step(task())
            await arrived.wait()
            aborting = asyncio.create_task(bench.abort(task()))
            for _ in range(3):
                await bench.tick()
            assert not aborting.done()
            release.set()
            assert (await aborting).phase is Phase.ABORTED
        async with http.get("/api/v1/namespaces/team/pods") as answer:
            assert (await answer.json())["items"] == []


async def test_what_runs_is_deleted_and_the_abort_of_a_past_attempt_touches_no_later_one(bench: Bench) -> None:
    one = task()
    await bench.until(one, Phase.QUEUED)
    assert (await bench.abort(one)).phase is Phase.ABORTED
    assert await bench.pods() == []
    later = task(attempt=1)  # of the same name, though
    await bench.until(later, Phase.QUEUED)
    bench.states["uid-one", 0] = None
    assert (await bench.abort(one)).phase is Phase.ABORTED
    await bench.finalize(one)
    assert await bench.pods() == ["one-0"]


async def test_a_plugin_says_itself_how_its_objects_are_aborted(sandbox: BackgroundSandbox) -> None:
    patch = {"metadata": {"annotations": {"stop": "please"}}}
    async with Bench(sandbox.url, entry(AbortingPlugin(behavior=AbortBehavior(patch=patch)), "container")) as bench:
        await bench.until(task(), Phase.QUEUED)
        assert (await bench.abort(task())).phase is Phase.ABORTED
        assert (await bench.pod("one-0"))["metadata"]["annotations"]["stop"] == "please"
    wrong = {"spec": {"containers": None}}
    plugin = AbortingPlugin(behavior=AbortBehavior(patch=wrong, delete_on_error=True))
    async with Bench(sandbox.url, entry(plugin, "container")) as bench:
        await bench.until(task("two"), Phase.QUEUED)
        assert (await bench.abort(task("two"))).phase is Phase.ABORTED
        assert await bench.pods() == ["one-0"]
    plugin = AbortingPlugin(behavior=AbortBehavior(patch=wrong))
    async with Bench(sandbox.url, entry(plugin, "container")) as bench:
        await bench.until(task("three"), Phase.QUEUED)
        info = await bench.abort(task("three"))
        assert info.phase is Phase.QUEUED
        assert "the abort continues: could not patch pods team/three-0" in info.reason
    with pytest.raises(PluginError, match="exactly one"):
        AbortBehavior(delete=True, patch=patch)


async def test_our_finalizer_is_put_there_only_with_an_owner_and_removed_alone(bench: Bench) -> None:
    free = task("free", config=FINALIZED)
    await bench.until(free, Phase.QUEUED)
    assert "finalizers" not in (await bench.pod("free-0"))["metadata"]
    one = task(config=FINALIZED, owner=OWNER)
    await bench.until(one, Phase.QUEUED)
    found = await bench.pod("one-0")
    assert (found["metadata"]["finalizers"], found["metadata"]["ownerReferences"]) == ([FINALIZER], [OWNER])
    other = {"metadata": {"finalizers": [FINALIZER, "example.com/other"]}}
    await bench.call("PATCH", POD, other, MERGE)
    await bench.set_phase("one-0", "Succeeded")
    await bench.until(one, Phase.SUCCESS)
    for _ in range(2):
        await bench.finalize(one)
        assert (await bench.pod("one-0"))["metadata"]["finalizers"] == ["example.com/other"]


async def test_a_conflict_on_the_finalizer_is_tried_again(bench: Bench) -> None:
    """Somebody changes the object, and the manager's loop has not heard of it yet."""
    one = task(config=FINALIZED, owner=OWNER)
    await bench.until(one, Phase.QUEUED)
    await bench.set_phase("one-0", "Succeeded")
    await bench.until(one, Phase.SUCCESS)
    _change(bench.url + POD)
    await bench.finalize(one)
    assert "finalizers" not in (await bench.pod("one-0"))["metadata"]
    assert bench.manager.counts.finalizer_conflicts == 1


def _change(url: str) -> None:
    """Change an object while the event loop stands still."""
    change = Request(url, b'{"metadata": {"labels": {"changed": "yes"}}}', {"Content-Type": MERGE}, method="PATCH")
    urlopen(change).close()


CLEANUPS: list[tuple[bool, PluginProperties, str, bool]] = [
    (False, PluginProperties(), "Succeeded", True),
    (True, PluginProperties(), "Succeeded", False),
    (True, PluginProperties(disable_delete_resource_on_finalize=True), "Succeeded", True),
    (False, PluginProperties(), "Failed", False),
    (False, PluginProperties(disable_delete_resource_on_finalize=True), "Failed", False),
]


@pytest.mark.parametrize(("delete", "properties", "phase", "stays"), CLEANUPS)
async def test_the_object_is_deleted_at_the_end_where_that_is_wanted_or_it_holds_something(
    sandbox: BackgroundSandbox, delete: bool, properties: PluginProperties, phase: str, stays: bool
) -> None:
    one: Any = task(config=K8sPluginConfig(delete_resource_on_finalize=delete))
    async with Bench(sandbox.url, entry(PodPlugin(properties), "container")) as bench:
        await bench.until(one, Phase.QUEUED)
        await bench.set_phase("one-0", phase)
        await bench.until(one, Phase.SUCCESS, Phase.RETRYABLE_FAILURE)
        await bench.finalize(one)
        assert await bench.pods() == (["one-0"] if stays else [])
        await bench.finalize(one)


async def test_what_is_deleted_by_others_is_told_apart_from_what_has_ended(bench: Bench) -> None:
    one, two = task(), task("two")
    await bench.until(one, Phase.QUEUED)
    await bench.until(two, Phase.QUEUED)
    await bench.call("DELETE", POD)
    gone = await bench.until(one, Phase.RETRYABLE_FAILURE)
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await bench.call("PATCH", "/api/v1/namespaces/team/pods/two-0", held, MERGE)
    await bench.call("DELETE", "/api/v1/namespaces/team/pods/two-0")
    going = await bench.until(two, Phase.RETRYABLE_FAILURE)
    assert gone.error is not None
    assert going.error is not None
    assert (gone.error.code, going.error.code) == ("ResourceDeletedExternally", "UnexpectedObjectDeletion")
    assert bench.manager.counts.unexpected_deletions == {"container": 2}


JOBS = "/apis/batch/v1/namespaces/team/jobs"
CONTAINER = {"name": "main", "image": "busybox:1"}


@pytest.mark.parametrize(
    ("forged", "path", "body"),
    [
        pytest.param(
            {"name": "other"}, "/api/v1/namespaces/team/pods", {"spec": {"containers": [CONTAINER]}}, id="name"
        ),
        pytest.param(
            {"kind": "Job", "api_version": "batch/v1", "name": "other"},
            JOBS,
            {"spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}},
            id="kind",
        ),
    ],
)
@pytest.mark.parametrize("plugin", ["", "other-kind"])
async def test_a_status_that_names_another_object_has_nothing_read_or_deleted(
    bench: Bench, forged: dict[str, str], path: str, body: dict[str, Any], plugin: str
) -> None:
    """Who may write the status of a task names any object there, and any plugin."""
    bench.use_kind("other-kind", "batch/v1", "Job", "jobs")
    await bench.call("POST", path, {"metadata": {"name": "other"}, **body})
    uid = (await bench.call("GET", f"{path}/other"))["metadata"]["uid"]
    one = task()
    await bench.until(one, Phase.QUEUED)
    key = (one.metadata.uid, one.metadata.attempt)
    state = bench.states[key] or {}
    bench.states[key] = {
        **state,
        "object": {**state["object"], "uid": uid, **forged},
        "plugin": plugin or state["plugin"],
    }
    told = await bench.step(one)
    assert told.phase.is_failure, told
    await bench.abort(one)
    await bench.finalize(one)
    assert not (await bench.call("GET", f"{path}/other"))["metadata"].get("deletionTimestamp")

"""A task's log: whose it is, line by line, from attempt to attempt; and why there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes import client

from backoff_ctrl.k8s.kube.cluster.objects import ClusterError
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.logs import LINE_MAX, LogError, TaskLog
from backoff_ctrl.k8s.tasks.model import TaskObject, TaskStatus
from backoff_ctrl.k8s.tasks.store import Stored
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, scripted_server

JSON = dict[str, Any]
PLUGINS = registry()
WAITS = {"kind": "Status", "status": "Failure", "message": 'container "main" in pod "one-0" is waiting to start: x'}


class Cluster:
    """Objects by path, and what the log of each pod says: bytes, an error, or a list of these, one a request."""

    def __init__(self, **logs: Any) -> None:
        self.objects: dict[str, JSON] = {}
        self.logs = logs
        self.asked: list[tuple[str, str]] = []

    def pod(self, name: str, **metadata: Any) -> JSON:
        """A pod of two containers, whose main one is the second."""
        about = {"name": name, "namespace": "team", "uid": f"u-{name}", **metadata}
        about["annotations"] = {"primary_container_name": "main"}
        made = {"kind": "Pod", "metadata": about, "spec": {"containers": [{"name": "side"}, {"name": "main"}]}}
        self.objects[f"/api/v1/namespaces/team/pods/{name}"] = made
        return made

    def __call__(self, seen: Seen) -> Any:
        path, query = urlsplit(seen.path).path, parse_qs(urlsplit(seen.path).query)
        if path.endswith("/log"):
            name = path.split("/")[-2]
            self.asked.append((name, query["container"][0]))
            found = self.logs[name.replace("-", "_")]
            found = found.pop(0) if isinstance(found, list) else found
            return found if isinstance(found, tuple) else (200, found)
        if path == "/api/v1/namespaces/team/pods":
            return 200, {"items": [each for path, each in self.objects.items() if "/pods/" in path]}
        found = self.objects.get(path)
        return (404, {"kind": "Status", "message": "not found"}) if found is None else (200, found)


def stored(made: str = "one-0", *, type: str = "container", kind: str = "Pod", open: bool = False) -> Stored:  # noqa: A002
    reference = TaskObject(api_version="v1", kind=kind, name=made, uid=f"u-{made}") if made else None
    status = TaskStatus(phase="Running" if open else "Success", object=reference)
    return Stored("u", 1, "team", "one", {}, {"type": type}, False, status, 1, open, 0.0)


async def read(cluster: Cluster, *tasks: Stored, container: str = "", follow: bool = False) -> bytes:
    """Read the log of a task, which is another one at each look; the last one stays."""
    left = list(tasks)

    async def look() -> Stored:
        return left.pop(0) if len(left) > 1 else left[0]

    with scripted_server(cluster) as server:
        async with ClusterSession(client.Configuration(host=server.url)) as session:
            log = TaskLog(session, PLUGINS.resolve(tasks[0].spec["type"]), look, container)
            return b"".join([line async for line in (log.follow() if follow else log.lines())])


async def test_a_pods_log_is_that_of_its_main_container() -> None:
    """Byte for byte, with a line's end at the end; any other container is named."""
    cluster = Cluster(one_0=b"begins\n\xff\nends")
    cluster.pod("one-0")
    assert await read(cluster, stored()) == b"begins\n\xff\nends\n"
    await read(cluster, stored(), container="side")
    assert cluster.asked == [("one-0", "main"), ("one-0", "side")]


async def test_the_lines_of_an_object_with_pods_begin_with_the_pods_name() -> None:
    """The oldest pod first."""
    cluster = Cluster(late=b"b\n", early=b"a\n")
    job = {"kind": "Job", "metadata": {"name": "one-0", "uid": "u-one-0", "namespace": "team"}, "spec": {}}
    cluster.objects["/apis/batch/v1/namespaces/team/jobs/one-0"] = job
    cluster.pod("late", creationTimestamp="2026-01-01T00:00:02Z")
    cluster.pod("early", creationTimestamp="2026-01-01T00:00:01Z")
    assert await read(cluster, stored(type="job", kind="Job")) == b"[early] a\n[late] b\n"


@pytest.mark.long
async def test_a_log_is_followed_from_attempt_to_attempt_until_the_task_has_ended() -> None:
    """One that has not started yet is asked again, and a line is there as soon as it is written."""
    written = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"first\nsec"
        assert written.wait(PATIENCE)
        yield b"ond\n"

    cluster = Cluster(one_0=[(400, WAITS), slowly()], one_1=b"third\n")
    cluster.pod("one-0")
    cluster.pod("one-1")
    left = [stored("", open=True), stored("one-0", open=True), stored("one-0", open=True), stored("one-0", open=True)]

    async def look() -> Stored:
        return left.pop(0) if left else stored("one-1")

    with scripted_server(cluster) as server:
        async with ClusterSession(client.Configuration(host=server.url)) as session:
            lines = TaskLog(session, PLUGINS.resolve("container"), look).follow()
            assert await anext(lines) == b"first\n"
            written.set()
            assert [line async for line in lines] == [b"second\n", b"third\n"]


async def test_a_line_without_an_end_is_cut() -> None:
    """A program that writes a progress bar for hours fills no memory."""
    cluster = Cluster(one_0=b"x" * (3 * LINE_MAX))
    cluster.pod("one-0")
    found = await read(cluster, stored())
    assert found.replace(b"\n", b"") == b"x" * (3 * LINE_MAX)
    assert max(map(len, found.split(b"\n"))) == LINE_MAX


@pytest.mark.parametrize(
    ("made", "log", "error", "said"),
    [
        ("", b"", LogError, "task team/one ended as Success without an object, and so without a log"),
        ("gone", b"", LogError, r"Pod team/gone is gone"),
        ("one-0", (400, WAITS), LogError, "is waiting to start: x: wait for it with -f"),
        ("one-0", (204, {}), LogError, "pod team/one-0 is on no node yet: wait for it with -f"),
        ("one-0", (404, {"message": "pods one-0 not found"}), LogError, "not found"),
        (
            "one-0",
            (403, {"kind": "Status", "status": "Failure", "message": "no"}),
            ClusterError,
            "could not read the log of pod team/one-0: 403 no",
        ),
    ],
)
async def test_where_there_is_no_log_it_says_why(made: str, log: Any, error: type[Exception], said: str) -> None:
    """And what to do."""
    cluster = Cluster(one_0=log)
    cluster.pod("one-0")
    with pytest.raises(error, match=said):
        await read(cluster, stored(made))


def waits(made: str = "", *, open: bool = True, phase: str = "WaitingForResources") -> Stored:  # noqa: A002
    """A task whose second attempt has this object; the first had the pod one-0."""
    task = stored(made, open=open)
    earlier = TaskObject(api_version="v1", kind="Pod", name="one-0", uid="u-one-0")
    more = {"phase": phase, "attempt": 1, "earlier_object": earlier, "earlier_attempt": 0}
    return replace(task, status=task.status.model_copy(update=more))


async def noted(cluster: Cluster, task: Stored) -> tuple[bytes, str]:
    """The log of a task, and its note."""

    async def look() -> Stored:
        return task

    with scripted_server(cluster) as server:
        async with ClusterSession(client.Configuration(host=server.url)) as session:
            log = TaskLog(session, PLUGINS.resolve("container"), look)
            return b"".join([line async for line in log.lines()]), log.note


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (waits(), "task team/one has no object yet, it is WaitingForResources"),
        (waits("one-1", phase="Queued"), 'container "main" in pod "one-0" is waiting to start: x'),
        (waits("gone", phase="Running"), "Pod team/gone is gone"),
        (
            waits(open=False, phase="PermanentFailure"),
            "task team/one ended as PermanentFailure without an object, and so without a log",
        ),
    ],
)
async def test_while_an_attempt_has_no_log_that_of_the_one_before_is_shown_and_said(task: Stored, why: str) -> None:
    """It is what people look for: why the first attempt failed."""
    cluster = Cluster(one_0=b"out of memory\n", one_1=(400, WAITS))
    cluster.pod("one-0")
    cluster.pod("one-1")
    assert await noted(cluster, task) == (b"out of memory\n", f"{why}; this is the log of attempt 1")


async def test_without_a_log_of_an_earlier_attempt_the_reason_stays_that_of_the_present_one() -> None:
    """Its pod was deleted, or its log with its node."""
    with pytest.raises(LogError, match="has no object yet, it is WaitingForResources: wait for it with -f"):
        await noted(Cluster(), waits())
    cluster = Cluster(one_0=(404, {"message": "not found"}))
    cluster.pod("one-0")
    with pytest.raises(LogError, match="has no object yet"):
        await noted(cluster, waits())


async def test_one_that_is_followed_begins_with_the_log_of_the_attempt_before() -> None:
    """And goes on with that of the attempt that it waited for."""
    cluster = Cluster(one_0=b"first\n", one_1=b"second\n")
    cluster.pod("one-0")
    cluster.pod("one-1")
    assert await read(cluster, waits(), waits(), stored("one-1"), follow=True) == b"first\nsecond\n"


async def test_a_pod_that_goes_before_its_log_is_read_is_named_while_the_log_is_followed() -> None:
    """The log of the next attempt follows; the note says whose log is lost."""
    cluster = Cluster(one_0=(404, {"kind": "Status", "message": 'pods "one-0" not found'}), one_1=b"second\n")
    cluster.pod("one-0")
    cluster.pod("one-1")
    left = [stored("one-0", open=True)]

    async def look() -> Stored:
        return left.pop() if left else stored("one-1")

    with scripted_server(cluster) as server:
        async with ClusterSession(client.Configuration(host=server.url)) as session:
            log = TaskLog(session, PLUGINS.resolve("container"), look)
            assert [line async for line in log.follow()] == [b"second\n"]
            assert log.note == 'pods "one-0" not found: its log is lost'


async def test_another_object_of_the_name_is_not_the_tasks() -> None:
    """Its log would be somebody else's."""
    cluster = Cluster(one_0=b"secret\n")
    cluster.pod("one-0", uid="another")
    with pytest.raises(LogError, match="is gone"):
        await read(cluster, stored())

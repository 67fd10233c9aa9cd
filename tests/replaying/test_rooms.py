"""The demo's own namespaces on a slow or failing server: none is forgotten, and the user is told what is happening."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from backoff_ctrl.api.commands.demo.cluster import on_cluster_of
from backoff_ctrl.k8s.kube.cluster.finding import ReachError, find_place
from backoff_ctrl.k8s.lab.replay.rooms import Rooms
from backoff_ctrl.k8s.lab.replay.workload import Workload, make_workload, read_trace
from tests.cluster.gating.test_demo import demo, trace
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Reply, Script, Seen, failure, scripted_server

SPACES = "/api/v1/namespaces"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
contexts: [{{name: mine, context: {{cluster: here, user: me}}}}]
current-context: mine
"""


class Cluster:
    """A server that creates and deletes namespaces; ``before`` may answer in its place, or wait."""

    def __init__(self, before: Callable[[Seen], Reply | None]) -> None:
        self.spaces: dict[str, dict[str, Any]] = {}
        self._before = before

    def answer(self, seen: Seen) -> Reply:
        """Answer a request: real answers about namespaces, and a success for anything else."""
        path = seen.path.partition("?")[0]
        name = path.removeprefix(SPACES).strip("/")
        if (reply := self._before(seen)) is not None:
            return reply
        if path == SPACES:
            return 201, self.store(seen.body)
        if path.startswith(SPACES) and "/" not in name:
            found = (self.spaces.pop if seen.method == "DELETE" else self.spaces.get)(name, None)
            return (200, found) if found else failure(404, "NotFound", "there is none")
        return 201 if seen.method == "POST" else 200, {
            "gitVersion": "v1.36.0",
            "status": {"allowed": True, "hard": {"pods": "1"}},
        }

    def store(self, space: dict[str, Any]) -> dict[str, Any]:
        """Store a namespace as requested, with a uid."""
        name = space["metadata"]["name"]
        self.spaces[name] = {**space, "metadata": {**space["metadata"], "uid": f"uid-of-{name}"}}
        return self.spaces[name]


def makes_a_namespace(seen: Seen) -> bool:
    """Say whether this request creates a namespace."""
    return (seen.method, seen.path) == ("POST", SPACES)


def looks_at_a_namespace(seen: Seen) -> bool:
    """Say whether this request gets a namespace."""
    return seen.method == "GET" and re.fullmatch(f"{SPACES}/[^/]+", seen.path) is not None


def small(folder: Path) -> Workload:
    """A workload in two namespaces."""
    return make_workload(read_trace(trace(folder, pods=4, run_time=30)), pods=4, seed=1)


def kubeconfig(script: Script, folder: Path) -> Path:
    """Write a kubeconfig into a folder with a space in its name."""
    path = folder / "of mine" / "config"
    path.parent.mkdir()
    path.write_text(KUBECONFIG.format(url=script.url))
    return path


def line_of(process: subprocess.Popen[str], start: str) -> str:
    """Read its stderr up to a line that begins like this, and return it; "" if there is none."""
    assert process.stderr is not None
    return next((line for line in process.stderr if line.startswith(start)), "")


def rooms_at(script: Script) -> Rooms:
    """The rooms on this server; their context is not entered yet."""
    return Rooms(find_place(script.url, None, None, None))


@pytest.mark.long
def test_a_namespace_being_created_at_ctrl_c_is_deleted(tmp_path: Path) -> None:
    """Its create takes effect only after the demo has begun to clean up."""
    asked, may_go_on, stored = threading.Event(), threading.Event(), threading.Event()

    def before(seen: Seen) -> Reply | None:
        if not makes_a_namespace(seen):
            return None
        asked.set()
        may_go_on.wait(PATIENCE)
        made = cluster.store(seen.body)
        stored.set()
        return 201, made

    cluster = Cluster(before)
    rows = trace(tmp_path, pods=4, run_time=30)
    with (
        scripted_server(cluster.answer) as script,
        demo(kubeconfig(script, tmp_path), tmp_path, "--trace", str(rows), "--pods", "4") as process,
    ):
        assert asked.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        said = line_of(process, "deleting 1 namespace ...")
        may_go_on.set()
        assert stored.wait(PATIENCE)
        _, err = process.communicate(timeout=PATIENCE)

    assert said
    assert not cluster.spaces
    assert len(script.of("DELETE")) == 1
    assert "stopped" in err
    assert process.returncode == 1


def test_a_namespace_whose_create_was_never_answered_is_looked_for(tmp_path: Path) -> None:
    """A gateway gave up on the create, which takes effect only after the first look for the namespace."""
    late: list[dict[str, Any]] = []

    def before(seen: Seen) -> Reply | None:
        if makes_a_namespace(seen):
            late.append(seen.body)
            return failure(504, "Timeout", "the gateway did not want to wait")
        if looks_at_a_namespace(seen) and late:
            cluster.store(late.pop())
            return failure(404, "NotFound", "not yet")
        return None

    cluster = Cluster(before)
    with scripted_server(cluster.answer) as script:
        with pytest.raises(ReachError, match="504"), rooms_at(script) as rooms:
            rooms.furnish("test", small(tmp_path))
        assert rooms.left == []

    assert not late
    assert not cluster.spaces


def test_a_namespace_that_was_refused_is_not_waited_for(tmp_path: Path) -> None:
    """Nor looked for: a refused create has no effect, and nothing is left."""

    def before(seen: Seen) -> Reply | None:
        return failure(422, "Invalid", "not such a name") if makes_a_namespace(seen) else None

    with scripted_server(Cluster(before).answer) as script:
        with pytest.raises(ReachError, match="422"), rooms_at(script) as rooms:
            rooms.furnish("test", small(tmp_path))
        assert rooms.left == []
        assert not [seen for seen in script.seen if looks_at_a_namespace(seen)]


@pytest.mark.long
def test_cleaning_up_ends_at_the_first_call_that_does_not_reach_the_server(tmp_path: Path) -> None:
    """Each call may take ten seconds then, so what is left is reported after the first."""
    gone = threading.Event()

    def before(_: Seen) -> None:
        if gone.is_set():
            raise ConnectionError("the server hangs up")

    cluster = Cluster(before)
    with scripted_server(cluster.answer) as script:
        with rooms_at(script) as rooms:
            rooms.furnish("test", small(tmp_path))
            gone.set()
            known = len(script.seen)
            rooms.clear()
        assert len(script.seen) == known + 1

    assert len(rooms.left) == 2
    assert set(rooms.left) == set(cluster.spaces)


@pytest.mark.long
def test_an_error_while_waiting_for_the_deletion_does_not_cost_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison is complete by then: namespaces that may still exist are reported, and the command goes on."""

    def before(seen: Seen) -> None:
        if looks_at_a_namespace(seen) and len(script.of("DELETE")) == 2:
            raise ConnectionError("the server hangs up")

    cluster = Cluster(before)
    with scripted_server(cluster.answer) as script:
        path = str(kubeconfig(script, tmp_path))
        with Progress(disable=True) as progress, on_cluster_of(path, None, progress) as run_one:
            assert isinstance(run_one, partial)
            run_one.keywords["rooms"].furnish("test", small(tmp_path))
            made = list(cluster.spaces)
    err = capsys.readouterr().err

    assert "deleting 2 namespaces ...\n" in err
    assert f"still being deleted by the cluster: {', '.join(made)}\n" in err


@pytest.mark.long
def test_a_namespace_that_may_not_be_read_is_not_deleted(tmp_path: Path) -> None:
    """Only its label and uid prove that it is ours; without the right to read them it is left alone."""
    blind = threading.Event()

    def before(seen: Seen) -> Reply | None:
        hidden = blind.is_set() and looks_at_a_namespace(seen)
        return failure(403, "Forbidden", "not any more") if hidden else None

    cluster = Cluster(before)
    with scripted_server(cluster.answer) as script:
        with rooms_at(script) as rooms:
            rooms.furnish("test", small(tmp_path))
            blind.set()
        assert not script.of("DELETE")

    assert set(rooms.left) == set(cluster.spaces)


@pytest.mark.long
def test_a_second_ctrl_c_ends_cleaning_up_and_reports_what_is_left(tmp_path: Path) -> None:
    """The server's answer never ends. The reported kubectl command is for the same cluster and context."""
    furnished, stuck, over = threading.Event(), threading.Event(), threading.Event()

    def trickle() -> Iterator[bytes]:
        while not over.wait(1):
            yield b" "

    def before(seen: Seen) -> Reply | None:
        if "dryRun" in seen.path:
            furnished.set()
            over.wait(PATIENCE)
        elif looks_at_a_namespace(seen):
            stuck.set()
            return 200, trickle()
        return None

    cluster = Cluster(before)
    rows = trace(tmp_path, pods=4, run_time=30)
    with scripted_server(cluster.answer) as script, ExitStack() as stack:
        stack.callback(over.set)
        path = kubeconfig(script, tmp_path)
        arguments = ("--context", "mine", "--trace", str(rows), "--pods", "4")
        process = stack.enter_context(demo(path, tmp_path, *arguments))
        assert furnished.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        assert line_of(process, "deleting 2 namespaces ...")
        assert stuck.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)  # less than the call in progress may take

    run = next(iter(cluster.spaces.values()))["metadata"]["labels"]["backoff-ctrl.dev/demo"]
    command = f"kubectl --kubeconfig '{path}' --context mine delete namespace -l backoff-ctrl.dev/demo={run}"
    assert f"not deleted: {', '.join(cluster.spaces)}; delete them with: {command}\n" in err
    assert process.returncode == 1

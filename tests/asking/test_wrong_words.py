"""What is typed wrong: a command, a namespace, a gate for a server of tasks. One sentence says what is meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from tests.status.asking import Crowd

Output = pytest.CaptureFixture[str]
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "b"}]}
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("holder",), "there is no command holder: did you mean backoff-ctrl holders?"),
        (("taks", "list"), "there is no command taks: did you mean backoff-ctrl task?"),
        (("job", "list"), "there is no command job: did you mean backoff-ctrl jobs?"),
        (("Waiting",), "there is no command Waiting: did you mean backoff-ctrl waiting?"),
        (("help", "holders"), "there is no command help: backoff-ctrl --help shows it"),
        (("version",), "there is no command version: backoff-ctrl --version shows it"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_unknown_command_is_a_known_one_misspelt(words: tuple[str, ...], said: str, capsys: Output) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err == f"backoff-ctrl: {said}\n"


def test_a_command_unlike_any_is_unknown(capsys: Output) -> None:
    assert run(["xyzzy"]) == 2
    assert "No such command 'xyzzy'" in capsys.readouterr().err


@pytest.fixture
def cluster() -> Iterator[BackgroundSandbox]:
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        yield sandbox


def test_explain_refuses_a_namespace_that_does_not_exist(
    cluster: BackgroundSandbox, tmp_path: Path, capsys: Output
) -> None:
    """No quota is there that could be full: it said that the create would be made now."""
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(POD))
    assert run(["explain", "-f", str(file), "-n", "taem", "--apiserver", cluster.url]) == 0
    assert capsys.readouterr().out == (
        "Pod taem/a: would be refused\n"
        "  namespace taem does not exist (did you mean team?): check the name, or choose another with --namespace\n"
    )
    assert run(["explain", "-f", str(file), "-n", "team", "--apiserver", cluster.url]) == 0
    assert "would be created now" in capsys.readouterr().out
    file.write_text(yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "taem"}}, POD]))
    assert run(["explain", "-f", str(file), "-n", "taem", "--apiserver", cluster.url]) == 0
    assert "Pod taem/a: would be created now" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("list",), ("show", "train"), ("run", "-f", "FILE")], ids=" ".join)
def test_a_gate_runs_no_tasks(words: tuple[str, ...], crowd: Crowd, tmp_path: Path, capsys: Output) -> None:
    """It answers 404 with the paths of its API, which say little to who asks for a task."""
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(POD))
    assert run(["task", *[str(file) if word == "FILE" else word for word in words], "--gate", crowd.url]) in (1, 2)
    assert f"{crowd.url} runs no tasks: name backoff-ctrl serve --store with --gate" in capsys.readouterr().err


def test_a_pause_of_a_namespace_that_was_never_seen_says_so(crowd: Crowd, capsys: Output) -> None:
    """It is done, since creates may come; but its name may be misspelt, and the creates meant go on."""
    seen = {each["namespace"] for each in crowd.get("/v1/namespaces")["items"]}
    known = min(seen)
    assert run(["act", "pause", f"{known}x", "--gate", crowd.url]) == 0
    said = capsys.readouterr()
    assert f"has not seen a create in namespace {known}x yet (did you mean {known}" in said.err
    assert said.out == f"creates in namespace {known}x wait until you resume it\n"
    assert run(["act", "pause", known, "--gate", crowd.url]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("status", "remedy"), [(401, "name a token"), (403, "name a token"), (500, "look at its log")])
def test_who_may_not_ask_is_told_what_to_do(status: int, remedy: str, capsys: Output) -> None:
    """A proxy before the gate, or one whose status is for others: its words alone do not help."""
    body = json.dumps({"title": "no", "status": status, "detail": "not you", "errors": []}).encode()
    with problem_server(status, body) as url:
        assert run(["ceilings", "--gate", url]) == 2
    line = capsys.readouterr().err
    assert f"answers {status}: not you: " in line
    assert remedy in line


@contextmanager
def problem_server(status: int, body: bytes) -> Iterator[str]:
    """Answer each request with a problem."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_files_of_the_variable_are_named(tmp_path: Path) -> None:
    """None of them is there: a slip in $KUBECONFIG."""
    wrong = os.pathsep.join(str(tmp_path / name) for name in ("one", "two"))
    done = subprocess.run(
        [sys.executable, "-m", "backoff_ctrl", "holders"], env={**os.environ, "KUBECONFIG": wrong}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"found neither the kubeconfig that $KUBECONFIG names ({wrong}) nor a pod's service account" in done.stderr

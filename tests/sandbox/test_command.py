"""``backoff-ctrl sandbox``: its output, its end, and its messages for bad input."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config

from backoff_ctrl.api.commands.sandbox import command
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

COMMAND = [sys.executable, "-c", "from backoff_ctrl.api.commands.sandbox import command; command(prog_name='sandbox')"]
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: team}
spec: {hard: {pods: "1"}}
"""


class Running:
    """The command in a process, and the URL it listens on."""

    def __init__(self, *arguments: str) -> None:
        """Start it and read its first lines."""
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.greeting = [self.process.stdout.readline() for _ in range(6 + ("--kubeconfig" in arguments))]
        self.url = self.greeting[0].split("listens on ")[1].split(";")[0]

    def get(self, path: str) -> dict[str, object]:
        """Get a path: the JSON of the answer."""
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            found: dict[str, object] = json.loads(answer.read())
        return found

    def post(self, path: str, body: dict[str, object]) -> None:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=PATIENCE).close()

    def until(self, path: str, holds: Callable[[Any], Any]) -> Any:
        """Watch until a state of an object holds; return that state."""
        with urllib.request.urlopen(f"{self.url}{path}?watch=1&resourceVersion=0", timeout=PATIENCE) as watch:
            while True:
                found = json.loads(watch.readline())["object"]
                if holds(found):
                    return found

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        """Send a signal: exit code, the rest of stdout, stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """The command with a quota file, on a free port."""
    file = tmp_path / "quota.yaml"
    file.write_text(QUOTA)
    made = Running("--port", "0", "--quota-file", str(file), "--finish-after", "0")
    yield made
    if made.process.poll() is None:
        made.end(signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_how_to_use_it_and_ends_cleanly(running: Running, number: signal.Signals) -> None:
    """The kubectl line is printed; after Ctrl-C the exit code is 0 without a traceback, even with a watch open."""
    quotas = running.get("/api/v1/namespaces/team/resourcequotas")["items"]
    assert isinstance(quotas, list)
    assert quotas[0]["status"] == {"hard": {"pods": "1"}, "used": {"pods": "0"}}
    with urllib.request.urlopen(f"{running.url}/api/v1/pods?watch=1", timeout=PATIENCE):
        code, out, err = running.end(number)

    assert (code, err) == (0, "")
    assert f"kubectl --server {running.url} " in running.greeting[1]
    assert out == "The sandbox has stopped; everything in it is gone.\n"


@pytest.mark.parametrize("aborted", [True, False], ids=["reset", "closed"])
def test_a_client_that_is_killed_leaves_no_traceback(running: Running, aborted: bool) -> None:
    """In the middle of a watch, of a body or of a header, or if it speaks no HTTP: stderr stays empty."""
    head = "Host: x\r\nContent-Type: application/json\r\n"
    for sent in (
        f"GET /api/v1/pods?watch=1 HTTP/1.1\r\n{head}\r\n",
        f'POST /api/v1/namespaces/team/pods HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n{{"a',
        f'POST /api/v1/namespaces HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{"a',
        "GET /api/v1/po",
        "GET /api HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "\x16\x03\x01",
    ):
        with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2]))) as client:
            client.sendall(sent.encode())
            running.get("/version")  # it has read what was sent before
            if aborted:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    running.get("/version")

    code, _, err = running.end(signal.SIGTERM)
    assert (code, err) == (0, "")


def test_it_writes_a_kubeconfig(tmp_path: Path) -> None:
    """The line to export is printed, and clients that use the file reach the sandbox; the next start replaces it."""
    file = tmp_path / "a folder" / "config"
    file.parent.mkdir()
    for _ in range(2):
        made = Running("--port", "0", "--kubeconfig", str(file))
        try:
            assert made.greeting[1] == f"  export KUBECONFIG='{file}'\n"
            with new_client_from_config(str(file)) as client:
                assert client.configuration.host == made.url
                CoreV1Api(client).read_namespace("default")  # raises if it is not answered
        finally:
            made.end(signal.SIGTERM)


def test_a_kubeconfig_of_another_cluster_is_not_replaced(tmp_path: Path) -> None:
    """It may hold the only copy of somebody's credentials."""
    file = tmp_path / "config"
    file.write_text("apiVersion: v1\nkind: Config\n")

    _refuses(["--port", "0", "--kubeconfig", str(file)], "is not a kubeconfig of the sandbox, so it is not replaced")
    assert file.read_text() == "apiVersion: v1\nkind: Config\n"
    _refuses(["--port", "0", "--kubeconfig", str(tmp_path)], "cannot be replaced: Is a directory")
    _refuses(["--port", "0", "--kubeconfig", str(tmp_path / "no" / "config")], "cannot be written: No such file")


def test_it_says_that_it_has_no_controllers(running: Running) -> None:
    """Or its user waits in vain for the pods of a Job."""
    assert "Jobs (without --run-jobs) and Deployments are stored, but get no pods" in running.greeting[-1]


def test_the_pods_of_jobs_are_made_where_that_is_asked_for() -> None:
    made = Running("--port", "0", "--finish-after", "0", "--run-jobs")
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    try:
        made.post(jobs, {"metadata": {"name": "x"}, "spec": {"template": {"spec": pod}}})
        assert made.until(jobs, lambda job: job["status"].get("succeeded"))["status"]["succeeded"] == 1
        assert "A simulated Job controller makes the pods of Jobs" in made.greeting[-1]
    finally:
        made.end(signal.SIGTERM)


def test_pods_finish_after_the_time_given(running: Running) -> None:
    """The command starts a kubelet too."""
    body = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pods = "/api/v1/namespaces/team/pods"
    running.post(pods, body)
    assert running.until(pods, lambda found: found["status"]["phase"] == "Succeeded")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (": [", "is not valid YAML"),
        ("", "holds no ResourceQuota"),
        ("- 1", "document 1 is not an object"),
        ("kind: Pod", "document 1 has kind 'Pod'"),
        ("kind: ResourceQuota", "has no metadata.name"),
        ("kind: ResourceQuota\nmetadata: {name: q}", "ResourceQuota q: spec.hard is missing"),
        (
            "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: many}}",
            "spec.hard.pods is not a quantity: 'many'",
        ),
        ("kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: [1]}}", "spec.hard.pods is not a quantity"),
        ("kind: List\nitems: 5", "contains a List whose items are not a list"),
        ("a:\n\t- b", "is not valid YAML at line 2, column 1"),
        ("kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: '-1'}}", "greater than or equal to 0"),
        ("kind: ResourceQuota\nmetadata: {name: Q}\nspec: {hard: {pods: '1'}}", "RFC 1123"),
        (f"{QUOTA}---{QUOTA}", "already exists"),
        (
            "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 1}, scopeSelektor: {}}",
            'unknown field "spec.scopeSelektor"; spec.scopeSelektor: unknown; did you mean scopeSelector?',
        ),
        ("kind: ResourceQuota\nmetadata: {name: q, namespce: a}\nspec: {hard: {pods: 1}}", "did you mean namespace?"),
        ("\x00", "is not valid YAML"),
    ],
)
def test_a_bad_quota_file_gives_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    """Exit code 2, no traceback."""
    file = tmp_path / "quota.yaml"
    file.write_text(text)

    _refuses(["--port", "0", "--quota-file", str(file)], sentence)


def test_a_missing_quota_file_gives_one_sentence(tmp_path: Path) -> None:
    """The same for a directory, and for bytes that are not text."""
    missing = ["--port", "0", "--quota-file", str(tmp_path / "none.yaml")]
    _refuses(missing, "No such file")
    done = subprocess.run([*COMMAND, *missing], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == _ran(missing).stderr
    _refuses(["--port", "0", "--quota-file", str(tmp_path)], "Is a directory")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfa")
    _refuses(["--port", "0", "--quota-file", str(tmp_path / "bytes")], "is not UTF-8")


def test_a_port_in_use_gives_one_sentence() -> None:
    """It names the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _refuses(["--port", str(port)], f"cannot listen on port {port}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000"],
        ["--port", "x"],
        [],
        ["--port", "0", "--finish-after", "-1"],
        ["--port", "0", "--finish-after", "nan"],
    ],
)
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    """With click's message."""
    done = _ran(arguments)

    assert done.exit_code == 2
    assert "Traceback" not in done.stderr


def _ran(arguments: list[str]) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(command, arguments, prog_name="sandbox")


def _refuses(arguments: list[str], sentence: str) -> None:
    done = _ran(arguments)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("backoff-ctrl: ")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr

"""How the gate of a command waits: its option, the environment, the settings file; told by its status API."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.gate.settings import read_settings
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox


@contextmanager
def running(*words: str, **variables: str) -> Iterator[dict[str, Any]]:
    """Run a command beside the block, which is given the policy that its status API tells."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "backoff_ctrl", *words, "--admin", f"127.0.0.1:{port}"]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield policy_at(port, process)
        finally:
            process.kill()


def policy_at(port: int, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the settings, once the command serves them."""
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/policy", timeout=10) as answer:
                settings: dict[str, Any] = json.load(answer)["policy"]
        except (OSError, ValueError):  # it does not listen yet
            continue
        if settings:  # else it has no gate yet
            return settings
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.fixture
def sandbox() -> Iterator[BackgroundSandbox]:
    """A cluster whose quota is full: the task waits."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "none", {"pods": "0"})
        yield sandbox


@pytest.mark.long
def test_each_source_sets_the_policy_and_the_nearer_one_wins(sandbox: BackgroundSandbox, tmp_path: Path) -> None:
    """Of ``task run``: the settings, the environment above them, the option above both."""
    (tmp_path / "config.yaml").write_text("tasks: {backoff: {base-second: 2, max-duration: 1m}}")
    container = {"image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    manifest = {
        "apiVersion": "backoff-ctrl.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "one", "namespace": "team"},
        "spec": {"type": "container", "container": container},
    }
    (tmp_path / "task.json").write_text(json.dumps(manifest))
    words = ["task", "run", "-f", str(tmp_path / "task.json"), "--store", str(tmp_path / "tasks.db")]
    words += ["--apiserver", sandbox.url, "--config", str(tmp_path / "config.yaml")]
    options = ("--policy", "cap=90", "--policy", "on-never-fits=wait")
    with running(*words, *options, BACKOFF_CTRL_POLICY="cap=80,wait_max=600") as found:
        assert (found["base"], found["cap"], found["wait_max"], found["on_never_fits"]) == (2, 90, 600, "wait")


@pytest.mark.long
def test_the_sidecar_has_a_policy_too(sandbox: BackgroundSandbox) -> None:
    """By the same option."""
    with running("proxy", "--listen", "127.0.0.1:0", "--apiserver", sandbox.url, "--policy", "waiters_max=7") as found:
        assert found["waiters_max"] == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bse=2", "--policy: unknown setting bse: did you mean base?"),
        ("base", "--policy: 'base' has no value: write KEY=VALUE"),
        ("base=soon", "--policy: base must be a number, not 'soon'"),
        ("base=30", "--policy: base (30) must not be greater than cap (20.0)"),
        ("waiters-max=1.5", "--policy: waiters_max must be a whole number"),
    ],
)
@pytest.mark.parametrize("command", [["proxy", "--listen", "127.0.0.1:0"], ["task", "run"]])
def test_a_wrong_one_is_refused_at_the_start(
    command: list[str], given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and the sentence names the setting."""
    assert run([*command, "--policy", given]) == 2
    assert said in capsys.readouterr().err


def test_a_server_without_a_gate_of_its_own_takes_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does a command whose manager is elsewhere."""
    assert run(["serve", "--policy", "base=2"]) == 2
    assert "give --store as well" in capsys.readouterr().err
    assert run(["task", "run", "--gate", "http://127.0.0.1:9", "--policy", "base=2"]) == 2
    assert "leave out" in capsys.readouterr().err


def test_a_wrong_variable_stops_nothing() -> None:
    """The defaults count, and doctor and the log have the sentence."""
    found = read_settings({"BACKOFF_CTRL_POLICY": "base=2,cap=1"})
    assert found.policy == {}
    (sentence,) = found.wrong
    assert sentence.startswith(
        "BACKOFF_CTRL_POLICY='base=2,cap=1' is not understood: base (2) must not be greater than"
    )
    assert read_settings({"BACKOFF_CTRL_POLICY": " base=2, cap=60 ,"}).policy == {"base": 2, "cap": 60}
    (asks,) = read_settings({"BACKOFF_CTRL_POLICY": "bse=2"}).wrong
    assert "did you mean base? Until this is corrected" in asks

"""Settings as commands take them: ``--config``, the environment, ``--set``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.tasks.phases.pods import NOW, ago, condition, pod

UNSCHEDULED = {
    "apiVersion": "v1",
    "kind": "Pod",
    **pod("Pending", conditions=[condition("PodScheduled", since=ago(minutes=10))]),
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The command that asks about a pod that has been pending for ten minutes, with a time-out of an hour in a file."""
    (tmp_path / "pod.json").write_text(json.dumps(UNSCHEDULED))
    (tmp_path / "config.yaml").write_text("plugins: {k8s: {pod-pending-timeout: 1h}}")
    return [
        "phase",
        "-f",
        str(tmp_path / "pod.json"),
        "--config",
        str(tmp_path / "config.yaml"),
        "--at",
        NOW.isoformat(),
    ]


def test_each_source_wins_over_the_one_below(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file, then the environment, then flags."""

    def phase(*options: str) -> Any:
        assert run([*files, *options, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["phase"]

    assert phase() == "Queued"
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__POD_PENDING_TIMEOUT", "10m")
    assert phase() == "RetryableFailure"
    assert phase("--set", "plugins.k8s.pod-pending-timeout=11m") == "Queued"
    assert phase("--set", "plugins.k8s.pod-pending-timeout=11m", "--set", "plugins.k8s.default-cpus=2") == "Queued"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("plugins.k8s.pod-pending-timeout=soon", "flag: plugins.k8s.pod-pending-timeout: 'soon' is not a duration"),
        ("plugins.k8s.nonsense=1", "--set plugins.k8s.nonsense: nonsense: unknown key: choose from accelerator"),
        ("tasks.task-plugins.enabled-plugins=[nobody]", "nobody"),
    ],
)
def test_a_wrong_flag(files: list[str], capsys: pytest.CaptureFixture[str], flag: str, message: str) -> None:
    """Exit code 2, and what would be right."""
    assert run([*files, "--set", flag]) == 2
    assert message in capsys.readouterr().err


def test_settings_belong_to_the_manager(capsys: pytest.CaptureFixture[str]) -> None:
    """One that runs elsewhere has its own."""
    assert run(["task", "run", "--gate", "http://127.0.0.1:9", "--set", "plugins.k8s.default-cpus=2"]) == 2
    assert "leave out --store, --abort-on-exit, settings" in capsys.readouterr().err


def test_serve_takes_settings_of_its_tasks_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``task run`` does; a wrong one is a sentence with its key, before anything is served."""
    with running_sandbox() as sandbox:
        words = ["serve", "--listen", "127.0.0.1:0", "--apiserver", sandbox.url]
        assert run([*words, "--set", "plugins.k8s.default-cpus=2"]) == 2
        assert "--set is for the plugins of the tasks: give --store as well" in capsys.readouterr().err
        assert run([*words, "--store", str(tmp_path / "t.db"), "--set", "plugins.ray-jobs.caching.workers=0"]) == 2
        assert "plugins.ray-jobs.caching.workers: 0 is not possible" in capsys.readouterr().err

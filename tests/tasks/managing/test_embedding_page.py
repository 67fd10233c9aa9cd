"""docs/how-to/embed-the-manager.md: its program runs as it stands, and its table has every code."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from backoff_ctrl.k8s.tasks.plugins import phases
from backoff_ctrl.k8s.tasks.plugins.core import CorePlugin
from backoff_ctrl.k8s.tasks.plugins.manager import outcomes
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.pages import blocks, text_of
from tests.kit.patience import PATIENCE

PAGE = "docs/how-to/embed-the-manager.md"


@pytest.mark.long
async def test_the_program_waits_for_quota_runs_and_cleans_up(
    sandbox: BackgroundSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word for word; a second start finds that all is done."""
    sandbox.create_namespace("team-a")
    sandbox.create_quota("team-a", "compute", {"requests.cpu": "1"})
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", sandbox.url))
    (program,) = blocks(PAGE, "python")
    (tmp_path / "program.py").write_text(program.text)

    async def run() -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "program.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    async with Kubelet(Server(sandbox.url), finish_after=0.2):
        printed = await run()
        assert printed.splitlines()[-1].startswith("Success")
        assert sandbox.used("team-a", "compute")["requests.cpu"] == "0"
        assert (await run()).splitlines()[-1].startswith("Success")


def test_the_table_of_functions_has_all_that_a_manager_is_asked() -> None:
    """Each method of the protocol that managers have in common, by the arguments that it takes."""
    table = text_of(PAGE).split("functions\n")[1].split("## ")[0]
    told = dict(re.findall(r"^\| `await manager\.(\w+)\((.*?)\)`", table, re.MULTILINE))
    asked = {
        name: each for name, each in vars(CorePlugin).items() if inspect.iscoroutinefunction(each) and name[0] != "_"
    }
    assert told == {name: ", ".join([*inspect.signature(each).parameters][1:]) for name, each in asked.items()}


def test_the_table_of_failures_has_every_code_of_the_manager() -> None:
    """And no other."""
    table = text_of(PAGE).split("## Failures")[1]
    told = {code for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for code in re.findall(r"`(\w+)`", row)}
    known = {meaning.code for meaning in outcomes._BY_LANE.values()}
    constants = {
        name: value for room in (outcomes, phases) for name, value in vars(room).items() if re.match("[A-Z]", name)
    }
    known |= {value for value in constants.values() if isinstance(value, str)}
    assert told == known - {phases.UNKNOWN_CODE}  # a plugin's failure without a code of its own

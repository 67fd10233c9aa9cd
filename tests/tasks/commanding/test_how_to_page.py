"""The page docs/how-to/run-a-task.md, as a new user follows it: its files, its commands, what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tasks.sandbox_process import sandbox_process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "run-a-task.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(console|yaml)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line[2:] for kind, block in BLOCKS if kind == "console" for line in block.splitlines() if line[:2] == "$ "]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[str]:
    """The sandbox, begun by the command of the page at a free port."""
    quota = re.search(r"\$ cat quota\.yaml\n(.*?)\$ ", PAGE, re.DOTALL)
    assert quota is not None
    (tmp_path / "quota.yaml").write_text(quota[1])
    (command,) = (each for each in COMMANDS if "sandbox" in each)
    words = command.replace("--port 18080", "--port 0").split()[1:]
    with sandbox_process(tmp_path, *words) as url:
        yield url


def test_its_commands_do_what_it_says(sandbox: str, tmp_path: Path) -> None:
    """In the order of the page; where it names the sandbox, this one is meant."""
    (tasks,) = (block for kind, block in BLOCKS if kind == "yaml")
    (tmp_path / "tasks.yaml").write_text(tasks)
    here = ["--store", str(tmp_path / "tasks.db")]

    def run(command: str, *more: str) -> str:
        words = command.replace("http://127.0.0.1:18080", sandbox).split()[1:]
        done = subprocess.run(
            [sys.executable, "-m", "backoff_ctrl", *words, *here, *more],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    (first,) = (each for each in COMMANDS if each.endswith("--upstream http://127.0.0.1:18080"))
    said = run(first)
    shown = [line.split()[1:] for line in PAGE.split(first)[1].split("```")[0].splitlines() if line[:3] == "12:"]
    assert all(any(line.split()[1:3] == words[:2] for line in said.splitlines()) for words in shown), said
    assert said.endswith("2 tasks: 2 Success\n")
    for command in COMMANDS:
        if command.split()[:3] == ["backoff-ctrl", "task", "run"] and "--server" not in command:
            assert run(command, *([] if "--upstream" in command else ["--upstream", sandbox]))
    assert "train" in run("backoff-ctrl task list")
    (logs,) = (command for command in COMMANDS if command.startswith("backoff-ctrl task logs"))
    assert "there is no container" in run(logs)
    for command in COMMANDS:
        if command.startswith(("backoff-ctrl task show", "backoff-ctrl task delete")):
            run(command)
    assert run("backoff-ctrl task abort report", "--upstream", sandbox) == "task team/report has ended: Success\n"

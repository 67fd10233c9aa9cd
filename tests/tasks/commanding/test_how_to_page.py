"""The page docs/how-to/run-a-task.md, as a new user follows it: its files, its commands, what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kit.pages import blocks, typed
from tests.kit.patience import PATIENCE
from tests.tasks.sandbox_process import sandbox_process

pytestmark = pytest.mark.long
PAGE = "docs/how-to/run-a-task.md"
PRINTED = {each.command: each.printed for each in typed(PAGE)}
COMMANDS = list(PRINTED)
(TASKS,) = (block.text for block in blocks(PAGE, "yaml"))

SHORT: Final = re.compile("Queued|is being created")
"""What takes too little time here to be printed each time."""


def as_shown(line: str) -> str:
    """A line without its time, the uid in its pod's name, and how far the task is that it needs."""
    line = re.sub(r"^\d\d:\d\d:\d\dZ  |-[0-9a-f]{8}(?=-0 )", "", line)
    return re.sub("(?<=, which is ).*", "NotReady", line)


def of_any_task(line: str) -> str:
    """A line of either task: what one passes through, the other may."""
    return re.sub("team/(train|report)", "team/NAME", line)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[str]:
    """The sandbox, begun by the command of the page at a free port."""
    (tmp_path / "quota.yaml").write_text(PRINTED["cat quota.yaml"])
    (tmp_path / "tasks.yaml").write_text(TASKS)
    (command,) = (each for each in COMMANDS if "sandbox" in each)
    words = command.replace("--port 18080", "--port 0").split()[1:]
    with sandbox_process(tmp_path, *words) as url:
        yield url


def test_its_commands_do_what_it_says(sandbox: str, tmp_path: Path) -> None:
    """In the order of the page; where it names the sandbox, this one is meant."""
    here = ["--store", str(tmp_path / "tasks.db")]

    def run(command: str, *more: str) -> str:
        words = command.replace("http://127.0.0.1:18080", sandbox).split()[1:]
        done = subprocess.run(
            [sys.executable, "-m", "backoff_ctrl", *words, *here, *more],
            cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    (first,) = (each for each in COMMANDS if each.startswith("backoff-ctrl task run -f") and "--apiserver" in each)
    said = run(first)
    shown, printed = ([as_shown(line) for line in text.splitlines()] for text in (PRINTED[first], said))
    assert {line for line in shown if not SHORT.search(line)} <= set(printed)
    assert {of_any_task(line) for line in printed} <= {of_any_task(line) for line in shown}
    assert (printed[:2], printed[-1]) == (shown[:2], shown[-1])
    for command in COMMANDS:
        if command.split()[:3] == ["backoff-ctrl", "task", "run"] and "--gate" not in command:
            assert run(command, *([] if "--apiserver" in command else ["--apiserver", sandbox]))
    head, train, _ = (line.split() for line in PRINTED["backoff-ctrl task list"].splitlines())
    listed = [line.split() for line in run("backoff-ctrl task list").splitlines()]
    assert listed[0] == head
    assert train[:5] in [line[:5] for line in listed]
    (logs,) = (command for command in COMMANDS if command.startswith("backoff-ctrl task logs"))
    assert "there is no container" in run(logs)
    for command in COMMANDS:
        if command.startswith(("backoff-ctrl task show", "backoff-ctrl task delete")):
            run(command)
    (abort,) = (command for command in COMMANDS if command.startswith("backoff-ctrl task abort"))
    assert run(abort) == "task team/report has ended: Success\n"


def test_a_server_carries_the_tasks_out(sandbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of the page, at a free port."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where the server leaves its token for this user
    serve, run = COMMANDS[-2:]
    words = serve.replace("http://127.0.0.1:18080", sandbox).split()[1:]
    with sandbox_process(tmp_path, *words, "--listen", "127.0.0.1:0") as url:
        done = subprocess.run(
            [sys.executable, "-m", "backoff_ctrl", *run.replace("http://127.0.0.1:9095", url).split()[1:]],
            cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done
    assert done.stdout.endswith("2 tasks: 2 Success\n")

"""What a shell offers for a word: the tasks that the command can use, and the task types."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from backoff_ctrl.api.main import cli
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.tasks.tasks_written import wish

DONE = TaskStatus(phase="Success", ended_at="2026-01-01T00:00:00Z")


def offered(*words: str) -> dict[str, str]:
    """What is offered for the last of these words, with the help beside it."""
    *before, last = words
    found = ShellComplete(cli, {}, "backoff-ctrl", "_X").get_completions(list(before), last)
    return {item.value: item.help or "" for item in found}


async def filled(file: Path) -> None:
    async with SqliteStore(file) as store:
        wishes = [wish("train"), wish("trial"), wish("over"), wish("go", type="signal", container=None)]
        await store.create(wishes)
        over = await store.get("team", "over")
        await store.set_status(over.uid, over.version, DONE, open_=False)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("task", "show", ""), {"train", "trial", "over", "go"}),
        (("task", "logs", "tr"), {"train", "trial"}),
        (("task", "abort", ""), {"train", "trial", "go"}),
        (("task", "signal", ""), {"go"}),
        (("task", "delete", ""), {"over"}),
        (("task", "run", "--again", ""), {"over"}),
    ],
    ids=lambda each: each[1] if isinstance(each, tuple) else "",
)
def test_names_of_tasks_that_the_command_can_use(tmp_path: Path, words: tuple[str, ...], names: set[str]) -> None:
    file = tmp_path / "tasks.db"
    asyncio.run(filled(file))
    group, verb, *rest = words
    found = offered(group, verb, "--store", str(file), *rest)
    assert found.keys() == names
    assert "over" not in names or found["over"] == "Success"


@pytest.mark.parametrize(
    "place",
    [["--store", "absent/tasks.db"], ["--gate", "http://127.0.0.1:1"], ["--gate", "nonsense"],
     ["--store", "cluster", "--kubeconfig", "absent"]],
)  # fmt: skip
def test_nothing_is_offered_where_nothing_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: list[str]
) -> None:
    """Silently; and no store is made for it."""
    monkeypatch.chdir(tmp_path)
    assert offered("task", "show", *place, "") == {}
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


def test_a_default_store_is_not_made_for_a_completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert offered("task", "signal", "") == {}
    assert not list(tmp_path.iterdir())


def test_task_types_of_the_platform(tmp_path: Path) -> None:
    """Those of plugins that ship, or that the settings leave."""
    assert {"ray-job", "rayjob"} & offered("phase", "--task-type", "ray").keys()
    settings = tmp_path / "settings.yaml"
    settings.write_text("tasks: {task-plugins: {enabled-plugins: [job]}}")
    assert offered("phase", "--config", str(settings), "--task-type", "").keys() == {"job"}

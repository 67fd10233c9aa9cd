"""What tasks are printed as: nothing that they, or a cluster, say of themselves moves the cursor or forges a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backoff_ctrl.api.commands.tasks.showing import Lines, page, row
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.documents import document, item
from backoff_ctrl.k8s.tasks.model import TaskLink, TaskObject, TaskTold
from backoff_ctrl.k8s.tasks.plugins.phases import TaskError
from backoff_ctrl.k8s.tasks.stepping import moved
from backoff_ctrl.k8s.tasks.tables import Tables
from tests.tasks.tasks_written import wish

EVIL = "\x1b[2J\x07forged\r"


def test_no_text_of_a_task_controls_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason of a webhook, the code of a container, the type: in the table, in the page, in the lines of a log."""
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish(type="container")])
    tables.close()
    status = moved(task.status, Phase.PERMANENT_FAILURE, EVIL, 0, TaskError(EVIL, EVIL, ErrorKind.USER))
    more = {"logs": [TaskLink(EVIL, EVIL)], "reasons": [TaskTold(EVIL, "")]}
    evil = replace(task, spec={**task.spec, "type": EVIL}, status=status.model_copy(update=more))
    cells = row(item(evil), 0)
    whole = replace(document(evil, 0), object=TaskObject(EVIL, EVIL, EVIL, ""))
    lines = list(page(whole, 0))
    Lines().changed(item(evil))
    printed = capsys.readouterr().out
    for text in [*cells, *lines, printed.removesuffix("\n")]:
        assert text.isprintable(), text
    assert sum("forged" in text for text in lines) >= 7
    assert "forged" in printed


def test_a_log_has_the_whole_reason_of_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong stands at the end of an API server's message; the reason of what goes on is cut."""
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish()])
    tables.close()
    reason = f"it was refused: {'spec.containers[0] ' * 10}is invalid"
    failed = moved(task.status, Phase.PERMANENT_FAILURE, reason, 0)
    Lines().changed(item(replace(task, status=failed, open=False)))
    assert capsys.readouterr().out.endswith("is invalid\n")
    Lines().changed(item(replace(task, status=moved(task.status, Phase.QUEUED, reason, 0))))
    assert capsys.readouterr().out.endswith("...\n")


def test_a_log_says_what_is_under_way_until_a_task_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each reason is a line before the run, not only the first one of a phase; then a line for each phase."""
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish()])
    tables.close()
    steps = [
        (Phase.QUEUED, "its job is about to be created"),
        (Phase.QUEUED, "its job was created"),
        (Phase.QUEUED, "its job was created"),
        (Phase.INITIALIZING, "pulls its image"),
        (Phase.RUNNING, "1 of 2 done"),
        (Phase.RUNNING, "2 of 2 done"),
    ]
    lines = Lines()
    for phase, reason in steps:
        lines.changed(item(replace(task, status=moved(task.status, phase, reason, 0))))
    printed = [line.split("  ", 2)[2] for line in capsys.readouterr().out.splitlines()]
    assert printed == [
        "Queued  its job is about to be created",
        "Queued  its job was created",
        "Initializing  pulls its image",
        "Running  1 of 2 done",
    ]


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("https://logs.example.com/j1", True),
        ("HTTP://logs.example.com/j1", True),
        ("kubectl logs -n team train", True),
        ("/relative", True),
        ("javascript:alert(1)", False),
        (" JavaScript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("\x01javascript:alert(1)", False),
        ("data:text/html,<script>", False),
        ("vbscript:x", False),
    ],
)
def test_no_link_of_a_task_runs_in_a_page(tmp_path: Path, uri: str, kept: bool) -> None:
    """Whoever writes a task's status, or answers as its service, names the address."""
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish()])
    tables.close()
    told = replace(task, status=task.status.model_copy(update={"logs": [TaskLink("log", uri)]}))
    assert [each.uri for each in document(told, 0).logs] == ([uri] if kept else [])

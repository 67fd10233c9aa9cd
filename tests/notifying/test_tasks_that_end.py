"""Receivers that ask for it hear of attempts and tasks that end: once, with what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import Configuration

from backoff_ctrl.k8s.gate.events.webhooks import EVENTS, TASK_EVENTS, Receiver
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.notifying import TaskNotifier, make_notifier
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Stored
from tests.notifying.test_notifications import hook
from tests.tasks.tasks_written import NAMESPACE, wish
from tests.tasks.webapi.test_core_plugins import ended, managed

NOWHERE = Configuration(host="http://127.0.0.1:1")


def brief(event: dict[str, Any]) -> tuple[Any, ...]:
    data = event["data"]
    kind = event["type"].removeprefix("dev.backoff-ctrl.")
    return kind, data["name"], data["attempt"], data["phase"], data["code"]


async def test_each_end_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task that is retried, of one that fails, and of one that never began; only what was asked for."""
    with hook() as all_ends, hook() as failures, hook() as creates:
        receivers = [
            {"name": "all", "url": all_ends.url, "events": list(TASK_EVENTS)},
            {"name": "failures", "url": failures.url, "events": ["task-ended"], "reasons": ["Why"]},
            {"name": "creates", "url": creates.url},
        ]
        file = tmp_path / "receivers.yaml"
        file.write_text(yaml.safe_dump({"receivers": receivers}))
        monkeypatch.setenv("BACKOFF_CTRL_NOTIFY", str(file))

        def sleep(name: str, **spec: Any) -> Any:
            return wish(name, type="sleep", container=None, **spec)

        async with SqliteStore(tmp_path / "t.db") as store, managed(store, registry()):
            fails = {"seconds": 0, "fail": {"code": "Why", "message": "by itself", "attempts": 1}}
            await store.create([sleep("again", custom=fails, retries={"user": 1}), sleep("bad", custom=fails),
                                sleep("after", custom={"seconds": 0}, needs=["bad"])])  # fmt: skip
            for name in ("again", "bad", "after"):
                await ended(store, name)
        told = all_ends.told(6)
    assert sorted(map(brief, told), key=str) == sorted([
        ("attempt-ended", "again", 0, "RetryableFailure", "Why"),
        ("attempt-ended", "again", 1, "Success", None),
        ("task-ended", "again", 1, "Success", None),
        ("attempt-ended", "bad", 0, "PermanentFailure", "Why"),
        ("task-ended", "bad", 0, "PermanentFailure", "Why"),
        ("task-ended", "after", 0, "PermanentFailure", "DependencyFailed"),
    ], key=str)  # fmt: skip
    assert [brief(event)[1] for event in failures.told(1)] == ["bad"]
    assert creates.seen == []
    (bad,) = [each for each in told if brief(each)[:2] == ("task-ended", "bad")]
    assert (bad["subject"], bad["data"]["kind"], bad["specversion"]) == (
        f"{NAMESPACE}/tasks.backoff-ctrl.dev/bad", "USER", "1.0")  # fmt: skip
    assert "by itself" in bad["data"]["message"]


def status(phase: str, *, begun: bool = True, **more: Any) -> TaskStatus:
    return TaskStatus(phase=phase, plugin_state={"stage": "x"} if begun else None, **more)


CASES = [
    # before, after, still open, what is told
    (status("Running"), status("Success"), True, ["attempt"]),
    (status("Success"), status("Success"), False, ["task"]),
    (status("RetryableFailure"), status("Aborted"), False, ["task"]),
    (status("RetryableFailure"), status("NotReady", begun=False, attempt=1), True, []),
    (status("NotReady", begun=False), status("Aborted", begun=False, code="NotNeeded"), False, ["task"]),
    (status("NotReady"), status("Running"), True, []),
]


@pytest.mark.parametrize(("before", "after", "still", "expected"), CASES)
def test_what_a_change_tells(before: TaskStatus, after: TaskStatus, still: bool, expected: list[str]) -> None:
    """An end is told when it is new, and that of the task when nothing is left to do."""
    told: list[str] = []
    notifier = TaskNotifier([Receiver("r", "http://127.0.0.1:9", events=TASK_EVENTS)], "g")
    (delivery,) = notifier.deliveries
    delivery.put = lambda event: told.append(event["type"].split(".")[-1].removesuffix("-ended"))  # type: ignore[method-assign]
    notifier.changed(before, Stored("u", 1, "team", "t", {}, {"type": "sleep"}, False, after, 1, still, 0.0))
    assert told == expected


def test_who_does_not_ask_hears_nothing_and_a_wrong_file_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "receivers.yaml"
    file.write_text(yaml.safe_dump({"receivers": [{"name": "a", "url": "http://127.0.0.1:9", "events": [*EVENTS]}]}))
    assert make_notifier(str(file)) is None
    assert make_notifier("") is None
    file.write_text("receivers: [{name: a, url: 'http://127.0.0.1:9', events: [task-finished]}]")
    assert make_notifier(str(file)) is None
    assert "'task-finished' is not an event; did you mean task-ended?" in caplog.text

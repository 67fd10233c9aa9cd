"""What a task needs may have to succeed, to fail, or just to end; who is not needed ends without having begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.stepping import not_before
from tests.tasks.reconciling.running import carried_out
from tests.tasks.reconciling.small_cluster import SmallCluster
from tests.tasks.tasks_written import manifest, wish

ENDS = {
    "runs": TaskStatus(phase="Running"),
    "retries": TaskStatus(phase="RetryableFailure", code="Died", kind="USER"),
    "good": TaskStatus(phase="Success"),
    "bad": TaskStatus(phase="PermanentFailure", code="Died", kind="USER"),
    "aborted": TaskStatus(phase="Aborted"),
    "left out": TaskStatus(phase="Aborted", code="NotNeeded"),
    "absent": None,
}
BEGINS, WAITS, FAILS, LEFT_OUT = "", "waits", "DependencyFailed", "NotNeeded"
TABLE = [
    # how the need is   for Success  for Failure  for Any
    ("runs", WAITS, WAITS, WAITS),
    ("retries", WAITS, WAITS, WAITS),
    ("absent", WAITS, WAITS, WAITS),
    ("good", BEGINS, LEFT_OUT, BEGINS),
    ("bad", FAILS, BEGINS, BEGINS),
    ("aborted", FAILS, BEGINS, BEGINS),
    ("left out", LEFT_OUT, LEFT_OUT, BEGINS),
]


def outcome(needs: Any, ends: Any) -> str:
    reason, code = not_before(needs, ends)
    return code or (WAITS if reason else BEGINS)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_each_end_for_each_wish(row: tuple[str, str, str, str]) -> None:
    end, *expected = row
    assert [outcome({"t": how}, {"t": ENDS[end]}) for how in ("Success", "Failure", "Any")] == expected


def test_one_that_is_not_needed_has_not_failed_whatever_else_ended_badly() -> None:
    """In whichever order they are written; and what never begins does not wait for the others."""
    ends = {"a": ENDS["bad"], "b": ENDS["good"], "c": ENDS["runs"]}
    assert outcome({"a": "Success", "b": "Failure", "c": "Any"}, ends) == LEFT_OUT
    assert outcome({"b": "Failure", "a": "Success"}, ends) == LEFT_OUT
    assert outcome({"c": "Any", "a": "Success"}, ends) == FAILS
    assert not_before({"c": "Failure"}, ends)[0] == "needs task c, which is Running, to end as Failure"


async def test_a_failure_node_runs_only_after_a_failure(tmp_path: Path) -> None:
    """What follows it is left out with it; what only waits for an end runs; nothing is made for the others."""
    cluster = SmallCluster(ends={"bad": ["fatal"]})
    over = await carried_out(
        tmp_path / "t.db",
        cluster,
        [wish("bad"), wish("good"),
         wish("repair", needs=[{"task": "bad", "ended": "Failure"}]),
         wish("needless", needs=[{"task": "good", "ended": "Failure"}]),
         wish("after-needless", needs=["needless"]),
         wish("clean-up", needs=[{"task": "bad", "ended": "Any"}, {"task": "needless", "ended": "Any"}])],
    )  # fmt: skip
    assert {name: (task.status.phase, task.status.code) for name, task in over.items()} == {
        "bad": ("PermanentFailure", "Died"),
        "good": ("Success", None),
        "repair": ("Success", None),
        "needless": ("Aborted", "NotNeeded"),
        "after-needless": ("Aborted", "NotNeeded"),
        "clean-up": ("Success", None),
    }
    assert not {"needless", "after-needless"} & set(cluster.steps)
    assert over["needless"].status.kind is None
    assert "for a failure of task good, which has succeeded" in over["needless"].status.reason


def test_the_usual_need_is_the_same_task_however_it_is_written() -> None:
    spelt = wish("x", needs=[{"task": "a", "ended": "Success"}, {"task": "b"}, {"task": "c", "ended": "Any"}])
    assert spelt == wish("x", needs=["a", "b", {"task": "c", "ended": "Any"}])
    assert spelt.spec["needs"] == ["a", "b", {"task": "c", "ended": "Any"}]


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ([{"task": "a", "ended": "Failed"}], r"spec\.needs\[0\]\.ended: .*Success.*Failure.*Any"),
        ([{"tsk": "a"}], r"spec\.needs\[0\]\.(task|tsk)"),
        (["a", {"task": "a", "ended": "Any"}], r"spec\.needs: a is named twice"),
        ([{"task": "x", "ended": "Any"}], r"spec\.needs: x would wait for itself"),
        ([7], r"spec\.needs\[0\]: "),
    ],
)
def test_a_wrong_need_is_refused_with_its_place(needs: Any, said: str) -> None:
    with pytest.raises(TaskSpecError, match=said):
        wish_of(read_task(manifest("x", needs=needs)))

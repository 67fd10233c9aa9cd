"""Each reason to wait has a sentence, and words for a column: no code is shown to people."""

from __future__ import annotations

from typing import get_args

import pytest

from backoff_ctrl.api.commands.tasks.showing import waits_for
from backoff_ctrl.engine.look.explaining import WaitReason
from backoff_ctrl.k8s.gate.creates.wait import SAME_KEY, SENTENCES, Wait, reason_words
from backoff_ctrl.k8s.sidecar.holding.telling import not_yet
from backoff_ctrl.k8s.tasks.cluster import conditions
from backoff_ctrl.k8s.tasks.model import TaskStatus, TaskWait

OF_A_QUOTA = frozenset({"quota", "paused", "kept-for-another", "never-fits"})
"""The reasons that always name a quota; all others have a sentence."""
ALL = (*get_args(WaitReason), SAME_KEY)


def test_each_reason_names_a_quota_or_has_a_sentence() -> None:
    """A new one fails here until it has one."""
    assert set(ALL) == OF_A_QUOTA | SENTENCES.keys()


@pytest.mark.parametrize("reason", ALL)
def test_no_code_is_shown(reason: str) -> None:
    """In logs and errors, in the answer of a sidecar, in the tables of tasks and kubectl's column."""
    quota = ("q", "pods") if reason in OF_A_QUOTA else ("", "")
    wait = Wait("team", "pods", "p", reason, *quota)
    task = TaskWait(reason, *quota)
    answer = not_yet(("pods", "p"), wait, 8, again=True).json()
    assert answer is not None
    shown = [wait.why, answer["message"], waits_for(task), reason_words(reason)]
    shown.append(conditions.waits_for(TaskStatus(phase="WaitingForResources", wait=task)))
    for each in shown:
        assert "-" not in each.replace("-1", ""), each
        assert "comes back" not in each
        assert "first contact" not in each
    if reason in SENTENCES:
        said = wait.why.partition("; place")[0]
        assert " " in said
        assert said in answer["message"]
        assert len(said.split()) >= 5

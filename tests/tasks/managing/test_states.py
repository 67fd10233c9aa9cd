"""What is stored of an attempt: it reads back, and what is damaged or newer is named, with nothing created or lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.manager.state import Made, Stage, State, StateError, read_state
from backoff_ctrl.k8s.tasks.plugins.phases import TaskError, not_ready, queued, running, waiting
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

FULL = State(
    stage=Stage.STARTED,
    plugin="pod",
    made=Made("v1", "Pod", "team", "one-0", "u"),
    phase=Phase.RETRYABLE_FAILURE,
    phase_version=3,
    reason="it failed",
    next_try=1.5,
    ended=TaskError("OOMKilled", "no memory", ErrorKind.SYSTEM),
    cleanup=True,
    told={"e": 2},
)


def test_a_state_reads_back_as_it_was() -> None:
    assert read_state(json.loads(json.dumps(FULL.json())), "team") == FULL
    assert read_state(State().json(), "team") == State() == read_state(None, "team")


DAMAGED: list[tuple[Any, str]] = [
    ([], "instead of an object"),
    ({}, "has version None"),
    ({**FULL.json(), "version": 2}, "written by a newer backoff-ctrl"),
    ({**FULL.json(), "version": "1"}, "has version '1'"),
    ({**FULL.json(), "stage": "Begun"}, "its field stage is 'Begun'"),
    ({**FULL.json(), "object": None}, "its field object is None"),
    ({**FULL.json(), "object": {"name": "x"}}, "its field object"),
    ({**FULL.json(), "object": {**FULL.json()["object"], "name": ""}}, "its field object"),
    ({**FULL.json(), "object": {**FULL.json()["object"], "namespace": "kube-system"}}, "its field object"),
    ({**FULL.json(), "phase": 99}, "its field phase is 99"),
    ({**FULL.json(), "phaseVersion": -1}, "its field phaseVersion"),
    ({**FULL.json(), "reason": 3}, "its field reason"),
    ({**FULL.json(), "error": {"code": "x"}}, "its field error"),
    ({**FULL.json(), "events": {"e": "often"}}, "its field events"),
    ({**FULL.json(), "cleanup": "yes"}, "its field cleanup"),
]


@pytest.mark.parametrize(("stored", "said"), DAMAGED, ids=[each[1] + str(n) for n, each in enumerate(DAMAGED)])
def test_a_damaged_or_newer_state_is_named(stored: Any, said: str) -> None:
    with pytest.raises(StateError, match=said):
        read_state(stored, "team")


async def test_nothing_is_created_for_a_state_that_can_not_be_read_and_it_comes_back_as_it_was(bench: Bench) -> None:
    stored = {**FULL.json(), "version": 7}
    handled = await bench.manager.handle(task(), stored)
    assert handled.state is stored
    assert handled.info.phase is Phase.PERMANENT_FAILURE
    assert handled.info.error is not None
    assert (handled.info.error.code, handled.info.error.kind) == ("CorruptedPluginState", ErrorKind.SYSTEM)
    assert await bench.pods() == []
    await bench.manager.finalize(task(), stored)


def test_a_version_grows_exactly_with_news_and_never_falls() -> None:
    told = State().reporting(State().versioned(waiting("place 2")))
    assert (told.phase, told.phase_version) == (Phase.WAITING_FOR_RESOURCES, 0)
    again = told.versioned(waiting("place 2"))
    assert again.version == 0
    moved = told.versioned(waiting("place 1"))
    assert moved.version == 1
    assert told.reporting(moved).versioned(waiting("place 2")).version == 2
    assert told.versioned(queued("created")).version == 0
    far = State(phase=Phase.RUNNING, phase_version=7, reason="a")
    assert far.versioned(running("a", version=3)).version == 7
    assert far.holding("no answer").phase is Phase.RUNNING
    assert State().holding("no answer") == not_ready("no answer")

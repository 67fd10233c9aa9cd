"""What holds for every conversation, whatever the server answers and in whatever order."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.outcomes import Created
from backoff_ctrl.k8s.gate.creates.actions import (
    Answered,
    Cancelled,
    Declined,
    JoinLine,
    LookUp,
    Pause,
    Raise,
    Refreshed,
    Return,
    Send,
    State,
    Ticketed,
    TimedOut,
    Unknown,
    Unsent,
    Woke,
)
from backoff_ctrl.k8s.gate.creates.conversation import TABLE, Conversation, Creation
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from tests.kit.examples import examples
from tests.kit.playbook import answered, full, lost, never_sent, status

if TYPE_CHECKING:
    from collections.abc import Callable

OURS, THEIRS, GOING = "ours", "theirs", "going"
ANSWERS: list[Callable[[float], Any]] = [
    lambda at: answered(201, at=at),
    lambda at: full(at=at),
    lambda at: status(409, "AlreadyExists", 'pods "x" already exists', at=at),
    lambda at: status(401, "Unauthorized", "Unauthorized", at=at),
    lambda at: status(422, "Invalid", "is invalid", at=at),
    lambda at: status(504, "Timeout", "Timeout: request did not complete within requested timeout", at=at),
    lambda at: answered(429, "Too many requests", at=at),
    lambda at: answered(503, "", at=at),
    lambda at: status(404, "NotFound", 'pods "x" not found', at=at),
    lambda at: status(403, "Forbidden", 'pods "x" is forbidden: User "u" cannot get resource "pods"', at=at),
    lambda at: lost(at=at),
    lambda _: never_sent(),
]


def found(machine: Conversation, whose: str, at: float) -> Answered:
    metadata: dict[str, Any] = {"name": machine.named.name, "annotations": {}}
    if whose == OURS:
        metadata["annotations"][CREATE_ID] = machine.named.create_id
    if whose == GOING:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return answered(200, {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{}]}}, at=at)


def next_event(machine: Conversation, data: st.DataObject, at: float) -> Any:
    stops = [TimedOut("late"), Cancelled(GateClosed())]
    draw = data.draw
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(stops))
    match machine.state:
        case State.LINE:
            return draw(st.sampled_from([Ticketed(), Ticketed(), Ticketed(), Declined("never-fits", "too large")]))
        case State.PAUSED:
            return Woke()
        case State.REFRESHING:
            return Refreshed()
        case State.LOOKING if draw(st.booleans()):
            return found(machine, draw(st.sampled_from([OURS, THEIRS, GOING])), at)
        case _:
            return draw(st.sampled_from(ANSWERS))(at)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), minted=st.booleans(), keyed=st.booleans())
def test_every_conversation_ends_its_tickets_and_keeps_its_name(data: st.DataObject, minted: bool, keyed: bool) -> None:
    """It never sends without a ticket or after a cancellation, uses one name, and holds no ticket at the end."""
    metadata = {"generateName": "w-"} if minted else {"name": "x"}
    creation = Creation("s", "c", "team", "pods", {"kind": "Pod", "metadata": metadata}, key="k" if keyed else None)
    machine = Conversation(creation, random.Random(3))
    holding = cancelled = False
    names = set()
    action, at = machine.start(), 0.0
    for _ in range(60):
        if isinstance(action, Return | Raise):
            break
        event = next_event(machine, data, at)
        assert type(event) in TABLE[machine.state]
        holding = holding or isinstance(event, Ticketed)
        cancelled = cancelled or isinstance(event, Cancelled)
        at += data.draw(st.sampled_from([0.0, 1.0, 45.0]))
        action = machine.handle(event)
        if isinstance(action, Send):
            assert holding
            assert not cancelled
            names.add(action.body["metadata"]["name"])
        if isinstance(action, LookUp):
            names.add(action.name)
        if isinstance(action, JoinLine | Pause) and action.outcome is not None:
            assert holding
            holding = False
        if isinstance(action, JoinLine):
            assert not holding

    assert len(names) <= 1
    if isinstance(action, Return | Raise):
        assert machine.state is State.OVER
        assert action.outcome is not None or not holding
    if isinstance(action, Return) and isinstance(action.outcome, Created):
        assert action.answer.status in (200, 201)


def test_the_events_of_the_property_are_all_there_are() -> None:
    """The property must play every kind of event, including new ones."""
    accepted = {kind for row in TABLE.values() for kind in row}

    assert accepted == {Ticketed, Declined, Answered, Unsent, Unknown, Woke, Refreshed, TimedOut, Cancelled}

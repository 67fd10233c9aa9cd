"""The wait harms no waiter: time limits, cancellation, and requests in flight meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine.facts.outcomes import Created, Expired, Overloaded, Rejected
from backoff_ctrl.k8s.gate.creates.actions import Cancelled, Raise, State, Ticketed, TimedOut
from backoff_ctrl.k8s.gate.creates.conversation import TABLE
from backoff_ctrl.k8s.kube.answers.answer import GateClosed, WaitedTooLong
from tests.kit.conversing import absent, conversation, sent
from tests.kit.playbook import Playbook, answered, full, line, lost, never_sent, nothing, raises, returns

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.creates.conversation import Conversation


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param([], "late; it was never sent", id="never sent"),
        pytest.param(
            [Ticketed(), never_sent()], "late; no connection to the API server could be made", id="no connection"
        ),
        pytest.param(
            [Ticketed(), full("team")],
            'late; the API server\'s last answer was 403: pods "web-0" is forbidden: exceeded quota: team, '
            "requested: pods=1, used: pods=2, limited: pods=2",
            id="refused",
        ),
        pytest.param(
            [Ticketed(), lost(), absent(), lost(), absent()],
            "late; it was sent, but whether it was stored is unknown: look for the object before you create it again",
            id="lost",
        ),
    ],
)
def test_the_error_of_a_time_limit_says_how_far_the_create_came(
    minted: Conversation, events: list[Any], said: str
) -> None:
    """What to do next depends on whether the object may exist."""
    minted.start()
    for event in events:
        minted.handle(event)

    action = minted.handle(TimedOut("late"))

    assert isinstance(action, Raise)
    assert str(action.error) == said


def test_a_time_limit_in_the_middle_of_a_send_waits_for_the_answer() -> None:
    """The limit is for waiting: a request in flight may still succeed, but if refused it does not rejoin the line."""

    def late() -> Playbook:
        machine = conversation(prefix="web-")
        return sent(machine) >> TimedOut("late") << nothing()

    assert late() >> answered(201) << returns(201, Created)
    assert late() >> full() << raises(WaitedTooLong, Rejected)


def test_a_cancelled_create_leaves_the_line(callers: Conversation) -> None:
    """Nothing was sent, and no hold is left."""
    assert Playbook(callers) << line() >> Cancelled(GateClosed()) << raises(GateClosed)


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        pytest.param(answered(201), returns(201, Created), id="stored"),
        pytest.param(full(), raises(GateClosed, Rejected), id="refused"),
        pytest.param(lost(), raises(GateClosed, Expired), id="lost"),
        pytest.param(never_sent(), raises(GateClosed, Overloaded), id="never sent"),
    ],
)
def test_a_create_cancelled_after_it_was_sent_keeps_its_hold_until_the_answer(
    answer: Any, ends: Any, callers: Conversation
) -> None:
    """Whatever the answer is, nothing new is sent."""
    assert sent(callers) >> Cancelled(GateClosed()) << nothing() >> answer << ends


def test_a_create_cut_off_in_the_middle_of_its_send_ends_as_expired(callers: Conversation) -> None:
    """After Ctrl-C in a blocking call no answer will be read: whether the object was stored stays unknown."""
    callers.start()
    callers.handle(Ticketed())

    action = callers.abandon(KeyboardInterrupt())

    assert isinstance(action, Raise)
    assert isinstance(action.outcome, Expired)
    assert callers.state is State.OVER


def test_every_state_can_be_stopped() -> None:
    """A create can be cancelled and time out in any state."""
    unstoppable = [
        state for state, row in TABLE.items() if state is not State.OVER and not {Cancelled, TimedOut} <= set(row)
    ]

    assert unstoppable == []
    assert set(TABLE) == set(State)

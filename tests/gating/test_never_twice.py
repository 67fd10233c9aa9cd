"""Never twice: whatever is lost between the gate and the server, one create makes at most one object."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine.facts.outcomes import Created, Expired, Failed, Rejected
from backoff_ctrl.k8s.gate.creates.actions import LookUp, Send, Ticketed, Woke
from backoff_ctrl.k8s.gate.creates.conversation import LOOK_AGAIN, Conversation, Creation
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT
from tests.kit.conversing import FOREIGN, absent, conversation, may_not_look, sent, stored, taken
from tests.kit.playbook import Playbook, answered, full, line, look_up, lost, pause, raises, returns, send, status

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.creates.actions import Answered


def test_a_full_quota_on_a_name_of_the_callers_is_looked_up_first(callers: Conversation) -> None:
    """A 403 may hide a 409. If the name is absent, the create was refused, and is not looked up again soon."""
    assert (
        sent(callers)
        >> (full(at=1), look_up("web-0"))
        >> (absent(), line(Rejected))
        >> (Ticketed(), send())
        >> (full(at=5), line(Rejected))
        >> (Ticketed(), send())
        >> (full(at=32), look_up("web-0"))
    )


def test_a_full_quota_that_hides_a_foreign_object_is_the_callers_409(callers: Conversation) -> None:
    """Waiting would be useless: the caller gets the 409 that the server would give with room, and the engine learns."""
    assert (
        sent(callers)
        >> (full(), look_up())
        >> (answered(200, FOREIGN), returns(409, Failed, holding="already exists", teaches=True))
    )


def test_a_full_quota_is_a_success_if_our_object_exists() -> None:
    """With an idempotency key another process may create it, even after the look-up that came first."""
    machine = conversation(prefix="web-", key="order-17")

    assert (
        Playbook(machine)
        << look_up(machine.named.name)
        >> (absent(), line())
        >> (Ticketed(), send())
        >> (full(at=LOOK_AGAIN), look_up(machine.named.name))
        >> (answered(200, stored(machine, uid="u1")), returns(201, Created, holding="u1"))
    )


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(lost(), id="connection lost"),
        pytest.param(status(504, "Timeout", "Timeout: request did not complete within requested timeout"), id="504"),
        pytest.param(answered(502, "bad gateway"), id="502"),
    ],
)
def test_an_unknown_outcome_is_looked_up_and_sent_again_under_the_same_name(
    unknown: Answered, minted: Conversation
) -> None:
    """The name was drawn before the first send, so that the second send cannot make a second object."""
    name = minted.named.name

    assert (
        sent(minted, name)
        >> (unknown, look_up(name))
        >> (absent(), send(name))
        >> (answered(201, stored(minted)), returns(201, Created))
    )


def test_an_unknown_outcome_that_was_stored_is_a_success(minted: Conversation) -> None:
    """An object with our create id is returned as a 201."""
    assert (
        sent(minted)
        >> (lost(), look_up())
        >> (answered(200, stored(minted, uid="u1")), returns(201, Created, holding="u1"))
    )


def test_a_resend_that_meets_a_full_quota_is_looked_up_first(minted: Conversation) -> None:
    """The first send may have been stored meanwhile, and may itself fill the quota."""
    assert (
        sent(minted)
        >> (lost(at=10), look_up())
        >> (absent(), send())
        >> (full(at=12), look_up())
        >> (answered(200, stored(minted)), returns(201, Created))
    )


def test_once_the_server_must_have_ended_the_lost_send_a_refusal_is_a_refusal(minted: Conversation) -> None:
    """The server ends each create at 34 s: after that, none of our sends can be in flight."""
    assert (
        sent(minted) >> lost(at=10) << look_up() >> absent() << send() >> full(at=11 + SERVER_LIMIT) << line(Rejected)
    )


def test_a_conflict_with_our_own_object_is_a_success(minted: Conversation) -> None:
    """A 409 AlreadyExists after a resend: the look-up shows that the object is ours."""
    assert (
        sent(minted) >> taken(minted.named.name) << look_up() >> answered(200, stored(minted)) << returns(201, Created)
    )


def test_a_conflict_with_a_foreign_object_is_the_callers(callers: Conversation) -> None:
    """The caller gets the server's own 409, and no hold is left."""
    assert (
        sent(callers)
        >> (taken(), look_up())
        >> (answered(200, FOREIGN), returns(409, Failed, holding="already exists"))
    )


def test_a_terminating_object_of_the_name_is_waited_out_without_a_ticket(callers: Conversation) -> None:
    """Finalizers may take hours: the create holds nothing meanwhile, and rejoins the line when the object is gone."""
    going = {**FOREIGN, "metadata": {"name": "web-0", "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert (
        sent(callers)
        >> (taken(), look_up())
        >> (answered(200, going), pause(Failed, then=LookUp))
        >> (Woke(), look_up())
        >> (answered(200, going), pause(then=LookUp))
        >> (Woke(), look_up())
        >> (absent(), line())
        >> (Ticketed(), send())
        >> (answered(201, stored(callers)), returns(201, Created))
    )


def test_without_permission_to_look_a_conflict_on_our_own_name_is_a_success(minted: Conversation) -> None:
    """No other client could have drawn that name."""
    assert sent(minted) >> taken() << look_up() >> may_not_look() << returns(201, Created, holding=minted.named.name)


def test_without_permission_to_look_a_conflict_on_the_callers_name_is_the_callers(callers: Conversation) -> None:
    """Another client may use a name that the caller chose."""
    assert sent(callers) >> taken() << look_up() >> may_not_look() << returns(409, Failed)


def test_without_permission_to_look_there_is_no_second_look_up(minted: Conversation) -> None:
    """After the first 403 to a look-up, a create with an unknown outcome is simply sent again under its name."""
    assert (
        sent(minted)
        >> (lost(), look_up())
        >> (may_not_look(), send(minted.named.name))
        >> (lost(), pause(then=Send))
        >> (Woke(), send(minted.named.name))
        >> (taken(), returns(201, Created))
    )


def test_an_outcome_that_stays_unknown_ends_as_expired(callers: Conversation) -> None:
    """After five lost answers in a row the caller gets the last error, and the hold ends as expired."""
    playbook = sent(callers) >> lost() << look_up() >> absent() << send()
    for _ in range(4):
        playbook = playbook >> lost() << look_up() >> absent() << pause(then=Send) >> Woke() << send()

    assert playbook >> lost() << raises(ConnectionResetError, Expired)


def test_a_look_up_that_fails_is_tried_again_and_then_given_up(callers: Conversation) -> None:
    """The object may exist, so the ticket ends as expired, never as failed."""
    gone = answered(503, "unavailable")
    playbook = sent(callers) >> answered(504, "x") << look_up()
    for _ in range(5):
        playbook = playbook >> gone << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> gone << returns(504, Expired)


def test_a_create_without_a_name_is_left_to_the_server() -> None:
    """With neither name nor generateName the server reports the error, and a lost answer cannot be looked up."""
    machine = Conversation(Creation("s", "c", "team", "pods", {"metadata": {}}), random.Random(1))

    assert sent(machine) >> lost() << raises(ConnectionResetError, Expired)


def test_a_lost_answer_is_never_reported_as_an_older_refusal(minted: Conversation) -> None:
    """Refused once, sent again, lost, and the look-ups fail: it may exist, so the caller gets the loss, not the 403."""
    gone = answered(503, "unavailable")
    playbook = sent(minted) >> full() << line(Rejected)
    playbook = playbook >> Ticketed() << send() >> lost(at=50) << look_up()
    for _ in range(5):
        playbook = playbook >> gone << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> gone << raises(ConnectionResetError, Expired)

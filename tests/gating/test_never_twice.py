"""Law 16, never twice: whatever gets lost between us and the server, one create makes one object at most."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine.outcomes import Created, Expired, Failed, Rejected
from backoff_ctrl.k8s.creates.actions import LookUp, Send, Ticketed, Woke
from backoff_ctrl.k8s.creates.conversation import Conversation, Creation
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from tests.conversing import STRANGERS, absent, conversation, may_not_look, sent, stored, taken
from tests.playbook import answered, full, line, look_up, lost, pause, raises, returns, send, status

if TYPE_CHECKING:
    from backoff_ctrl.k8s.creates.actions import Answered


def test_a_full_quota_on_a_name_of_the_callers_is_looked_up_first(callers: Conversation) -> None:
    """A 403 may hide a 409: absent means refused, and it is not looked up again at once."""
    assert (
        sent(callers)
        >> full(at=1)
        << look_up("web-0")
        >> absent()
        << line(Rejected)
        >> Ticketed()
        << send()
        >> full(at=5)
        << line(Rejected)
        >> Ticketed()
        << send()
        >> full(at=32)
        << look_up("web-0")
    )


def test_a_full_quota_that_hides_a_strangers_object_is_the_callers_409(callers: Conversation) -> None:
    """Waiting would never end: the caller gets the 409 that the server would say with room, and we learn."""
    assert (
        sent(callers)
        >> full()
        << look_up()
        >> answered(200, STRANGERS)
        << returns(409, Failed, holding="already exists", teaches=True)
    )


def test_a_full_quota_with_our_object_there_is_a_success() -> None:
    """With an idempotency key an earlier process may have made it."""
    machine = conversation(prefix="web-", key="order-17")

    assert (
        sent(machine)
        >> full()
        << look_up(machine.named.name)
        >> answered(200, stored(machine, uid="u1"))
        << returns(201, Created, holding="u1")
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
    """The name was drawn before the first send, so that the second cannot make a second object."""
    name = minted.named.name

    assert (
        sent(minted, name)
        >> unknown
        << look_up(name)
        >> absent()
        << send(name)
        >> answered(201, stored(minted))
        << returns(201, Created)
    )


def test_an_unknown_outcome_that_was_stored_is_a_success(minted: Conversation) -> None:
    """The object that carries our id is our 201."""
    assert (
        sent(minted)
        >> lost()
        << look_up()
        >> answered(200, stored(minted, uid="u1"))
        << returns(201, Created, holding="u1")
    )


def test_a_resend_that_meets_a_full_quota_is_looked_up_first(minted: Conversation) -> None:
    """The first send may have been stored meanwhile, and may be what fills the quota."""
    assert (
        sent(minted)
        >> lost(at=10)
        << look_up()
        >> absent()
        << send()
        >> full(at=12)
        << look_up()
        >> answered(200, stored(minted))
        << returns(201, Created)
    )


def test_once_the_server_must_have_ended_the_lost_send_a_refusal_is_a_refusal(minted: Conversation) -> None:
    """A create ends on the server at 34 s: after that nothing of ours can be under way."""
    assert (
        sent(minted) >> lost(at=10) << look_up() >> absent() << send() >> full(at=11 + SERVER_LIMIT) << line(Rejected)
    )


def test_a_conflict_with_our_own_object_is_a_success(minted: Conversation) -> None:
    """409 AlreadyExists after a resend: looked at, it is ours."""
    assert (
        sent(minted) >> taken(minted.named.name) << look_up() >> answered(200, stored(minted)) << returns(201, Created)
    )


def test_a_conflict_with_a_strangers_object_is_the_callers(callers: Conversation) -> None:
    """Their name, their 409: the server's own answer, and no hold."""
    assert (
        sent(callers)
        >> taken()
        << look_up()
        >> answered(200, STRANGERS)
        << returns(409, Failed, holding="already exists")
    )


def test_a_terminating_object_of_the_name_is_waited_out_without_a_ticket(callers: Conversation) -> None:
    """It may hang on a finalizer for hours: no hold stands meanwhile, and it lines up again when it is gone."""
    going = {**STRANGERS, "metadata": {"name": "web-0", "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert (
        sent(callers)
        >> taken()
        << look_up()
        >> answered(200, going)
        << pause(Failed, then=LookUp)
        >> Woke()
        << look_up()
        >> answered(200, going)
        << pause(then=LookUp)
        >> Woke()
        << look_up()
        >> absent()
        << line()
        >> Ticketed()
        << send()
        >> answered(201, stored(callers))
        << returns(201, Created)
    )


def test_without_permission_to_look_a_conflict_on_our_own_name_is_a_success(minted: Conversation) -> None:
    """Only we could have drawn that name."""
    assert sent(minted) >> taken() << look_up() >> may_not_look() << returns(201, Created, holding=minted.named.name)


def test_without_permission_to_look_a_conflict_on_the_callers_name_is_the_callers(callers: Conversation) -> None:
    """A name that the caller gave may be anybody's."""
    assert sent(callers) >> taken() << look_up() >> may_not_look() << returns(409, Failed)


def test_without_permission_to_look_it_is_not_asked_twice(minted: Conversation) -> None:
    """The first 403 of a look-up settles it: an unknown outcome then is simply sent again, under its name."""
    assert (
        sent(minted)
        >> lost()
        << look_up()
        >> may_not_look()
        << send(minted.named.name)
        >> lost()
        << pause(then=Send)
        >> Woke()
        << send(minted.named.name)
        >> taken()
        << returns(201, Created)
    )


def test_an_outcome_that_stays_unknown_ends_as_expired(callers: Conversation) -> None:
    """After five lost answers in a row the last one is the caller's, and the hold ends as unknown."""
    playbook = sent(callers) >> lost() << look_up() >> absent() << send()
    for _ in range(4):
        playbook = playbook >> lost() << look_up() >> absent() << pause(then=Send) >> Woke() << send()

    assert playbook >> lost() << raises(ConnectionResetError, Expired)


def test_a_look_up_that_fails_is_tried_again_and_then_given_up(callers: Conversation) -> None:
    """The object may exist: the ticket ends as expired, never as failed."""
    gone = answered(503, "unavailable")
    playbook = sent(callers) >> answered(504, "x") << look_up()
    for _ in range(5):
        playbook = playbook >> gone << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> gone << returns(504, Expired)


def test_a_create_without_a_name_is_left_to_the_server() -> None:
    """Neither name nor generateName: the server words the error, and a lost answer cannot be looked up."""
    machine = Conversation(Creation("s", "c", "team", "pods", {"metadata": {}}), random.Random(1))

    assert sent(machine) >> lost() << raises(ConnectionResetError, Expired)


def test_a_lost_answer_that_nobody_can_look_up_is_never_told_as_an_older_refusal(minted: Conversation) -> None:
    """Refused once, sent again, lost, and the look-ups fail: it may exist, so the caller sees the loss, no 403."""
    gone = answered(503, "unavailable")
    playbook = sent(minted) >> full() << line(Rejected)
    playbook = playbook >> Ticketed() << send() >> lost(at=50) << look_up()
    for _ in range(5):
        playbook = playbook >> gone << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> gone << raises(ConnectionResetError, Expired)

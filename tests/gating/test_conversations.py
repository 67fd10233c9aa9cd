"""One create's life, conversation by conversation: law 16 (never twice) and law 17 (the wait never harms)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.tickets import Created, Expired, Failed, Overloaded, Rejected
from k8s.answers import GateClosed, WaitedTooLong
from k8s.conversation import TABLE, Conversation, Creation
from k8s.naming import CREATE_ID
from k8s.outcomes import TREATMENTS
from k8s.patience import SERVER_LIMIT
from k8s.rejections import Lane
from k8s.steps import Cancelled, LookUp, Raise, Refresh, Refreshed, Refused, Send, State, Ticketed, TimedOut, Woke
from tests.playbook import (
    Playbook,
    answered,
    full,
    line,
    look_up,
    lost,
    never_sent,
    nothing,
    pause,
    raises,
    returns,
    says,
    send,
    status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from k8s.steps import Answered


def conversation(name: str | None = "web-0", *, prefix: str | None = None, key: str | None = None) -> Conversation:
    metadata = {"name": name} if prefix is None else {"generateName": prefix}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    return Conversation(Creation("http://s", "me", "team", "pods", body, key=key), random.Random(7))


def stored(machine: Conversation, **metadata: Any) -> Mapping[str, Any]:
    """The object as the server would show it: ours."""
    annotations = {CREATE_ID: machine.named.create_id}
    return {
        "kind": "Pod",
        "metadata": {"name": machine.named.name, "annotations": annotations, **metadata},
        "spec": {"containers": [{"name": "c"}]},
    }


STRANGERS = {"kind": "Pod", "metadata": {"name": "web-0", "uid": "strangers"}, "spec": {"containers": []}}


def taken(name: str = "web-0") -> Answered:
    return status(409, "AlreadyExists", f'pods "{name}" already exists', name=name, kind="pods")


def may_not_look() -> Answered:
    text = 'pods "web-0" is forbidden: User "me" cannot get resource "pods" in API group "" in the namespace "team"'
    return status(403, "Forbidden", text, kind="pods")


def absent() -> Answered:
    return status(404, "NotFound", 'pods "web-0" not found', name="web-0", kind="pods")


def test_a_create_with_room_is_sent_once() -> None:
    """A ticket, a send, a 201: nothing else."""
    machine = conversation()

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send("web-0")
        >> answered(201, stored(machine))
        << returns(201, Created)
    )


def test_a_minted_name_goes_back_in_line_without_a_look_up() -> None:
    """Nobody else can have drawn our name: a full quota means refused, and the ticket teaches when it was sent."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send(machine.named.name)
        >> full("team", at=3.5)
        << line(Rejected, quota="team", sent=3.5)
        >> Ticketed()
        << send(machine.named.name)
        >> answered(201, stored(machine))
        << returns(201, Created)
    )


def test_a_full_quota_on_a_name_of_the_callers_is_looked_up_first() -> None:
    """A 403 may hide a 409: absent means refused, and it is not looked up again at once."""
    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
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


def test_a_full_quota_that_hides_a_strangers_object_is_the_callers_409() -> None:
    """Waiting would never end: the caller gets the 409 that the server would say with room, and we learn."""
    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
        >> full()
        << look_up()
        >> answered(200, STRANGERS)
        << returns(409, Failed, holding="already exists", teaches=True)
    )


def test_a_full_quota_with_our_object_there_is_a_success() -> None:
    """With an idempotency key an earlier process may have made it."""
    machine = conversation(prefix="web-", key="order-17")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
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
def test_an_unknown_outcome_is_looked_up_and_sent_again_under_the_same_name(unknown: Answered) -> None:
    """The name was drawn before the first send, so that the second cannot make a second object."""
    machine = conversation(prefix="web-")
    name = machine.named.name

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send(name)
        >> unknown
        << look_up(name)
        >> absent()
        << send(name)
        >> answered(201, stored(machine))
        << returns(201, Created)
    )


def test_an_unknown_outcome_that_was_stored_is_a_success() -> None:
    """The object that carries our id is our 201."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
        >> lost()
        << look_up()
        >> answered(200, stored(machine, uid="u1"))
        << returns(201, Created, holding="u1")
    )


def test_a_resend_that_meets_a_full_quota_is_looked_up_first() -> None:
    """The first send may have been stored meanwhile, and may be what fills the quota."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
        >> lost(at=10)
        << look_up()
        >> absent()
        << send()
        >> full(at=12)
        << look_up()
        >> answered(200, stored(machine))
        << returns(201, Created)
    )


def test_once_the_server_must_have_ended_the_lost_send_a_refusal_is_a_refusal() -> None:
    """A create ends on the server at 34 s: after that nothing of ours can be under way."""
    assert (
        Playbook(conversation(prefix="web-"))
        << line()
        >> Ticketed()
        << send()
        >> lost(at=10)
        << look_up()
        >> absent()
        << send()
        >> full(at=11 + SERVER_LIMIT)
        << line(Rejected)
    )


def test_a_conflict_with_our_own_object_is_a_success() -> None:
    """409 AlreadyExists after a resend: looked at, it is ours."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
        >> taken(machine.named.name)
        << look_up()
        >> answered(200, stored(machine))
        << returns(201, Created)
    )


def test_a_conflict_with_a_strangers_object_is_the_callers() -> None:
    """Their name, their 409: the server's own answer, and no hold."""
    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
        >> taken()
        << look_up()
        >> answered(200, STRANGERS)
        << returns(409, Failed, holding="already exists")
    )


def test_a_terminating_object_of_the_name_is_waited_out_without_a_ticket() -> None:
    """It may hang on a finalizer for hours: no hold stands meanwhile, and it lines up again when it is gone."""
    machine = conversation()
    going = {**STRANGERS, "metadata": {"name": "web-0", "deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
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
        >> answered(201, stored(machine))
        << returns(201, Created)
    )


def test_without_permission_to_look_a_conflict_on_our_own_name_is_a_success() -> None:
    """Only we could have drawn that name."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
        >> taken()
        << look_up()
        >> may_not_look()
        << returns(201, Created, holding=machine.named.name)
    )


def test_without_permission_to_look_a_conflict_on_the_callers_name_is_the_callers() -> None:
    """A name that the caller gave may be anybody's."""
    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
        >> taken()
        << look_up()
        >> may_not_look()
        << returns(409, Failed)
    )


def test_without_permission_to_look_it_is_not_asked_twice() -> None:
    """The first 403 of a look-up settles it: an unknown outcome then is simply sent again, under its name."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
        >> lost()
        << look_up()
        >> may_not_look()
        << send(machine.named.name)
        >> lost()
        << pause(then=Send)
        >> Woke()
        << send(machine.named.name)
        >> taken()
        << returns(201, Created)
    )


def test_refused_credentials_are_refreshed_once() -> None:
    """The second 401 in a row is the caller's."""
    refused = status(401, "Unauthorized", "Unauthorized")

    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
        >> refused
        << says(Refresh)
        >> Refreshed()
        << send()
        >> refused
        << returns(401, Failed)
    )


@pytest.mark.parametrize(
    ("answer", "scope"),
    [
        pytest.param(answered(429, "Too many requests", headers={"Retry-After": "2"}), "flow", id="429"),
        pytest.param(answered(503, "unavailable"), "flow", id="503"),
        pytest.param(
            status(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified',
                   kind="resourcequotas", name="q"),
            "namespace",
            id="409 on a quota",
        ),
        pytest.param(
            status(500, "InternalError", "Internal error occurred: resource quota evaluation timed out"),
            "namespace",
            id="evaluation timed out",
        ),
    ],
)  # fmt: skip
def test_answers_that_ask_for_patience_go_back_in_line(answer: Answered, scope: str) -> None:
    """Not stored, and nobody's fault: the engine decides when to try again."""
    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
        >> answer
        << line(Overloaded, scope=scope)
        >> Ticketed()
        << send()
    )


def test_a_connection_never_made_is_sent_again_without_a_look_up_and_given_up_in_the_end() -> None:
    """A wrong address must not hang for ever: after six tries in a row the caller sees the transport's error."""
    playbook = Playbook(conversation()) << line()
    for _ in range(6):
        playbook = playbook >> Ticketed() << send() >> never_sent() << line(Overloaded, scope="flow")

    assert playbook >> Ticketed() << send() >> never_sent() << raises(ConnectionRefusedError, Failed)


def test_an_outcome_that_stays_unknown_ends_as_expired() -> None:
    """After five lost answers in a row the last one is the caller's, and the hold ends as unknown."""
    playbook = Playbook(conversation()) << line() >> Ticketed() << send() >> lost() << look_up() >> absent() << send()
    for _ in range(4):
        playbook = playbook >> lost() << look_up() >> absent() << pause(then=Send) >> Woke() << send()

    assert playbook >> lost() << raises(ConnectionResetError, Expired)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(status(422, "Invalid", 'Pod "web-0" is invalid: spec.containers: Required value'), id="422"),
        pytest.param(status(404, "NotFound", 'namespaces "team" not found'), id="no namespace"),
        pytest.param(
            status(403, "Forbidden", 'pods "web-0" is forbidden: violates PodSecurity "restricted:latest"'), id="policy"
        ),
        pytest.param(
            status(403, "Forbidden", 'pods "web-0" is forbidden: failed quota: q: must specify limits.cpu for: c'),
            id="must specify",
        ),
    ],
)
def test_permanent_answers_are_given_back_at_once(answer: Answered) -> None:
    """Asking again would not help, and no hold stays behind."""
    assert Playbook(conversation()) << line() >> Ticketed() << send() >> answer << returns(answer.answer.status, Failed)


def test_never_fits_gives_back_the_refusal_that_proved_it() -> None:
    """The engine's verdict comes with the server's own words."""
    assert (
        Playbook(conversation(prefix="web-"))
        << line()
        >> Ticketed()
        << send()
        >> full("small")
        << line(Rejected)
        >> Refused("never-fits", "asks more than small allows")
        << returns(403, holding="exceeded quota: small")
    )


@pytest.mark.parametrize(("reason", "code"), [("never-fits", 403), ("too-many-waiting", 429)])
def test_a_refusal_before_anything_was_sent_is_worded_here(reason: Any, code: int) -> None:
    """The client raises it as it would raise the server's."""
    assert Playbook(conversation()) << line() >> Refused(reason, "because") << returns(code, holding="because")


def test_a_time_limit_ends_the_wait_with_the_last_answer() -> None:
    """In line nothing is lost: the request leaves."""
    machine = conversation(prefix="web-")

    assert (
        Playbook(machine)
        << line()
        >> Ticketed()
        << send()
        >> full("team")
        << line(Rejected)
        >> TimedOut("waited 5 s")
        << raises(WaitedTooLong)
    )
    assert machine.last is not None
    assert machine.last.status == 403


def test_a_time_limit_in_the_middle_of_a_send_waits_for_the_answer() -> None:
    """It limits waiting: what is in flight may still succeed, and if refused it does not line up again."""

    def late() -> Playbook:
        machine = conversation(prefix="web-")
        return Playbook(machine) << line() >> Ticketed() << send() >> TimedOut("late") << nothing()

    assert late() >> answered(201) << returns(201, Created)
    assert late() >> full() << raises(WaitedTooLong, Rejected)


def test_a_cancelled_create_leaves_the_line() -> None:
    """Nothing was sent; nothing stays."""
    assert Playbook(conversation()) << line() >> Cancelled(GateClosed()) << raises(GateClosed)


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        pytest.param(answered(201), returns(201, Created), id="stored"),
        pytest.param(full(), raises(GateClosed, Rejected), id="refused"),
        pytest.param(lost(), raises(GateClosed, Expired), id="lost"),
        pytest.param(never_sent(), raises(GateClosed, Overloaded), id="never sent"),
    ],
)
def test_a_create_cancelled_after_it_was_sent_keeps_its_hold_until_the_answer(answer: Any, ends: Any) -> None:
    """And asks for nothing new, whatever the answer is."""
    assert (
        Playbook(conversation())
        << line()
        >> Ticketed()
        << send()
        >> Cancelled(GateClosed())
        << nothing()
        >> answer
        << ends
    )


def test_a_look_up_that_fails_is_tried_again_and_then_given_up() -> None:
    """The object may exist: the ticket ends as expired, never as failed."""
    gone = answered(503, "unavailable")
    playbook = Playbook(conversation()) << line() >> Ticketed() << send() >> answered(504, "x") << look_up()
    for _ in range(5):
        playbook = playbook >> gone << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> gone << returns(504, Expired)


def test_a_create_cut_off_in_the_middle_of_its_send_ends_as_expired() -> None:
    """Ctrl-C in a blocking call: nobody will read the answer, so whether it was stored stays unknown."""
    machine = conversation()
    machine.start()
    machine.hear(Ticketed())

    action = machine.abandon(KeyboardInterrupt())

    assert isinstance(action, Raise)
    assert isinstance(action.outcome, Expired)
    assert machine.state is State.OVER


def test_every_lane_has_its_treatment() -> None:
    """A new lane without a row would be an internal error at the worst moment."""
    assert set(TREATMENTS) == set(Lane)


def test_every_state_can_be_stopped() -> None:
    """Whatever it is doing, a create can be cancelled and timed out."""
    deaf = [state for state, row in TABLE.items() if state is not State.OVER and not {Cancelled, TimedOut} <= set(row)]

    assert deaf == []
    assert set(TABLE) == set(State)


def test_an_unreadable_object_in_a_201_is_a_success_all_the_same() -> None:
    """The charge is then the estimate."""
    machine = conversation()

    assert Playbook(machine) << line() >> Ticketed() << send() >> answered(201, "not json") << returns(201, Created)


def test_a_create_without_a_name_is_left_to_the_server() -> None:
    """Neither name nor generateName: the server words the error, and a lost answer cannot be looked up."""
    machine = Conversation(Creation("s", "c", "team", "pods", {"metadata": {}}), random.Random(1))

    assert Playbook(machine) << line() >> Ticketed() << send() >> lost() << raises(ConnectionResetError, Expired)


def test_a_lost_answer_that_nobody_can_look_up_is_never_told_as_an_older_refusal() -> None:
    """Refused once, sent again, lost, and the look-ups fail: it may exist, so the caller sees the loss, no 403."""
    gone = answered(503, "unavailable")
    playbook = Playbook(conversation(prefix="web-")) << line() >> Ticketed() << send() >> full() << line(Rejected)
    playbook = playbook >> Ticketed() << send() >> lost(at=50) << look_up()
    for _ in range(5):
        playbook = playbook >> gone << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> gone << raises(ConnectionResetError, Expired)

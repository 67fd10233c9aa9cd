"""One create's life: the action that follows each kind of answer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine.facts.outcomes import Created, Failed, Overloaded, Rejected, Uncounted
from backoff_ctrl.k8s.gate.creates.actions import Declined, LookUp, Refresh, Refreshed, Ticketed
from backoff_ctrl.k8s.gate.creates.conversation import Conversation
from backoff_ctrl.k8s.gate.creates.treatments import TREATMENTS, Denials
from backoff_ctrl.k8s.kube.answers.rejections import Lane
from tests.kit.conversing import conversation, sent, stored, taken
from tests.kit.playbook import Playbook, answered, full, line, lost, never_sent, raises, returns, says, send, status

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.creates.actions import Answered


def test_a_minted_name_goes_back_in_line_without_a_look_up(minted: Conversation) -> None:
    """No other client can use our name, so a full quota means refused. The outcome carries the time of the send."""
    assert (
        sent(minted, minted.named.name)
        >> (full("team", at=3.5), line(Rejected, quota="team", sent=3.5))
        >> (Ticketed(), send(minted.named.name))
        >> (answered(201, stored(minted)), returns(201, Created))
    )


def test_refused_credentials_are_refreshed_once(callers: Conversation) -> None:
    """The caller gets the second 401 in a row."""
    refused = status(401, "Unauthorized", "Unauthorized")

    assert sent(callers) >> refused << says(Refresh) >> Refreshed() << send() >> refused << returns(401, Failed)


@pytest.mark.parametrize(
    ("answer", "scope"),
    [
        pytest.param(answered(429, "Too many requests", headers={"Retry-After": "2"}), "flow", id="429"),
        pytest.param(answered(503, "unavailable"), "flow", id="503"),
        pytest.param(
            status(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified',
                   kind="resourcequotas", name="q"),
            "quota",
            id="409 on a quota",
        ),
        pytest.param(
            status(500, "InternalError", "Internal error occurred: resource quota evaluation timed out"),
            "namespace",
            id="evaluation timed out",
        ),
    ],
)  # fmt: skip
def test_a_create_that_should_be_tried_later_rejoins_the_line(
    answer: Answered, scope: str, callers: Conversation
) -> None:
    """It was not stored, and the cause passes by itself: the engine decides when to try again."""
    assert sent(callers) >> answer << line(Overloaded, scope=scope) >> Ticketed() << send()


def test_a_kind_that_a_quota_has_not_counted_yet_is_sent_again_and_slows_nobody_else(callers: Conversation) -> None:
    """The quota controller will count it: the engine decides when."""
    text = 'pods "web-0" is forbidden: status unknown for quota: q, resources: pods'
    assert sent(callers) >> status(403, "Forbidden", text) << line(Uncounted) >> Ticketed() << send()


DENIED = status(403, "Forbidden", 'pods is forbidden: User "me" cannot create resource "pods" in API group "" in ...')


def test_a_denial_of_whoever_was_never_served_is_the_callers_at_once(callers: Conversation) -> None:
    """Rights are missing."""
    assert sent(callers) >> DENIED << returns(403, Failed)


@pytest.mark.parametrize("before", ["stored", "full"])
def test_a_denial_of_whoever_was_served_before_counts_after_half_a_minute(before: str) -> None:
    """An API server that has just started denies everything. What was stored or refused by a quota proves rights."""
    denials = Denials()

    def another() -> Conversation:
        creation = conversation().creation
        return Conversation(creation, random.Random(7), denials=denials)

    earlier = another()
    answer = answered(201, stored(earlier)) if before == "stored" else full("q")
    ended = returns(201, Created) if before == "stored" else line(Rejected)
    assert sent(earlier) >> answer << (ended if before == "stored" else says(LookUp))
    playbook = sent(another())
    for at in (0.0, 1.0, 29.9):
        playbook = playbook >> replace(DENIED, now=at) << line(Overloaded, scope="namespace") >> Ticketed() << send()
    assert playbook >> replace(DENIED, now=30.0) << returns(403, Failed)
    assert sent(another()) >> replace(DENIED, now=30.1) << returns(403, Failed), "rights are missing by now"


def test_a_denial_of_whoever_stood_in_line_counts_after_half_a_minute() -> None:
    """It may be the first that is sent, by a server that started meanwhile; rights that lack are still told."""
    denials = Denials()

    def another() -> Conversation:
        return Conversation(conversation().creation, random.Random(7), denials=denials)

    waited = Ticketed(waited=True)
    playbook = Playbook(another()) << line()
    for at in (0.0, 29.9):
        playbook = playbook >> waited << send() >> replace(DENIED, now=at) << line(Overloaded, scope="namespace")
    assert playbook >> waited << send() >> replace(DENIED, now=30.0) << returns(403, Failed)
    assert sent(another()) >> replace(DENIED, now=30.1) << returns(403, Failed), "this one was sent at once"


def test_a_create_that_was_under_way_when_the_server_ended_is_found_though_that_is_denied_at_first() -> None:
    """Its look-up and its repeat are denied until RBAC is loaded; the name that is taken then is looked up again."""
    machine = Conversation(conversation().creation, random.Random(7), denials=Denials())
    playbook = sent(machine) >> lost(at=1.0) << says(LookUp) >> replace(DENIED, now=2.0) << send()
    playbook = playbook >> replace(DENIED, now=2.1) << line(Overloaded, scope="namespace") >> Ticketed() << send()
    assert playbook >> taken() << says(LookUp) >> answered(200, stored(machine)) << returns(201, Created)


def test_half_a_minute_of_denials_begins_anew_with_any_success() -> None:
    """For all creates of one caller, namespace and kind together."""
    denials = Denials()

    def another() -> Conversation:
        return Conversation(conversation().creation, random.Random(7), denials=denials)

    for at in (0.0, 40.0):
        machine = another()
        assert sent(machine) >> answered(201, stored(machine)) << returns(201, Created)
        assert sent(another()) >> replace(DENIED, now=at) << line(Overloaded, scope="namespace")


def test_a_connection_never_made_is_sent_again_without_a_look_up_and_given_up_in_the_end(callers: Conversation) -> None:
    """A wrong address must not wait for ever: after six tries in a row the caller gets the transport's error."""
    playbook = Playbook(callers) << line()
    for _ in range(6):
        playbook = playbook >> Ticketed() << send() >> never_sent() << line(Overloaded, scope="flow")

    assert playbook >> Ticketed() << send() >> never_sent() << raises(ConnectionRefusedError, Failed)


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
def test_permanent_answers_are_given_back_at_once(answer: Answered, callers: Conversation) -> None:
    """Trying again would not help. No hold is left."""
    assert sent(callers) >> answer << returns(answer.answer.status, Failed)


def test_never_fits_gives_back_the_refusal_that_proved_it(minted: Conversation) -> None:
    """The caller gets the server's own refusal with the engine's verdict."""
    assert (
        sent(minted)
        >> (full("small"), line(Rejected))
        >> (Declined("never-fits", "asks more than small allows"), returns(403, holding="exceeded quota: small"))
    )


@pytest.mark.parametrize(("reason", "code"), [("never-fits", 403), ("too-many-waiting", 429)])
def test_a_refusal_before_anything_was_sent_is_worded_here(reason: Any, code: int, callers: Conversation) -> None:
    """The client raises it as it would raise the server's answer."""
    assert Playbook(callers) << line() >> Declined(reason, "because") << returns(code, holding="because")


def test_every_lane_has_its_treatment() -> None:
    """A new lane without a row would be an internal error."""
    assert set(TREATMENTS) == set(Lane)


def test_an_unreadable_object_in_a_201_is_a_success_all_the_same(callers: Conversation) -> None:
    """The engine then keeps its estimate of the charge."""
    assert sent(callers) >> answered(201, "not json") << returns(201, Created)

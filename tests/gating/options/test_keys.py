"""Idempotency keys: what a key has made is found before anything is sent, and one key makes one object."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl.engine.facts.outcomes import Created, Rejected
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient, waiting
from backoff_ctrl.k8s.gate.creates.actions import LookUp, Refresh, Refreshed, Send, Ticketed, Unsent, Woke
from backoff_ctrl.k8s.gate.creates.creation import Creation, KeyReusedError
from backoff_ctrl.k8s.gate.creates.naming import BODY_HASH, CREATE_ID, UNSIGNED
from backoff_ctrl.k8s.gate.creates.ungated import Ungated, ungated
from backoff_ctrl.k8s.gate.threads import Gate
from tests.kit.conversing import FOREIGN, absent, conversation, may_not_look, stored, taken
from tests.kit.gated_creates import core_of, pod
from tests.kit.playbook import (
    Playbook,
    answered,
    full,
    line,
    look_up,
    lost,
    never_sent,
    pause,
    raises,
    returns,
    says,
    send,
    status,
)

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.creates.conversation import Conversation
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


@pytest.fixture
def keyed() -> Conversation:
    """A create with a key, under a name that the key gives."""
    return conversation(prefix="web-", key="order-17")


# -- one create's life ---------


def test_what_the_key_has_made_is_returned_before_the_line(keyed: Conversation) -> None:
    """A create that is sent again would be charged although its object exists, and would wait behind it."""
    ours = stored(keyed, uid="u1")
    assert Playbook(keyed) << look_up(keyed.named.name) >> answered(200, ours) << returns(201, holding="u1")


def test_a_new_key_joins_the_line_after_one_look_up(keyed: Conversation) -> None:
    """From there on it is a create like any other."""
    assert (
        Playbook(keyed)
        << look_up(keyed.named.name)
        >> (absent(), line())
        >> (Ticketed(), send(keyed.named.name))
        >> (answered(201, stored(keyed)), returns(201, Created))
    )


def test_a_refusal_soon_after_the_look_up_is_not_looked_up_again(keyed: Conversation) -> None:
    """The name was not there a moment ago."""
    playbook = Playbook(keyed) << look_up() >> absent() << line() >> Ticketed() << send()
    assert playbook >> full(at=5) << line(Rejected)


def test_without_permission_to_look_it_goes_on_as_without_a_key(keyed: Conversation) -> None:
    """The 409 on the key's own name is the success, and no second look-up is tried."""
    assert (
        Playbook(keyed)
        << look_up()
        >> (may_not_look(), line())
        >> (Ticketed(), send())
        >> (taken(keyed.named.name), returns(201, Created, holding=keyed.named.name))
    )


def test_a_foreign_object_of_the_callers_name_is_a_409_at_once() -> None:
    """It would be a 409 with room, too."""
    machine = conversation(key="order-17")
    assert Playbook(machine) << look_up("web-0") >> answered(200, FOREIGN) << returns(409, holding="already exists")


def test_old_credentials_are_renewed_before_the_look_up_is_repeated(keyed: Conversation) -> None:
    """A 401 must not lead to a create that exists. The second one in a row is left to the create."""
    refused = status(401, "Unauthorized", "Unauthorized")
    assert (
        Playbook(keyed)
        << look_up()
        >> (refused, says(Refresh))
        >> (Refreshed(), look_up())
        >> (refused, pause(then=LookUp))
        >> (Woke(), look_up())
        >> (absent(), line())
    )


@pytest.mark.parametrize(
    ("failure", "end"),
    [
        pytest.param(never_sent(), raises(ConnectionRefusedError), id="no server"),
        pytest.param(lost(), line(), id="lost"),
        pytest.param(answered(503, "unavailable"), line(), id="503"),
    ],
)
def test_a_look_up_that_fails_is_tried_six_times(keyed: Conversation, failure: Any, end: Any) -> None:
    """A server that is not there is the caller's error; after other failures the create is sent, as without a key."""
    playbook = Playbook(keyed) << look_up()
    for _ in range(5):
        playbook = playbook >> failure << pause(then=LookUp) >> Woke() << look_up()

    assert playbook >> failure << end


def test_a_key_that_meets_another_body_is_an_error(keyed: Conversation) -> None:
    """The hash of the body as asked for is in an annotation; an object without it is taken as it is."""
    ours = dict(stored(keyed))
    other = {**ours["metadata"]["annotations"], BODY_HASH: "another"}
    theirs = {**ours, "metadata": {**ours["metadata"], "annotations": other}}

    assert Playbook(keyed) << look_up() >> answered(200, theirs) << raises(KeyReusedError)


def unenforced(key: str | None = "order-17") -> Ungated:
    body = {"kind": "Pod", "metadata": {"generateName": "web-"}}
    return ungated(Creation("s", "c", "team", "pods", body, key=key), random.Random(1), UNSIGNED)


def test_a_key_keeps_its_promise_where_nothing_is_enforced() -> None:
    """Modes decide on the waiting alone."""
    first = unenforced()
    assert first.named is not None
    annotations = {CREATE_ID: first.named.create_id, BODY_HASH: first.named.body_hash}
    made = {"kind": "Pod", "metadata": {"name": first.named.name, "annotations": annotations}}

    assert Playbook(first) << look_up(first.named.name) >> absent() << send(first.named.name)
    assert Playbook(unenforced()) << look_up() >> answered(200, made) << returns(201)
    assert Playbook(unenforced()) << look_up() >> Unsent(OSError()) << says(Send)
    annotations[BODY_HASH] = "another"
    assert Playbook(unenforced()) << look_up() >> answered(200, made) << raises(KeyReusedError)


# -- through a client ---------


def test_a_key_asked_for_again_costs_one_get_and_no_quota(sandbox: BackgroundSandbox, core: Any) -> None:
    """After a restart the running pod is returned under a full quota, at once, and nothing is charged for it."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    with waiting(key="order-17"):
        first = core.create_namespaced_pod("team", pod())
    sent = sandbox.counters.creates.seen

    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate()) as started_again:
        with waiting(key="order-17", timeout=0):
            again = core_of(started_again).create_namespaced_pod("team", pod())
        assert started_again.gate.counts.sent == 0

    assert again.metadata.uid == first.metadata.uid
    assert sandbox.counters.creates.seen == sent
    assert core.read_namespaced_resource_quota("q", "team").status.used == {"pods": "1"}


def test_the_servers_defaults_are_no_other_body(sandbox: BackgroundSandbox, core: Any) -> None:
    """The stored pod has fields that nobody asked for; another body under the same key is refused by name."""
    sandbox.create_quota("team", "q", {"pods": "9"})
    with waiting(key="order-17"):
        made = core.create_namespaced_pod("team", pod(cpu="100m"))
        again = core.create_namespaced_pod("team", pod(cpu="100m"))
    assert made.spec.restart_policy == "Always"  # a default
    assert again.metadata.uid == made.metadata.uid

    with waiting(key="order-17"), pytest.raises(KeyReusedError, match="'order-17' was used before for pods team/p-"):
        core.create_namespaced_pod("team", pod(cpu="200m"))
    assert len(core.list_namespaced_pod("team").items) == 1


def test_a_copied_manifest_is_not_taken_for_the_object_it_was_copied_from(
    sandbox: BackgroundSandbox, core: Any
) -> None:
    """It carries the create id of the living pod: the caller gets the 409, as without the gate."""
    exported = core.api_client.sanitize_for_serialization(core.create_namespaced_pod("team", pod("web")))
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        del exported["metadata"][name]

    with pytest.raises(ApiException) as caught:
        core.create_namespaced_pod("team", exported)
    assert caught.value.status == 409
    sandbox.create_quota("team", "q", {"pods": "1"})
    with pytest.raises(ApiException) as caught:  # hidden behind a full quota, too
        core.create_namespaced_pod("team", exported)
    assert caught.value.status == 409

"""The errors of a wait that ended: what it waited for, in words and as the answer that existing code parses."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl import AsyncGatedApiClient, Gate, GateClosed, GatedApiClient, WaitedTooLong, waiting
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.actions import Raise, Ticketed, TimedOut
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual
from tests.kit.conversing import absent
from tests.kit.gated_creates import core_of, pod
from tests.kit.official import aio
from tests.kit.playbook import full, lost, status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.gate.creates.actions import Event
    from backoff_ctrl.k8s.gate.creates.conversation import Conversation
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

AT_A_QUOTA = Wait("team", "pods", "web-0", "quota", "q", "pods", asked_nano=10**9, limited_nano=2 * 10**9)


def known(gate: Gate | AsyncGate, hard: Mapping[str, str], used: Mapping[str, str]) -> None:
    """Let the gate know a quota, as a watch would."""
    spec, charged = ({name: parse_quantity(text) for name, text in each.items()} for each in (hard, used))
    gate.ledger.observe_quota("team", "big", ObservedQuota(spec=spec, hard=spec, used=charged))
    gate.ledger.watching("team")


def test_a_create_that_was_never_sent_gets_the_refusal_that_the_server_would_give(sandbox: BackgroundSandbox) -> None:
    """Known from the watch: nothing was sent, and code that parses ``exceeded quota`` goes on working."""
    gate = Gate()
    known(gate, {"requests.memory": "4Gi", "requests.cpu": "2"}, {"requests.memory": "3Gi", "requests.cpu": "1500m"})
    asks = pod("web")
    asks["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "600m", "memory": "1Gi"}}
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        with pytest.raises(ApiException) as caught, waiting(timeout=0.01):
            core_of(api).create_namespaced_pod("team", asks)
        assert gate.counts.sent == 0

    error: Any = caught.value
    message = (
        'pods "web" is forbidden: exceeded quota: big, '
        "requested: requests.cpu=600m, used: requests.cpu=1500m, limited: requests.cpu=2"
    )
    said = json.loads(error.body)
    assert (error.status, said["kind"], said["reason"], said["code"]) == (403, "Status", "Forbidden", 403)
    assert said["message"] == message
    assert "(quota: asks requests.cpu=600m, 500m left in quota big; place 1 in line)" in error.reason
    assert (error.quota_rejection.quota, error.quota_rejection.retryable) == ("big", True)
    assert (error.wait.resource, error.wait.asked, error.wait.left, error.wait.limited) == (
        "requests.cpu", "600m", "500m", "2",
    )  # fmt: skip
    assert error.wait.asked_nano == 600_000_000
    assert isinstance(error, WaitedTooLong)
    assert isinstance(error, TimeoutError)


def time_out(machine: Conversation, *events: Event, wait: Wait = AT_A_QUOTA) -> Any:
    """Return the error of a create that times out at a quota after these events."""
    machine.start()
    for event in events:
        machine.handle(event)
    action = machine.handle(TimedOut("late", wait))
    assert isinstance(action, Raise)
    return action.error


def test_the_servers_own_refusal_is_kept(callers: Conversation) -> None:
    """It is the last word of a quota."""
    assert time_out(callers, Ticketed(), full(), absent()).answer is callers.last


def test_a_quota_counts_more_than_an_older_answer(callers: Conversation) -> None:
    """The last answer was a 429 of a while ago."""
    error = time_out(callers, Ticketed(), status(429, "TooManyRequests", "slow down"))
    assert error.answer.status == 403
    assert b"exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in error.answer.body


def test_the_refusal_names_only_what_lacks_room(callers: Conversation) -> None:
    """A refusal that says "requested 1, used 1, limited 2" contradicts itself."""
    fits = dataclasses.replace(AT_A_QUOTA, left_nano=10**9)
    cpu = "requests.cpu", 2 * 10**9, 10**9, 4 * 10**9
    error = time_out(callers, wait=dataclasses.replace(fits, beside=(cpu,)))
    assert json.loads(error.answer.body)["message"].endswith(
        "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4"
    )


def test_whoever_waits_for_others_alone_is_shown_no_refusal(callers: Conversation) -> None:
    """It fits, and is merely seventh in line."""
    behind = dataclasses.replace(AT_A_QUOTA, left_nano=10**9, reason="kept-for-another", place=7)
    error = time_out(callers, wait=behind)
    assert (error.answer, error.wait.place) == (None, 7)


def test_a_create_that_may_be_stored_shows_no_refusal(callers: Conversation) -> None:
    """Code that sees a 403 would create it once more."""
    error = time_out(callers, Ticketed(), lost(), absent(), lost(), absent())
    assert (error.answer, str(error)[:43]) == (None, "late; it was sent, but whether it was store")


def test_what_never_fits_is_refused_as_by_the_server_and_is_not_retryable(sandbox: BackgroundSandbox) -> None:
    """It is known from the watch: nothing is sent."""
    gate = Gate()
    known(gate, {"requests.cpu": "1"}, {"requests.cpu": "250m"})
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        with pytest.raises(ApiException) as caught:
            core_of(api).create_namespaced_pod("team", pod("web", cpu="4"))
        assert gate.counts.sent == 0

    rejection = caught.value.quota_rejection  # type: ignore[attr-defined]
    assert caught.value.status == 403
    assert (rejection.never_fits, rejection.retryable) == (True, False)
    assert (rejection.requested, rejection.used, rejection.limited) == (
        {"requests.cpu": 4 * 10**9}, {"requests.cpu": 250 * 10**6}, {"requests.cpu": 10**9},
    )  # fmt: skip
    assert "(this never fits: request less, or have the quota raised)" in str(caught.value.body)


async def test_a_closed_gate_is_an_api_exception_for_each_kind_of_client(sandbox: BackgroundSandbox) -> None:
    """And ``GateClosed``, which is on the face. It passes between processes, too."""
    gate = AsyncGate()
    known(gate, {"pods": "1"}, {"pods": "1"})
    api = AsyncGatedApiClient(aio.Configuration(host=sandbox.url), gate=gate, on_wait=lambda _: gate.ledger.close())
    core: Any = aio.CoreV1Api(api)
    with pytest.raises(aio.ApiException) as caught:
        await core.create_namespaced_pod("team", pod("web"))
    await api.close()
    with (
        GatedApiClient(client.Configuration(host=sandbox.url), gate=gate, on_wait=lambda _: gate.ledger.close()) as one,
        pytest.raises(ApiException) as other,
    ):
        core_of(one).create_namespaced_pod("team", pod("web"))

    for error in (caught.value, other.value):
        assert isinstance(error, GateClosed)
        assert (error.status, str(error)) == (  # type: ignore[attr-defined]  # of the client's class
            0,
            "the gate was closed: pods team/web was cancelled before it was created",
        )
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (GateClosed, str(error))


class SlowToList:
    """A transport whose list of quotas takes a minute."""

    sent = 0

    async def list_quotas(self) -> Answer:
        await asyncio.sleep(60)
        return Answer(200, {}, b'{"items":[]}')

    async def send(self, body: dict[str, Any]) -> Answer:
        self.sent += 1
        return Answer(201, {}, b"{}")

    async def look_up(self, name: str) -> Answer:
        raise AssertionError(f"nothing was sent: {name}")


@pytest.mark.parametrize("creates", [1, 2])
def test_the_time_limit_runs_while_the_quotas_are_listed(creates: int) -> None:
    """For the create that lists them, and for the one that waits for that."""

    async def create() -> tuple[float, int]:
        gate, server = AsyncGate(), SlowToList()
        gate.ledger.line.list_quotas_first(600.0)
        began = asyncio.get_running_loop().time()
        what = [Creation("here", "me", "team", "pods", pod(str(n)), timeout=2) for n in range(creates)]
        ends = await asyncio.gather(*(gate.create(each, server) for each in what), return_exceptions=True)
        assert [type(end) for end in ends] == [WaitedTooLong] * creates
        took = asyncio.get_running_loop().time() - began
        await gate.aclose()
        return took, server.sent

    assert run_virtual(create()) == (2, 0)


def test_a_callback_that_creates_is_not_called_for_what_it_creates(sandbox: BackgroundSandbox) -> None:
    """Else it would nest until Python gives up."""
    gate, told = Gate(), []
    known(gate, {"pods": "1"}, {"pods": "1"})

    def create_another(wait: Wait) -> None:
        told.append(wait.name)
        with pytest.raises(WaitedTooLong), waiting(timeout=0.01):
            core_of(api).create_namespaced_pod("team", pod("inner"))

    with (
        GatedApiClient(client.Configuration(host=sandbox.url), gate=gate, on_wait=create_another) as api,
        pytest.raises(WaitedTooLong),
        waiting(timeout=0.3, key="outer"),
    ):
        core_of(api).create_namespaced_pod("team", pod("outer"))
    assert (told, gate.counts.failed_open) == (["outer"], 0)

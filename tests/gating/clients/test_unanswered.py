"""A server that takes a create and never answers it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kubernetes import client

from backoff_ctrl import GatedApiClient
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT, Answer
from tests.kit.gated_creates import core_of, pod
from tests.kit.scripted_server import Seen, scripted_server
from tests.kit.transports import AsyncTransport, Transport, creation
from tests.kit.virtual_tests import in_virtual_time


class Mute(AsyncTransport):
    """A transport whose server takes the first send and never answers it."""

    def __init__(self) -> None:
        super().__init__(before=asyncio.Event().wait)
        self.looked_at: list[float] = []

    async def look_up(self, _: str) -> Answer:
        self.looked_at.append(asyncio.get_running_loop().time())
        return Answer(200, {}, json.dumps(self.sent[0]).encode())


def test_a_look_up_that_the_client_repeated_in_vain_is_made_again() -> None:
    """A balancer takes the create, answers nothing, and closes every connection for a while: the pod is stored."""
    stored: list[Any] = []
    closed = iter(range(5))  # the create and the client's four tries of the first look-up

    def answer(seen: Seen) -> tuple[int, Any]:
        if seen.method == "POST":
            stored.append(seen.body)
        if next(closed, None) is not None:
            raise ConnectionResetError
        return 200, stored[0]

    with scripted_server(answer) as server:
        configuration = client.Configuration(host=server.url)
        configuration.retries = 3
        with GatedApiClient(configuration, gate=Gate()) as api:
            made = core_of(api).create_namespaced_pod("team", pod())
    assert [each["metadata"]["name"] for each in stored] == [made.metadata.name]


def test_a_create_whose_loop_was_closed_leaves_its_place_and_its_key() -> None:
    """Nobody runs its steps any more: it must hold neither room nor the key."""
    ledger = Gate().ledger
    ledger.observe_quota("team", "q", quota(used=1))
    ledger.watching("team")
    loop = asyncio.new_event_loop()
    left = loop.create_task(AsyncGate(ledger=ledger).create(creation(key="k"), AsyncTransport()))
    while not ledger.counts.waiting:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    ledger.observe_quota("team", "q", quota(used=0))

    answer = Gate(ledger=ledger).create(creation(key="k", timeout=20), Transport())

    assert answer.ok
    assert not ledger.under_way()
    left._log_destroy_pending = False  # type: ignore[attr-defined]  # that nobody awaits it is what is tested


def quota(used: int) -> ObservedQuota:
    limit = {"pods": 10**9}
    return ObservedQuota(spec=limit, hard=limit, used={"pods": used * 10**9})


@in_virtual_time
async def test_a_send_without_an_answer_is_looked_up_once_the_server_has_ended_it() -> None:
    transport = Mute()
    assert (await AsyncGate().create(creation(), transport)).ok
    assert transport.looked_at == [SERVER_LIMIT]

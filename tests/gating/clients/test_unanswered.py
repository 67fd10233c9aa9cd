"""A server that takes a create and never answers it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from kubernetes import client

from backoff_ctrl import GatedApiClient
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.creates.treatments import SERVER_LIMIT
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.replay.virtual_time import run_virtual
from tests.gated_creates import core_of, pod
from tests.scripted_server import Seen, scripted_server

if TYPE_CHECKING:
    from collections.abc import Generator


class Mute:
    """A transport whose server takes the first send and never answers it."""

    def __init__(self) -> None:
        self.looked_at: list[float] = []

    async def send(self, body: dict[str, Any]) -> Answer:
        self.sent = body
        await asyncio.Event().wait()
        raise AssertionError("never set")

    async def look_up(self, name: str) -> Answer:
        self.looked_at.append(asyncio.get_running_loop().time())
        return Answer(200, {}, json.dumps(self.sent).encode())


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
    left = loop.create_task(AsyncGate(ledger=ledger).create(creation("k"), Prompt()))
    while not ledger.counts.waiting:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    ledger.observe_quota("team", "q", quota(used=0))

    answer = Gate(ledger=ledger).create(creation("k", timeout=20), Prompt())

    assert answer.ok
    assert not ledger.under_way()
    left._log_destroy_pending = False  # type: ignore[attr-defined]  # that nobody awaits it is what is tested


def quota(used: int) -> ObservedQuota:
    limit = {"pods": 10**9}
    return ObservedQuota(spec=limit, hard=limit, used={"pods": used * 10**9})


def creation(key: str, timeout: float | None = None) -> Creation:
    return Creation("here", "me", "team", "pods", pod(), key=key, timeout=timeout)


class Prompt:
    """A transport that works for threads and, since its answers can be awaited, for asyncio."""

    def send(self, body: dict[str, Any]) -> Any:
        return Awaitable(201, {}, json.dumps(body).encode())

    def look_up(self, name: str) -> Any:
        return Awaitable(404, {}, b"{}")


class Awaitable(Answer):
    """An answer that is its own future."""

    def __await__(self) -> Generator[None, None, Answer]:
        yield from ()
        return self


def test_a_send_without_an_answer_is_looked_up_once_the_server_has_ended_it() -> None:
    transport = Mute()
    body = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    creation = Creation("here", "me", "team", "pods", body)

    async def create() -> Answer:
        return await AsyncGate().create(creation, transport)

    assert run_virtual(create()).ok
    assert transport.looked_at == [SERVER_LIMIT]

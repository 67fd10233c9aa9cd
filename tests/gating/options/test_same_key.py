"""One key used for two creates at once in a process: the second follows the first, and gets the object it made."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Creation, KeyReusedError
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed, WaitedTooLong
from tests.kit.patience import PATIENCE
from tests.kit.transports import INVALID, POD, AsyncTransport, Transport, creation, stored


def keyed(spec: dict[str, Any] | None = None, **options: Any) -> Creation:
    return creation(POD if spec is None else {**POD, "spec": spec}, key="k", **options)


class Slow(AsyncTransport):
    """A transport whose sends wait until ``go`` is set, and are then answered with ``answers``, else stored."""

    def __init__(self, *answers: Answer) -> None:
        left = list(answers)
        super().__init__(lambda body: left.pop(0) if left else stored(body), self._waits)
        self.came, self.go = asyncio.Event(), asyncio.Event()

    async def _waits(self) -> None:
        self.came.set()
        await self.go.wait()


async def two_at_once(gate: AsyncGate, server: Slow, **second: Any) -> tuple[Any, Any]:
    """Begin two creates, the second while the first is being sent."""
    one = asyncio.ensure_future(gate.create(keyed(), server))
    await server.came.wait()
    two = asyncio.ensure_future(gate.create(keyed(**second), server))
    await asyncio.sleep(0)
    return one, two


async def test_the_second_gets_the_object_of_the_first() -> None:
    """One is sent, no look-up tells that: it works without permission to ``get``, too."""
    gate, server = AsyncGate(), Slow()
    one, two = await two_at_once(gate, server)
    assert [wait.reason for wait in gate.waiting_now()] == ["same-key"]
    server.go.set()

    made, again = await asyncio.wait_for(asyncio.gather(one, two), PATIENCE)
    assert (made.status, again.body, len(server.sent)) == (201, made.body, 1)
    assert gate.waiting_now() == []


async def test_the_second_goes_on_by_itself_if_the_first_fails() -> None:
    """It may be luckier, and its failure would be its own."""
    gate, server = AsyncGate(), Slow(INVALID)
    one, two = await two_at_once(gate, server)
    server.go.set()

    answers = await asyncio.wait_for(asyncio.gather(one, two), PATIENCE)
    assert [answer.status for answer in answers] == [422, 201]


async def test_the_second_waits_for_a_cancelled_first_that_is_in_flight() -> None:
    """A caller that gave up and asks again gets what its first send made."""
    gate, server = AsyncGate(), Slow()
    one, two = await two_at_once(gate, server)
    one.cancel()
    await asyncio.wait([one])
    server.go.set()

    assert (await asyncio.wait_for(two, PATIENCE)).status == 201
    assert len(server.sent) == 1


async def test_another_body_is_refused_at_once() -> None:
    """Nothing of it is sent, and the first is not disturbed."""
    gate, server = AsyncGate(), Slow()
    one, two = await two_at_once(gate, server, spec={})

    with pytest.raises(KeyReusedError, match=r"'k' was used before for pods team/p-\* with another body"):
        await asyncio.wait_for(two, PATIENCE)
    server.go.set()
    assert (await asyncio.wait_for(one, PATIENCE)).status == 201


async def test_the_second_keeps_its_own_time_limit_and_can_be_cancelled() -> None:
    """It waits like any other."""
    gate, server = AsyncGate(), Slow()
    _, two = await two_at_once(gate, server, timeout=0.01)
    with pytest.raises(WaitedTooLong, match="another create with its key goes first"):
        await asyncio.wait_for(two, PATIENCE)
    three = asyncio.ensure_future(gate.create(keyed(), server))
    await asyncio.sleep(0)
    gate.ledger.close()
    with pytest.raises(GateClosed):
        await asyncio.wait_for(three, PATIENCE)
    server.go.set()
    await gate.drain()


def test_threads_share_a_key_too() -> None:
    """Twenty at once make one object."""
    go, follow = Event(), Semaphore(0)

    def slow(body: dict[str, Any]) -> Answer:
        assert go.wait(PATIENCE)
        return stored(body)

    gate, server = Gate(), Transport(slow)
    with ThreadPoolExecutor(20) as pool:
        asked = [keyed(on_wait=lambda _: follow.release()) for _ in range(20)]
        tasks = [pool.submit(gate.create, each, server) for each in asked]
        for _ in range(19):
            assert follow.acquire(timeout=45)
        go.set()
        answers = [task.result(PATIENCE) for task in tasks]

    assert {answer.body for answer in answers} == {stored(server.sent[0]).body}
    assert len(server.sent) == 1

"""Both limits limit, callers go in order, and a service that says it is overloaded is left alone."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.web_protocol import RateLimit, RemoteError
from backoff_ctrl.k8s.tasks.services.webapi.launching import Launch
from backoff_ctrl.k8s.tasks.services.webapi.pacing import OWN, Access, Pacer, Rates
from tests.kit.virtual_tests import in_virtual_time


def pacer(qps: float = 30, burst: int = 300) -> Pacer:
    return Pacer(Rates(RateLimit(qps, burst), RateLimit(qps, burst)), rng=random.Random(1))


async def begun(paced: Pacer, kind: Access, calls: int) -> list[float]:
    """Return when each of so many quick calls began."""
    times = []
    for _ in range(calls):
        slot = await paced.enter(kind)
        times.append(asyncio.get_running_loop().time())
        slot.end()
    return times


@pytest.mark.parametrize("kind", Access)
@in_virtual_time
async def test_no_more_calls_than_the_limit_lets_through(kind: Access) -> None:
    """In t seconds at most burst + qps x t, for reads and for writes, and no slower than that."""
    start = asyncio.get_running_loop().time()
    times = await begun(pacer(), kind, 900)
    for number, at in enumerate(times, 1):
        assert number <= 300 + 30 * (at - start) + 1e-6
    assert times[-1] - start == pytest.approx(20, abs=0.01)


@in_virtual_time
async def test_reads_do_not_use_up_what_writes_may_do() -> None:
    paced = pacer(1, 5)
    await begun(paced, Access.READ, 5)
    start = asyncio.get_running_loop().time()
    assert await begun(paced, Access.WRITE, 5) == [start] * 5


@in_virtual_time
async def test_callers_go_in_the_order_in_which_they_came() -> None:
    paced, order = pacer(1, 5), []

    async def call(number: int) -> None:
        (await paced.enter(Access.WRITE)).end()
        order.append(number)

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))


@pytest.mark.parametrize("status", [429, 503])
@in_virtual_time
async def test_an_overloaded_service_is_left_alone_for_as_long_as_it_asks(status: int) -> None:
    """Reads as well as writes: it is one service. Fewer calls are in flight then."""
    paced, loop = pacer(), asyncio.get_running_loop()
    size = paced.window().size
    slot = await paced.enter(Access.READ)
    slot.end(RemoteError(status, "busy", 7))
    begun_at = loop.time()
    (await paced.enter(Access.WRITE)).end()
    assert 7 <= loop.time() - begun_at <= 8 + 1e-6
    assert paced.window().size < size
    assert paced.overloads == 1


@in_virtual_time
async def test_an_error_that_is_no_overload_changes_nothing() -> None:
    paced = pacer()
    size = paced.window().size
    for error in (RemoteError(404, "none"), TimeoutError(), None):
        (await paced.enter(Access.READ)).end(error)
    assert paced.window().size >= size
    assert paced.window().in_flight == 0


@in_virtual_time
async def test_a_caller_that_leaves_its_line_takes_nothing_with_it() -> None:
    paced = pacer(1, 5)
    await begun(paced, Access.WRITE, 5)
    leaves = asyncio.create_task(paced.enter(Access.WRITE))
    await asyncio.sleep(0.1)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    start = asyncio.get_running_loop().time()
    await begun(paced, Access.WRITE, 1)
    assert asyncio.get_running_loop().time() - start == pytest.approx(0.9, abs=0.01)
    assert paced.window().in_flight == 0


@in_virtual_time
async def test_a_new_limit_is_no_second_burst() -> None:
    rates = Rates(RateLimit(1, 5), RateLimit(1, 5))
    paced = Pacer(rates)
    await begun(paced, Access.READ, 5)
    rates.change(RateLimit(2, 100), RateLimit(1, 5))
    start = asyncio.get_running_loop().time()
    times = await begun(paced, Access.READ, 4)
    assert times[-1] - start == pytest.approx(2, abs=0.01)


@in_virtual_time
async def test_a_create_takes_its_seat_when_its_server_is_open_and_before_its_slot() -> None:
    """A shut server holds no seat that others need. A seat is freed by a read, so who waits for one holds no slot."""
    paced, loop, seated = pacer(), asyncio.get_running_loop(), list[tuple[float, int]]()
    (await paced.enter(Access.READ)).end(RemoteError(429, "busy", 7))
    begun_at = loop.time()

    async def take_seat(*_: object) -> None:
        seated.append((loop.time() - begun_at, paced.window().in_flight))

    stored = asyncio.Event()
    stored.set()
    asked = list[object]()

    def origin(task: object) -> object:
        asked.append(task)
        return SimpleNamespace(pacer=paced, path=OWN)

    async def room() -> None:
        pass

    service = SimpleNamespace(origin=origin, take_seat=take_seat, is_sync=False)
    context = SimpleNamespace(task=None)
    launch: Any = SimpleNamespace(
        _service=service, _context=context, _key="k", _wake=lambda _: None, _stored=stored, _room=room
    )
    slot = await Launch._turn(launch)
    assert [in_flight for _, in_flight in seated] == [0]
    assert seated[0][0] >= 7
    assert len(asked) == 1
    slot.end()

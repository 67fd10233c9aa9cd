"""The clocks of the gates, and their alarms."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.runtime import exits as exiting
from backoff_ctrl.k8s.gate.runtime.host import THREAD, LoopAlarms, RuntimeAlarms
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer, WaitedTooLong
from tests.kit.patience import PATIENCE
from tests.kit.transports import FULL, AsyncTransport, Transport, creation, stored

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_call_that_fails_does_not_stop_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """Every waiting create depends on one thread: an error in one call is logged, and the next is made."""
    alarms = RuntimeAlarms()
    came = threading.Event()

    def fails() -> None:
        raise RuntimeError("a bug")

    alarms.call_at(alarms.now(), fails)
    alarms.call_at(alarms.now(), came.set)
    assert came.wait(PATIENCE)
    assert "a bug" in caplog.text


def test_what_is_cancelled_is_not_called() -> None:
    """A cancelled call is not made when its time comes."""
    now = 0.0
    alarms = RuntimeAlarms(lambda: now)
    called: list[str] = []
    came = threading.Event()
    cancel = alarms.call_at(10.0, lambda: called.append("cancelled"))
    alarms.call_at(11.0, came.set)
    cancel()
    now = 12.0
    assert came.wait(PATIENCE)
    assert called == []


async def test_an_alarm_that_a_clock_jumped_over_rings_soon() -> None:
    """The clock jumps an hour ahead: alarms due within that hour ring now, not after an hour of the event loop."""
    offset = 0.0
    alarms = LoopAlarms(lambda: time.monotonic() + offset)
    came = asyncio.Event()
    alarms.call_at(alarms.now() + 600.0, came.set)
    offset = 3600.0

    async with asyncio.timeout(PATIENCE):
        await came.wait()


@pytest.mark.parametrize("kind", [LoopAlarms, RuntimeAlarms])
async def test_a_clock_that_goes_back_does_not_stop_time(kind: type[LoopAlarms | RuntimeAlarms]) -> None:
    """The clock jumps an hour back: time goes on from where it was, and alarms ring as if nothing had happened."""
    offset = 0.0
    alarms = kind(lambda: time.monotonic() + offset)
    started, before = time.monotonic(), alarms.now()
    offset = -3600.0
    came = threading.Event()
    alarms.call_at(alarms.now() + 0.01, came.set)

    assert await asyncio.to_thread(came.wait, 45)
    assert 0.0 < alarms.now() - before < time.monotonic() - started + 0.01


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "left behind"])
def test_alarms_outlast_the_loop_that_they_were_set_on(closes: bool) -> None:
    """A program calls ``asyncio.run`` again and again: what the second create waits for was set in the first run."""
    server, gate = AsyncTransport(lambda _: FULL), AsyncGate(policy=Policy(base=0.4, cap=0.4))

    async def create(limit: float) -> Answer:
        async with asyncio.timeout(limit):
            return await gate.create(creation(), server)

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        with pytest.raises(TimeoutError):
            first.run_until_complete(create(0.1))  # refused; the next may be sent some 0.3 s later
        if closes:
            first.close()
        server.answer = stored
        assert second.run_until_complete(create(45)).ok
    finally:
        first.close()
        second.close()


def test_alarms_outlast_the_loop_of_another_thread() -> None:
    """A create waits on its own loop, and what it waits for was set on one that ends meanwhile."""
    server, gate = AsyncTransport(lambda _: FULL), AsyncGate(policy=Policy(base=1.0, cap=1.0))
    waits, ended = threading.Event(), threading.Event()

    async def create(**options: Any) -> Answer:
        return await gate.create(creation(**options), server)

    def other() -> None:
        asyncio.run(create(on_wait=lambda _: asyncio.get_running_loop().call_soon(waits.set)))
        ended.set()

    async def first() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await create()  # it is refused, and the next one is sent in a second
        threading.Thread(target=other, daemon=True).start()
        await asyncio.to_thread(waits.wait, 45)

    asyncio.run(first())
    server.answer = stored
    assert ended.wait(PATIENCE)


def test_the_time_is_known_after_the_loop_has_ended() -> None:
    """Whoever looks at a gate between two runs gets an answer."""
    gate = AsyncGate()
    assert asyncio.run(gate.create(creation(), AsyncTransport())).ok
    assert "team" in gate.ledger.snapshot().namespaces


def test_a_gate_that_is_forgotten_leaves_nothing_behind() -> None:
    """A program may open many gates: none of them leaves a thread or a waiting alarm behind."""
    left = []
    for _ in range(3):
        gate = Gate(policy=Policy(base=600.0, cap=600.0))
        with pytest.raises(WaitedTooLong):
            gate.create(creation(timeout=0.3), Transport(lambda _: FULL))
        left.append(weakref.ref(gate.ledger.engine))
        del gate
    gc.collect()

    assert [each() for each in left] == [None] * 3
    names = [thread.name for thread in threading.enumerate()]
    assert names.count(THREAD) == 1
    assert sum(name.startswith(THREAD) for name in names) <= 2  # one more for what blocks, if anything did


def test_a_create_that_waits_keeps_its_gate() -> None:
    """Its caller may hold nothing but the steps that are still to come."""
    steps: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    ended = threading.Event()
    gate = Gate(policy=Policy(base=600.0, cap=600.0))
    gate.run_on(steps.put, Create(gate, creation(timeout=0.3)), Transport(lambda _: FULL), ended.set)
    del gate
    for _ in range(450):
        while not steps.empty():
            steps.get()()
        gc.collect()
        if ended.wait(0.1):
            return
    raise AssertionError("it was forgotten")


def test_creates_that_begin_to_wait_during_a_look_at_the_threads_start_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look leads to the next: a crowd of threads would have started hundreds that never end."""
    later: list[Callable[[], object]] = []

    class Noting(RuntimeAlarms):
        def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
            later.append(call)
            return lambda: None

    ledger = Gate().ledger
    ledger.engine.alarms = Noting()
    ledger.line.track(Create(Gate(), creation()))

    def exceptions() -> dict[int, Any]:
        ledger.exit_check.begin()
        return {}

    monkeypatch.setattr(exiting, "_EXCEPTIONS", exceptions)
    ledger.exit_check.begin()
    for _ in range(3):
        (look,) = later
        later.clear()
        look()
    assert len(later) == 1


@pytest.mark.parametrize("usual", [True, False])
def test_no_garbage_is_collected_while_python_lists_its_threads(usual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection in the midst of that stops the whole process before Python 3.11.9, if another thread starts one."""
    collects: list[bool] = []

    def exceptions() -> dict[int, Any]:
        collects.append(gc.isenabled())
        return {threading.main_thread().ident or 0: KeyboardInterrupt()}

    def frames() -> dict[int, Any]:
        collects.append(gc.isenabled())
        return {}

    monkeypatch.setattr(exiting, "_EXCEPTIONS", exceptions)
    monkeypatch.setattr(exiting, "_FRAMES", frames)
    was = gc.isenabled()
    (gc.enable if usual else gc.disable)()
    try:
        assert exiting.must_not_wait() == frozenset()
        assert gc.isenabled() is usual
    finally:
        (gc.enable if was else gc.disable)()
    assert collects == [False, False]

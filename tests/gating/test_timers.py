"""The clocks of the gates, and their alarms."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.gate.timers import LoopTimers, ThreadTimers

if TYPE_CHECKING:
    import pytest


def test_a_call_that_fails_does_not_stop_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """Every waiting create depends on one timer thread: an error in one call is logged, and the next is made."""
    timers = ThreadTimers()
    came = threading.Event()

    def fails() -> None:
        raise RuntimeError("a bug")

    timers.call_at(timers.now(), fails)
    timers.call_at(timers.now(), came.set)
    assert came.wait(45)
    assert "an alarm of the gate failed" in caplog.text


def test_what_is_cancelled_is_not_called() -> None:
    """A cancelled call is not made when its time comes."""
    now = 0.0
    timers = ThreadTimers(lambda: now)
    called: list[str] = []
    came = threading.Event()
    cancel = timers.call_at(10.0, lambda: called.append("cancelled"))
    timers.call_at(11.0, came.set)
    cancel()
    now = 12.0
    assert came.wait(45)
    assert called == []


async def test_an_alarm_that_a_clock_jumped_over_rings_soon() -> None:
    """The clock jumps an hour ahead: alarms due within that hour ring now, not after an hour of the event loop."""
    offset = 0.0
    timers = LoopTimers(lambda: time.monotonic() + offset)
    came = asyncio.Event()
    timers.call_at(timers.now() + 600.0, came.set)
    offset = 3600.0

    async with asyncio.timeout(45):
        await came.wait()


async def test_a_clock_that_goes_back_does_not_stop_time() -> None:
    """The clock jumps an hour back: time goes on from where it was, and alarms ring as if nothing had happened."""
    offset = 0.0
    timers = LoopTimers(lambda: time.monotonic() + offset)
    started, before = time.monotonic(), timers.now()
    offset = -3600.0
    came = asyncio.Event()
    timers.call_at(timers.now() + 0.01, came.set)

    async with asyncio.timeout(45):
        await came.wait()
    assert 0.0 < timers.now() - before < time.monotonic() - started + 0.01


def test_threads_see_a_clock_that_went_back_go_on() -> None:
    """The same holds for the clock that threads share."""
    offset = 0.0
    timers = ThreadTimers(lambda: time.monotonic() + offset)
    started, before = time.monotonic(), timers.now()
    offset = -3600.0
    came = threading.Event()
    timers.call_at(timers.now() + 0.01, came.set)

    assert came.wait(45)
    assert 0.0 < timers.now() - before < time.monotonic() - started + 0.01

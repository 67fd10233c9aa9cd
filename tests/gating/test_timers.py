"""The clock of the threads' gate."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from k8s.timers import ThreadTimers

if TYPE_CHECKING:
    import pytest


def test_a_call_that_fails_does_not_stop_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """Every waiting create hangs on one timer thread: a bug in one call is logged, and the next call comes."""
    timers = ThreadTimers()
    came = threading.Event()

    def fails() -> None:
        raise RuntimeError("a bug")

    timers.call_at(timers.now(), fails)
    timers.call_at(timers.now(), came.set)
    assert came.wait(10)
    assert "a timer's call failed" in caplog.text


def test_what_is_cancelled_is_not_called() -> None:
    """A cancelled call stays away, also when its time has come."""
    timers = ThreadTimers()
    called: list[str] = []
    came = threading.Event()
    cancel = timers.call_at(timers.now() + 0.05, lambda: called.append("cancelled"))
    timers.call_at(timers.now() + 0.06, came.set)
    cancel()
    assert came.wait(10)
    assert called == []

"""Virtual time: sleeping takes no real time, order is kept, and a program that would hang is an error."""

from __future__ import annotations

import asyncio
import time

import pytest

from backoff_ctrl.k8s.replay.virtual_time import StuckError, run_virtual


def test_an_hour_passes_at_once() -> None:
    """The loop's clock advances, the real one does not."""

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_virtual(main()) == 3600.0
    assert time.monotonic() - began < 3600


def test_tasks_wake_in_the_order_of_their_times() -> None:
    """In whatever order they were started."""
    woken: list[tuple[float, str]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((asyncio.get_running_loop().time(), name))

    async def main() -> None:
        await asyncio.gather(sleeper("c", 3), sleeper("a", 0.5), sleeper("b", 1.25))

    run_virtual(main())
    assert woken == [(0.5, "a"), (1.25, "b"), (3.0, "c")]


def test_time_limits_work() -> None:
    """``asyncio.timeout`` is a timer like any other."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 7.0


def test_a_program_that_would_hang_is_an_error() -> None:
    """All its tasks wait and there is no timer."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="no timer is set"):
        run_virtual(main())

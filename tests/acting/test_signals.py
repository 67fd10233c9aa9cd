"""A signal reaches an event loop that is busy with what threads ask of it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import backoff_ctrl
from backoff_ctrl.ending import at_signals
from tests.kit.patience import PATIENCE


@pytest.mark.parametrize("calls", [0, 5_000])
async def test_a_signal_comes_though_the_pipe_of_the_loop_is_full(calls: int) -> None:
    """An operator that took over 3,000 Jobs never heard of its SIGTERM."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        at_signals([signal.SIGUSR1], came.set)
        for _ in range(calls):  # each writes to the pipe, which is read in the next turn
            loop.call_soon_threadsafe(lambda: None)
        signal.raise_signal(signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE):
            await came.wait()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_product_has_no_other_way() -> None:
    """Each command that ends in order at a signal could lose it otherwise."""
    root = Path(backoff_ctrl.__file__).parent.parent
    files = [each for folder in ("api", "k8s") for each in (root / folder).rglob("*.py")]
    assert len(files) > 300
    assert [each for each in files if "add_signal_handler(" in each.read_text()] == []

"""Virtual time: an asyncio event loop that never waits; its clock jumps to the next timer instead.

Code runs on it unchanged: ``asyncio.sleep(600)`` returns at once and ``loop.time()`` has advanced by 600. There is no
I/O, only timers: a loop with neither a ready callback nor a timer would wait for ever and raises ``StuckError``. Runs
are deterministic: the same program runs in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

T = TypeVar("T")


class StuckError(RuntimeError):
    """Every task waits and no timer is set: in real time this program would hang."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that reports no I/O and advances the clock by the timeout instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError("every task waits and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time. Raises ``StuckError`` if it would hang."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

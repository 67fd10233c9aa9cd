"""Virtual time: an asyncio event loop that never waits, its clock jumps to the next timer instead.

The code that runs on it is the code that runs on real time: ``asyncio.sleep(600)`` returns at once and
``loop.time()`` has moved by 600. Nothing but timers may be awaited: there is no I/O, so a loop with neither a
ready callback nor a timer would wait for ever, and ``StuckError`` says so. Same program, same order: deterministic.
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
    """Everything waits and no timer is set: in real time this program would hang."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that reports nothing and moves the clock by the time it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError("every task waits and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time that starts at 0."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a virtual clock of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

"""How a command ends that Ctrl-C or SIGTERM stopped. Imports no module: it may be asked while all else still loads."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

SERVERS: Final = frozenset({"proxy", "serve", "inject", "operator", "sandbox"})
"""Commands that only end when they are stopped: that is a success."""


def stopped(arguments: Sequence[str]) -> int:
    """Return the exit code of this command line, and say that it was stopped before it was done."""
    if arguments and arguments[0] in SERVERS:
        return 0
    sys.stderr.write("backoff-ctrl: stopped\n")
    return 1


def at_signals(numbers: Iterable[signal.Signals], act: Callable[[], object]) -> Callable[[], None]:
    """Have the running event loop, that of the main thread, call ``act`` at each of these signals, however busy it is.

    Return a function that restores the handlers of before.

    ``add_signal_handler`` of asyncio loses a signal while the pipe is full by which threads wake the loop: after some
    280 calls from threads within one turn.
    """
    import asyncio  # noqa: PLC0415 - see the module

    loop = asyncio.get_running_loop()

    def caught(*_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(act)

    before = {number: signal.signal(number, caught) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore

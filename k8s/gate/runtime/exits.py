"""Whether the main thread has ended, or was interrupted and waits for other threads: those must not wait for ever."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Final, Literal

_WAITS_FOR_ITS_THREADS: Final = ThreadPoolExecutor.shutdown.__code__
_WAITS_FOR_AN_EXECUTOR: Final = asyncio.Runner.close.__code__
# By thread. Both are documented "for internal and specialized purposes"; a Python without them notices less.
_FRAMES: Final[Callable[[], dict[int, FrameType]]] = getattr(sys, "_current_frames", dict)
_EXCEPTIONS: Final[Callable[[], dict[int, Any]]] = getattr(sys, "_current_exceptions", dict)


def must_not_wait() -> frozenset[int] | Literal["all"]:
    """Return the threads (their idents) in which no create may go on waiting, since Python waits for their ends."""
    return "all" if _main_thread_has_failed() else _awaited_by_interrupted()


def _main_thread_has_failed() -> bool:
    """Say whether an exception such as Ctrl-C ended the main thread: Python then joins the other threads.

    No create may go on waiting in that case. If the main thread simply returned, the other threads go on working, and
    their creates may wait as long as they like.
    """
    # The first flag is private, but the only sign while concurrent.futures joins its workers (threading.py);
    # the second is set when a traceback of the main thread is printed (sys.last_exc since Python 3.12).
    ending = bool(getattr(threading, "_SHUTTING_DOWN", False)) or not threading.main_thread().is_alive()
    return ending and (hasattr(sys, "last_exc") or hasattr(sys, "last_type"))


def _awaited_by_interrupted() -> frozenset[int]:
    """Return the threads (their idents) that the main thread waits for because of a Ctrl-C or a ``SystemExit``.

    These are the threads of an executor whose ``with`` block the exception leaves, or of the one that ``asyncio.run``
    shuts down: Python lets their jobs end, however long creates of theirs may have to wait.
    """
    main = threading.main_thread().ident
    if main is None or not _is_interrupted(main):
        return frozenset()
    frames = _without_collection(_FRAMES)
    own = list(_calls(frames.get(main)))
    shutdowns = [each for each in own if each.f_code is _WAITS_FOR_ITS_THREADS]
    if any(each.f_code is _WAITS_FOR_AN_EXECUTOR for each in own):  # asyncio waits in a thread of its own
        everywhere = (call for frame in frames.values() for call in _calls(frame))
        shutdowns += [call for call in everywhere if call.f_code is _WAITS_FOR_ITS_THREADS]
    return frozenset(ident for call in shutdowns for ident in _threads_of(call.f_locals.get("self")))


def _is_interrupted(thread: int) -> bool:
    """Say whether a thread handles an exception that is to end the program, rather than an error."""
    handled: Any = _without_collection(_EXCEPTIONS).get(thread)  # until Python 3.11 as of sys.exc_info()
    error = handled[1] if isinstance(handled, tuple) else handled
    return isinstance(error, BaseException) and not isinstance(error, Exception | GeneratorExit)


def _without_collection(asked: Callable[[], dict[int, Any]]) -> dict[int, Any]:
    """Ask Python about all threads while no garbage is collected.

    Before Python 3.11.9 a collection in the midst of it stops the whole process, if a finalizer or a callback of it
    lets another thread run that starts a thread: each then waits for the other's lock (github.com/python/cpython/
    issues/106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return asked()
    finally:
        if collects:
            gc.enable()


def _calls(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _threads_of(executor: object) -> Iterator[int]:
    for thread in list(getattr(executor, "_threads", ())):
        if thread.ident is not None:
            yield thread.ident

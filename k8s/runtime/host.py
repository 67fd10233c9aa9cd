"""The thread that hosts whatever runs beside creates, with an event loop; or the loop that the program runs anyway."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from .forks import after_fork

log = logging.getLogger(__name__)

THREAD: Final = "backoff-ctrl"
BLOCKING: Final = "backoff-ctrl-blocking"
"""The names of the two threads, as debuggers show them."""
GOODBYE: Final = 3.0
"""Seconds at the most for work that is cancelled at exit to clean up behind itself: write what is left, close."""

Work = Callable[[], Coroutine[Any, Any, object]]
_LEFT_BEHIND: Final[list[asyncio.AbstractEventLoop]] = []
"""A forked child keeps its parent's loops: a finalizer would close them, and take the parent's files from its epoll."""


class Task:
    """Work that runs on a runtime, until it returns, is stopped, or Python ends."""

    __slots__ = ("_ended", "_loop", "_stop", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], object] | None) -> None:
        self._loop = loop
        self._stop = stop
        self._task: asyncio.Task[object] | None = None
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def stop(self) -> None:
        """Ask the work to end, from any thread. Returns at once. A second call does nothing."""
        self.post(self._end)

    def post(self, call: Callable[..., object], *given: Any) -> None:
        """Call back on the loop that the work runs on, soon; never, if that loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *given)

    def join(self, seconds: float) -> None:
        """Wait until the work has ended, so many seconds at most. Not for the runtime's own thread."""
        with contextlib.suppress(queue.Empty):
            self._ended.get(timeout=seconds)
            self._ended.put(None)  # for the next who waits

    def _begin(self, work: Work, running: dict[asyncio.Task[object], Task]) -> None:
        self._task = task = self._loop.create_task(work())
        running[task] = self
        task.add_done_callback(partial(self._over, running))

    def _end(self) -> None:
        if self._stop is not None:
            self._stop()
        elif self._task is not None:
            self._task.cancel()

    def _over(self, running: dict[asyncio.Task[object], Task], task: asyncio.Task[object]) -> None:
        running.pop(task, None)
        self._ended.put(None)
        if not task.cancelled() and task.exception() is not None:
            log.error("an internal error ended what runs beside the creates; they go on", exc_info=task.exception())


class _Blocking(ThreadPoolExecutor):
    """One daemon thread for what blocks. It takes work at exit too, when Python's own executors take no more."""

    def __init__(self) -> None:
        super().__init__(1)
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        if self._thread is None:
            thread = threading.Thread(target=self._host, name=BLOCKING, daemon=True)
            thread.start()  # if it can't: the next call tries again
            self._thread = thread
        future: Future[Any] = Future()
        self._work.put(partial(_settle, future, call, given, more))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        self._work.put(None)
        if wait and self._thread is not None:
            self._thread.join(GOODBYE)

    def _host(self) -> None:
        while (call := self._work.get()) is not None:
            call()


def _settle(future: Future[Any], call: Callable[..., Any], given: Any, more: Any) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call(*given, **more))
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            future.set_exception(error)


class Alarm:
    """A call at a later time, which any thread may cancel."""

    __slots__ = ("call", "handle", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        self.loop = loop
        self.call: Callable[[], object] | None = call
        self.handle: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        if self.call is not None:
            self.handle = self.loop.call_later(max(0.0, seconds), self.ring)

    def ring(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()

    def cancel(self) -> None:
        self.call = None  # at once: what it would have called may be large
        if self.handle is not None:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.handle.cancel)


class Runtime:
    """Hosts work on one event loop: that of its own daemon thread, or one that was lent. Thread-safe."""

    def __init__(self) -> None:
        """No thread is started before there is work."""
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        loop = getattr(self, "_loop", None)
        if loop is not None:
            _LEFT_BEHIND.append(loop)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ident = 0  # of the thread that runs the loop
        self._running: dict[asyncio.Task[object], Task] = {}

    def spawn(self, work: Work, stop: Callable[[], object] | None = None) -> Task:
        """Run this. ``stop`` is called on the loop to make it end, also at exit; without it, it is cancelled.

        Raises ``RuntimeError`` if no thread can be started: nothing has begun then.
        """
        task = Task(self._ready(), stop)
        task.post(task._begin, work, self._running)  # noqa: SLF001 - its own task
        return task

    def post(self, call: Callable[..., object], *given: Any) -> None:
        """Call back on the loop, soon. Raises as ``spawn`` does."""
        self._ready().call_soon_threadsafe(call, *given)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call back on the loop, after so many seconds; return what cancels that. Raises as ``spawn`` does."""
        loop = self._ready()
        if threading.get_ident() == self._ident:
            return loop.call_later(max(0.0, seconds), call).cancel
        alarm = Alarm(loop, call)
        loop.call_soon_threadsafe(alarm.begin, seconds)
        return alarm.cancel

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Use the running loop as long as this block lasts: that of a program which is a gate itself.

        At its end the work there is ended as at exit. Where the runtime has begun already, it stays where it is.
        """
        with self._lock:
            lends = not self._runs()
            if lends:
                self._loop, self._ident = asyncio.get_running_loop(), threading.get_ident()
        try:
            yield
        finally:
            if lends:
                await self._end()
                with self._lock:
                    self._loop = None

    def close(self) -> None:
        """Cancel all work, let it clean up for some seconds at most, and join the thread: Python is about to end."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # closed already
                loop.call_soon_threadsafe(loop.stop)
            thread.join(3 * GOODBYE)

    def _ready(self) -> asyncio.AbstractEventLoop:
        if not self._runs():
            with self._lock:
                if not self._runs():
                    self._start()
        assert self._loop is not None
        return self._loop

    def _runs(self) -> bool:
        if self._loop is None or self._loop.is_closed():
            return False
        return self._thread is None or self._thread.is_alive()  # without a thread, the loop is lent

    def _start(self) -> None:
        blocking = _Blocking()
        loop = asyncio.new_event_loop()
        loop.set_default_executor(blocking)
        thread = threading.Thread(target=self._host, args=(loop, blocking), name=THREAD, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads; the next work tries again
            loop.close()
            raise
        self._loop, self._thread = loop, thread
        atexit.unregister(self.close)
        atexit.register(self.close)

    def _host(self, loop: asyncio.AbstractEventLoop, blocking: _Blocking) -> None:
        self._ident = threading.get_ident()
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            blocking.shutdown()
            loop.close()

    async def _end(self) -> None:
        for each in list(self._running.values()):
            each._end()  # noqa: SLF001 - its own tasks
        if self._running:
            await asyncio.wait(self._running, timeout=GOODBYE)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=GOODBYE)


RUNTIME: Final = Runtime()
"""The runtime of this process."""

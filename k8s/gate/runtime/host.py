"""The thread that hosts what runs beside creates, with an event loop; or the loop that the program runs anyway.

And what hangs on it: clocks that call back, and the one fork hook.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import logging
import os
import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Final

log = logging.getLogger(__name__)

THREAD: Final = "backoff-ctrl"
BLOCKING: Final = "backoff-ctrl-blocking"  # the names of the two threads, as debuggers show them
GOODBYE: Final = 3.0
"""Seconds at the most for work that is cancelled at exit to clean up behind itself: write what is left, close."""
LOOK_AGAIN: Final = 0.5  # seconds after which a caller's clock is read again: it may have jumped over an alarm
FOREVER: Final = float("inf")

Cancel = Callable[[], object]
_LEFT_BEHIND: Final[list[object]] = []
"""A forked child keeps its parent's loops: a finalizer would close them, and take the parent's files from its epoll.
And it keeps the tasks on them, which would complain of their end in the log, and run their last lines in the child."""
_RENEWALS: Final[dict[int, tuple[weakref.ref[Any] | None, Callable[..., object]]]] = {}
_NUMBERS: Final = itertools.count()


LOADING: Final = threading.RLock()
"""Hold it to import something late, or to begin what begins once. Python keeps a module locked while a thread loads it;
a child that is forked meanwhile has no such thread, and would wait for the module for ever."""


def after_fork(renew: Callable[[], object]) -> None:
    """Call ``renew`` in each forked child, in the order of these calls. Its object is not kept alive by that."""
    number, owner = next(_NUMBERS), getattr(renew, "__self__", None)
    if owner is None:
        _RENEWALS[number] = None, renew
    else:
        forget = partial(_RENEWALS.pop, number)
        _RENEWALS[number] = weakref.ref(owner, forget), renew.__func__  # type: ignore[attr-defined]


def leave_behind(thing: object) -> None:
    """Keep, in a forked child, what holds tasks of its parent's loop."""
    _LEFT_BEHIND.append(thing)


def _renew() -> None:
    for owner, renew in list(_RENEWALS.values()):
        of = () if owner is None else (owner(),)
        if of == (None,):
            continue
        try:
            renew(*of)
        except Exception:  # the others must not keep their parent's locks and threads for that
            log.exception("an internal error in a forked child")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
    os.register_at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release)


class Task:
    """Work that runs on a runtime, until it returns, is stopped, or Python ends.

    Work with a ``grace`` is woken when it is to end, and has so many seconds left for what it still has to do. Without
    one, and when they are over, it is cancelled.
    """

    __slots__ = ("_ended", "_grace", "_loop", "_news", "_task", "ends_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float | None) -> None:
        self._loop = loop
        self._grace = grace
        self._task: asyncio.Task[object] | None = None
        self._news = asyncio.Event()
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.ends_at = FOREVER
        """When it is cancelled, by ``time.monotonic``."""

    def stop(self, grace: float | None = None) -> None:
        """Ask the work to end, within another grace if that is given. From any thread; returns at once."""
        self.post(self._end, self._grace if grace is None else grace)

    def post(self, call: Callable[..., object], *given: Any) -> None:
        """Call back on the loop that the work runs on, soon; never, if that loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *given)

    def wake(self) -> None:
        """There is news for the work. From any thread."""
        self.post(self._news.set)

    def join(self, seconds: float) -> None:
        """Wait until the work has ended, so many seconds at most. Not for the runtime's own thread."""
        with contextlib.suppress(queue.Empty):
            self._ended.get(timeout=seconds)
            self._ended.put(None)  # for the next who waits

    @property
    def ending(self) -> bool:
        """Whether the work was asked to end."""
        return self.ends_at < FOREVER

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for news or the end, so many seconds at most. For the work itself."""
        if not self.ending:  # the end is news that stays: clearing it would wait past it
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()

    def _begin(self, work: Work, running: dict[asyncio.Task[object], Task]) -> None:
        self._task = task = self._loop.create_task(work(self))
        running[task] = self
        task.add_done_callback(partial(self._over, running))

    def _end(self, grace: float | None) -> None:
        if self._task is None:
            return
        if grace is None:
            self._task.cancel()
            return
        self.ends_at = min(self.ends_at, time.monotonic() + grace)
        self._news.set()
        self._loop.call_later(grace, self._task.cancel)

    def _over(self, running: dict[asyncio.Task[object], Task], task: asyncio.Task[object]) -> None:
        running.pop(task, None)
        self._ended.put(None)
        if not task.cancelled() and task.exception() is not None:
            log.error("an internal error ended a background task; creates go on", exc_info=task.exception())


Work = Callable[[Task], Coroutine[Any, Any, object]]


class Blocking(ThreadPoolExecutor):
    """Daemon threads for what blocks. They take work at exit too, when Python's own executors take no more; and Python
    does not wait for what they still do."""

    def __init__(self, name: str, threads: int = 1) -> None:
        super().__init__(threads)
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._begun: list[threading.Thread] = []

    def submit(self, call: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        if len(self._begun) < self._max_workers:
            thread = threading.Thread(target=self._host, name=self._name, daemon=True)
            thread.start()  # if it can't: the next call tries again
            self._begun.append(thread)
        future: Future[Any] = Future()
        self._work.put(partial(_settle, future, call, given, more))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        for _ in self._begun:
            self._work.put(None)
        for thread in self._begun if wait else ():
            thread.join(GOODBYE)

    def _host(self) -> None:
        while (call := self._work.get()) is not None:
            call()


def _settle(future: Future[Any], call: Callable[..., Any], given: Any, more: Any) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call(*given, **more))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)


class Alarm:
    """A call at a later time, which any thread may cancel, with what cancels the timer behind it."""

    __slots__ = ("call", "handle")

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call
        self.handle: Cancel | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        if self.call is not None:
            timer = loop.call_later(max(0.0, seconds), self.ring)
            self.handle = partial(loop.call_soon_threadsafe, timer.cancel)

    def ring(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()

    def cancel(self) -> None:
        self.call = None  # at once: what it would have called may be large
        if self.handle is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.handle()


def _call_later(loop: asyncio.AbstractEventLoop, thread: int, seconds: float, call: Callable[[], object]) -> Cancel:
    """Call on a loop that this thread runs; return what cancels that. From any thread."""
    if threading.get_ident() == thread:
        return loop.call_later(max(0.0, seconds), call).cancel
    alarm = Alarm(call)
    loop.call_soon_threadsafe(alarm.begin, loop, seconds)
    return alarm.cancel


class Runtime:
    """Hosts work on one event loop: that of its own daemon thread, or one that was lent. Thread-safe."""

    def __init__(self) -> None:
        self._renew()
        after_fork(self._renew)
        # Python calls those that were registered last first. So this one comes after the hooks of programs, which may
        # still create something; the one that ``_start`` registers comes before what our thread uses is taken down.
        atexit.register(self._close_last)

    def _renew(self) -> None:
        loop = getattr(self, "_loop", None)
        if loop is not None:
            leave_behind((loop, self._running))
        self._lock = threading.RLock()  # a finalizer or a signal handler may need the loop while its thread starts it
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ident = 0  # of the thread that runs the loop
        self._running: dict[asyncio.Task[object], Task] = {}
        self._exits = False  # Python is ending: only its main thread may still begin something

    def spawn(self, work: Work, grace: float | None = None) -> Task:
        """Run this. ``grace``: see ``Task``.

        Raises ``RuntimeError`` if no thread can be started: no work has begun then.
        """
        task = Task(self._ready(), grace)
        # Posted even from the loop's own thread: the caller has the task before its work runs.
        task.post(task._begin, work, self._running)  # noqa: SLF001 - its own task
        return task

    def post(self, call: Callable[..., object], *given: Any) -> None:
        """Call back on the loop, soon. Raises as ``spawn`` does."""
        self._ready().call_soon_threadsafe(call, *given)

    def _is_too_late(self) -> bool:
        """Return whether this is a daemon thread that Python is about to end: for it, no thread is started again."""
        return self._exits and not self._runs() and threading.current_thread() is not threading.main_thread()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        """Call back on the loop, after so many seconds; return what cancels that. Raises as ``spawn`` does."""
        if self._is_too_late():
            return _nothing
        return _call_later(self._ready(), self._ident, seconds, call)

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Use the running loop as long as this block lasts: that of a program which is a gate itself.

        At its end the work there is ended as at exit. Where the runtime has begun already, it stays where it is.
        """
        with self._lock:
            lends = not self._runs()
            if lends:
                self._ident, self._thread = threading.get_ident(), None
                self._loop = asyncio.get_running_loop()
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

    @property
    def is_here(self) -> bool:
        """Whether this thread runs the loop: it must not wait for work there."""
        return self._runs() and threading.get_ident() == self._ident

    def _at_exit(self) -> None:
        self._exits = True
        self.close()

    def _close_last(self) -> None:
        self._at_exit()

    def _ready(self) -> asyncio.AbstractEventLoop:
        if not self._runs():
            if self._is_too_late():
                raise RuntimeError("Python is shutting down: no new background task starts")
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
        blocking = Blocking(BLOCKING)
        loop = asyncio.new_event_loop()
        loop.set_default_executor(blocking)
        thread = threading.Thread(target=self._host, args=(loop, blocking), name=THREAD, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads; the next work tries again
            loop.close()
            raise
        if self._runs():  # begun within this very call, see ``_lock``: one is enough
            loop.call_soon_threadsafe(loop.stop)
            return
        self._ident, self._thread = thread.ident or 0, thread  # before the loop: its readers go by these
        self._loop = loop
        # Registered anew with each thread: hooks run last first, and this one has to run before the loop's own.
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)

    def _host(self, loop: asyncio.AbstractEventLoop, blocking: Blocking) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            blocking.shutdown()
            loop.close()

    async def _end(self) -> None:
        for each in list(self._running.values()):
            each._end(each._grace)  # noqa: SLF001 - its own tasks
        if self._running:
            await asyncio.wait(self._running, timeout=GOODBYE)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=GOODBYE)


def _nothing() -> None:
    """Cancel what was never begun."""


RUNTIME: Final = Runtime()


def weakly(call: Callable[[], object]) -> Callable[[], object]:
    """Return what calls this method, unless its object is gone by then: an alarm alone does not keep it."""
    method = weakref.WeakMethod(call)

    def ring() -> None:
        found = method()
        if found is not None:
            found()

    return ring


class Forward:
    """A caller's clock that may jump: when it goes back, time goes on from where it was."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ahead = 0.0
        self._last = float("-inf")

    def __call__(self) -> float:
        """Return seconds that do not go back. (Two threads may add to a jump twice: time is ahead then, not back.)"""
        now = self._clock() + self._ahead
        if now < self._last:
            self._ahead += self._last - now
            return self._last
        self._last = now
        return now


class Alarms(ABC):
    """A clock that can call back. ``now`` returns seconds and never goes back."""

    of_threads: ClassVar[bool]
    """Whether it serves threads, for which Python may wait at its end; a loop that ends cancels its tasks itself."""

    def __init__(self, clock: Callable[[], float] | None, usual: Callable[[], float]) -> None:
        self._given = clock is not None
        self.now: Callable[[], float] = usual if clock is None else Forward(clock)

    def left(self, when: float) -> float:
        """Return for how many seconds to wait for that time before the clock is read again; 0: it has come."""
        left = max(0.0, when - self.now())
        return min(left, LOOK_AGAIN) if self._given else left

    def call_at(self, when: float, call: Callable[[], object]) -> Cancel:
        """Call once the clock shows that time; return what cancels that. See ``call_later``."""
        if not self._given:
            return self.call_later(when - self.now(), call)
        alarm = Alarm(call)  # by a clock that may jump: it is read again and again

        def look() -> None:
            if (left := self.left(when)) > 0 and alarm.call is not None:
                alarm.handle = self.call_later(left, look)
            else:
                alarm.ring()

        alarm.handle = self.call_later(self.left(when), look)
        return alarm.cancel

    @abstractmethod
    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        """Call after so many real seconds, in any thread; ``call`` must not block. Return what cancels that."""

    @property
    def can_ring(self) -> bool:
        """Whether a loop is there to call back on: not between the end of one and the first use of another."""
        return True

    def ring_beside(self, loop: asyncio.AbstractEventLoop) -> bool:  # noqa: ARG002 - the runtime outlasts every loop
        """Say, to who waits on this running loop, whether they ring as long as that runs; False: to be asked again."""
        return True

    def renew(self) -> None:  # noqa: B027 - the runtime renews itself
        """Forget all alarms, in a forked child."""


class RuntimeAlarms(Alarms):
    """Alarms on the runtime's loop, by ``time.monotonic`` or the caller's clock. The first one starts its thread."""

    of_threads = True

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        super().__init__(clock, time.monotonic)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        """Call on the runtime. Raises ``RuntimeError`` if its thread can't be started."""
        return RUNTIME.call_later(seconds, call)


class LoopAlarms(Alarms):
    """Alarms on the event loop that uses it first, by its time or a clock.

    Once that loop runs no more, they move to the next one that asks for the time: a program may call ``asyncio.run``
    again and again, and what is still to ring then must ring.
    """

    of_threads = False

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        super().__init__(clock, self._loop_time)
        self.renew()

    def renew(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._due: dict[Alarm, float] = {}

    @property
    def can_ring(self) -> bool:
        return not self._bound().is_closed()

    def ring_beside(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._bound() is loop

    def _loop_time(self) -> float:
        try:
            return self._bound().time()
        except RuntimeError:  # no loop has used it yet, and who looks runs no loop: what asyncio's loops tell
            return time.monotonic()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        alarm = Alarm(call)
        self._due[alarm] = due = self._bound().time() + max(0.0, seconds)
        self._begin(alarm, due)
        return partial(self._cancel, alarm)

    def _begin(self, alarm: Alarm, due: float) -> None:
        loop = self._loop
        assert loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed: the alarm begins on the next one
            alarm.handle = _call_later(loop, self._thread, due - loop.time(), partial(self._ring, alarm))

    def _ring(self, alarm: Alarm) -> None:
        if self._due.pop(alarm, None) is not None:
            alarm.ring()

    def _cancel(self, alarm: Alarm) -> None:
        self._due.pop(alarm, None)
        alarm.cancel()

    def _bound(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None or not loop.is_running():
            try:
                running = asyncio.get_running_loop()
            except RuntimeError:
                if loop is None:
                    raise
                return loop  # between two runs, or in a finalizer after the last: it can still tell the time
            self._loop = loop = running
            self._thread = threading.get_ident()
            for alarm, due in list(self._due.items()):
                self._begin(alarm, due)
        return loop

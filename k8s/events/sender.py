"""Writes the events of a book to the API server: one daemon thread for each ledger that tells stories.

Nothing waits for it and nothing fails with it. Where events may not be written that is said once, and the permission
is asked for again after 5 minutes. The events themselves are never gated (``targets.URGENT``): they do not even pass
the gate.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import random
import socket
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from backoff_ctrl.k8s.cluster.bounded import beginning
from backoff_ctrl.k8s.gate.stories import Listener

from .bodies import instance_name
from .book import Counts, Ended, EventBook, Limits, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.aio.client import ApiClient

    from backoff_ctrl.k8s.gate.ledger import Desk
    from backoff_ctrl.k8s.gate.stories import Story

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SWITCH: Final = "BACKOFF_CTRL_EVENTS"
PATIENCE: Final = 10.0
"""Seconds until a request without an answer is given up."""
LAST: Final = 1.0
"""Seconds that are left for what is still to be written at the end."""
_WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_SAID_MAX: Final = 20


class EventSender:
    """Takes stories from any thread and writes events. Nothing is started before the first story."""

    def __init__(self, configuration: Any, *, limits: Limits | None = None) -> None:
        """Use the server and the credentials of a configuration of either client."""
        self._configuration = configuration
        self._limits = limits
        self._renew()
        _SENDERS.add(self)

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        instance = instance_name(socket.gethostname(), self._pid)
        self._book = EventBook(instance, lambda: time.time() - time.monotonic(), random.Random(), self._limits)
        self._thread: threading.Thread | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._stopped = False
        self._said: set[str] = set()

    @property
    def counts(self) -> Counts:
        """Return what was done so far."""
        return self._book.counts

    def tell(self, story: Story) -> None:
        """Take in a story; returns at once."""
        if self._pid != os.getpid():  # a forked child: it has no threads, and the lock may be held for ever
            self._renew()
        with self._lock:
            if self._stopped:
                return
            self._book.tell(story, time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backoff-ctrl-events", daemon=True)
                self._thread.start()
            self._wake()

    def stop(self) -> None:
        """Take no more stories; what can be written within a second still is. Returns at once."""
        with self._lock:
            self._stopped = True
            self._wake()

    def finish(self) -> None:
        """Stop, and wait until that is done."""
        self.stop()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(2 * LAST)

    def _wake(self) -> None:
        if self._running is not None:
            loop, news = self._running
            loop.call_soon_threadsafe(news.set)

    # -- in the thread ---------

    def _run(self) -> None:
        try:
            asyncio.run(self._write_all())
        except Exception:
            level = logging.DEBUG if self._stopped else logging.ERROR  # at the very end Python has no threads to give
            log.log(level, "events are no longer written; creates are not concerned", exc_info=True)
        with self._lock:
            self._stopped = True

    async def _write_all(self) -> None:
        from kubernetes.aio.client import ApiClient  # noqa: PLC0415 - 56 MB, wanted only here

        from backoff_ctrl.k8s.cluster.aio_configuration import aio_configuration  # noqa: PLC0415

        asyncio.get_running_loop().set_default_executor(_RightHere())
        news = asyncio.Event()
        async with ApiClient(aio_configuration(self._configuration)) as client:
            with self._lock:
                self._running = asyncio.get_running_loop(), news
            try:
                await self._until_stopped(client, news)
                async with asyncio.timeout(LAST):
                    while await self._write_next(client):
                        pass
            except TimeoutError:
                log.debug("not all events could be written in the end")
            finally:
                with self._lock:
                    self._running = None

    async def _until_stopped(self, client: ApiClient, news: asyncio.Event) -> None:
        while not self._stopped:
            news.clear()
            if await self._write_next(client):
                continue
            with self._lock:
                due = self._book.next_due()
            if self._stopped:
                return
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - time.monotonic())):
                    await news.wait()
            except TimeoutError:
                continue

    async def _write_next(self, client: ApiClient) -> bool:
        """Write what is due; False: nothing is."""
        with self._lock:
            write = self._book.next(time.monotonic())
        if write is None:
            return False
        how, retry_after = Ended.LATER, 0.0
        try:
            how, retry_after = await self._send(client, write)
        finally:
            with self._lock:
                self._book.ended(how, time.monotonic(), retry_after)
        return True

    async def _send(self, client: ApiClient, write: Write) -> tuple[Ended, float]:
        try:
            async with asyncio.timeout(PATIENCE):
                status, retry_after, text = await _request(client, write)
        except Exception as error:  # noqa: BLE001 - of whatever kind: only this event is concerned
            self._say_once(logging.INFO, f"an event could not be written ({type(error).__name__}: {error})")
            return Ended.LATER, 0.0
        how = ended_by(write, status)
        if how is Ended.FORBIDDEN:
            text = f"events may not be written ({status}: {text}); asked again after 5 minutes"
            self._say_once(logging.WARNING, text, "forbidden")
        elif how is Ended.FAILED:
            self._say_once(logging.WARNING, f"an event was not taken ({status}: {text})", f"failed {status}")
        return how, retry_after

    def _say_once(self, level: int, sentence: str, about: str = "") -> None:
        if (about or sentence) not in self._said and len(self._said) < _SAID_MAX:
            self._said.add(about or sentence)
            log.log(level, "%s", sentence)


class _RightHere(ThreadPoolExecutor):
    """Runs calls at once, where they are made.

    aiohttp looks up addresses and .netrc in helper threads. Those are gone once the main thread has returned, when
    the last events of a script are still to be written; and this loop has nothing else to do meanwhile.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever waits for the result gets it
            future.set_exception(error)
        return future


def ended_by(write: Write, status: int) -> Ended:
    """Say what an answer means for a write."""
    if 200 <= status < 300:
        return Ended.DONE
    if status == 409 and write.verb == "create":
        return Ended.DONE  # by an earlier try, whose answer was lost: nobody else draws this name
    if status == 404 and write.verb == "patch":
        return Ended.GONE
    if status in (401, 403):
        return Ended.FORBIDDEN
    return Ended.LATER if status in (408, 409, 429) or status >= 500 else Ended.FAILED


async def _request(client: ApiClient, write: Write) -> tuple[int, float, str]:
    """Return status, Retry-After and the beginning of the answer."""
    path = f"/apis/events.k8s.io/v1/namespaces/{write.namespace}/events"
    patch = write.verb == "patch"
    request = await client.param_serialize(
        "PATCH" if patch else "POST",
        f"{path}/{write.name}" if patch else path,
        body=write.body,
        header_params={
            "Accept": "application/json",
            "Content-Type": "application/merge-patch+json" if patch else "application/json",
        },
        auth_settings=["BearerToken"],
    )
    response = await client.call_api(*request, _request_timeout=PATIENCE)
    text = (await beginning(response.response)).decode("utf-8", "replace")[:300]
    asked = (response.headers or {}).get("Retry-After", "")
    return response.status, float(asked) if asked.isdecimal() else 0.0, text


# -- one for each ledger ---------

_LOCK = threading.Lock()
_SENDERS: weakref.WeakSet[EventSender] = weakref.WeakSet()
_SHARED: weakref.WeakKeyDictionary[Desk, tuple[EventSender, int]] = weakref.WeakKeyDictionary()


def events_wanted(given: bool | None) -> bool:
    """Say whether events are asked for: by the argument, else by the environment (``BACKOFF_CTRL_EVENTS=1``)."""
    if given is not None:
        return given
    word = os.environ.get(SWITCH, "").strip().lower()
    if word and word not in _WORDS:
        log.warning("%s=%r is neither 1 nor 0: no events are written", SWITCH, word)
    return _WORDS.get(word, False)


def send_events(desk: Desk, configuration: Any) -> Callable[[], None]:
    """Write events of what waits at a ledger, with the credentials of who comes first; return what ends it.

    A ledger that tells its stories to somebody else already goes on doing so, and no events are written.
    """
    with _LOCK:
        sender, users = _SHARED.get(desk, (None, 0))
        if sender is None:
            if desk.on_story is not None:
                log.warning("no events are written: this gate tells its stories to somebody else")
                return lambda: None
            sender = EventSender(configuration)
            desk.on_story = Listener(sender.tell)
        _SHARED[desk] = (sender, users + 1)
    return lambda: _leave(desk)


def _leave(desk: Desk) -> None:
    with _LOCK:
        sender, users = _SHARED.pop(desk)
        if users > 1:
            _SHARED[desk] = (sender, users - 1)
            return
        desk.on_story = None
    sender.stop()


def _finish_all() -> None:
    for sender in list(_SENDERS):
        sender.finish()


def _after_fork() -> None:
    """Make the lock anew: another thread may have held it."""
    global _LOCK  # noqa: PLW0603 - a lock cannot be reset otherwise
    _LOCK = threading.Lock()


atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

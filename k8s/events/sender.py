"""Writes events to the API server, in one daemon thread for each ledger that reports stories.

No create waits for it or fails because of it. If events are forbidden, that is logged once and tried again after
5 minutes. Events are never gated (``calls.URGENT``): this client does not pass through the gate at all.
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
from .book import Ended, EventBook, EventCounts, Limits, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.aio.client import ApiClient

    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.gate.stories import Story

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SWITCH: Final = "BACKOFF_CTRL_EVENTS"
PATIENCE: Final = 10.0
"""Seconds after which a request without an answer is given up."""
LAST: Final = 1.0
"""Seconds for writing the remaining events at the end."""
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
    """Takes stories from any thread and writes events. Its thread starts with the first story."""

    def __init__(self, configuration: Any, *, limits: Limits | None = None) -> None:
        """Use server and credentials of ``configuration``, from the sync or the asyncio client."""
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
    def counts(self) -> EventCounts:
        """The counters so far."""
        return self._book.counts

    def tell(self, story: Story) -> None:
        """Take in a story and return at once."""
        if self._pid != os.getpid():  # a forked child has no threads, and its lock may never be released
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
        """Take no more stories and return at once. What can be written within ``LAST`` seconds still is."""
        with self._lock:
            self._stopped = True
            self._wake()

    def finish(self) -> None:
        """Stop, and wait until the remaining events are written, at most ``2 * LAST`` seconds."""
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
            level = logging.DEBUG if self._stopped else logging.ERROR  # at exit Python refuses new threads
            log.log(level, "an internal error ended the writing of Kubernetes events; creates go on", exc_info=True)
        with self._lock:
            self._stopped = True

    async def _write_all(self) -> None:
        from kubernetes.aio.client import ApiClient  # noqa: PLC0415 - takes 56 MB, needed only here

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
                log.debug("some events were still unwritten at the end")
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
        """Do one write that is due. Returns False if there was none."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this event only
            self._say_once(logging.INFO, f"could not write a Kubernetes event ({type(error).__name__}: {error})")
            return Ended.LATER, 0.0
        how = ended_by(write, status)
        if how is Ended.FORBIDDEN:
            text = f"not allowed to write Kubernetes events ({status}: {text}); trying again in 5 minutes"
            self._say_once(logging.WARNING, text, "forbidden")
        elif how is Ended.FAILED:
            self._say_once(logging.WARNING, f"the server rejected an event ({status}: {text})", f"failed {status}")
        return how, retry_after

    def _say_once(self, level: int, sentence: str, about: str = "") -> None:
        if (about or sentence) not in self._said and len(self._said) < _SAID_MAX:
            self._said.add(about or sentence)
            log.log(level, "%s", sentence)


class _RightHere(ThreadPoolExecutor):
    """Runs each call immediately in the calling thread.

    aiohttp uses executor threads to resolve addresses and read .netrc. Python starts none after the main thread has
    returned, when the last events of a script are still to be written. Blocking is fine: this loop does nothing else.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - result() raises it
            future.set_exception(error)
        return future


def ended_by(write: Write, status: int) -> Ended:
    """Return the result that the answer's HTTP status means for a write."""
    if 200 <= status < 300:
        return Ended.DONE
    if status == 409 and write.verb == "create":
        return Ended.DONE  # an earlier try succeeded and its answer was lost: the name is unique to this sender
    if status == 404 and write.verb == "patch":
        return Ended.GONE
    if status in (401, 403):
        return Ended.FORBIDDEN
    return Ended.LATER if status in (408, 409, 429) or status >= 500 else Ended.FAILED


async def _request(client: ApiClient, write: Write) -> tuple[int, float, str]:
    """Return status, Retry-After in seconds (0 for none) and the beginning of the body."""
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


# -- one sender per ledger ---------

_LOCK = threading.Lock()
_SENDERS: weakref.WeakSet[EventSender] = weakref.WeakSet()
_SHARED: weakref.WeakKeyDictionary[Ledger, tuple[EventSender, int]] = weakref.WeakKeyDictionary()


def events_wanted(given: bool | None) -> bool:
    """Say whether to write events: as the argument says, else the environment (``BACKOFF_CTRL_EVENTS=1``), else no."""
    if given is not None:
        return given
    word = os.environ.get(SWITCH, "").strip().lower()
    if word and word not in _WORDS:
        log.warning("%s=%r is neither 1 nor 0: no Kubernetes events will be written", SWITCH, word)
    return _WORDS.get(word, False)


def send_events(ledger: Ledger, configuration: Any) -> Callable[[], None]:
    """Write events about creates waiting at this ledger; return a function that ends it.

    Callers with the same ledger share a sender, with the first caller's credentials, until the last one ends it. If
    the ledger already has another listener, that one stays and no events are written.
    """
    with _LOCK:
        sender, users = _SHARED.get(ledger, (None, 0))
        if sender is None:
            if ledger.on_story is not None:
                log.warning("no Kubernetes events will be written: this gate's on_story already has another listener")
                return lambda: None
            sender = EventSender(configuration)
            ledger.on_story = Listener(sender.tell)
        _SHARED[ledger] = (sender, users + 1)
    return lambda: _leave(ledger)


def _leave(ledger: Ledger) -> None:
    with _LOCK:
        sender, users = _SHARED.pop(ledger)
        if users > 1:
            _SHARED[ledger] = (sender, users - 1)
            return
        ledger.on_story = None
    sender.stop()


def _finish_all() -> None:
    for sender in list(_SENDERS):
        sender.finish()


def _after_fork() -> None:
    """Replace the lock: another thread may have held it at the fork."""
    global _LOCK  # noqa: PLW0603 - a lock cannot be reset otherwise
    _LOCK = threading.Lock()


atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Writes events to the API server, in one daemon thread for each ledger that reports stories.

No create waits for it or fails because of it. If events are forbidden, that is logged once and tried again after
5 minutes. Events are never gated (``calls.URGENT``): these calls do not pass through the gate at all.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.gate.telling.stories import Listener

from .bodies import instance_name
from .book import Ended, EventBook, EventCounts, Limits, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.cluster.plain_http import PlainHttp
    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.gate.telling.stories import Story

log = logging.getLogger(__name__)

SWITCH: Final = "BACKOFF_CTRL_EVENTS"
PATIENCE: Final = 10.0
"""Seconds after which a request without an answer is given up."""
LAST: Final = 1.0
"""Seconds for writing the remaining events at the end."""
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")
_LOGGED_MAX: Final = 20


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
        self._news = threading.Condition()
        instance = instance_name(socket.gethostname(), self._pid)
        self._book = EventBook(instance, lambda: time.time() - time.monotonic(), random.Random(), self._limits)
        self._thread: threading.Thread | None = None
        self._ends_at: float | None = None  # set once it is stopped
        self._logged: set[str] = set()

    @property
    def counts(self) -> EventCounts:
        """The counters so far."""
        return self._book.counts

    def tell(self, story: Story) -> None:
        """Take in a story and return at once."""
        if self._pid != os.getpid():  # a forked child has no threads, and its lock may never be released
            self._renew()
        with self._news:
            if self._ends_at is not None:
                return
            self._book.tell(story, time.monotonic())
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="backoff-ctrl-events", daemon=True)
                thread.start()
                self._thread = thread  # only now: the next story tries again if it could not start
            self._news.notify()

    def stop(self) -> None:
        """Take no more stories and return at once. What can be written within ``LAST`` seconds still is."""
        with self._news:
            if self._ends_at is None:
                self._ends_at = time.monotonic() + LAST
            self._news.notify()

    def finish(self) -> None:
        """Stop, and wait until the remaining events are written, at most ``2 * LAST`` seconds."""
        self.stop()
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(2 * LAST)

    # -- in the thread ---------

    def _run(self) -> None:
        try:
            from backoff_ctrl.k8s.cluster.plain_http import PlainHttp  # noqa: PLC0415 - urllib3: needed only here

            http = PlainHttp(self._configuration)
            while (write := self._next()) is not None:
                how, retry_after = self._send(http, write)
                with self._news:
                    self._book.ended(how, time.monotonic(), retry_after)
        except Exception:
            log.exception("an internal error ended the writing of Kubernetes events; creates go on")
            self.stop()

    def _next(self) -> Write | None:
        """Wait for the next write; None: it is time to end."""
        with self._news:
            while self._ends_at is None or time.monotonic() < self._ends_at:
                try:
                    write = self._book.next(time.monotonic())
                except Exception as error:  # noqa: BLE001 - a note failed: it concerns this event only
                    self._log_once(
                        logging.ERROR, "note", f"an internal error kept an event from being written: {error!r}"
                    )
                    continue
                due = self._book.next_due()
                if write is not None or self._ends_at is not None:
                    return write
                self._news.wait(None if due is None else max(0.0, due - time.monotonic()))
        return None

    def _send(self, http: PlainHttp, write: Write) -> tuple[Ended, float]:
        """Do one write; return its result, and the server's Retry-After in seconds (0: none)."""
        path = f"/apis/events.k8s.io/v1/namespaces/{write.namespace}/events"
        method, kind = "POST", "application/json"
        if write.verb == "patch":
            method, path, kind = "PATCH", f"{path}/{write.name}", "application/merge-patch+json"
        try:
            status, headers, text = http.call(method, path, kind, write.body, PATIENCE)
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this event only
            why = f"{type(error).__name__}: {error}"
            self._log_once(logging.INFO, why, f"could not write a Kubernetes event ({why})")
            return Ended.LATER, 0.0
        how = ended_by(write, status)
        if how is Ended.FORBIDDEN:
            text = f"not allowed to write Kubernetes events ({status}: {text}); trying again in 5 minutes"
            self._log_once(logging.WARNING, "forbidden", text)
        elif how is Ended.FAILED:
            self._log_once(logging.WARNING, f"failed {status}", f"the server rejected an event ({status}: {text})")
        asked = headers.get("retry-after", "")
        return how, float(asked) if asked.isdecimal() else 0.0

    def _log_once(self, level: int, about: str, sentence: str) -> None:
        if about not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add(about)
            log.log(level, "%s", sentence)


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


# -- one sender per ledger ---------

_LOCK = threading.Lock()
_SENDERS: weakref.WeakSet[EventSender] = weakref.WeakSet()
_SHARED: weakref.WeakKeyDictionary[Ledger, tuple[EventSender, int]] = weakref.WeakKeyDictionary()


def events_wanted(given: bool | None) -> bool:
    """Say whether to write events: as the argument says, else the environment (``BACKOFF_CTRL_EVENTS=1``), else no."""
    if given is not None:
        return given
    word = os.environ.get(SWITCH, "").strip().lower()
    if word not in (*_YES, *_NO):
        log.warning("%s=%r is neither 1 nor 0: no Kubernetes events will be written", SWITCH, word)
    return word in _YES


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

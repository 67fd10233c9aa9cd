"""Writes events to the API server, on the runtime: one sender for each ledger that reports stories.

No create waits for it or fails because of it. If events are forbidden, that is logged once and tried again after
5 minutes. Events are never gated (``calls.URGENT``): these calls do not pass through the gate at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.runtime.forks import after_fork
from backoff_ctrl.k8s.runtime.host import RUNTIME, Task

from .bodies import instance_name
from .book import Ended, EventBook, EventCounts, Limits, Write
from .stories import Stories, Story

if TYPE_CHECKING:  # aiohttp is loaded by those who write events alone
    from backoff_ctrl.k8s.cluster.session import ClusterSession

log = logging.getLogger(__name__)

SWITCH: Final = "BACKOFF_CTRL_EVENTS"
PATIENCE: Final = 10.0
"""Seconds after which a request without an answer is given up."""
LAST: Final = 1.0
"""Seconds for writing the remaining events at the end."""
TEXT_MAX: Final = 300
"""Bytes of an answer that are read: enough for an error message, however long the answer is."""
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")
_LOGGED_MAX: Final = 20


class EventSender:
    """Takes stories from any thread and writes events. It begins to run with the first story."""

    def __init__(self, configuration: Any, *, limits: Limits | None = None) -> None:
        """Use server and credentials of ``configuration``, from the sync or the asyncio client."""
        self._configuration = configuration
        self._limits = limits
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        instance = instance_name(socket.gethostname(), os.getpid())
        self._book = EventBook(instance, lambda: time.time() - time.monotonic(), random.Random(), self._limits)
        self._news = asyncio.Event()
        self._task: Task | None = None
        self._stopped = False
        self._ends_at = float("inf")
        self._logged: set[str] = set()

    @property
    def counts(self) -> EventCounts:
        """The counters so far."""
        return self._book.counts

    def tell(self, story: Story) -> None:
        """Take in a story and return at once."""
        if self._stopped:
            return
        if self._task is None:
            from backoff_ctrl.k8s.cluster import session  # noqa: F401, PLC0415 - not in the runtime's own thread

            self._task = RUNTIME.spawn(self._run, self._end)
        self._task.post(self._take, story)

    def stop(self) -> None:
        """Take no more stories and return at once. What can be written within ``LAST`` seconds still is."""
        self._stopped = True
        if self._task is not None:
            self._task.stop()

    def finish(self) -> None:
        """Stop, and wait until the remaining events are written, at most ``2 * LAST`` seconds."""
        self.stop()
        if self._task is not None:
            self._task.join(2 * LAST)

    # -- on the runtime ---------

    def _take(self, story: Story) -> None:
        self._book.tell(story, time.monotonic())
        self._news.set()

    def _end(self) -> None:
        self._ends_at = min(self._ends_at, time.monotonic() + LAST)
        self._news.set()

    async def _run(self) -> None:
        from backoff_ctrl.k8s.cluster.session import ClusterSession  # noqa: PLC0415 - see ``tell``

        try:
            async with ClusterSession(self._configuration, hooks_block=True) as session:
                while (write := await self._next()) is not None:
                    how, retry_after = await self._send(session, write)
                    self._book.ended(how, time.monotonic(), retry_after)
        except Exception:
            log.exception("an internal error ended the writing of Kubernetes events; creates go on")
            self._stopped = True

    async def _next(self) -> Write | None:
        """Wait for the next write; None: it is time to end."""
        while (now := time.monotonic()) < self._ends_at:
            try:
                write = self._book.next(now)
            except Exception as error:  # noqa: BLE001 - a note failed: it concerns this event only
                self._log_once(logging.ERROR, "note", f"an internal error kept an event from being written: {error!r}")
                continue
            due = self._book.next_due()
            if write is not None or self._ends_at < float("inf"):
                return write
            self._news.clear()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                    await self._news.wait()
            except TimeoutError:
                continue
        return None

    async def _send(self, session: ClusterSession, write: Write) -> tuple[Ended, float]:
        """Do one write; return its result, and the server's Retry-After in seconds (0: none)."""
        path = f"/apis/events.k8s.io/v1/namespaces/{write.namespace}/events"
        method, kind = "POST", "application/json"
        if write.verb == "patch":
            method, path, kind = "PATCH", f"{path}/{write.name}", "application/merge-patch+json"
        try:
            response = await session.request(
                method, path, headers={"Content-Type": kind}, body=write.body, timeout=PATIENCE
            )
            async with response:
                text = (await response.content.read(TEXT_MAX)).decode("utf-8", "replace")
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this event only
            why = f"{type(error).__name__}: {error}"
            self._log_once(logging.INFO, why, f"could not write a Kubernetes event ({why})")
            return Ended.LATER, 0.0
        how = ended_by(write, response.status)
        if how is Ended.FORBIDDEN:
            text = f"not allowed to write Kubernetes events ({response.status}: {text}); trying again in 5 minutes"
            self._log_once(logging.WARNING, "forbidden", text)
        elif how is Ended.FAILED:
            said = f"the server rejected an event ({response.status}: {text})"
            self._log_once(logging.WARNING, f"failed {response.status}", said)
        asked = response.headers.get("Retry-After", "")
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


class _Shared:
    """The sender of one ledger, and how many use it."""

    def __init__(self, ledger: Ledger, configuration: Any) -> None:
        self.users = 0
        self.sender = EventSender(configuration)
        self.unsubscribe = ledger.subscribe(Stories(ledger, self.sender.tell))


_SHARED: weakref.WeakKeyDictionary[Ledger, _Shared] = weakref.WeakKeyDictionary()


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

    Callers with the same ledger share a sender, with the first caller's credentials, until the last one ends it.
    """
    shared = _SHARED.get(ledger)
    if shared is None:
        shared = _SHARED[ledger] = _Shared(ledger, configuration)
    shared.users += 1

    def end() -> None:
        shared.users -= 1
        if not shared.users:
            _SHARED.pop(ledger, None)
            shared.unsubscribe()
            shared.sender.stop()

    return end

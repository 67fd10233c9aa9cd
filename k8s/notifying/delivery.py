"""Sends events to one receiver, on the runtime: a bounded queue, retries, and a signature.

A receiver that is slow or gone holds up nobody: its queue fills, and what comes then is dropped and counted.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import tenacity

from backoff_ctrl.k8s.runtime.forks import after_fork
from backoff_ctrl.k8s.runtime.host import RUNTIME, Task

from .receivers import Receiver

if TYPE_CHECKING:  # loaded by those who notify alone
    from aiohttp import ClientSession

log = logging.getLogger(__name__)

QUEUE_MAX: Final = 1000
"""Events kept for a receiver: about 1 MB."""
TRIES: Final = 6
"""Within about half a minute."""
PATIENCE: Final = 10.0
"""Seconds for an answer."""
FOREVER: Final = float("inf")
LAST: Final = 1.0
"""Seconds for what is in the queue when Python ends."""
TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _RefusedError(Exception):
    """The receiver refuses the event for good."""


class Delivery:
    """What goes to one receiver. ``counts``: sent, failed, dropped."""

    def __init__(self, receiver: Receiver, *, wait: Any = None, tries: int = TRIES, queue_max: int = QUEUE_MAX) -> None:
        """``wait`` is tenacity's pause between tries; default: exponential with jitter, 1 to 30 s."""
        self.receiver = receiver
        self.counts: Counter[str] = Counter(sent=0, failed=0, dropped=0)
        self._wait = wait if wait is not None else tenacity.wait_random_exponential(multiplier=1, max=30)
        self._tries = tries
        self._most = queue_max
        self._failing = False
        self._begin()
        after_fork(self._begin)

    def _begin(self) -> None:
        self._queue: deque[dict[str, Any]] = deque()
        self._news = asyncio.Event()
        self._ends_at = FOREVER
        self._limit: asyncio.Timeout | None = None  # of what is being delivered
        self._closed = False
        self._task: Task | None = None

    def put(self, event: dict[str, Any]) -> None:
        """Send an event soon. Never blocks for long."""
        if self._closed or len(self._queue) >= self._most:
            self.counts["dropped"] += 1
            return
        self._queue.append(event)
        if self._task is None:
            import aiohttp  # noqa: F401, PLC0415 - loaded by those who notify alone, and not in the runtime's own thread

            self._task = RUNTIME.spawn(self._run, self._end)
        self._task.post(self._news.set)

    def close(self, seconds: float) -> None:
        """Go on for so many seconds at most to empty the queue; what is left then is dropped."""
        self._closed = True
        self._ends_at = time.monotonic() + seconds
        if self._task is not None:
            self._task.stop()
            self._task.join(seconds + PATIENCE)

    # -- on the runtime ---------

    def _end(self) -> None:
        self._closed = True
        self._ends_at = min(self._ends_at, time.monotonic() + LAST)
        self._news.set()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left())

    def _left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    async def _run(self) -> None:
        from aiohttp import ClientSession, ClientTimeout  # noqa: PLC0415 - see ``put``

        async with ClientSession(trust_env=True, timeout=ClientTimeout(total=PATIENCE)) as session:
            while await self._has_event():
                try:
                    async with asyncio.timeout(None if self._ends_at == FOREVER else self._left()) as self._limit:
                        outcome = await self._deliver(session, self._queue[0])
                except TimeoutError:
                    outcome = "failed"
                self._limit = None
                self.counts[outcome] += 1
                self._queue.popleft()
        self.counts["dropped"] += len(self._queue)
        self._queue.clear()

    async def _has_event(self) -> bool:
        """Wait for one; False: it is time to end."""
        while not (self._queue or self._closed):
            self._news.clear()
            await self._news.wait()
        return bool(self._queue) and self._left() > 0

    async def _deliver(self, session: ClientSession, event: dict[str, Any]) -> str:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._tries),
            wait=self._wait,
            retry=tenacity.retry_if_exception(_is_passing),  # a cancellation is not to be tried again
            reraise=True,
        )
        body = json.dumps(event, ensure_ascii=False).encode()
        try:
            await retrying(self._send, session, event["id"], body)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the next event is tried
            if not self._failing:  # once, until it works again
                log.warning("receiver %s can't be told: %s", self.receiver.name, error)
            self._failing = True
            return "failed"
        self._failing = False
        return "sent"

    async def _send(self, session: ClientSession, id_: str, body: bytes) -> None:
        headers = {"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "backoff-ctrl"}
        if self.receiver.secret:
            headers |= signed(self.receiver.secret, id_, body, time.time)
        # Redirects are not followed: a POST would become a GET, and the signed body could go to another host.
        async with session.post(self.receiver.url, data=body, headers=headers, allow_redirects=False) as answer:
            await answer.content.read(1024)
        words = f"it answers {answer.status}"
        if answer.status in TEMPORARY:
            raise OSError(words)
        if not answer.ok or answer.status >= 300:
            raise _RefusedError(words)


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, _RefusedError)


def signed(secret: str, id_: str, body: bytes, clock: Callable[[], float]) -> dict[str, str]:
    """Return the headers of a signed request, as the Standard Webhooks specification has them.

    The signature is over id, time and body, so that nothing can be changed or sent again later.
    """
    at = str(int(clock()))
    text = f"{id_}.{at}.".encode() + body
    mac = base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()
    return {"webhook-id": id_, "webhook-timestamp": at, "webhook-signature": f"v1,{mac}"}

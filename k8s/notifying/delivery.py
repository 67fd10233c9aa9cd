"""Sends events to one receiver: a bounded queue, a daemon thread, retries, and a signature.

A receiver that is slow or gone holds up nobody: its queue fills, and what comes then is dropped and counted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import tenacity

if TYPE_CHECKING:
    from collections.abc import Callable

    from .receivers import Receiver

log = logging.getLogger(__name__)

QUEUE_MAX: Final = 1000
"""Events kept for a receiver: about 1 MB."""
TRIES: Final = 6
"""Within about half a minute."""
PATIENCE: Final = 10.0
"""Seconds for an answer."""
TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _RefusedError(Exception):
    """The receiver refuses the event for good."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: a POST would become a GET, and the signed body could go to another host."""


class Delivery:
    """What goes to one receiver. ``counts``: sent, failed, dropped."""

    def __init__(self, receiver: Receiver, *, wait: Any = None, tries: int = TRIES, queue_max: int = QUEUE_MAX) -> None:
        """``wait`` is tenacity's pause between tries; default: exponential with jitter, 1 to 30 s."""
        self.receiver = receiver
        self.counts: Counter[str] = Counter(sent=0, failed=0, dropped=0)
        self._wait = wait if wait is not None else tenacity.wait_random_exponential(multiplier=1, max=30)
        self._tries = tries
        self._most = queue_max
        self._opener = build_opener(_NoRedirects)
        self._failing = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queue: deque[dict[str, Any]] = deque()
        self._news = threading.Condition()
        self._closing = threading.Event()
        self._busy = False  # with the first of the queue
        self._thread: threading.Thread | None = None

    def put(self, event: dict[str, Any]) -> None:
        """Send an event soon. Never blocks for long."""
        if self._pid != os.getpid():
            self._begin()  # a forked child: it has no thread, and the lock may be held for ever
        with self._news:
            if self._closing.is_set() or len(self._queue) >= self._most:
                self.counts["dropped"] += 1
                return
            self._queue.append(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backoff-ctrl-notify", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self, seconds: float) -> None:
        """Go on for so many seconds at most to empty the queue; what is left then is dropped."""
        end = time.monotonic() + seconds
        with self._news:
            self._news.wait_for(lambda: not self._queue, max(0.0, end - time.monotonic()))
            self._closing.set()
            self.counts["dropped"] += len(self._queue) - self._busy
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._queue or self._closing.is_set())
                if self._closing.is_set():
                    return
                event = self._queue[0]
                self._busy = True
            outcome = self._deliver(event)
            with self._news:
                self._busy = False
                self.counts[outcome] += 1
                self._queue.popleft()  # only now: who closes waits for it
                self._news.notify_all()

    def _deliver(self, event: dict[str, Any]) -> str:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._tries) | tenacity.stop_when_event_set(self._closing),
            wait=self._wait,
            sleep=tenacity.sleep_using_event(self._closing),
            retry=tenacity.retry_if_not_exception_type(_RefusedError),
            reraise=True,
        )
        body = json.dumps(event, ensure_ascii=False).encode()
        try:
            retrying(self._send, event["id"], body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next event is tried
            if not self._failing:  # once, until it works again
                log.warning("receiver %s can't be told: %s", self.receiver.name, error)
            self._failing = True
            return "failed"
        self._failing = False
        return "sent"

    def _send(self, id_: str, body: bytes) -> None:
        headers = {"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "backoff-ctrl"}
        if self.receiver.secret:
            headers |= signed(self.receiver.secret, id_, body, time.time)
        request = Request(self.receiver.url, body, headers, method="POST")  # noqa: S310 - http or https, as checked
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                answer.read(1024)
        except HTTPError as error:
            error.close()
            words = f"it answers {error.code}"
            if error.code in TEMPORARY:
                raise OSError(words) from None
            raise _RefusedError(words) from None


def signed(secret: str, id_: str, body: bytes, clock: Callable[[], float]) -> dict[str, str]:
    """Return the headers of a signed request, as the Standard Webhooks specification has them.

    The signature is over id, time and body, so that nothing can be changed or sent again later.
    """
    at = str(int(clock()))
    text = f"{id_}.{at}.".encode() + body
    mac = base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()
    return {"webhook-id": id_, "webhook-timestamp": at, "webhook-signature": f"v1,{mac}"}

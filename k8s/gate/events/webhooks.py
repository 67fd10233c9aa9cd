"""Webhooks: notifies receivers of creates that wait long, are declined, or end badly.

A file names the receivers, with filters. The gate only puts events into queues: a create costs one timer for each
different ``longer-than`` while it waits. A receiver that is slow or gone holds up no other: once its queue is full,
further events are dropped and counted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import tenacity
import yaml
from aiohttp import ClientSession, ClientTimeout

from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import LOADING, RUNTIME, Task, after_fork
from backoff_ctrl.k8s.gate.settings import ENVIRONMENT
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.answers.spelling import hint
from backoff_ctrl.k8s.kube.charges.bounded_yaml import BoundedLoader

log = logging.getLogger(__name__)

EVENTS: Final = ("waiting", "created", "declined", "timed-out", "cancelled", "failed")
"""The events that can be sent. ``created`` and the others that end a create are sent only if it waited."""
TASK_EVENTS: Final = ("task-ended", "attempt-ended")
"""The events of tasks (``k8s/tasks/notifying``), for receivers that name them."""
USUAL: Final = ("waiting", "declined", "timed-out", "failed")
LONGER_THAN: Final = 300.0
RECEIVERS_MAX: Final = 16
SECRET_MIN: Final = 16
QUEUE_MAX: Final = 1000  # events kept for a receiver: about 1 MB
TRIES: Final = 6  # within about half a minute
PATIENCE: Final = 10.0  # seconds for an answer
LAST: Final = 1.0  # seconds for what is in the queue when Python ends
OF_A_QUOTA: Final = ("quota", "resource", "asked", "left", "limited")
TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
CREATE: Final = "create."  # begins the type of every event of a create; what happened follows


class ReceiversError(ValueError):
    """The file of receivers can't be used. The message names the file and the field, and says what to do."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """One receiver. ``longer_than``: seconds that a create must have waited; ``namespaces`` may have ``*``."""

    name: str
    url: str
    secret: str = ""
    namespaces: tuple[str, ...] = ("*",)
    events: tuple[str, ...] = USUAL
    reasons: tuple[str, ...] = ()  # why it waits or was declined; empty: for any reason
    longer_than: float = LONGER_THAN

    def wants(self, event: str, namespace: str, reason: str, waited: float) -> bool:
        """Return whether it is to be notified. A declined create need not have waited."""
        return self.hears(event, namespace, reason) and (event == "declined" or waited >= self.longer_than)

    def hears(self, event: str, namespace: str, reason: str) -> bool:
        """Return whether it is to be notified of a create that did not wait."""
        return (
            event in self.events
            and any(fnmatchcase(namespace, each) for each in self.namespaces)
            and (not self.reasons or reason in self.reasons)
        )


def read_receivers(file: Path, environment: Mapping[str, str] = ENVIRONMENT) -> tuple[Receiver, ...]:
    """Read the receivers of a YAML or JSON file. Raises ``ReceiversError``."""
    try:
        found = yaml.load(file.read_text(encoding="utf-8"), BoundedLoader)  # noqa: S506 - a safe loader, bounded
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: not UTF-8, or a date in month 99
        raise ReceiversError(f"{file} can't be read: {error}") from None
    try:
        _fields(found, "the file", {"receivers"})
        listed = found.get("receivers")
        if not isinstance(listed, list) or not 1 <= len(listed) <= RECEIVERS_MAX:
            raise ReceiversError(f"receivers must be a list of 1 to {RECEIVERS_MAX}")  # noqa: TRY301
        receivers = tuple(_receiver(each, f"receivers[{at}]", environment) for at, each in enumerate(listed))
        names = [each.name for each in receivers]
        if len(set(names)) < len(names):
            raise ReceiversError("the names of receivers must differ")  # noqa: TRY301
    except ReceiversError as error:
        raise ReceiversError(f"{file}: {error}") from None
    return receivers


def _receiver(found: Any, place: str, environment: Mapping[str, str]) -> Receiver:
    known = {"name", "url", "secret-env", "secret-file", "namespaces", "events", "reasons", "longer-than"}
    _fields(found, place, known)
    name, url = (_text(found.get(each), f"{place}.{each}") for each in ("name", "url"))
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise ReceiversError(f"{place}.url must be a URL such as https://hooks.example.com/quota, without credentials")
    longer = found.get("longer-than", LONGER_THAN)
    if isinstance(longer, bool) or not isinstance(longer, int | float) or not 0 <= longer <= 10**9:
        raise ReceiversError(f"{place}.longer-than must be a number of seconds, 0 or more")
    events = _texts(found, "events", place, USUAL)
    known_events = (*EVENTS, *TASK_EVENTS)
    if wrong := [each for each in events if each not in known_events]:
        raise ReceiversError(f"{place}.events: {wrong[0]!r} is not an event; {hint(wrong[0], known_events)}")
    return Receiver(
        name,
        url,
        _secret(found, place, environment),
        _texts(found, "namespaces", place, ("*",)),
        events,
        _texts(found, "reasons", place, ()),
        float(longer),
    )


def _secret(found: Mapping[str, Any], place: str, environment: Mapping[str, str]) -> str:
    """Return the signing secret, or an empty text. It is never in the file itself, which people commit."""
    if "secret-env" in found:
        variable = _text(found["secret-env"], f"{place}.secret-env")
        secret = environment.get(variable, "")
    elif "secret-file" in found:
        file = _text(found["secret-file"], f"{place}.secret-file")
        try:
            secret = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ReceiversError(f"{place}.secret-file can't be read: {error}") from None
    else:
        return ""
    if len(secret) < SECRET_MIN:
        raise ReceiversError(f"{place}: the secret is missing or shorter than {SECRET_MIN} characters")
    return secret


def _fields(found: Any, place: str, known: set[str]) -> None:
    if not isinstance(found, dict):
        raise ReceiversError(f"{place} must be an object with {', '.join(sorted(known))}")
    if wrong := [str(name) for name in found if name not in known]:
        raise ReceiversError(f"{place}: unknown field {wrong[0]!r}: {hint(wrong[0], known)}")


def _text(found: Any, place: str) -> str:
    if not isinstance(found, str) or not found or not found.isprintable():
        raise ReceiversError(f"{place} must be a text")
    return found


def _texts(found: Mapping[str, Any], name: str, place: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    listed = found.get(name, list(usual))
    if not isinstance(listed, list):
        raise ReceiversError(f"{place}.{name} must be a list of texts")
    return tuple(_text(each, f"{place}.{name}") for each in listed)


class _RefusedError(Exception):
    """The receiver refuses the event for good."""


class Delivery:
    """Sends to one receiver, on the runtime: a bounded queue, retries, and a signature.

    ``counts``: sent, failed, dropped. ``wait``: tenacity's pause between tries, by default exponential with jitter.
    """

    def __init__(self, receiver: Receiver, *, wait: Any = None, tries: int = TRIES, queue_max: int = QUEUE_MAX) -> None:
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
        self._closed = False
        self._task: Task | None = None

    def put(self, event: dict[str, Any]) -> None:
        """Send an event soon. Never blocks for long."""
        if self._closed or len(self._queue) >= self._most:
            self.counts["dropped"] += 1
            return
        self._queue.append(event)
        if self._task is None:
            with LOADING:  # the first of several threads
                if self._task is None:
                    self._task = RUNTIME.spawn(self._run, LAST)
        self._task.wake()

    def close(self, seconds: float) -> None:
        """Empty the queue within so many seconds; what is left then is dropped."""
        self._closed = True
        if self._task is not None:
            self._task.stop(seconds)
            self._task.join(seconds + PATIENCE)

    # -- on the runtime ---------

    async def _run(self, task: Task) -> None:
        try:
            async with ClientSession(trust_env=True, timeout=ClientTimeout(total=PATIENCE)) as session:
                while self._queue or not task.ending:
                    if not self._queue:
                        await task.wait()
                        continue
                    outcome = "failed"  # also when it is cancelled
                    try:
                        outcome = await self._deliver(session, self._queue[0])
                    finally:
                        self.counts[outcome] += 1
                        self._queue.popleft()
        finally:
            self._closed = True
            self.counts["dropped"] += len(self._queue)
            self._queue.clear()

    async def _deliver(self, session: ClientSession, event: dict[str, Any]) -> str:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._tries),
            wait=self._wait,
            retry=tenacity.retry_if_exception(lambda e: isinstance(e, Exception) and not isinstance(e, _RefusedError)),
            reraise=True,
        )
        body = json.dumps(event, ensure_ascii=False).encode()
        try:
            await retrying(self._send, session, event["id"], body)
        except Exception as error:  # noqa: BLE001 - after any error the next event is tried
            if not self._failing:  # once, until it works again
                log.warning("receiver %s can't be notified: %s", self.receiver.name, error)
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


def signed(secret: str, id_: str, body: bytes, clock: Callable[[], float]) -> dict[str, str]:
    """Return the headers of a signed request by the Standard Webhooks specification.

    The signature is over id, time and body, so that it can't be changed or sent again later.
    """
    at = str(int(clock()))
    text = f"{id_}.{at}.".encode() + body
    mac = base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()
    return {"webhook-id": id_, "webhook-timestamp": at, "webhook-signature": f"v1,{mac}"}


def cloud_event(gate: str, type_: str, subject: str, now: float, data: dict[str, Any]) -> dict[str, Any]:
    """Return a CloudEvent (1.0) of a gate, with an id of its own; ``now`` is Unix time."""
    return {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        "source": f"/backoff-ctrl/gates/{gate}",
        "type": f"dev.backoff-ctrl.{type_}",
        "subject": subject,
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": data,
    }


@dataclass(slots=True, eq=False)
class _Wait:
    since: float
    alarms: list[Callable[[], object]] = field(default_factory=list)
    reason: str = ""
    declined: bool = False


class Notifier(Subscriber):
    """Subscribes to one ledger. ``gate`` is its name, the source of the events; ``wall`` is Unix time."""

    def __init__(
        self, ledger: Ledger, receivers: Sequence[Receiver], gate: str, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._gate = gate
        self._wall = wall
        self._creates: dict[Unfinished, _Wait] = {}  # each method takes single steps of the dict
        self._deliveries = [Delivery(each) for each in receivers]
        self._thresholds = sorted({each.longer_than for each in receivers if "waiting" in each.events})

    def close(self, seconds: float = 1.0) -> None:
        """Send what is in the queues for so long; then end."""
        end = time.monotonic() + seconds
        for each in self._deliveries:
            each.close(max(0.0, end - time.monotonic()))

    def figures(self) -> Iterable[tuple[str, tuple[str, ...], float]]:
        for each in self._deliveries:
            for outcome, count in each.counts.items():
                yield "notifications_total", (each.receiver.name, outcome), count

    # -- called by the gate ---------

    def waits(self, create: Unfinished) -> None:
        """Start the timers of a create that begins to wait; if it waits again, they keep running."""
        if create not in self._creates:
            noted = self._creates[create] = _Wait(self._ledger.now())
            noted.alarms = [
                self._ledger.call_at(noted.since + each, partial(self._look, create, each)) for each in self._thresholds
            ]

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        """Note why the gate itself refuses it; the notification at the end says so."""
        noted = self._creates.setdefault(create, _Wait(self._ledger.now()))
        noted.reason, noted.declined = refusal.reason, True

    def ended(self, create: Unfinished) -> None:
        """Notify of the end of a create that waited or was declined."""
        noted = self._creates.pop(create, None)
        if noted is None:
            return
        for cancel in noted.alarms:
            cancel()
        self._tell("declined" if noted.declined else create.outcome, create, noted, {})

    def _look(self, create: Unfinished, threshold: float) -> None:
        """Notify the receivers that want to know after so many seconds that a create still waits."""
        noted = self._creates.get(create)
        if noted is None or not create.waits:
            return
        wait = create.wait()
        noted.reason = wait.reason
        more = {
            **{name: getattr(wait, name) if wait.quota else None for name in OF_A_QUOTA},
            "place": wait.place,
            "estimate_seconds": None if wait.estimate is None else round(wait.estimate, 3),
        }
        self._tell("waiting", create, noted, more, threshold)

    def _tell(
        self, event: str, create: Unfinished, noted: _Wait, more: dict[str, Any], threshold: float | None = None
    ) -> None:
        namespace, reason, waited = create.creation.namespace, noted.reason, self._ledger.now() - noted.since
        wanting = [
            each
            for each in self._deliveries
            if each.receiver.wants(event, namespace, reason, waited)
            and (threshold is None or each.receiver.longer_than == threshold)
        ]
        if not wanting:
            return
        creation, answer = create.creation, create.answer
        data = {
            "gate": self._gate,
            "server": creation.server,
            "namespace": creation.namespace,
            "kind": creation.resource,
            "name": creation.name,
            "id": create.create_id,
            "reason": reason or None,
            "waited_seconds": round(waited, 3),
            "priority": creation.priority,
            "status": None if answer is None else answer.status,
            **more,
        }
        subject = f"{creation.namespace}/{creation.resource}/{creation.name}"
        whole = cloud_event(self._gate, CREATE + event, subject, self._wall(), data)
        for each in wanting:
            each.put(whole)

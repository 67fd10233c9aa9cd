"""Watches the creates of a gate, and tells receivers of those that wait long, are declined, or end badly.

Whoever decides only puts into a queue. A create costs one alarm for each different ``longer-than`` while it waits.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.answers.answer import GateClosed, WaitedTooLong
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.unfinished import Unfinished

from .delivery import Delivery
from .receivers import Receiver

TYPE: Final = "dev.backoff-ctrl.create."
"""Begins the type of every event; what happened follows."""


class _Wait:
    """What is remembered of one create that waits or waited."""

    __slots__ = ("alarms", "declined", "reason", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.alarms: list[Callable[[], object]] = []
        self.reason = ""
        self.declined = False


class Notifier(Subscriber):
    """An observer of one ledger. Its methods are safe from any thread."""

    def __init__(
        self, ledger: Ledger, receivers: Sequence[Receiver], gate: str, *, wall: Callable[[], float] = time.time
    ) -> None:
        """``gate`` is its name, the source of the events; ``wall`` is Unix time."""
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
        """Count what was sent, failed and dropped."""
        for each in self._deliveries:
            for outcome, count in each.counts.items():
                yield "notifications_total", (each.receiver.name, outcome), count

    # -- called by the gate ---------

    def waits(self, create: Unfinished) -> None:
        """Set the alarms of a create that begins to wait; if it waits again, they run on."""
        if create not in self._creates:
            noted = self._creates[create] = _Wait(self._ledger.now())
            noted.alarms = [
                self._ledger.call_at(noted.since + each, partial(self._look, create, each)) for each in self._thresholds
            ]

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        """Note why the gate itself refuses it; it is told at the end."""
        noted = self._creates.setdefault(create, _Wait(self._ledger.now()))
        noted.reason, noted.declined = refusal.reason, True

    def ended(self, create: Unfinished) -> None:
        """Tell how a create ended that waited or was declined."""
        noted = self._creates.pop(create, None)
        if noted is None:
            return
        for cancel in noted.alarms:
            cancel()
        self._tell(_outcome(create, noted), create, noted.reason, self._ledger.now() - noted.since, {})

    def _look(self, create: Unfinished, threshold: float) -> None:
        """Tell that a create still waits, to those who want to know after so many seconds."""
        noted = self._creates.get(create)
        if noted is None or not create.waits:
            return
        wait = create.wait()
        noted.reason = wait.reason
        more = {
            "quota": wait.quota or None,
            "resource": wait.resource or None,
            "asked": wait.asked if wait.quota else None,
            "left": wait.left if wait.quota else None,
            "limited": wait.limited if wait.quota else None,
            "place": wait.place,
            "estimate_seconds": None if wait.estimate is None else round(wait.estimate, 3),
        }
        self._tell("waiting", create, wait.reason, self._ledger.now() - noted.since, more, threshold)

    def _tell(
        self,
        event: str,
        create: Unfinished,
        reason: str,
        waited: float,
        more: dict[str, Any],
        threshold: float | None = None,
    ) -> None:
        namespace = create.creation.namespace
        wanting = [
            each
            for each in self._deliveries
            if each.receiver.wants(event, namespace, reason, waited)
            and (threshold is None or each.receiver.longer_than == threshold)
        ]
        if wanting:
            whole = self._event(event, create, reason, waited, more)
            for each in wanting:
                each.put(whole)

    def _event(
        self, event: str, create: Unfinished, reason: str, waited: float, more: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a CloudEvent (1.0)."""
        creation = create.creation
        answer = create.answer
        return {
            "specversion": "1.0",
            "id": str(uuid.uuid4()),
            "source": f"/backoff-ctrl/gates/{self._gate}",
            "type": TYPE + event,
            "subject": f"{creation.namespace}/{creation.resource}/{creation.name}",
            "time": datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": {
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
            },
        }


def _outcome(create: Unfinished, noted: _Wait) -> str:
    if noted.declined:
        return "declined"
    if create.answer is not None:
        return "created" if create.answer.ok else "failed"
    if isinstance(create.error, WaitedTooLong):
        return "timed-out"
    stopped = isinstance(create.error, GateClosed) or not isinstance(create.error, Exception)
    return "cancelled" if stopped else "failed"

"""Tells receivers of tasks, and of attempts at them, that have ended, as the gate tells them of creates.

Only receivers that name these events in their file get them. Each event has been stored before it is sent: after a
crash in between a receiver gets no event, and never the same event twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.k8s.gate.events.webhooks import TASK_EVENTS, Delivery, Receiver, cloud_event, read_receivers
from backoff_ctrl.k8s.gate.settings import gate_name, read_settings

from .model import TaskStatus
from .stepping import ENDED, has_begun
from .store import Stored

log = logging.getLogger(__name__)

TASK: Final = "task-ended"
ATTEMPT: Final = "attempt-ended"
KIND: Final = "tasks.backoff-ctrl.dev"
"""The kind in subjects."""


class TaskNotifier:
    """Notifies receivers of one manager's tasks. ``gate`` is the source of the events, ``wall`` returns Unix time."""

    def __init__(self, receivers: Sequence[Receiver], gate: str, *, wall: Callable[[], float] = time.time) -> None:
        self.deliveries = [Delivery(each) for each in receivers if set(TASK_EVENTS) & set(each.events)]
        self._gate = gate
        self._wall = wall

    def changed(self, before: TaskStatus, task: Stored) -> None:
        """Tell what the new status of a task means. Never blocks for long."""
        status = task.status
        if status.phase in ENDED and before.phase not in ENDED and (has_begun(before) or has_begun(status)):
            self._tell(ATTEMPT, task)
        if not task.open:
            self._tell(TASK, task)

    def close(self, seconds: float = 1.0) -> None:
        """Send what is in the queues for so long; then end. Blocks."""
        for each in self.deliveries:
            each.close(seconds)

    def _tell(self, event: str, task: Stored) -> None:
        status = task.status
        wanting = [each for each in self.deliveries if each.receiver.hears(event, task.namespace, status.code or "")]
        if not wanting:
            return
        data: dict[str, Any] = {
            "gate": self._gate,
            "namespace": task.namespace,
            "name": task.name,
            "uid": task.uid,
            "type": task.spec["type"],
            "project": task.spec.get("project", ""),
            "domain": task.spec.get("domain", ""),
            "attempt": status.attempt,
            "phase": status.phase,
            "code": status.code,
            "kind": status.kind,
            "message": status.reason,
            "next_attempt_at": status.next_attempt_at if event == ATTEMPT else None,
        }
        subject = f"{task.namespace}/{KIND}/{task.name}"
        whole = cloud_event(self._gate, event, subject, self._wall(), data)
        for each in wanting:
            each.put(whole)


def make_notifier(file: str | None = None) -> TaskNotifier | None:
    """Return a notifier of the receivers in a file, by default that of ``BACKOFF_CTRL_NOTIFY``; or None.

    Never raises: a file that can't be used is logged, since notifications only help.
    """
    try:
        named = read_settings().notify if file is None else file
        notifier = TaskNotifier(read_receivers(Path(named)), gate_name()) if named else None
    except Exception as error:  # noqa: BLE001 - fails open: notifications only help
        log.error("notifications of tasks are off: %s", error)  # noqa: TRY400 - a sentence, no traceback
        return None
    return notifier if notifier is not None and notifier.deliveries else None

"""For tests of events: an event book with a clock, and a server that stores the events."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.events.correlator import Ended, EventCorrelator, Limits, Reason, Report, Write

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = 1_700_000_000.0
JOB = Owner("batch/v1", "Job", "train", "uid-1")


def story(
    happening: Reason = Reason.WAITS,
    owner: Owner | None = JOB,
    namespace: str = "team",
    quota: str = "q",
    resource: str = "pods",
    note: str = "pods p waits",
) -> Report:
    return Report(happening, namespace, owner, quota, resource, lambda: note)


@dataclass
class Press:
    """An event book, a clock, and a server that stores the events. Writes are sent as soon as they are due."""

    limits: Limits = field(default_factory=Limits)
    now: float = 100.0
    answer: Callable[[Write], Ended] = lambda write: Ended.DONE
    writes: list[tuple[float, Write]] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.book = EventCorrelator("host-1", lambda: EPOCH, random.Random(3), self.limits)

    def tell(self, *told: Report) -> None:
        """Report a story, and write what is due at once."""
        for each in told:
            self.book.report(each, self.now)
            self.write_all()

    def wait(self, seconds: float) -> None:
        """Advance the clock, writing each event when it becomes due."""
        until = self.now + seconds
        while (due := self.book.next_due()) is not None and due <= until:
            self.now = max(self.now, due)
            self.write_all()
        self.now = until

    def write_all(self) -> None:
        while self.write(self.answer):
            pass

    def write(self, answer: Callable[[Write], Ended]) -> bool:
        """Write what is due in one request; False: nothing is due."""
        write = self.begin()
        if write is None:
            return False
        self.end(write, answer(write))
        return True

    def begin(self) -> Write | None:
        """Start a request."""
        write = self.book.next(self.now)
        if write is not None:
            self.writes.append((self.now, write))
        return write

    def end(self, write: Write, how: Ended) -> None:
        """Answer the request."""
        if how is Ended.DONE and write.verb == "create":
            assert write.name not in self.events
            self.events[write.name] = write.body
        elif how is Ended.DONE:
            self.events[write.name] = {**self.events[write.name], **write.body}
        elif how is Ended.GONE:
            del self.events[write.name]
        self.book.ended(how, self.now)

    def of(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.events.values() if event["reason"] == reason]

    def drain(self) -> None:
        """Continue until there is nothing left to write."""
        self.answer = lambda write: Ended.DONE
        while (due := self.book.next_due()) is not None:
            self.now = max(self.now, due)
            self.write_all()


def count_of(event: dict[str, Any]) -> int:
    return int((event.get("series") or {"count": 1})["count"])

"""Cancels creates that have not ended, and logs which ones: a silent loss would look like a bug."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from backoff_ctrl.k8s.answers.answer import GateClosed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.k8s.creates.wait import Wait

log = logging.getLogger(__name__)


class Unfinished(Protocol):
    """A create that has not ended. ``gate`` is the gate whose caller waits for it; None once the caller has gone."""

    gate: object | None
    thread: int | None
    """The thread (its ident) that waits for it, or runs the loop that does; None: nothing blocks."""

    @property
    def request(self) -> Request | None:
        """What stands in line for it, or stood there last."""

    @property
    def label(self) -> str:
        """The create's resource, namespace and name."""

    @property
    def seconds(self) -> float:
        """How long ago it began, in seconds."""

    @property
    def waits(self) -> bool:
        """Whether it waits in line, or for another create with its key."""

    def wait(self) -> Wait:
        """Say what it waits for."""

    def describe(self) -> str:
        """Return one line: the create, its state, and what it waits for."""

    @property
    def create_id(self) -> str:
        """What its object's annotation says; empty if it has none."""

    def cancel(self, error: BaseException) -> None:
        """End it with this error, unless it is in flight and succeeds."""


class Canceller(Protocol):
    """What is asked of the ledger."""

    def cancel(self, ends: Sequence[tuple[Unfinished, BaseException]]) -> None:
        """End each of these creates with its error."""


def cancel_all(ledger: Canceller, creates: Sequence[Unfinished], why: str) -> None:
    """Cancel these creates with ``GateClosed``; ``why`` ("the client was closed") begins the log line and errors."""
    if not creates:
        return
    lines = [create.describe() for create in creates]
    what = "create" if len(lines) == 1 else "creates"
    log.warning("%s: cancelling %d unfinished %s:\n  %s", why, len(lines), what, "\n  ".join(lines))
    ledger.cancel([(create, _closed(create, why)) for create in creates])


def _closed(create: Unfinished, why: str) -> GateClosed:
    error = GateClosed(f"{why}: {create.label} was cancelled before it was created")
    error.wait = create.wait() if create.waits else None
    return error

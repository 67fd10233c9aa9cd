"""Cancels creates that have not ended, and logs which ones: a silent loss would look like a bug."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from backoff_ctrl.k8s.answers.answer import GateClosed

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)


class Unfinished(Protocol):
    """A create that has not ended. ``gate`` is the gate whose caller waits for it; None once the caller has gone."""

    gate: object | None

    @property
    def label(self) -> str:
        """The create's resource, namespace and name."""

    def describe(self) -> str:
        """Return one line: the create, its state, and what it waits for."""

    def cancel(self, error: BaseException) -> None:
        """End it with this error, unless it is in flight and succeeds."""


def cancel_all(creates: Sequence[Unfinished], why: str) -> None:
    """Cancel these creates with ``GateClosed``; ``why`` ("the client was closed") begins the log line and errors."""
    lines = [create.describe() for create in creates]
    if lines:
        what = "create" if len(lines) == 1 else "creates"
        log.warning("%s: cancelling %d unfinished %s:\n  %s", why, len(lines), what, "\n  ".join(lines))
    for create in creates:
        create.cancel(GateClosed(f"{why}: {create.label} was cancelled before it was created"))

"""Ends creates that still wait, aloud."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.answers.answer import GateClosed

if TYPE_CHECKING:
    from .driver import Errand

log = logging.getLogger(__name__)


def cancel_all(errands: list[Errand], why: str) -> None:
    """Cancel creates that wait, and say in the log which ones: a silent loss would look like a bug."""
    lines = [errand.describe() for errand in errands]
    if lines:
        log.warning("%s with %d creates under way:\n  %s", why, len(lines), "\n  ".join(lines))
    for errand in errands:
        errand.cancel(GateClosed(f"{why}: {errand.label} was not waited for"))

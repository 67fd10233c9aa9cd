"""What a step of the manager returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.phases import PhaseInfo

    JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Handled:
    """Where a task's attempt is, and what to keep until the next step.

    ``state`` is JSON, and the manager's own affair: store it as it is, and give it back. A state that can't be read is
    returned as it came: nothing is lost.
    """

    info: PhaseInfo
    state: JSON | None

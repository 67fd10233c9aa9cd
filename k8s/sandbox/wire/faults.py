"""Faults that a test, or a person over HTTP, can switch on. All shares are probabilities from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random


class FaultError(ValueError):
    """A fault has no such name, or its value is out of range."""


@dataclass(slots=True)
class Faults:
    """What goes wrong, and how often. Assign to a field to switch a fault on; 0 switches it off.

    - ``quota_conflict_share``: charges end in 409 on ``resourcequotas`` (seen: 4 % with two API servers)
    - ``quota_timeout_share``: 500 ``resource quota evaluation timed out``
    - ``overload_share``: creates, changes and deletes end in 429, text/plain, with ``Retry-After``
    - ``retry_after_s``: what ``Retry-After`` says, whole seconds
    - ``unknown_outcome_share``: creates are stored, then answered 504 ``context deadline exceeded``
    - ``reset_share``: creates are stored, then the connection is reset without an answer
    - ``late_release_s``: further seconds until the quota controller gives back what was released
    - ``answer_delay_s``: seconds between the end of a create and its answer, whatever it is
    - ``stale_admission_share``, ``stale_admission_s``: for up to so many seconds after a release, admission
      still refuses by the numbers before it (seen: 2-4 % of creates sent at once on the quota's event)
    - ``watch_break_share``: watches end after an event, without a word
    """

    quota_conflict_share: float = 0.0
    quota_timeout_share: float = 0.0
    overload_share: float = 0.0
    retry_after_s: float = 1
    unknown_outcome_share: float = 0.0
    reset_share: float = 0.0
    late_release_s: float = 0.0
    answer_delay_s: float = 0.0
    stale_admission_share: float = 0.0
    stale_admission_s: float = 0.002
    watch_break_share: float = 0.0
    rng: random.Random | None = field(default=None, repr=False)

    def strikes(self, name: str) -> bool:
        """Draw: does the fault of this name happen now?"""
        share: float = getattr(self, name)
        return share > 0 and (share >= 1 or (self.rng is not None and self.rng.random() < share))

    def as_json(self) -> dict[str, float]:
        """All faults with their values."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "rng"}

    def change(self, values: dict[str, Any]) -> None:
        """Set several at once. Raises ``FaultError`` and sets none when one is wrong."""
        known = self.as_json()
        for name, value in values.items():
            if name not in known:
                raise FaultError(f"{name} is no fault; known are {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _most(name):
                raise FaultError(f"{name} must be a number from 0 to {_most(name):g}")
        for name, value in values.items():
            setattr(self, name, value)

    def clear(self) -> None:
        """Switch everything off."""
        for each in fields(self):
            if each.name != "rng":
                setattr(self, each.name, each.default)


def _most(name: str) -> float:
    return 1 if name.endswith("_share") else 3600

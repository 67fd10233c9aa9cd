"""Faults that a test, or a person over HTTP, can inject. All shares are probabilities from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random


class FaultError(ValueError):
    """No fault has this name, or its value is out of range."""


@dataclass(slots=True)
class Faults:
    """What goes wrong, and how often. Assign to a field to inject a fault; 0 switches it off.

    - ``quota_conflict_share``: charges that end in 409 on ``resourcequotas`` (seen: 4 % with two API servers)
    - ``quota_timeout_share``: creates and changes answered 500 ``resource quota evaluation timed out``
    - ``overload_share``: creates, changes and deletes answered 429, text/plain, with ``Retry-After``
    - ``retry_after_s``: the value of ``Retry-After``, whole seconds
    - ``unknown_outcome_share``: creates that are stored, then answered 504 ``context deadline exceeded``
    - ``reset_share``: creates that are stored, then get no answer because the connection is reset
    - ``late_release_s``: extra seconds before the quota controller gives back what was released
    - ``answer_delay_s``: seconds between the end of a create and its answer, whatever the answer is
    - ``stale_admission_share``, ``stale_admission_s``: for up to so many seconds after a release, admission
      still decides by the amounts before it (seen: 2-4 % of creates sent immediately on the quota's event)
    - ``watch_break_share``: watches that end after an event, without an error
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
        """Draw whether the fault of this name happens now."""
        share: float = getattr(self, name)
        return share > 0 and (share >= 1 or (self.rng is not None and self.rng.random() < share))

    def as_json(self) -> dict[str, float]:
        """All faults with their values, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "rng"}

    def change(self, values: dict[str, Any]) -> None:
        """Set several faults at once. Raises ``FaultError``, and then sets none, when one is wrong."""
        known = self.as_json()
        for name, value in values.items():
            if name not in known:
                raise FaultError(f"there is no fault {name}; the faults are {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _most(name):
                raise FaultError(f"{name} must be a number from 0 to {_most(name):g}")
        for name, value in values.items():
            setattr(self, name, value)

    def clear(self) -> None:
        """Switch all faults off."""
        for each in fields(self):
            if each.name != "rng":
                setattr(self, each.name, each.default)


def _most(name: str) -> float:
    return 1 if name.endswith("_share") else 3600

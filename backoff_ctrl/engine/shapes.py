"""A shape: requests of one namespace with equal demand and scopes, so that one answer serves them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ceilings import Ceiling, Charges
    from .demand import Demand
    from .outcomes import Rejected
    from .policy import Policy
    from .quotas import Quota


class Shape:
    """What the server charges creates of one demand, and at which ceilings.

    ``meets`` lists those ceilings with the amounts, ``unsure`` the quotas that may or may not apply. Both are right
    for one ``version`` of the namespace's ``Knowledge``, which brings them up to date.
    """

    __slots__ = (
        "amounts", "charged_key", "demand", "meets", "never", "quotas", "scopes", "suspected", "suspected_next",
        "unsure", "used_at", "verdict", "version",
    )  # fmt: skip

    def __init__(self, demand: Demand) -> None:
        """Expect to be charged what is asked; no quota is known to apply yet."""
        self.demand = demand
        self.amounts: Mapping[str, int] = demand.amounts  # what the server charges, as far as known
        self.charged_key = demand.key  # of the newest answer: an equal one teaches nothing new
        self.scopes = demand.scopes  # as the server sees them: defaults may change them
        self.version = -1
        self.meets: Charges = ()
        self.quotas: tuple[tuple[Quota, Charges], ...] = ()
        self.unsure: tuple[Quota, ...] = ()
        self.never: tuple[str, str, int, int] | None = None  # never fits: quota, resource, asked, limited
        self.verdict: tuple[str, str] | None = None  # never fits, by two refusals: quota and resource
        self.suspected: float | None = None  # when a refusal first said that it never fits
        self.suspected_next = 0.0  # not sent again before that
        self.used_at = 0.0

    def blocking(self) -> list[Ceiling]:
        """List the ceilings that have no room for one more create of this shape."""
        return [ceiling for ceiling, amount in self.meets if amount > ceiling.room]

    def learn_charged(self, charged: Mapping[str, int]) -> None:
        """Expect the amounts that the server really charged. The caller has to restructure what is known."""
        self.amounts = {**self.amounts, **charged}

    def suspect(self, rejected: Rejected, now: float, policy: Policy) -> None:
        """Note a refusal whose ``limited`` is below the amount asked; a second one, later, proves never-fits.

        One is no proof: the quota may have been about to change.
        """
        for name, limited in rejected.limited.items():
            if 0 < limited < rejected.requested.get(name, 0):
                if self.suspected is None:
                    self.suspected = now
                    self.suspected_next = now + policy.never_confirm
                elif now - self.suspected >= policy.never_confirm:
                    self.verdict = (rejected.quota, name)
                    self.version = -1
                    self.suspected_next = now + policy.never_probe
                return
        self.suspected = None

    def never_sentence(self) -> str:
        """Explain to people why a create of this shape never fits."""
        assert self.never is not None
        quota, resource, asked, limited = self.never
        binary = "memory" in resource or "storage" in resource
        amounts = [format_quantity(amount, binary=binary) for amount in (asked, limited)]
        return f"asks {resource}={amounts[0]}, but quota {quota} allows {amounts[1]} in all"

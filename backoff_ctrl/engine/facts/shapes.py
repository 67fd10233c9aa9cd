"""A shape: requests of one namespace with equal demand and scopes, so that one answer serves them all."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import TypeAlias

from backoff_ctrl.engine.backoff import probe_delay
from backoff_ctrl.engine.policy import Policy

from .ceilings import Charges
from .demand import Demand
from .outcomes import Rejected
from .quantities import quantity
from .quotas import Quota
from .requests import Request

NeverFits: TypeAlias = "tuple[str, str, int, int, int]"
"""Why a demand never fits: quota, resource, and what is asked, used and limited in nano-units."""


class Row:
    """The waiting requests of one shape, priority and flow. ``place`` is the row's entry in the line's order.

    The draws of a gang, and a request that is away, have rows ``apart``: there ``flow`` names what they are of.
    """

    __slots__ = ("apart", "dead", "demand", "flow", "place", "priority", "shape", "waiting")

    def __init__(self, shape: Shape, priority: int, flow: str, *, apart: bool) -> None:
        self.shape = shape
        self.demand = shape.demand
        self.priority = priority
        self.flow = flow
        self.apart = apart
        self.waiting: deque[Request] = deque()
        self.dead = 0  # requests in ``waiting``, neither first nor last, that have left the line
        self.place: tuple[float, int, Row] | None = None


class Shape:
    """What the server charges creates of one demand, and at which ceilings.

    ``meets`` lists those ceilings with the amounts, ``unsure`` the quotas that may or may not apply. Both are right
    for one ``version`` of the namespace's ``Knowledge``, which brings them up to date.
    """

    __slots__ = (
        "amounts", "charged_key", "demand", "meets", "never", "parts", "quotas", "resend_at", "scopes",
        "suspected", "suspected_next", "uncounted", "uncounted_at", "unsure", "used_at", "verdict", "version",
    )  # fmt: skip

    def __init__(self, demand: Demand) -> None:
        """Expect to be charged what is asked; no quota is known to apply yet."""
        self.demand = demand
        self.amounts: Mapping[str, int] = demand.amounts  # what the server charges, as far as known
        self.charged_key = demand.key  # of the newest answer: an equal one teaches no new amount
        self.scopes = demand.scopes  # as the server sees them: defaults may change them
        self.version = -1
        self.parts: tuple[tuple[Shape, int], ...] = ()  # of a gang: the shapes of its members, and how many of each
        self.meets: Charges = ()
        self.quotas: tuple[tuple[Quota, Charges], ...] = ()
        self.unsure: tuple[Quota, ...] = ()
        self.never: tuple[str, str, int, int] | None = None  # never fits: quota, resource, asked, limited
        self.verdict: tuple[str, str] | None = None  # never fits, by two refusals: quota and resource
        self.suspected: float | None = None  # when a refusal first showed that it never fits
        self.suspected_next = 0.0  # not sent again before that
        self.resend_at = 0.0  # not sent before that, since a quota has not counted it yet; 0: they all have
        self.uncounted = 0  # so often in a row
        self.uncounted_at = 0.0  # when a refusal last showed that
        self.used_at = 0.0

    def charges(self, charged: Demand) -> bool:
        """Say whether a create of this shape is expected to be charged exactly that."""
        expected = {name: amount for name, amount in self.amounts.items() if amount}
        return expected == charged.amounts and self.scopes == charged.scopes

    def learn_charged(self, charged: Mapping[str, int]) -> None:
        """Expect the amounts that the server really charged. The caller has to restructure what is known."""
        self.amounts = {**self.amounts, **charged}

    def learn_from(self, seen: Shape) -> None:
        """Expect what another shape is charged. The caller has to restructure what is known."""
        names = self.amounts.keys() | seen.amounts.keys()
        self.scopes = seen.scopes
        self.charged_key = seen.demand.key  # single creates of this shape that are charged otherwise correct it again
        self.learn_charged({name: seen.amounts.get(name, 0) for name in names})

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

    def never_confirmed_at(self, now: float, policy: Policy) -> float:
        """Return when it is sure that a waiting create never fits.

        Later for a gang: a quota may be edited below its size for a moment only.
        """
        if not self.parts:
            return now
        if self.suspected is None:
            self.suspected, self.suspected_next = now, now + policy.never_confirm
        return self.suspected_next

    def note_uncounted(self, sent: float, now: float, policy: Policy, rng: Random) -> None:
        """Let creates of a shape that a quota does not count yet be sent one at a time, ever more rarely."""
        if sent > self.uncounted_at or not self.resend_at:  # else it was one of the same round
            self.uncounted_at = now
            self.uncounted += 1
            self.resend_at = now + probe_delay(self.uncounted - 1, policy.base, policy.cap, rng)

    def note_counted(self) -> None:
        """Let creates of this shape be sent as others are: a quota counts it by now."""
        self.uncounted = 0
        self.resend_at = 0.0

    def note_drain(self, since: float, now: float) -> None:
        """Learn how fast creates get in while others wait; the first of those joined ``since``."""
        for ceiling, amount in self.meets:
            ceiling.note_drain(amount, since, now)

    def never_fact(self) -> NeverFits:
        """Return why a create of this shape never fits."""
        assert self.never is not None
        quota, resource, asked, limited = self.never
        used = sum(c.charged for c, _ in self.meets if (c.quota, c.resource) == (quota, resource))
        return quota, resource, asked, used, limited

    def never_sentence(self) -> str:
        """Explain to people why a create of this shape never fits."""
        assert self.never is not None
        quota, resource, asked, limited = self.never
        said = f"asks {resource}={quantity(asked, resource)}"
        if self.parts:
            alone = next((number for number, (part, _) in enumerate(self.parts, 1) if part.never == self.never), None)
            said = (
                f"the gang {said} ({self._share(quota, resource)})"
                if alone is None
                else f"a member of part {alone} {said}"
            )
        return f"{said}, but quota {quota} allows {quantity(limited, resource)} in all"

    def _share(self, quota: str, resource: str) -> str:
        """Say which part of a gang asks most of a ceiling, as ``8 x 2 by part 1``."""

        def asked(part: Shape) -> int:
            return sum(amount for c, amount in part.meets if (c.quota, c.resource) == (quota, resource))

        number, (part, count) = max(enumerate(self.parts, 1), key=lambda each: asked(each[1][0]) * each[1][1])
        return f"{count} x {quantity(asked(part), resource)} by part {number}"

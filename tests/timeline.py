"""A controller, a clock that is moved by hand, and everything that came out, with its time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeAlias

from backoff_ctrl.engine import (
    Controller,
    Created,
    Demand,
    ObservedQuota,
    Policy,
    Refusal,
    Rejected,
    Request,
    Selector,
    Ticket,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backoff_ctrl.engine.outcomes import Outcome

Effect: TypeAlias = Ticket | Refusal
ONE: Final = 1_000_000_000  # nano-units
NS: Final = "team-a"
QUOTA: Final = "compute"
EVERYONE: Final = Selector()
_USUAL: Final = Policy()  # checked once, for tests that begin thousands of lines
_WAKES_MAX: Final = 100_000  # more alarms than this within one move of the clock is a busy loop


def amounts_of(cpu: float) -> dict[str, int]:
    """Write whole or broken CPUs as nano-units."""
    return {"cpu": round(cpu * ONE)}


class Timeline:
    """Drives one controller; each call is followed by ``advance``, as the contract asks."""

    def __init__(self, policy: Policy | None = None, seed: int = 0) -> None:
        """Start at time 0 with nothing known."""
        self.controller = Controller(policy or _USUAL, random.Random(seed))
        self.now = 0.0
        self.log: list[tuple[float, Effect]] = []
        self.count = 0
        self._taken = 0

    # -- calls

    def request(
        self,
        cpu: float = 1,
        *,
        namespace: str = NS,
        priority: int = 0,
        flow: str = "",
        demand: Demand | None = None,
    ) -> Request:
        """Make a request with a fresh id."""
        self.count += 1
        wanted = demand if demand is not None else Demand(amounts_of(cpu))
        return Request(f"r{self.count}", namespace, wanted, priority, flow)

    def submit(
        self,
        cpu: float = 1,
        *,
        namespace: str = NS,
        priority: int = 0,
        flow: str = "",
        demand: Demand | None = None,
    ) -> Request:
        """Submit a new request."""
        request = self.request(cpu, namespace=namespace, priority=priority, flow=flow, demand=demand)
        self.controller.submit(request, self.now)
        self.advance()
        return request

    def settle(self, ticket: Ticket, outcome: Outcome) -> list[Effect]:
        """End a ticket; return what followed at once."""
        self.controller.settle(ticket, outcome, self.now)
        return self.advance()

    def created(self, *tickets: Ticket) -> list[Effect]:
        """End tickets with a 201."""
        return [effect for ticket in tickets for effect in self.settle(ticket, Created())]

    def refused(self, ticket: Ticket, used: float, limited: float, *, quota: str = QUOTA) -> list[Effect]:
        """End a ticket with a refusal that names cpu only."""
        asked = dict(ticket.request.demand.amounts)
        rejected = Rejected(quota, {"cpu": asked["cpu"]}, amounts_of(used), amounts_of(limited))
        return self.settle(ticket, rejected)

    def observe(
        self,
        used: float,
        limited: float,
        *,
        namespace: str = NS,
        quota: str = QUOTA,
        spec: float | None = None,
        selector: Selector = EVERYONE,
    ) -> list[Effect]:
        """Tell a quota object on cpu."""
        wanted = amounts_of(limited if spec is None else spec)
        seen = ObservedQuota(wanted, amounts_of(limited), amounts_of(used), selector)
        self.controller.observe_quota(namespace, quota, seen, self.now)
        return self.advance()

    def watching(self, namespace: str | None = None) -> list[Effect]:
        """Tell that the watch is healthy."""
        self.controller.watching(self.now, namespace)
        return self.advance()

    def watch_lost(self, namespace: str | None = None) -> list[Effect]:
        """Tell that the watch is gone."""
        self.controller.watch_lost(self.now, namespace)
        return self.advance()

    # -- time

    def advance(self) -> list[Effect]:
        """Call ``advance`` now; remember and return the effects."""
        effects = self.controller.advance(self.now)
        self.log.extend((self.now, effect) for effect in effects)
        return effects

    def until(self, moment: float) -> list[Effect]:
        """Move to a moment, stopping at each deadline on the way; return all effects."""
        effects = self.advance()
        for _ in range(_WAKES_MAX):
            deadline = self.controller.next_deadline()
            if deadline is None or deadline > moment:
                break
            self.now = max(self.now, deadline)
            effects += self.advance()
        else:
            raise AssertionError(f"the controller wakes without end at {self.now}")
        self.now = max(self.now, moment)
        return effects + self.advance()

    def later(self, seconds: float) -> list[Effect]:
        """Move on by some seconds."""
        return self.until(self.now + seconds)

    def next_ticket(self, within: float = 1000.0) -> Ticket:
        """Return the first open ticket that this did not return before, moving on in time until there is one."""
        end = self.now + within
        for _ in range(_WAKES_MAX):
            self.advance()
            while self._taken < len(self.log):
                effect = self.log[self._taken][1]
                self._taken += 1
                if isinstance(effect, Ticket) and not effect.ended:
                    return effect
            deadline = self.controller.next_deadline()
            assert deadline is not None, "nothing will ever happen"
            assert deadline <= end, f"nobody was admitted within {within} s"
            self.now = max(self.now, deadline)
        raise AssertionError(f"the controller wakes without end at {self.now}")

    # -- what came out

    def admitted(self) -> list[Request]:
        """List the admitted requests in order, each as often as it was admitted."""
        return [effect.request for _, effect in self.log if isinstance(effect, Ticket)]

    def ticket_of(self, request: Request) -> Ticket:
        """Return the newest ticket of a request."""
        return [effect for _, effect in self.log if isinstance(effect, Ticket) and effect.request is request][-1]

    def waiting(self, namespace: str = NS) -> int:
        """Count the waiters of a namespace."""
        return self.controller.snapshot(self.now).namespaces[namespace].waiting

    def ceiling(self, resource: str = "cpu", *, quota: str = QUOTA, namespace: str = NS) -> Mapping[str, object]:
        """Show what is believed of a ceiling, in nano-units."""
        seen = self.controller.snapshot(self.now).namespaces[namespace].quotas[quota][resource]
        return {"limited": seen.limited, "used": seen.used, "held": seen.held, "headroom": seen.headroom}

    def held(self, namespace: str = NS) -> int:
        """Add up what is held in a namespace, answered holds and outstanding creates included."""
        seen = self.controller.snapshot(self.now).namespaces[namespace]
        return sum(c.held for ceilings in seen.quotas.values() for c in ceilings.values())


def flying(line: Timeline) -> list[Ticket]:
    """List the open tickets."""
    return [effect for _, effect in line.log if isinstance(effect, Ticket) and not effect.ended]


def state_of(request: Request) -> str:
    """Return a request's state as a plain text: it changes behind the type checker's back."""
    return request.state


def tickets(effects: Iterable[Effect]) -> list[Ticket]:
    """Pick the admissions."""
    return [effect for effect in effects if isinstance(effect, Ticket)]


def refusals(effects: Iterable[Effect]) -> list[Refusal]:
    """Pick the engine's own refusals."""
    return [effect for effect in effects if isinstance(effect, Refusal)]

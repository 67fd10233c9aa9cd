"""A controller under a clock that is moved by hand; every effect is recorded with its time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine import (
    Controller,
    Created,
    Demand,
    Draw,
    Effect,
    Gang,
    Grant,
    ObservedQuota,
    Parts,
    Policy,
    Refusal,
    Rejected,
    Request,
    Reservation,
    Selector,
    Ticket,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backoff_ctrl.engine import Explanation
    from backoff_ctrl.engine.facts.outcomes import Outcome
    from backoff_ctrl.engine.look.explaining import CeilingSnapshot, NamespaceSnapshot, Snapshot

ONE: Final = 1_000_000_000  # nano-units
NS: Final = "team-a"
QUOTA: Final = "compute"
EVERYONE: Final = Selector()
_USUAL: Final = Policy()  # checked once, for tests that begin thousands of lines
_WAKES_MAX: Final = 100_000  # more alarms than this within one move of the clock are a busy loop


def amounts_of(cpu: float) -> dict[str, int]:
    """Return whole or fractional CPUs as nano-units."""
    return {"cpu": round(cpu * ONE)}


class Timeline:
    """Drives one controller, calling ``advance`` after each other call, as its contract asks."""

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
        """Make a request with a new id."""
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
        """Make and submit a request."""
        request = self.request(cpu, namespace=namespace, priority=priority, flow=flow, demand=demand)
        self.controller.submit(request, self.now)
        self.advance()
        return request

    def crowd(self, count: int) -> None:
        """Submit so many equal requests."""
        for _ in range(count):
            self.submit(1)

    def reserve(
        self,
        *members: tuple[int, float],
        namespace: str = NS,
        priority: int = 0,
        limit: float | None = None,
        standing: bool = False,
    ) -> Reservation:
        """Make and submit a gang of parts: so many members, of so many CPUs each."""
        self.count += 1
        parts = Parts((Demand(amounts_of(cpu)), count) for count, cpu in members)
        request = Reservation(f"g{self.count}", namespace, parts, priority, limit=limit)
        self.controller.of(request.namespace).reserve(request, self.now, standing=standing)
        self.advance()
        return request

    def gang_of(self, request: Reservation) -> Gang:
        """Return the gang that a reservation was granted as."""
        (gang,) = (each.gang for _, each in self.log if isinstance(each, Grant) and each.request is request)
        return gang

    def granted(self) -> list[Reservation]:
        """List the gangs that were admitted."""
        return [each.request for _, each in self.log if isinstance(each, Grant)]

    def gang(self, *members: tuple[int, float], priority: int = 0, limit: float | None = None) -> Gang:
        """Make a gang that is admitted at once."""
        return self.gang_of(self.reserve(*members, priority=priority, limit=limit))

    def with_gang(self, *members: tuple[int, float], limit: float | None = None) -> tuple[Timeline, Gang]:
        """Return the line, and a gang that is admitted at once."""
        return self, self.gang(*members, limit=limit)

    def draw(self, gang: Gang, part: int = 0) -> Draw:
        """Draw one member."""
        self.count += 1
        draw = Draw(f"d{self.count}", gang, part)
        self.controller.of(draw.namespace).draw(draw, self.now)
        self.advance()
        return draw

    def store(self, gang: Gang, part: int = 0) -> None:
        """Draw a member, which is stored at once."""
        self.created(self.ticket_of(self.draw(gang, part)))

    def settle(self, ticket: Ticket, outcome: Outcome) -> list[Effect]:
        """End a ticket; return the effects that followed at once."""
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

    def refuse(self, cpu: float, used: float, limited: float) -> Ticket:
        """Submit a request that is sent at once, and refused a moment later; return its ticket."""
        ticket = self.ticket_of(self.submit(cpu))
        self.later(0.1)
        self.refused(ticket, used, limited)
        return ticket

    def observe(
        self,
        used: float,
        limited: float,
        *,
        namespace: str = NS,
        quota: str = QUOTA,
        spec: float | None = None,
        selector: Selector = EVERYONE,
        then: float | None = None,
    ) -> list[Effect]:
        """Report a quota object on cpu; and ``then`` let so many seconds pass."""
        seen = self.quota(used, limited, spec=spec, selector=selector)
        self.controller.observe_quota(namespace, quota, seen, self.now)
        return self.advance() + ([] if then is None else self.later(then))

    @staticmethod
    def quota(
        used: float, limited: float, *, spec: float | None = None, selector: Selector = EVERYONE
    ) -> ObservedQuota:
        """Return a quota object on cpu."""
        wanted = amounts_of(limited if spec is None else spec)
        return ObservedQuota(wanted, amounts_of(limited), amounts_of(used), selector)

    def fill_two(self) -> Demand:
        """Learn two full quotas that both charge one shape; return its demand."""
        demand = Demand({"cpu": ONE, "pods": ONE})
        self.submit(demand=demand)
        for quota, resource in (("a", "cpu"), ("b", "pods")):
            ticket = self.next_ticket()
            self.later(0.1)
            self.settle(ticket, Rejected(quota, {resource: ONE}, {resource: ONE}, {resource: ONE}))
        return demand

    def learn(self, used: float, limited: float, *, asked: float = 1) -> None:
        """Report the refusal of an ungated create, which was sent now and answered at once."""
        rejected = Rejected(QUOTA, amounts_of(asked), amounts_of(used), amounts_of(limited))
        self.controller.learn(NS, frozenset(), rejected, self.now, self.now)

    def withdraw(self, request: Request) -> list[Effect]:
        """Withdraw a request; return what follows at once."""
        self.controller.of(request.namespace).withdraw(request, self.now)
        return self.advance()

    def give_back(self, gang: Gang) -> list[Effect]:
        """End a gang; return what follows at once."""
        self.controller.gangs_of(gang.namespace).give_back(gang, self.now)
        return self.advance()

    def looked(self, readable: bool | None) -> list[Effect]:
        """Report the end of a read of the quotas; return what follows at once."""
        self.controller.gangs_of(NS).looked(self.now, readable=readable)
        return self.advance()

    def resume(self) -> list[Effect]:
        """Let a namespace that an operator halted go on; return what follows at once."""
        self.controller.resume(NS, self.now)
        return self.advance()

    def watching(self, namespace: str | None = None) -> list[Effect]:
        """Report that the watch is healthy."""
        self.controller.watching(self.now, namespace)
        return self.advance()

    def watch_lost(self, namespace: str | None = None) -> list[Effect]:
        """Report that the watch is lost."""
        self.controller.watch_lost(self.now, namespace)
        return self.advance()

    # -- time

    def advance(self) -> list[Effect]:
        """Call ``advance`` now; record and return the effects."""
        effects = self.controller.advance(self.now)
        self.log.extend((self.now, effect) for effect in effects)
        return effects

    def until(self, moment: float) -> list[Effect]:
        """Move the clock to ``moment``, stopping at each deadline on the way; return all effects."""
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
        """Move the clock on by some seconds."""
        return self.until(self.now + seconds)

    def next_ticket(self, within: float = 1000.0) -> Ticket:
        """Return the first open ticket not returned before, moving the clock on until there is one."""
        end = self.now + within
        for _ in range(_WAKES_MAX):
            self.advance()
            while self._taken < len(self.log):
                effect = self.log[self._taken][1]
                self._taken += 1
                if isinstance(effect, Ticket) and not effect.ended:
                    return effect
            deadline = self.controller.next_deadline()
            assert deadline is not None, "no deadline: nothing will ever happen"
            assert deadline <= end, f"no request was admitted within {within} s"
            self.now = max(self.now, deadline)
        raise AssertionError(f"the controller wakes without end at {self.now}")

    # -- effects

    def admitted(self) -> list[Request]:
        """List the admitted requests in order, each once per admission."""
        return [effect.request for _, effect in self.log if isinstance(effect, Ticket)]

    def ticket_of(self, request: Request) -> Ticket:
        """Return the newest ticket of a request."""
        return [effect for _, effect in self.log if isinstance(effect, Ticket) and effect.request is request][-1]

    def snapshot(self) -> Snapshot:
        """Return all that is shown now."""
        return self.controller.snapshot(self.now)

    def seen(self, namespace: str = NS) -> NamespaceSnapshot:
        """Return what is shown of a namespace."""
        return self.snapshot().namespaces[namespace]

    def cpu(self, quota: str = QUOTA) -> CeilingSnapshot:
        """Return what is shown of a quota's ceiling on cpu."""
        return self.seen().quotas[quota]["cpu"]

    def applies(self, quota: str = QUOTA) -> Mapping[frozenset[str], bool]:
        """Return the scope classes that a quota is known to apply to, or not to apply to."""
        return self.controller.remember(self.now).quotas[NS][quota].applies

    def why(self, request: Request) -> Explanation:
        """Return why a request waits."""
        why = self.controller.explain(request, self.now)
        assert why is not None, "it does not wait"
        return why

    def place(self, request: Request) -> int:
        """Return a waiting request's place in line."""
        return self.why(request).place

    def waiting(self, namespace: str = NS) -> int:
        """Count the waiting requests of a namespace."""
        return self.seen(namespace).waiting

    def ceiling(self, resource: str = "cpu", *, quota: str = QUOTA, namespace: str = NS) -> Mapping[str, object]:
        """Return what is known of a ceiling, in nano-units."""
        seen = self.seen(namespace).quotas[quota][resource]
        return {"limited": seen.limited, "used": seen.used, "held": seen.held, "headroom": seen.headroom}

    def reserved(self, resource: str = "cpu", *, quota: str = QUOTA, namespace: str = NS) -> float:
        """Return what gangs may still draw of a ceiling, in CPUs."""
        return self.seen(namespace).quotas[quota][resource].reserved / ONE

    def held(self, namespace: str = NS) -> int:
        """Add up what a namespace holds: answered holds and outstanding creates."""
        seen = self.seen(namespace)
        return sum(c.held for ceilings in seen.quotas.values() for c in ceilings.values())


def watched(used: float, limited: float, policy: Policy | None = None, **quota: Any) -> Timeline:
    """Return a line whose one quota is watched; ``quota``: more of it, as for ``observe``."""
    line = Timeline(policy)
    line.observe(used, limited, **quota)
    line.watching()
    return line


def without_quotas(policy: Policy | None = None) -> Timeline:
    """Return a line whose watch is healthy, and shows no quota."""
    line = Timeline(policy)
    line.watching()
    return line


def settled(used: float, limited: float, policy: Policy | None = None) -> Timeline:
    """Return such a line a second later: its room counts."""
    line = watched(used, limited, policy)
    line.later(1)
    return line


def flying(line: Timeline) -> list[Ticket]:
    """List the open tickets."""
    return [effect for _, effect in line.log if isinstance(effect, Ticket) and not effect.ended]


def state_of(request: Request) -> str:
    """Return a request's state as a plain string: it changes without the type checker's knowledge."""
    return request.state


def tickets(effects: Iterable[Effect]) -> list[Ticket]:
    """Return the admissions among the effects."""
    return [effect for effect in effects if isinstance(effect, Ticket)]


def refusals(effects: Iterable[Effect]) -> list[Refusal]:
    """Return the engine's own refusals among the effects."""
    return [effect for effect in effects if isinstance(effect, Refusal)]

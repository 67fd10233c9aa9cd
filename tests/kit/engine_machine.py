"""The controller as a rule-based state machine beside the naive twin, which checks what docs/promises.md says.

It never over-admits, sends one probe, learns from facts what they prove, starts gently, wakes on news and is
deterministic; and no request is forgotten.
"""

from __future__ import annotations

import copy
from typing import Literal, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backoff_ctrl.engine import (
    Abandoned,
    Created,
    Demand,
    Effect,
    Expired,
    Failed,
    Identity,
    ObservedQuota,
    Overloaded,
    Policy,
    Refusal,
    Rejected,
    Request,
    Selector,
    Ticket,
)
from tests.engine.lookers import Follower, timeless, waiting_by_pages
from tests.kit.engine_twin import TwinCreate, TwinLaws, TwinPlace, TwinQuota, TwinRefusal, TwinSeats, TwinServer
from tests.kit.timeline import Timeline

NAMESPACES = ("team-a", "team-b")
GOLD = "gold"
POLICY = Policy(
    base=1.0,
    cap=8.0,
    overtakes_max=4,
    overtaken_for_max=10.0,
    overtaken_at_most=20.0,
    keep_stalled=5.0,
    age_step=5.0,
    idle_ttl=86_400,
    ticket_max=86_400,
)

Answer = TwinRefusal | Literal["stored"]
Spoiled = Failed | Abandoned | Expired | Overloaded
SPOILED: list[Spoiled] = [Failed(), Abandoned(), Expired(), Overloaded(), Overloaded(1.0, "namespace")]
SPANS = [0.001, 0.003, 0.02, 0.06, 0.5, 1.5, 5.0, 25.0]
PICKS = st.integers(0, 1_000_000)
Thing = TypeVar("Thing")


def one_of(things: list[Thing], pick: int) -> Thing:
    """Choose an item by a number of any size."""
    return things[pick % len(things)]


def seen_of(state: TwinQuota) -> ObservedQuota:
    """Return a quota's state as the engine sees it."""
    selector = Selector([(True, frozenset({state.wants}))] if state.wants else [])
    return ObservedQuota(dict(state.hard), dict(state.hard), dict(state.used), selector)


class ControllerMachine(RuleBasedStateMachine):
    """An engine, a second one in lockstep, the true server and the laws."""

    def __init__(self) -> None:
        """Start with quotas that are small enough to be met."""
        super().__init__()
        self.engine = Timeline(POLICY, seed=7)
        self.copy = Timeline(POLICY, seed=7)
        self.server = TwinServer()
        self.laws = TwinLaws(base=1.0, answered_hold=POLICY.answered_hold, unproven_max=POLICY.unproven_max)
        self.open: dict[Ticket, TwinCreate] = {}
        self.replica: dict[str, Request] = {}
        self.twins: dict[Ticket, Ticket] = {}
        self.arrived: dict[Ticket, Answer] = {}
        self.alive: list[tuple[str, dict[str, int], frozenset[str]]] = []
        self.news: dict[tuple[str, str], list[TwinQuota]] = {}
        self.waiting: dict[str, Request] = {}
        self.follower = Follower()
        self.seats = TwinSeats(POLICY.seat_ttl)
        self.away: set[str] = set()  # who waits, but whose caller is away
        self.numbers: dict[str, int] = {}  # by request: what orders equal ranks
        self.lists: list[tuple[str, float, dict[str, TwinQuota]]] = []  # namespace, requested at, state
        self.watched = False
        self.broken: list[str] = []
        self.smallest: dict[str, int] = {}  # the smallest positive limit on cpu so far

    @initialize(cpu=st.integers(2, 12), pods=st.integers(1, 6), gold=st.integers(2, 8))
    def quotas(self, cpu: int, pods: int, gold: int) -> None:
        """Give each namespace one quota for all creates and one for a scope class."""
        for namespace in NAMESPACES:
            self.server.quotas[namespace] = {
                "all": TwinQuota({"cpu": cpu, "pods": pods}, {"cpu": 0, "pods": 0}),
                "gold": TwinQuota({"cpu": gold}, {"cpu": 0}, GOLD),
            }
            self.smallest[namespace] = min(cpu, gold)

    # -- both engines are called alike

    def effects(self, one: list[Effect], other: list[Effect]) -> None:
        """Compare the two engines' effects; check each admission against the laws."""
        assert [repr(e) for e in one] == [repr(e) for e in other], "deterministic: the same calls gave other effects"
        for effect, twin in zip(one, other, strict=True):
            assert isinstance(effect, Ticket | Refusal)
            request = effect.request
            assert self.waiting.pop(request.id, None) is request, "an effect for one who does not wait"
            if isinstance(effect, Refusal) and effect.reason == "place-taken":
                assert request.id in self.away
                continue
            if isinstance(effect, Refusal):
                assert effect.reason == "never-fits"
                assert request.demand.amounts.get("cpu", 0) > self.smallest[request.namespace]
                continue
            assert isinstance(twin, Ticket)
            assert request.id not in self.away, "a place survives: sent, though its caller is away"
            demand = request.demand
            create, broken = self.laws.admit(
                request.namespace, dict(demand.amounts), demand.scopes, effect.probe, self.engine.now
            )
            self.broken += broken
            assert not broken, broken
            self.open[effect] = create
            self.twins[effect] = twin

    def advance(self) -> None:
        """Advance both engines to now."""
        self.effects(self.engine.advance(), self.copy.advance())

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        cpu=st.integers(0, 6),
        gold=st.booleans(),
        priority=st.integers(0, 2),
        copies=st.integers(1, 4),
    )
    def submit(self, namespace: str, cpu: int, gold: bool, priority: int, copies: int) -> None:
        """Submit some equal creates."""
        for _ in range(copies):
            demand = Demand({"cpu": cpu, "pods": 1}, [GOLD] if gold else [])
            request = self.engine.request(namespace=namespace, priority=priority, demand=demand)
            twin = self.copy.request(namespace=namespace, priority=priority, demand=demand)
            self.waiting[request.id] = request
            self.replica[request.id] = twin
            self.numbers[request.id] = int(request.id[1:])
            self.engine.controller.submit(request, self.engine.now)
            self.copy.controller.submit(twin, self.copy.now)
            self.advance()

    @precondition(lambda self: self.waiting)
    @rule(pick=PICKS, seat=st.booleans())
    def withdraw(self, pick: int, seat: bool) -> None:
        """Withdraw a waiting request, perhaps with a seat."""
        request = self.waiting.pop(one_of(sorted(self.waiting), pick))
        identity = None
        self.withdrawn(request)
        self.seats.give_up(request.id)
        self.away.discard(request.id)
        if seat and type(request) is Request:
            identity = Identity(pick % 2, pick % 3)
            place = TwinPlace(request.joined, self.numbers[request.id], request.overtaken)
            self.seats.keep(request.namespace, identity, request.demand.key, place, self.engine.now)
        self.engine.controller.of(request.namespace).withdraw(request, self.engine.now, identity)
        self.copy.controller.of(self.replica[request.id].namespace).withdraw(
            self.replica[request.id], self.copy.now, identity
        )
        self.advance()

    def withdrawn(self, request: Request) -> None:
        """Take note of a request that was withdrawn."""

    @precondition(lambda self: self.waiting)
    @rule(pick=PICKS, retry_after=st.sampled_from([0.0, 1.0, 3.0]))
    def leave(self, pick: int, retry_after: float) -> None:
        """Let the caller of a waiting request go away; it still counts as waiting."""
        request = self.waiting[one_of(sorted(self.waiting), pick)]
        identity, now = Identity(pick % 2, pick % 3), self.engine.now
        left = self.engine.controller.of(request.namespace).leave(request, now, identity, retry_after)
        assert left == self.copy.controller.of(self.replica[request.id].namespace).leave(
            self.replica[request.id], now, identity, retry_after
        )
        assert left == (type(request) is Request and request.id not in self.away)
        if left:
            self.away.add(request.id)
            place = TwinPlace(request.joined, self.numbers[request.id], request.overtaken)
            self.seats.leave(request.id, request.namespace, retry_after, now)
            self.seats.keep(request.namespace, identity, request.demand.key, place, now, request.id)
        self.advance()

    @precondition(lambda self: self.away & self.waiting.keys())
    @rule(pick=PICKS)
    def come_back(self, pick: int) -> None:
        """Let the caller of a request come back to it."""
        self.present(one_of(sorted(self.away & self.waiting.keys()), pick))

    def present(self, number: str) -> None:
        """Note that a caller is there again."""
        self.away.remove(number)
        self.seats.come_back(number, self.engine.now)
        assert self.engine.controller.of(self.waiting[number].namespace).come_back(
            self.waiting[number], self.engine.now
        )
        assert self.copy.controller.of(self.replica[number].namespace).come_back(self.replica[number], self.copy.now)
        self.advance()

    @rule(namespace=st.sampled_from(NAMESPACES), cpu=st.integers(0, 6), priority=st.integers(0, 2), pick=PICKS)
    def come_again(self, namespace: str, cpu: int, priority: int, pick: int) -> None:
        """Submit a create with an identity: it has the place that its caller left, if it left one."""
        demand, identity = Demand({"cpu": cpu, "pods": 1}), Identity(pick % 2, pick % 3)
        request = self.engine.request(namespace=namespace, priority=priority, demand=demand)
        twin = self.copy.request(namespace=namespace, priority=priority, demand=demand)
        usual = TwinPlace(self.engine.now, int(request.id[1:]), 0)
        place, _ = self.seats.take(namespace, identity, demand.key, self.engine.now) or (usual, "")
        self.waiting[request.id] = request
        self.replica[request.id] = twin
        self.numbers[request.id] = place.number
        self.engine.controller.submit(request, self.engine.now, identity)
        self.copy.controller.submit(twin, self.copy.now, identity)
        assert (request.joined, request.overtaken) == (place.joined, place.overtaken)
        self.advance()

    @precondition(lambda self: len(self.arrived) < len(self.open))
    @rule(pick=PICKS)
    def arrive(self, pick: int) -> None:
        """Let the server decide a create; its answer is on the way."""
        self.decide(one_of([t for t in self.open if t not in self.arrived], pick))

    def decide(self, ticket: Ticket) -> None:
        """Let the server store or refuse a create."""
        create = self.open[ticket]
        refusal = self.server.create(create.namespace, create.amounts, create.scopes)
        self.arrived[ticket] = refusal if refusal is not None else "stored"
        if refusal is None:
            self.alive.append((create.namespace, create.amounts, create.scopes))
            self.changed(create.namespace)

    def changed(self, namespace: str) -> None:
        """Schedule a report of a namespace's changed quotas."""
        for name, quota in self.server.quotas[namespace].items():
            self.news.setdefault((namespace, name), []).append(copy.deepcopy(quota))

    @precondition(lambda self: self.arrived)
    @rule(pick=PICKS)
    def answer(self, pick: int) -> None:
        """Deliver one answer, in any order."""
        self.deliver(one_of(list(self.arrived), pick))

    def deliver(self, ticket: Ticket) -> None:
        """End a ticket with the server's answer."""
        said = self.arrived.pop(ticket)
        create = self.open.pop(ticket)
        if said == "stored":
            self.laws.created(create, self.engine.now)
            self.settle(ticket, Created())
        else:
            self.laws.rejected(create, said, self.engine.now)
            self.waiting[ticket.request.id] = ticket.request
            self.settle(ticket, Rejected(*said))

    def settle(self, ticket: Ticket, outcome: Created | Rejected | Spoiled) -> None:
        """Settle a ticket in both engines."""
        self.engine.controller.settle(ticket, outcome, self.engine.now)
        self.copy.controller.settle(self.twins[ticket], outcome, self.copy.now)
        self.advance()

    @precondition(lambda self: len(self.arrived) < len(self.open))
    @rule(pick=PICKS, outcome=st.sampled_from(SPOILED))
    def spoil(self, pick: int, outcome: Spoiled) -> None:
        """End a create without a charge."""
        ticket = one_of([t for t in self.open if t not in self.arrived], pick)
        self.laws.over(self.open.pop(ticket))
        if isinstance(outcome, Overloaded):
            self.waiting[ticket.request.id] = ticket.request
        self.settle(ticket, outcome)

    @precondition(lambda self: self.alive)
    @rule(pick=PICKS, hint=st.booleans())
    def finish(self, pick: int, hint: bool) -> None:
        """End an own pod, perhaps with a hint."""
        namespace, amounts, scopes = self.alive.pop(pick % len(self.alive))
        self.server.release(namespace, amounts, scopes)
        self.changed(namespace)
        if hint:
            self.laws.hinted(namespace)
            self.engine.controller.hint_release(namespace, self.engine.now)
            self.copy.controller.hint_release(namespace, self.copy.now)
            self.advance()

    @rule(namespace=st.sampled_from(NAMESPACES), cpu=st.integers(-3, 3))
    def other_client(self, namespace: str, cpu: int) -> None:
        """Let another client take room or give it back."""
        quota = self.server.quotas[namespace]["all"]
        quota.used["cpu"] = max(0, quota.used["cpu"] + cpu)
        self.changed(namespace)

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from(["all", "gold"]), cpu=st.integers(0, 12))
    def resize(self, namespace: str, name: str, cpu: int) -> None:
        """Change a quota's size, perhaps to zero."""
        self.server.quotas[namespace][name].hard["cpu"] = cpu
        self.smallest[namespace] = min(self.smallest[namespace], cpu or self.smallest[namespace])
        self.changed(namespace)

    @precondition(lambda self: self.watched and any(self.news.values()))
    @rule(pick=PICKS)
    def report(self, pick: int) -> None:
        """Deliver reports in order, some of them merged."""
        key = one_of(sorted(k for k, states in self.news.items() if states), pick)
        count = 1 + pick % len(self.news[key])
        state = self.news[key][count - 1]
        del self.news[key][:count]
        self.observe(*key, state)

    def observe(self, namespace: str, name: str, state: TwinQuota) -> None:
        """Report a quota's state to the laws and both engines."""
        seen = seen_of(state)
        self.laws.observed(namespace, name, state, self.engine.now)
        self.engine.controller.observe_quota(namespace, name, seen, self.engine.now)
        self.copy.controller.observe_quota(namespace, name, seen, self.copy.now)
        self.advance()

    @rule(namespace=st.sampled_from(NAMESPACES))
    def request_list(self, namespace: str) -> None:
        """List quotas without watching them; the answer, of this moment, is on its way."""
        self.lists.append((namespace, self.engine.now, copy.deepcopy(self.server.quotas[namespace])))

    @precondition(lambda self: self.lists)
    @rule(pick=PICKS)
    def receive_list(self, pick: int) -> None:
        """Deliver a list: one that is surely older than what is known is not believed."""
        namespace, sent, quotas = self.lists.pop(pick % len(self.lists))
        for name, state in quotas.items():
            seen = seen_of(state)
            too_old = self.laws.too_old(namespace, name, sent)
            now = self.engine.now
            believed = self.engine.controller.observe_quota(namespace, name, seen, now, sent)
            assert self.copy.controller.observe_quota(namespace, name, seen, now, sent) == believed
            assert not (believed and too_old), f"a list of {sent} overwrote newer news of {namespace}/{name}"
            if believed:
                self.laws.listed(namespace, name, state, sent, now)
            self.advance()

    @rule()
    def watch(self) -> None:
        """Lose the watch, or complete a list so that it is healthy again."""
        self.watched = not self.watched
        self.set_watch(self.watched)

    def set_watch(self, healthy: bool) -> None:
        """Report the watch to both engines, with a full list first where it begins."""
        self.news.clear()
        for namespace in NAMESPACES:
            if healthy:
                for name, quota in self.server.quotas[namespace].items():
                    self.observe(namespace, name, quota)
            self.laws.watched(namespace, healthy, self.engine.now)
        for line in (self.engine, self.copy):
            (line.controller.watching if healthy else line.controller.watch_lost)(line.now)
        self.advance()

    @rule(seconds=st.sampled_from(SPANS))
    def pass_time(self, seconds: float) -> None:
        """Let time pass, deadline by deadline."""
        end = self.engine.now + seconds
        for _ in range(1000):
            deadline = self.engine.controller.next_deadline()
            assert deadline == self.copy.controller.next_deadline()
            if deadline is None or deadline > end:
                break
            self.engine.now = self.copy.now = max(self.engine.now, deadline)
            self.advance()
        else:
            raise AssertionError("the controller wakes without end")
        self.engine.now = self.copy.now = end
        self.advance()

    @invariant()
    def the_engine_counts_all_requests(self) -> None:
        """The snapshot's waiting and outstanding creates, and its seats, are those that the test knows of."""
        seen = self.engine.controller.snapshot(self.engine.now)
        for name, namespace in seen.namespaces.items():
            assert namespace.waiting == sum(r.namespace == name for r in self.waiting.values())
            assert namespace.seats == self.seats.count(name, self.engine.now)
            assert namespace.outstanding == sum(t.request.namespace == name for t in self.open)
            assert all(c.held >= 0 for ceilings in namespace.quotas.values() for c in ceilings.values())

    @invariant()
    def a_looker_that_follows_the_changes_knows_all(self) -> None:
        """The last change that it read of a namespace is what a snapshot shows now, but for the passing of time."""
        self.follower.catch_up(self.engine.controller, self.engine.now)
        seen = self.engine.controller.snapshot(self.engine.now).namespaces
        assert self.follower.told == {name: timeless(shown) for name, shown in seen.items()}

    @invariant()
    def the_pages_of_waiters_show_each_once(self) -> None:
        """In the order of the line, whatever a page holds."""
        shown = waiting_by_pages(self.engine.controller, self.engine.now)
        assert shown == sorted(self.waiting.values(), key=lambda request: (request.namespace, self.place(request)))

    @invariant()
    def every_waiting_request_has_an_explanation(self) -> None:
        """Explains itself: no request waits without a reason, and each place is one more than those ahead."""
        line = sorted(self.waiting.values(), key=self.place)
        for request in line:
            why = self.engine.controller.explain(request, self.engine.now)
            assert why is not None
            assert why.place == 1 + [other for other in line if other.namespace == request.namespace].index(request)

    def place(self, request: Request) -> tuple[float, int]:
        """Return what orders the line: the time it joined less a step for each priority, then its number."""
        return request.joined - request.priority * POLICY.age_step, self.numbers[request.id]

    def make_room(self) -> None:
        """Let all that lives end, and let the quotas hold more than anybody asks."""
        for namespace in NAMESPACES:
            for quota in self.server.quotas.get(namespace, {}).values():
                quota.hard = dict.fromkeys(quota.hard, 1000)
                quota.used = dict.fromkeys(quota.used, 0)
        self.alive.clear()

    def teardown(self) -> None:
        """Give all room back: every request is stored or refused, and no hold is left."""
        if self.broken:
            return
        self.make_room()
        for number in sorted(self.away & self.waiting.keys()):
            self.present(number)
        if self.watched:
            self.set_watch(True)
        for _ in range(600):
            for ticket in list(self.open):
                if ticket not in self.arrived:
                    self.decide(ticket)
                self.deliver(ticket)
            if not self.waiting and not self.open:
                break
            self.pass_time(1.0)
        assert not self.waiting, f"forgotten: {self.waiting}"
        if not self.watched:
            self.set_watch(True)
        self.pass_time(5.0)
        seen = self.engine.controller.snapshot(self.engine.now)
        for quotas in seen.namespaces.values():
            assert quotas.outstanding == quotas.answered_holds == quotas.waiting == quotas.unproven == 0
            assert all(c.held == 0 for ceilings in quotas.quotas.values() for c in ceilings.values())

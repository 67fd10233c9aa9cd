"""Gangs among single creates, on random days: against the exact server and by adding up lists."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from backoff_ctrl.engine import (
    Abandoned,
    Created,
    Demand,
    Draw,
    Failed,
    Gang,
    GivenBack,
    Grant,
    Look,
    Parts,
    Refusal,
    Rejected,
    Reservation,
    Ticket,
)
from tests.engine.line.test_controller_machine import random_step
from tests.kit.engine_machine import GOLD, NAMESPACES, PICKS, ControllerMachine, Spoiled, one_of, seen_of
from tests.kit.examples import examples

if TYPE_CHECKING:
    from backoff_ctrl.engine import Effect, Request
    from tests.kit.engine_twin import TwinQuota

pytestmark = pytest.mark.no_cover


class GangMachine(ControllerMachine):
    """The engine's machine, with gangs."""

    def __init__(self) -> None:
        """Start without gangs."""
        super().__init__()
        self.gangs: dict[str, tuple[Gang, Gang]] = {}  # by id, of both engines
        self.asked: dict[str, list[int]] = {}  # by gang: draws that are stored, in flight or waiting, by part
        self.reads: list[tuple[str, float, dict[str, TwinQuota]]] = []
        self.standing: set[str] = set()  # the gangs that are granted whatever room there is
        self.strangers = 0

    # -- what comes out

    def effects(self, one: list[Effect], other: list[Effect]) -> None:
        """Take in what is about gangs, and leave the rest to the machine of single creates."""
        assert [type(e) for e in one] == [type(e) for e in other]
        rest: list[tuple[Any, Any]] = []
        for effect, twin in zip(one, other, strict=True):
            if isinstance(effect, Grant):
                assert isinstance(twin, Grant)
                self.granted(effect, twin)
            elif isinstance(effect, GivenBack):
                assert effect.gang.end == "limit"
                assert effect.drawn == sum(self.asked.pop(effect.gang.id))
                del self.gangs[effect.gang.id]
            elif isinstance(effect, Look):
                self.reads.append(
                    (effect.namespace, self.engine.now, copy.deepcopy(self.server.quotas[effect.namespace]))
                )
            elif isinstance(effect, Refusal) and isinstance(effect.request, Draw | Reservation):
                self.refused(effect)
            else:
                self.check_behind_gangs(effect)
                rest.append((effect, twin))
        super().effects([a for a, _ in rest], [b for _, b in rest])

    def granted(self, grant: Grant, twin: Grant) -> None:
        """Check that the whole fits by belief, beside what other gangs have."""
        request = grant.request
        assert self.waiting.pop(request.id) is request
        namespace = request.namespace
        assert self.laws.healthy.get(namespace) or grant.gang.whole
        for name, known in self.laws.known.get(namespace, {}).items():
            for resource, ceiling in known.ceilings.items():
                whole = sum(
                    count * demand.amounts.get(resource, 0)
                    for demand, count in request.parts.parts
                    if known.applies(demand.scopes)
                )
                held = self.laws.held(namespace, known, resource, self.engine.now)
                assert request.id in self.standing or not whole or ceiling.used + held + whole <= ceiling.limited, (
                    name,
                    resource,
                )
        self.gangs[request.id] = (grant.gang, twin.gang)
        self.asked[request.id] = [0] * len(grant.gang.shapes)

    def refused(self, refusal: Refusal) -> None:
        """Check that a gang is refused only if it never fits, and a draw only after the end of its gang."""
        request = refusal.request
        assert self.waiting.pop(request.id) is request
        if isinstance(request, Draw):
            if refusal.reason == "never-fits":
                self.asked[request.gang.id][request.part] -= 1
            else:
                assert refusal.reason == "given-back"
                assert request.gang.end is not None
                self.withdrawn(request)
            return
        assert refusal.reason == "never-fits"
        pods = self.server.quotas[request.namespace]["all"].hard["pods"]
        amounts = request.demand.amounts
        assert amounts.get("cpu", 0) > self.smallest[request.namespace] or amounts["pods"] > pods

    def check_behind_gangs(self, effect: Effect) -> None:
        """A single create behind a gang of which something lives leaves that gang what it may still draw."""
        if isinstance(effect, Refusal | Grant | GivenBack | Look) or isinstance(effect.request, Draw) or effect.probe:
            return
        request = effect.request
        if not self.laws.healthy.get(request.namespace):
            return
        for name, known in self.laws.known.get(request.namespace, {}).items():
            for resource, ceiling in known.ceilings.items():
                amount = request.demand.amounts.get(resource, 0)
                if not amount or not known.applies(request.demand.scopes) or known.contradicted:
                    continue
                kept = sum(
                    left * shape.demand.amounts.get(resource, 0)
                    for gang, _ in self.gangs.values()
                    if gang.namespace == request.namespace and gang.whole
                    if gang.drawn and gang.place < self.place(request)
                    for left, shape in zip(gang.undrawn, gang.shapes, strict=True)
                    if known.applies(shape.demand.scopes)
                )
                held = self.laws.held(request.namespace, known, resource, self.engine.now)
                assert ceiling.used + held + amount + kept <= ceiling.limited, (name, resource, request)

    # -- what goes in

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        members=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 3)), min_size=1, max_size=3),
        priority=st.integers(0, 2),
        standing=st.booleans(),
    )
    def reserve(self, namespace: str, members: list[tuple[int, bool, int]], priority: int, standing: bool) -> None:
        """Submit a gang; now and then one that stood before a restart."""
        parts = Parts((Demand({"cpu": cpu, "pods": 1}, [GOLD] if gold else []), n) for cpu, gold, n in members)
        self.engine.count += 1
        name = f"g{self.engine.count}"
        self.copy.count += 1
        one, other = (Reservation(name, namespace, parts, priority) for _ in range(2))
        self.numbers[name] = self.engine.count
        stands = standing and bool(self.gangs)
        if stands:
            self.standing.add(name)
        self.waiting[name], self.replica[name] = one, other
        self.engine.controller.of(one.namespace).reserve(one, self.engine.now, standing=stands)
        self.copy.controller.of(other.namespace).reserve(other, self.copy.now, standing=stands)
        self.advance()

    def open_parts(self) -> list[tuple[str, int]]:
        """List the parts of which a member is left that no draw waits for."""
        return [
            (name, part)
            for name, (gang, _) in self.gangs.items()
            for part in range(len(gang.shapes))
            if gang.end is None and gang.may_draw(part)
        ]

    @precondition(lambda self: self.open_parts())
    @rule(pick=PICKS)
    def draw(self, pick: int) -> None:
        """Draw a member."""
        self.draw_one(*one_of(self.open_parts(), pick))

    def draw_one(self, name: str, part: int) -> None:
        """Draw a member of this part."""
        one, other = self.gangs[name]
        self.engine.count += 1
        self.copy.count += 1
        number = self.engine.count
        draw, twin = Draw(f"d{number}", one, part), Draw(f"d{number}", other, part)
        self.asked[name][part] += 1
        self.numbers[draw.id] = number
        self.waiting[draw.id], self.replica[draw.id] = draw, twin
        self.engine.controller.of(draw.namespace).draw(draw, self.engine.now)
        self.copy.controller.of(twin.namespace).draw(twin, self.copy.now)
        self.advance()

    @precondition(lambda self: self.open_parts())
    @rule(pick=PICKS, reported=st.integers(0, 2))
    def somebody_else_makes_a_member(self, pick: int, reported: int) -> None:
        """The member is charged; it is reported, perhaps twice, before or after its charge is."""
        name, part = one_of(self.open_parts(), pick)
        one, other = self.gangs[name]
        demand = one.shapes[part].demand
        if self.server.create(one.namespace, dict(demand.amounts), demand.scopes) is not None:
            return
        self.alive.append((one.namespace, dict(demand.amounts), demand.scopes))
        self.changed(one.namespace)
        self.strangers += 1
        # For the laws it is a create of ours that was sent and answered at once: its charge is held until it is seen.
        for _ in range(reported):
            left = list(one.undrawn)
            counted = self.engine.controller.gangs_of(one.namespace).appeared(
                one, f"u{self.strangers}", demand, self.engine.now
            )
            assert (
                self.copy.controller.gangs_of(other.namespace).appeared(
                    other, f"u{self.strangers}", demand, self.copy.now
                )
                == counted
            )
            if counted:
                taken = next(i for i, (was, now) in enumerate(zip(left, one.undrawn, strict=True)) if was > now)
                self.asked[name][taken] += 1
                create, _ = self.laws.admit(one.namespace, dict(demand.amounts), demand.scopes, True, self.engine.now)
                create.unproven = False
                create.lacked_room_at.clear()
                create.probe = False
                self.laws.created(create, self.engine.now)
            self.advance()

    @precondition(lambda self: self.gangs)
    @rule(pick=PICKS)
    def give_back(self, pick: int) -> None:
        """End a gang early."""
        name = one_of(sorted(self.gangs), pick)
        one, other = self.gangs.pop(name)
        del self.asked[name]
        self.engine.controller.gangs_of(one.namespace).give_back(one, self.engine.now)
        self.copy.controller.gangs_of(other.namespace).give_back(other, self.copy.now)
        self.advance()

    @precondition(lambda self: self.reads)
    @rule(pick=PICKS, failed=st.booleans())
    def answer_a_read(self, pick: int, failed: bool) -> None:
        """Deliver what a gang's read of the quotas found, or that it failed."""
        namespace, sent, quotas = self.reads.pop(pick % len(self.reads))
        if not failed:
            for name, state in quotas.items():
                believed = [
                    line.controller.observe_quota(namespace, name, seen_of(state), line.now, sent)
                    for line in (self.engine, self.copy)
                ]
                assert believed[0] == believed[1]
                if believed[0]:
                    self.laws.listed(namespace, name, state, sent, self.engine.now)
                self.advance()
        for line in (self.engine, self.copy):
            line.controller.gangs_of(namespace).looked(line.now, readable=None if failed else True)
        self.advance()

    def settle(self, ticket: Ticket, outcome: Created | Rejected | Spoiled) -> None:
        """A draw that failed may be drawn again."""
        if isinstance(outcome, Failed | Abandoned):
            self.withdrawn(ticket.request)
        super().settle(ticket, outcome)

    def withdrawn(self, request: Request) -> None:
        """A draw that was withdrawn may be drawn again."""
        if isinstance(request, Draw) and request.gang.id in self.asked:
            self.asked[request.gang.id][request.part] -= 1

    # -- what holds at all times

    @invariant()
    def gangs_that_wait_are_counted(self) -> None:
        """As they come and go, not by going over the line."""
        for name, namespace in self.engine.controller.snapshot(self.engine.now).namespaces.items():
            waiting = [r for r in self.waiting.values() if isinstance(r, Reservation) and r.namespace == name]
            assert namespace.waiting_gangs == len(waiting)

    @invariant()
    def what_is_reserved_is_what_gangs_may_still_draw(self) -> None:
        """Beside what is held for callers who are due back; and it is backed by room."""
        seen = self.engine.controller.snapshot(self.engine.now)
        for name, namespace in seen.namespaces.items():
            here = {gang.id: gang for gang, _ in self.gangs.values() if gang.namespace == name and gang.end is None}
            assert {gang.id for gang in namespace.gangs} == set(here)
            for quota, ceilings in namespace.quotas.items():
                for resource, ceiling in ceilings.items():
                    lacks = sum(gang.lacks.get((quota, resource), 0) for gang in namespace.gangs)
                    needs = sum(
                        need
                        for gang in here.values()
                        for c, need in gang.needs.items()
                        if (c.quota, c.resource) == (quota, resource)
                    )
                    away = [self.waiting[each] for each in self.away & self.waiting.keys()]
                    most = sum(each.demand.amounts.get(resource, 0) for each in away if each.namespace == name)
                    assert 0 <= needs - lacks <= ceiling.reserved <= needs - lacks + most

    def place(self, request: Request) -> tuple[float, int]:
        """A draw stands at its gang's place."""
        if isinstance(request, Draw):
            return request.gang.place[0], self.numbers[request.id]
        return super().place(request)

    def teardown(self) -> None:
        """Nobody is forgotten: each gang that waits is admitted, and each admitted one drawn to the end."""
        if self.broken:
            return
        self.make_room()
        for number in sorted(self.away & self.waiting.keys()):
            self.present(number)
        if self.server.quotas:
            self.watched = True
            self.set_watch(True)
        for _ in range(100):
            for name, part in self.open_parts():
                self.draw_one(name, part)
            for ticket in list(self.open):
                if ticket not in self.arrived:
                    self.decide(ticket)
                self.deliver(ticket)
            self.pass_time(0.5)
            if not self.waiting and not self.open and not self.open_parts():
                break
        assert not self.waiting, f"forgotten: {self.waiting}"
        assert all(gang.end == "complete" for gang, _ in self.gangs.values())
        super().teardown()
        seen = self.engine.controller.snapshot(self.engine.now)
        for quotas in seen.namespaces.values():
            assert all(c.reserved == 0 for ceilings in quotas.quotas.values() for c in ceilings.values())


TestGangs = GangMachine.TestCase
TestGangs.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def random_gang_step(day: GangMachine, dice: random.Random) -> None:
    """Apply one rule of gangs, if it can be applied."""
    namespace, pick = dice.choice(NAMESPACES), dice.randrange(1000)
    match dice.choices(range(5), [3, 6, 2, 0.3, 3])[0]:
        case 0:
            members = [(dice.randint(0, 3), dice.random() < 0.3, dice.randint(1, 3)) for _ in range(dice.randint(1, 3))]
            day.reserve(namespace, members, dice.randint(0, 2), dice.random() < 0.1)
        case 1 if day.open_parts():
            day.draw(pick)
        case 2 if day.open_parts():
            day.somebody_else_makes_a_member(pick, dice.randint(0, 2))
        case 3 if day.gangs:
            day.give_back(pick)
        case 4 if day.reads:
            day.answer_a_read(pick, dice.random() < 0.3)


def random_day(seed: int, steps: int) -> None:
    """Apply the same rules by plain dice."""
    dice = random.Random(seed)
    day = GangMachine()
    day.quotas(cpu=dice.randint(4, 16), pods=dice.randint(3, 9), gold=dice.randint(2, 8))
    for _ in range(steps):
        (random_gang_step if dice.random() < 0.4 else random_step)(day, dice)
        day.the_engine_counts_all_requests()
        day.what_is_reserved_is_what_gangs_may_still_draw()
        day.a_looker_that_follows_the_changes_knows_all()
        day.every_waiting_request_has_an_explanation()
    day.teardown()


@pytest.mark.parametrize("block", range(2))
def test_many_random_days_with_gangs_break_no_promise(block: int) -> None:
    """Two hundred days of the machine's rules, the same ones in every run."""
    for seed in range(block * 100, block * 100 + examples(100)):
        random_day(seed, 15 + seed % 60)

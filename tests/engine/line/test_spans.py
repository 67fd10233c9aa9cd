"""A long line is gone over in spans: rows that lack room are passed together, and nothing else changes by that.

The twin of each day is an engine that asks for every row, since it knows of a quota without any limit: a quota whose
limits are not known may need probes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from backoff_ctrl.engine import (
    Created,
    Demand,
    Draw,
    Failed,
    Gang,
    GivenBack,
    Grant,
    Identity,
    ObservedQuota,
    Parts,
    Policy,
    Rejected,
    Request,
    Reservation,
    Ticket,
)
from tests.kit.costs import kept_by
from tests.kit.examples import examples
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, flying, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine import Effect

CPU: Final = 60  # the most that one create asks


def told(effect: Effect) -> str:
    """Return what an effect says, in words that are equal for both engines."""
    return f"{type(effect).__name__} of {effect.gang.id}" if isinstance(effect, Grant | GivenBack) else repr(effect)


class Pair:
    """The same calls to two engines, whose answers are compared; the second one asks for every row of its line."""

    def __init__(self, policy: Policy, seed: int) -> None:
        """Fill the quotas, with a watch."""
        self.dice = random.Random(seed)
        self.lines = (Timeline(policy), Timeline(policy))
        self.requests: list[tuple[Request, Request]] = []
        self.open: list[tuple[Ticket, Ticket]] = []
        self.gangs: list[tuple[Gang, Gang]] = []
        self.limits = {"one": {"cpu": 200, "memory": 200}, "two": {"cpu": 200, "gpu": 100}}
        self.number = 0
        for name in self.limits:
            self.observe(name, 0)
        asks, twin = self.lines
        nothing = ObservedQuota({}, {}, {})
        twin.controller.observe_quota(NS, "nothing", nothing, twin.now)
        for line in (asks, twin):
            line.controller.watching(line.now)
            line.advance()
        self.effects()

    def do(self, call: Callable[[Timeline, int], object]) -> None:
        """Make one call to each engine."""
        for index, line in enumerate(self.lines):
            call(line, index)
        self.effects()

    def effects(self) -> None:
        """Compare what comes out, and whom it overtook."""
        one, other = (self.taken(line) for line in self.lines)
        assert [told(effect) for effect in one] == [told(effect) for effect in other]
        for effect, copy in zip(one, other, strict=True):
            if isinstance(effect, Ticket) and isinstance(copy, Ticket):
                self.open.append((effect, copy))
            elif isinstance(effect, Grant) and isinstance(copy, Grant):
                self.gangs.append((effect.gang, copy.gang))
        mine, theirs = (
            ([(r.state, r.overtaken) for r in side] for side in zip(*self.requests, strict=True))
            if self.requests
            else ((), ())
        )
        assert mine == theirs
        one_for, other_for = (self.next_for(line) for line in self.lines)
        assert one_for == other_for

    def taken(self, line: Timeline) -> list[Effect]:
        """Return the effects at this moment, also those of scans that are cut short."""
        found = line.advance()
        while (deadline := line.controller.next_deadline()) is not None and deadline <= line.now:
            found += line.advance()
        return found

    def next_for(self, line: Timeline) -> dict[str, str]:
        """Return who is the next for each ceiling, and for whom room is kept."""
        keeping = line.controller.of(NS).keeping
        found = {f"{c.quota}/{c.resource}": request.id for c, request in keeping.next_for.items()}
        return found | {f"kept {c.quota}/{c.resource}": str(place) for c, place in keeping.kept.items()}

    def observe(self, name: str, room: int) -> None:
        """Report this much room in a quota."""
        hard = {resource: amount * ONE for resource, amount in self.limits[name].items()}
        used = {resource: amount - room * ONE for resource, amount in hard.items()}
        self.do(lambda line, _: line.controller.observe_quota(NS, name, ObservedQuota(hard, hard, used), line.now))

    def amounts(self) -> dict[str, int]:
        """Draw what a create asks."""
        dice = self.dice
        amounts = {"cpu": dice.randint(1, CPU) * ONE}
        if dice.random() < 0.8:
            amounts["memory"] = dice.randint(1, 4) * ONE
        if dice.random() < 0.1:
            amounts["gpu"] = dice.randint(1, 120) * ONE
        return amounts

    def submit(self) -> None:
        """A create comes, often one of a new shape."""
        self.number += 1
        amounts, priority = self.amounts(), self.dice.choice([0, 0, 0, 0, 1])
        flow = self.dice.choice(["", "b"])
        pair = tuple(Request(f"r{self.number}", NS, Demand(amounts), priority, flow) for _ in self.lines)
        self.requests.append(pair)  # type: ignore[arg-type]
        self.do(lambda line, index: line.controller.submit(pair[index], line.now))

    def waiting(self) -> tuple[Request, Request]:
        """Pick one that waits, or another one, to which nothing happens."""
        return self.dice.choice([pair for pair in self.requests if pair[0].state == "waiting"] or self.requests)

    def withdraw(self) -> None:
        """One goes."""
        pair = self.waiting()
        self.do(lambda line, index: line.controller.of(NS).withdraw(pair[index], line.now))

    def leave(self) -> None:
        """A caller goes, and its create stays in line."""
        pair = self.waiting()
        who = Identity("who", pair[0].id)
        self.do(lambda line, index: line.controller.of(NS).leave(pair[index], line.now, who, 1.0))

    def prioritize(self) -> None:
        """One gets another priority."""
        pair, priority = self.waiting(), self.dice.randint(0, 2)
        self.do(lambda line, index: line.controller.of(NS).prioritize(pair[index], priority, line.now))

    def gang(self) -> None:
        """A gang comes."""
        self.number += 1
        parts = Parts([(Demand(self.amounts()), self.dice.randint(1, 3))])
        keeps = self.dice.random() < 0.5
        pair = [Reservation(f"g{self.number}", NS, parts, keeps=keeps) for _ in self.lines]
        self.requests.append((pair[0], pair[1]))
        self.do(lambda line, index: line.controller.of(NS).reserve(pair[index], line.now))

    def draw(self) -> None:
        """A member of a gang is drawn."""
        if not (lasting := [pair for pair in self.gangs if pair[0].end is None and pair[0].may_draw(0)]):
            return
        self.number += 1
        gangs = self.dice.choice(lasting)
        pair = [Draw(f"d{self.number}", gang, 0) for gang in gangs]
        self.requests.append((pair[0], pair[1]))
        self.do(lambda line, index: line.controller.of(NS).draw(pair[index], line.now))

    def reject(self) -> None:
        """The server refuses a create by a quota that has less room than was known, perhaps by one that is not."""
        amounts = self.open[0][0].request.demand.amounts
        name = self.dice.choice(["one", "one", "one", "two", "three"])
        limited = {"cpu": 200 * ONE}
        rejected = Rejected(name, {"cpu": amounts["cpu"]}, {"cpu": 200 * ONE - self.dice.randint(0, 1) * ONE}, limited)
        both = self.open.pop(0)
        self.do(lambda line, index: line.controller.settle(both[index], rejected, line.now))

    def settle(self) -> None:
        """A create is answered."""
        both = self.open.pop(self.dice.randrange(len(self.open)))
        outcome = self.dice.choice([Created, Created, Failed])()
        self.do(lambda line, index: line.controller.settle(both[index], outcome, line.now))

    def watch(self) -> None:
        """The watch is lost, and comes back."""
        self.do(lambda line, _: line.controller.watch_lost(line.now))
        self.later(self.dice.choice([0.1, 3]))
        self.do(lambda line, _: line.controller.watching(line.now))

    def limit(self) -> None:
        """A quota becomes smaller, or larger."""
        self.limits["one"]["cpu"] = self.dice.choice([50, 100, 200])
        self.observe("one", 0)

    def report(self) -> None:
        """A quota changes."""
        self.observe(self.dice.choice(["one", "two"]), self.dice.choice([-20, 0, 0, 1, 2, 5, 40]))

    def wait(self) -> None:
        """Time passes."""
        self.later(self.dice.choice([0.001, 0.01, 0.1, 2]))

    def step(self, often: dict[str, float]) -> None:
        """Do one thing; ``often`` says how often each is done."""
        [name] = self.dice.choices(list(often), list(often.values()))
        if self.open or name not in ("settle", "reject"):
            getattr(self, name)()

    def later(self, seconds: float) -> None:
        """Let time pass, to every deadline of either engine."""
        end = self.lines[0].now + seconds
        while True:
            deadlines = [line.controller.next_deadline() for line in self.lines]
            at = min([end, *(deadline for deadline in deadlines if deadline is not None)])
            for line in self.lines:
                line.now = max(line.now, at)
            self.effects()
            if at == end:
                return


USUAL: Final = {"submit": 5.0, "report": 4.0, "wait": 4.0, "withdraw": 1.0, "settle": 2.0, "prioritize": 0.3}
OFTEN: Final[dict[str, dict[str, float]]] = {
    "limits that change": USUAL | {"limit": 0.2, "reject": 0.2},
    "callers that leave": USUAL | {"leave": 2.0, "withdraw": 2.0},
    "gangs": USUAL | {"submit": 3.0, "report": 6.0, "gang": 1.0, "draw": 2.0},
    "lost watches": USUAL | {"reject": 0.5, "watch": 0.3, "leave": 0.3},
}


@pytest.mark.parametrize("overtakes_max", [0, 2])
@pytest.mark.parametrize("day", OFTEN)
def test_passing_rows_changes_nothing(day: str, overtakes_max: int) -> None:
    """Random days of a hundred shapes and more: the same admissions, overtakings and refusals as row by row."""
    policy = Policy(overtakes_max=overtakes_max, overtaken_for_max=3, overtaken_at_most=30, keep_stalled=5, scan_max=7)
    for seed in range(examples(10)):
        pair = Pair(policy, seed)
        for _ in range(60 + 30 * (seed % 3)):
            pair.submit()
        for _ in range(250):
            pair.step(OFTEN[day])


def full(shapes: int, scan_max: int) -> Timeline:
    """Return a line of so many shapes, each create a different amount above 2 cpu, and a full quota that is watched."""
    line = watched(1000, 1000, Policy(scan_max=scan_max, overload_start=256))
    for number in range(shapes):
        line.submit(demand=Demand({"cpu": 2 * ONE + number}))
    for _ in range(2):  # the first scan divides the line, the second one measures the parts
        steps(line, 1)
    return line


def steps(line: Timeline, room: float) -> int:
    """Report room; count the scans, all but the last cut short, until whoever fits is admitted."""
    line.observe(1000 - room, 1000)
    line.now += 0.01
    count = 1
    line.advance()
    while (deadline := line.controller.next_deadline()) is not None and deadline <= line.now:
        line.advance()
        count += 1
    for ticket in flying(line):
        line.created(ticket)
    line.observe(1000, 1000)
    line.later(1)
    return count


def test_a_long_line_is_passed_in_few_steps() -> None:
    """Of 2,000 rows, which are 63 spans, the last one fits: a scan of 200 rows finds it, again and again."""
    line = full(2000, 200)
    for _ in range(10):
        small = line.submit(1)
        assert steps(line, 1) == 1
        assert small.state == "over"


def test_each_span_that_is_passed_counts_as_a_row() -> None:
    """The work of one scan is bounded: 62 spans of 2,000 rows leave two rows of 64 for the last span."""
    line = full(2000, 64)
    line.submit(1)
    assert steps(line, 1) == 2


def test_the_rest_of_a_span_is_passed_once_there_is_no_room_left() -> None:
    """The first of its rows are admitted; the others, which would have fitted, are not asked one by one."""
    line = full(60, 10)
    assert steps(line, 2.1) == 1


def test_a_span_is_measured_again_when_its_smallest_has_gone() -> None:
    """It is walked through in vain once more, and passed from then on."""
    line = full(2000, 70)
    small = line.submit(demand=Demand({"cpu": ONE, "gpu": ONE}))
    none = ObservedQuota({"gpu": ONE}, {"gpu": ONE}, {"gpu": ONE})
    line.controller.observe_quota(NS, "gpus", none, line.now)
    for _ in range(3):  # another quota: all is measured anew
        steps(line, 1)
    assert steps(line, 1) == 2
    line.withdraw(small)  # after which the line is gone over, too
    assert steps(line, 1) == 1


def test_where_a_limit_is_not_known_each_row_is_asked() -> None:
    """A quota that has limits which are not known may need probes."""
    line = full(2000, 200)
    line.controller.observe_quota(NS, "nothing", ObservedQuota({}, {}, {}), line.now)
    for _ in range(3):
        assert steps(line, 1) == 10


def two_resources(policy: Policy) -> Timeline:
    """Return a line without room for cpu and memory, with a watch."""
    line = Timeline(policy)
    report(line, 0, 0)
    line.watching()
    return line


def report(line: Timeline, cpu: int, memory: int) -> None:
    """Report this much room."""
    hard = {"cpu": 100 * ONE, "memory": 100 * ONE}
    used = {"cpu": (100 - cpu) * ONE, "memory": (100 - memory) * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, used), line.now)
    line.later(0.1)


def asks(line: Timeline, cpu: int, memory: int) -> Request:
    """Submit a create."""
    return line.submit(demand=Demand({"cpu": cpu * ONE, "memory": memory * ONE}))


def test_a_gang_that_lacks_room_takes_it_before_those_behind_it_are_passed() -> None:
    """What it takes was all that the second one had of memory: that one is overtaken, not the one behind it."""
    line = two_resources(Policy(overtakes_max=9))
    asks(line, 50, 5)
    report(line, 20, 20)
    gang = Parts([(Demand({"cpu": 10 * ONE, "memory": 10 * ONE}), 1)])
    line.controller.of(NS).reserve(Reservation("gang", NS, gang), line.now)
    line.later(0.1)
    report(line, 0, 0)  # strangers took what the gang had
    second, third = asks(line, 50, 12), asks(line, 0, 13)
    report(line, 15, 15)
    assert asks(line, 0, 1).state == "sent"

    assert (second.overtaken, third.overtaken) == (1, 0)


def test_one_that_was_overtaken_is_asked_in_each_scan() -> None:
    """Room is kept for it also where all of its span lack room, and another one is the next."""
    line = two_resources(Policy(overtakes_max=1, overtaken_for_max=0))
    for number in range(40):
        asks(line, 30 + number % 2, 10)
    asks(line, 50, 1)
    for number in range(40):
        asks(line, 60 + number, 1)
    for _ in range(3):
        report(line, 39, 0)
        report(line, 40, 0)
    assert asks(line, 5, 0).state == "sent"  # it overtakes the one that asks 50 cpu
    report(line, 20, 0)
    report(line, 25, 0)

    assert asks(line, 5, 0).state == "waiting"


def test_spans_do_not_pile_up() -> None:
    """Creates come and go at the end of the line, which no span contains: they have no ceiling in common."""
    line = full(70, 64)
    memory = ObservedQuota({"memory": 9 * ONE}, {"memory": 9 * ONE}, {"memory": 9 * ONE})
    line.controller.observe_quota(NS, "memory", memory, line.now)
    kept = []
    for number in range(90):
        comers = [
            line.submit(demand=Demand({("cpu", "memory")[each % 2]: 2 * ONE + 1000 * number + each}))
            for each in range(140)
        ]
        for _ in range(2):
            steps(line, 1)
        for comer in comers:
            line.withdraw(comer)
        if number % 30 == 29:
            line.later(2000)  # what came is forgotten
            kept.append(kept_by(line.controller))

    assert max(kept[1:]) < 1.3 * kept[0]

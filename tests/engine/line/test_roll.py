"""The roll of the waiting line: places and pages are those of a sorted list, at the cost of a few steps."""

from __future__ import annotations

import random

import pytest

from backoff_ctrl.engine import Demand, Request
from backoff_ctrl.engine.facts.roll import PART, Roll, place_of
from tests.kit.costs import kept_by, lines_of
from tests.kit.examples import examples
from tests.kit.timeline import watched


def requests(count: int, dice: random.Random) -> list[Request]:
    """Make requests of three priorities, numbered in the order they come."""
    made = []
    for number in range(count):
        request = Request(f"r{number}", "team", Demand({}))
        request.rank, request.seq = number // 3 - 500.0 * dice.choice([0, 0, 0, 1, 2]), number
        made.append(request)
    return made


@pytest.mark.parametrize("seed", range(examples(10)))
def test_places_and_pages_are_those_of_a_sorted_list(seed: int) -> None:
    """Requests come in bursts, leave anywhere and return, until few are left in many parts, and then none."""
    dice = random.Random(seed)
    coming, away, there = requests(4 * PART, dice), list[Request](), list[Request]()
    roll = Roll(place_of)
    while coming or away or there:
        burst = coming[: dice.randrange(1, 300)]
        del coming[: len(burst)]
        if burst:
            there += burst
            roll.extend(sorted(burst, key=place_of))
        dice.shuffle(there)
        for _ in range(min(len(there), dice.randrange(1, 300))):
            roll.remove(there[-1])
            leaver = there.pop()
            if dice.random() < 0.2:
                away.append(leaver)
        while away and dice.random() < 0.7:
            there.append(away.pop())
            roll.extend(there[-1:])
        there.sort(key=place_of)

        assert roll.after(None, 10**6) == there
        for _ in range(min(len(there), 5)):
            at = dice.randrange(len(there))
            assert roll.before(place_of(there[at])) == at
            assert roll.after(place_of(there[at]), 7) == there[at + 1 : at + 8]
    assert kept_by(roll) <= kept_by(Roll(place_of)) + 1


def test_a_few_that_stay_of_many_leave_no_empty_parts_behind() -> None:
    """One in three hundred waits on: those who look pass over a part or two, not over a part for each."""
    everyone = requests(100 * PART, random.Random(1))
    roll = Roll(place_of)
    for start in range(0, len(everyone), PART):
        roll.extend(sorted(everyone[start : start + PART], key=place_of))
    for number, request in enumerate(everyone):
        if number % 300:
            roll.remove(request)

    few = Roll(place_of)
    few.extend(sorted(everyone[::300], key=place_of))

    assert roll.after(None, 1000) == few.after(None, 1000)
    assert kept_by(roll) < kept_by(few) + 20


def test_the_place_of_the_last_of_many_takes_a_few_steps() -> None:
    """Bounded: among ten thousand waiting creates of many shapes, nobody is counted one by one."""
    line = watched(4, 4)
    demands = [Demand({"cpu": 10**9 + cpu}) for cpu in range(100)]
    everyone = [line.request(demand=demand) for demand in demands for _ in range(100)]
    for request in everyone:
        line.controller.submit(request, line.now)
    line.advance()

    assert line.place(everyone[-1]) == 10_000
    assert lines_of(lambda: line.why(everyone[-1])) < 300

"""The controller beside the naive twin, by a shrinking search and by plain dice (tests/kit/engine_machine.py)."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.engine_machine import NAMESPACES, SPANS, SPOILED, ControllerMachine
from tests.kit.examples import examples

pytestmark = pytest.mark.no_cover
TestController = ControllerMachine.TestCase
TestController.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def random_step(day: ControllerMachine, dice: random.Random) -> None:
    """Apply one rule, if it can be applied."""
    namespace, pick = dice.choice(NAMESPACES), dice.randrange(1000)
    match dice.choices(range(11), [4, 1, 4, 4, 1, 3, 1, 0.3, 4, 5.8, 1])[0]:
        case 0:
            day.submit(namespace, dice.randint(0, 6), dice.random() < 0.3, dice.randint(0, 2), dice.randint(1, 4))
        case 1 if day.waiting:
            day.withdraw(pick, dice.random() < 0.7)
        case 2 if len(day.arrived) < len(day.open):
            day.arrive(pick)
        case 3 if day.arrived:
            day.answer(pick)
        case 4 if len(day.arrived) < len(day.open):
            day.spoil(pick, dice.choice(SPOILED))
        case 5 if day.alive:
            day.finish(pick, dice.random() < 0.5)
        case 6:
            day.other_client(namespace, dice.randint(-3, 3))
        case 7:
            day.resize(namespace, dice.choice(["all", "gold"]), dice.randint(0, 12))
        case 8:
            day.pass_time(dice.choice(SPANS))
        case 9:
            random_news(day, dice, namespace, pick)
        case 10:
            day.come_again(namespace, dice.randint(0, 6), dice.randint(0, 2), pick)


def random_news(day: ControllerMachine, dice: random.Random, namespace: str, pick: int) -> None:
    """Apply one rule of watches and lists, if it can be applied."""
    match dice.choices(range(4), [4, 0.4, 0.7, 0.7])[0]:
        case 0 if day.watched and any(day.news.values()):
            day.report(pick)
        case 1:
            day.watch()
        case 2:
            day.request_list(namespace)
        case 3 if day.lists:
            day.receive_list(pick)


def random_day(seed: int, steps: int) -> None:
    """Apply the same rules by plain dice: many more steps a second than the shrinking search makes."""
    dice = random.Random(seed)
    day = ControllerMachine()
    day.quotas(cpu=dice.randint(2, 12), pods=dice.randint(1, 6), gold=dice.randint(2, 8))
    for _ in range(steps):
        random_step(day, dice)
        day.the_engine_counts_all_requests()
        day.a_looker_that_follows_the_changes_knows_all()
    day.teardown()


@pytest.mark.parametrize("block", range(5))
def test_many_random_days_break_no_promise(block: int) -> None:
    """A thousand days of the machine's rules, the same ones in every run."""
    for seed in range(block * 200, block * 200 + examples(200)):
        random_day(seed, 15 + seed % 60)

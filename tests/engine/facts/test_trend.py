"""Trend: by how much what is used rose in the last minutes, kept in a few numbers, against a twin that keeps all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Controller, ObservedQuota, Rejected
from backoff_ctrl.engine.facts.ceilings import TREND_SPAN
from tests.kit.timeline import NS, ONE, QUOTA

SPAN = int(TREND_SPAN)
STEPS = st.lists(st.tuples(st.integers(0, 3 * SPAN), st.integers(0, 9)), min_size=1, max_size=30)


def seen(used: int) -> ObservedQuota:
    """The quota of ten pods, so many used."""
    return ObservedQuota({"pods": 10 * ONE}, {"pods": 10 * ONE}, {"pods": used * ONE})


def trend_of(controller: Controller, now: float) -> int | None:
    """The trend that is shown, in pods."""
    found = controller.namespace(NS, now)
    assert found is not None
    trend = found.quotas[QUOTA]["pods"].trend
    return None if trend is None else trend // ONE


def twin(facts: list[tuple[int, int]], now: int) -> int | None:
    """Compare with what was used when the span before the present one began, from the whole history."""
    first = facts[0][0]
    begin = first + (now - first) // SPAN * SPAN - SPAN
    if begin < first:
        return None
    before = [used for number, (at, used) in enumerate(facts) if at < begin or not number]
    return facts[-1][1] - before[-1]


@given(steps=STEPS, later=st.integers(0, 3 * SPAN))
def test_it_is_what_the_whole_history_says(steps: list[tuple[int, int]], later: int) -> None:
    """After each fact, and when nothing has been heard for a while."""
    controller = Controller()
    now, facts = 1000, []
    for wait, used in steps:
        now += wait
        controller.observe_quota(NS, QUOTA, seen(used), float(now))
        facts.append((now, used))
        assert trend_of(controller, float(now)) == twin(facts, now)
    assert trend_of(controller, float(now + later)) == twin(facts, now + later)


def test_of_a_ceiling_that_was_learned_long_ago_none_is_told() -> None:
    """Nobody knows what has been used since the refusal."""
    controller = Controller()
    controller.learn(NS, frozenset(), refusal(4), 0.0, 0.0)
    assert trend_of(controller, SPAN - 1.0) is None
    controller.learn(NS, frozenset(), refusal(6), SPAN - 1.0, SPAN - 1.0)
    assert trend_of(controller, SPAN + 1.0) == 2
    assert trend_of(controller, 2 * SPAN - 1.0) is None


def refusal(used: int) -> Rejected:
    """Of the quota of ten pods, so many used."""
    amounts = {"pods": 10 * ONE}
    return Rejected(QUOTA, {"pods": 10 * ONE}, {"pods": used * ONE}, amounts)

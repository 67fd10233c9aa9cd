"""Back-off: d = min(cap, base x 2^n), exact for any n; each jitter stays in its range."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Policy
from backoff_ctrl.engine.backoff import after, delay, full_jitter, probe_delay
from backoff_ctrl.engine.line.blocks import Block
from tests.kit.timeline import Timeline

SECONDS = st.floats(min_value=0.001, max_value=86_400)


@given(attempts=st.integers(0, 10**6), base=SECONDS, cap=SECONDS)
def test_the_delay_is_the_formula_exactly(attempts: int, base: float, cap: float) -> None:
    """Equal to the formula in fractions, for any step and any settings, to the last bit."""
    want = min(Fraction(cap), Fraction(base) * 2 ** min(attempts, 40))  # 2^40 x 1 ms is above any cap here

    assert Fraction(delay(attempts, base, cap)) == want


@pytest.mark.parametrize("attempts", [990, 1000, 1001, 1024, 1100, 2**31, 10**18])
def test_a_step_of_any_size_neither_overflows_nor_wraps(attempts: int) -> None:
    """High steps give the cap, on either side of the largest float exponent."""
    assert delay(attempts, 0.001, 86_400.0) == 86_400.0


@given(attempts=st.integers(0, 10**6), base=SECONDS, cap=SECONDS, seed=st.integers(0, 2**32))
def test_a_probe_waits_the_upper_half_and_other_retries_anything_below(
    attempts: int, base: float, cap: float, seed: int
) -> None:
    """Probes draw uniform(d/2, d), other retries uniform(0, d)."""
    d = delay(attempts, base, cap)
    rng = random.Random(seed)

    assert d / 2 <= probe_delay(attempts, base, cap, rng) <= d
    assert 0 <= full_jitter(attempts, base, cap, rng) <= d


def test_jitter_fills_its_whole_range() -> None:
    """A thousand draws come close to both ends of each range, so retries do not come back together."""
    rng = random.Random(1)
    probes = [probe_delay(3, 1.0, 20.0, rng) for _ in range(1000)]
    others = [full_jitter(3, 1.0, 20.0, rng) for _ in range(1000)]
    after_retry = [after(5.0, 2.0, rng) for _ in range(1000)]

    for draws, low, high in ((probes, 4, 8), (others, 0, 8), (after_retry, 5, 7)):
        assert low <= min(draws) < low + 0.1
        assert high - 0.1 < max(draws) <= high


@pytest.mark.parametrize("seed", range(5))
def test_a_block_that_keeps_refusing_backs_off_by_the_schedule(seed: int) -> None:
    """The waits come from d(0), d(1), d(2), ... up to the cap, each in its upper half."""
    line = Timeline(seed=seed)
    line.submit()
    ticket = line.next_ticket()
    line.refused(ticket, 4, 4)
    waits = []
    for _ in range(8):
        refused_at = line.now
        ticket = line.next_ticket()
        assert ticket.probe
        waits.append(line.now - refused_at)
        line.refused(ticket, 4, 4)

    for wait, d in zip(waits, [1, 2, 4, 8, 16, 20, 20, 20], strict=True):
        assert d / 2 <= wait <= d


def test_a_probe_that_passes_takes_one_step_back() -> None:
    """Steps stop at the one that reaches the cap; a success goes back one step, not to the first."""
    policy = Policy()
    rng = random.Random(0)
    block = Block(due=0.0)
    for now in range(6):
        block.due = now
        assert block.is_ready(now)
        block.happens("probe")
        block.refused(now, policy, rng, stirred=False)
    assert block.attempts == 5
    assert block.is_ready(1000.0)
    block.happens("probe")
    block.passed(1000.0)
    assert block.is_ready(1000.0)
    assert block.attempts == 4
    block.happens("probe")
    block.refused(1000.0, policy, rng, stirred=False)

    assert 8 <= block.due - 1000 <= 16
    assert block.attempts == 4  # a refusal right after a success repeats the step
    block.due = 1020
    assert block.is_ready(1020.0)
    block.happens("probe")
    block.refused(1020.0, policy, rng, stirred=False)
    assert block.attempts == 5


def test_a_refusal_that_shows_movement_repeats_the_step() -> None:
    """Room came and was taken: the quota is in motion, and the wait does not grow."""
    rng = random.Random(0)
    block = Block(due=0.0, attempts=2)
    for now in (0.0, 100.0):
        assert block.is_ready(now)
        block.happens("probe")
        block.refused(now, Policy(), rng, stirred=True)
        assert block.attempts == 2
        assert 2 <= block.due - now <= 4


def test_a_refusal_elsewhere_repeats_the_step() -> None:
    """A probe that another quota refused first changes no step."""
    policy = Policy()
    rng = random.Random(0)
    block = Block(due=0.0, attempts=3)
    for now in (0.0, 100.0, 200.0):
        assert block.is_ready(now)
        block.happens("probe")
        block.elsewhere(now, policy, rng)
        assert block.attempts == 3
        assert 4 <= block.due - now <= 8


def test_a_constant_schedule_has_no_steps_to_count() -> None:
    """If the first delay is the cap already, a block stays at its first step."""
    block = Block(due=0.0)
    for now in (0.0, 5.0):
        assert block.is_ready(now)
        block.happens("probe")
        block.refused(now, Policy(base=5.0, cap=5.0), random.Random(0), stirred=False)
        assert block.attempts == 0

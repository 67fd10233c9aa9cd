"""The token bucket bounds a rate: a burst at once, then tokens as time passes, by a clock that may go back."""

from __future__ import annotations

from backoff_ctrl.engine.backoff import Bucket


def test_a_burst_at_once_then_the_rate() -> None:
    """Five at once, then two a second, and never more than five saved up."""
    bucket = Bucket(rate=2.0, burst=5)
    for _ in range(5):
        assert bucket.wait_for(1, 100.0) == 0
        bucket.take(100.0)
    assert bucket.wait_for(1, 100.0) == 0.5
    assert bucket.wait_for(1, 100.5) == 0
    assert not bucket.is_full(102.0)
    assert bucket.level(1000.0) == 5
    assert bucket.is_full(1000.0)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    """Time that was counted once is not counted again."""
    bucket = Bucket(rate=1.0, burst=1)
    bucket.take(10.0)
    assert bucket.level(5.0) == 0
    assert bucket.level(10.0) == 0
    assert bucket.level(10.5) == 0.5

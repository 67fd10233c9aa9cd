"""How fast a ceiling's waiting creates get in, and what that says of one create's wait: an estimate, never a promise.

A smaller create passes larger ones that wait. So amounts are counted by size, in classes of powers of two, and a create
is taken to wait for those of its own class and below. Old rates fade; time in which nobody waited does not count.

Rates are floats: they decide nothing, and no amount is ever derived from one.
"""

from __future__ import annotations

from math import exp
from typing import Final

FADES: Final = 1200.0  # seconds of waiting after which a rate counts for a third
_ENOUGH: Final = 8.0  # creates that got in, faded: fewer say nothing of a rate
_AHEAD_MIN: Final = 5  # a wait for fewer is chance: the next one that ends decides it, soon or late


class Drain:
    """The rate at which creates of each size class were admitted at one ceiling while others waited."""

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        """Start with no rate known."""
        self._classes: dict[int, list[float]] = {}  # by bit length: amount, seconds, creates, and when it faded last

    def add(self, amount: int, since: float, now: float) -> None:
        """Count a create of this amount that was admitted; somebody has waited ``since`` then without a break."""
        of_class = self._classes.get(amount.bit_length())
        if of_class is None:
            self._classes[amount.bit_length()] = [0.0, 0.0, 1.0, now]  # time begins to count
            return
        _fade(of_class, since, now)
        of_class[0] += amount
        of_class[2] += 1.0

    def seconds_for(self, amount: int, ahead: int, largest: int, since: float, now: float) -> float | None:
        """Estimate the seconds until ``amount`` got in; None if there is no basis.

        It belongs to ``ahead`` creates, the asking one included, of at most the size class of ``largest``.
        """
        rate = count = 0.0
        for size, of_class in self._classes.items():
            if size <= largest.bit_length():
                _fade(of_class, since, now)
                count += of_class[2]
                rate += of_class[0] / of_class[1] if of_class[1] else 0.0
        if ahead < _AHEAD_MIN or count < _ENOUGH or not rate:
            return None
        return amount / rate


def _fade(of_class: list[float], since: float, now: float) -> None:
    passed = now - max(of_class[3], since)
    of_class[3] = now
    if passed > 0:
        rest = exp(-passed / FADES)
        of_class[0] *= rest
        of_class[1] = of_class[1] * rest + FADES * (1.0 - rest)
        of_class[2] *= rest

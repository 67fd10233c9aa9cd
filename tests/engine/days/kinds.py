"""The kinds of random days, and how many faults each may have: ``KINDS``.

Three kinds are days of ``keeping_day``, where any fault ends the day: it has failed. Three are worlds of
``quota_world``, where the faults of many days are counted; a world's day counts as failed if it has any.

The bounds are what the engine did: over 20,000 days of each of the first three kinds, at the rate of 3,200 days of each
world. Only lower ones may replace them. An exception that the engine raises in a world is an error in any case.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Final

from tests.kit.keeping_day import DaySettings, play_seed
from tests.kit.quota_world import DAY, Rules, World

GAVE_AWAY, OVER = "gave away", "over"
"""What ``World.counts`` calls these faults."""
DEVIATIONS: Final = 3.0
"""So many standard deviations above its bound, a count is no chance."""
IDLE_SPREAD: Final = 15.0
"""Standard deviation of the idle share of one day, in percent: 12 to 14 were measured."""


@dataclass
class Tally:
    """What some days of one kind have shown."""

    days: int = 0
    failed: dict[str, list[int]] = field(default_factory=dict)
    """The seeds of the days that failed, by cause."""
    gave_away: int = 0
    over: int = 0
    idle: float = 0.0
    """Seconds."""
    created: int = 0
    seconds: float = 0.0
    """Of one core."""

    def fail(self, cause: str, seed: int) -> None:
        """Note a fault of a day."""
        self.failed.setdefault(cause, []).append(seed)

    def add(self, other: Tally) -> None:
        """Add what other days have shown."""
        for name in ("days", "gave_away", "over", "idle", "created", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for cause, seeds in other.failed.items():
            self.failed[cause] = sorted([*self.failed.get(cause, ()), *seeds])

    @property
    def failed_days(self) -> int:
        """Count the days that have any fault."""
        return len({seed for seeds in self.failed.values() for seed in seeds})

    @property
    def idle_percent(self) -> float:
        """Return the share of time in which somebody waited who would have fitted."""
        return 100 * self.idle / (self.days * DAY) if self.days else 0.0


@dataclass(frozen=True)
class Bounds:
    """The most that is right: faults in 20,000 days, and the idle share in percent. None: it is not judged."""

    failed: float | None = None
    gave_away: float | None = None
    over: float | None = None
    idle: float | None = None

    def broken(self, tally: Tally) -> list[str]:
        """Name what is worse than its bound, by more than chance explains over so few days."""
        counted = {
            "failed days": (tally.failed_days, self.failed),
            GAVE_AWAY: (tally.gave_away, self.gave_away),
            OVER: (tally.over, self.over),
        }
        wrong = []
        for name, (count, bound) in counted.items():
            if bound is not None and count > (most := at_most(bound, tally.days)):
                wrong.append(f"{name}: {count}, at most {most:.0f} of {tally.days} days")
        if self.idle is not None and tally.days:
            most = self.idle + DEVIATIONS * IDLE_SPREAD / sqrt(tally.days)
            if tally.idle_percent > most:
                wrong.append(f"idle: {tally.idle_percent:.1f} %, at most {most:.1f} %")
        return wrong


def at_most(bound: float, days: int) -> float:
    """Return how many faults so many days may have, where ``bound`` is right for 20,000."""
    expected = bound * days / 20_000
    return expected + DEVIATIONS * sqrt(expected)


@dataclass(frozen=True)
class Kind:
    """Days of one kind: what happens on them, how one is played, and its bounds."""

    about: str
    play: Callable[[int, Tally], None]
    bounds: Bounds
    counted: bool
    """Whether its faults are counted; else any ends the day."""

    def broken(self, tally: Tally) -> list[str]:
        """Name the bounds that these days break, and what the engine raised in a world."""
        raised = [cause for cause in tally.failed if self.counted and cause not in (GAVE_AWAY, OVER)]
        return self.bounds.broken(tally) + raised

    def days(self, first: int, count: int) -> Tally:
        """Play the days of so many seeds."""
        tally = Tally(days=count)
        began = time.process_time()
        for seed in range(first, first + count):
            try:
                self.play(seed, tally)
            except Exception as error:  # noqa: BLE001 - whatever the engine raises is the fault of this day
                tally.fail(cause_of(error), seed)
        tally.seconds = time.process_time() - began
        return tally


def cause_of(error: Exception) -> str:
    """Return what went wrong, in words that are the same for all days of one cause."""
    words = re.sub(r"\d[\d.]*", "N", str(error).split(":")[0])
    if isinstance(error, AssertionError) and words:
        return words
    line = traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__} {words} at `{line}`".replace("  ", " ")


def _days(about: str, settings: DaySettings, bounds: Bounds) -> Kind:
    """Return a kind of the days that any fault ends."""

    def play(seed: int, tally: Tally) -> None:
        tally.created += play_seed(seed, settings).created

    return Kind(about, play, bounds, counted=False)


def _worlds(about: str, rules: Rules, bounds: Bounds) -> Kind:
    """Return a kind of the days whose faults are counted."""

    def play(seed: int, tally: Tally) -> None:
        world = World(seed, rules).run()
        tally.gave_away += world.counts[GAVE_AWAY]
        tally.over += world.counts[OVER]
        tally.created += world.counts["created"]
        tally.idle += world.idle
        for cause in (GAVE_AWAY, OVER):
            if world.counts[cause]:
                tally.fail(cause, seed)

    return Kind(about, play, bounds, counted=True)


KINDS: Final[Mapping[str, Kind]] = {
    "usual": _days("all that happens to gangs that keep their room", DaySettings(), Bounds(failed=6)),
    "lost": _days("both watches are cut six times as often", DaySettings(cuts=3.0), Bounds(failed=11)),
    "late": _days(
        "5 % of the changes of pods, or all of them, are told at the last moment permitted",
        DaySettings(late=(0.05, 1.0)),
        Bounds(failed=12),
    ),
    "quiet": _worlds(
        "a world without strangers, cuts and lying recounts; 5 % of pods are late",
        Rules(strangers=False, cuts=False, lies=False),
        Bounds(gave_away=5, over=5, idle=30),
    ),
    "exact": _worlds(
        "a world with strangers and cuts, whose recounts are exact",
        Rules(lies=False),
        Bounds(gave_away=10, over=120, idle=36),
    ),
    "lying": _worlds(
        "a world with strangers, cuts and recounts from a late cache",
        Rules(),
        Bounds(gave_away=115, over=730, idle=36),
    ),
}

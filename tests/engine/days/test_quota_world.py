"""What the worlds count: an engine that has a wrong picture of the quota makes faults, and they are found."""

from __future__ import annotations

import random

import pytest

from backoff_ctrl.engine import ObservedQuota
from tests.kit.keeping_day import LATE, USUAL, Day, DaySettings, Pod
from tests.kit.quota_world import Rules, World

pytestmark = pytest.mark.no_cover

QUIET = Rules(strangers=False, cuts=False, lies=False, late_pods=0.0)


class Boastful(World):
    """The engine sees twice the room that there is."""

    def seen(self, recounted: frozenset[str] = frozenset()) -> ObservedQuota:
        """Double what is limited."""
        true = super().seen(recounted)
        hard = {each: 2 * amount for each, amount in true.hard.items()}
        return ObservedQuota(hard, hard, true.used, recounted=recounted)


class Modest(World):
    """The engine sees a full quota."""

    def seen(self, recounted: frozenset[str] = frozenset()) -> ObservedQuota:
        """Let all be used."""
        true = super().seen(recounted)
        return ObservedQuota(true.hard, true.hard, true.hard, recounted=recounted)


def test_what_is_let_in_and_does_not_fit_is_counted() -> None:
    """As a member's room where a gang still wants it, else as over the quota."""
    worlds = [Boastful(seed, QUIET).run() for seed in range(5)]

    assert sum(world.counts["gave away"] for world in worlds) > 5
    assert sum(world.counts["over"] for world in worlds) > 5
    assert all(world.counts["refused"] for world in worlds)


def test_room_that_is_free_while_somebody_waits_is_counted_as_idle() -> None:
    """And room that the engine gives away at once is not."""
    assert Modest(1, QUIET).run().idle > 20
    assert Modest(1, QUIET).run().counts["created"] == 0
    assert World(1, QUIET).run().idle < 15


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(QUIET, set(), id="quiet"),
        pytest.param(Rules(cuts=False), {"strangers"}, id="strangers"),
        pytest.param(Rules(strangers=False), {"cuts", "probes"}, id="cuts"),
    ],
)
def test_rules_say_what_happens(rules: Rules, expected: set[str]) -> None:
    """The engine probes only where a watch is cut."""
    counts = World(3, rules).run().counts

    assert {each for each in ("strangers", "cuts", "probes") if counts[each]} == expected


def test_a_late_change_of_a_pod_is_told_at_the_last_moment_permitted() -> None:
    """And any other perhaps before."""
    for kind, told in ((USUAL, True), (DaySettings(late=(1.0,)), False)):
        day = Day(random.Random(1), kind)
        day.create(Pod({"cpu": 1, "pods": 1}))
        day.tell_pod_early()
        assert (not day.pod_news) == told
        day.pass_time(2 * LATE)
        assert not day.pod_news


def test_watches_are_cut_as_often_as_a_kind_of_days_says() -> None:
    """Either of them; never, where it says so."""
    for cuts, expected in ((0.0, set()), (50.0, {"pods", "quota"})):
        day = Day(random.Random(2), DaySettings(cuts=cuts))
        lost: set[str] = set()
        for _ in range(40):
            day.step()
            lost |= {watch for watch, cut in {"pods": day.lost_at is not None, "quota": day.blind}.items() if cut}
        assert lost == expected

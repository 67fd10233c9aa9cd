"""What would become of a create that nobody has submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Created, Demand, ObservedQuota, Parts, Policy, Rejected, Selector
from tests.kit.costs import kept_by
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, amounts_of, tickets, watched

if TYPE_CHECKING:
    from backoff_ctrl.engine.look.outlook import Outlook

SMALL = Demand(amounts_of(1))


def outlook(line: Timeline, *wanted: tuple[Demand, int], namespace: str = NS) -> Outlook:
    """Ask for these demands, each so many times; without any, for one create of one CPU."""
    return line.controller.outlook(namespace, wanted or ((SMALL, 1),), line.now)


def blocked_by(found: Outlook) -> list[tuple[str, str, float, float, float]]:
    """What is in the way, in whole units."""
    return [(b.quota, b.resource, b.asked / ONE, b.left / ONE, b.limited / ONE) for b in found.blockers]


def test_what_fits_goes_in_now() -> None:
    """Equal to what is left is enough."""
    found = outlook(watched(3, 4))
    assert (found.prospect, found.blockers, found.estimate, found.kept) == ("now", (), None, False)
    assert found.limits == {QUOTA: frozenset({"cpu"})}
    assert not found.learned


def test_what_does_not_fit_waits() -> None:
    """The ceiling in the way is named with its amounts."""
    found = outlook(watched(3.5, 4))
    assert found.prospect == "wait"
    assert blocked_by(found) == [(QUOTA, "cpu", 1, 0.5, 4)]


def test_what_others_hold_is_not_left() -> None:
    """Other gates' creates on their way count as if they were ours, where they are held and nowhere else."""
    line = watched(1, 4)
    asked = ((SMALL, 1),)
    found = [
        line.controller.outlook(NS, asked, line.now, {(QUOTA, "cpu"): held, ("another", "cpu"): 9 * ONE})
        for held in (2 * ONE, 5 * ONE // 2)
    ]
    assert [each.prospect for each in found] == ["now", "wait"]
    assert blocked_by(found[1]) == [(QUOTA, "cpu", 1, 0.5, 4)]


def test_a_limit_of_zero_is_a_pause() -> None:
    """Somebody will lift it: this is not "never"."""
    line = watched(0, 0)
    assert outlook(line).prospect == "wait"


def test_more_than_the_limit_never_fits() -> None:
    """Equal to the limit does; the verdict names the limit, and what is left now."""
    line = watched(1, 4)
    assert outlook(line, (Demand(amounts_of(4)), 1)).prospect == "wait"
    found = outlook(line, (Demand(amounts_of(5)), 1))
    assert (found.prospect, found.estimate) == ("never", None)
    assert blocked_by(found) == [(QUOTA, "cpu", 5, 3, 4)]


def test_a_limit_that_is_not_enforced_yet_can_be_too_small() -> None:
    """The quota's spec decides, even while its status has nothing of the resource."""
    line = Timeline()
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(amounts_of(4), {}, {}), line.now)
    line.watching()
    assert blocked_by(outlook(line, (Demand(amounts_of(5)), 1))) == [(QUOTA, "cpu", 5, 4, 4)]


def test_several_creates_need_room_together() -> None:
    """What they ask adds up; no single one of them is too large, so they wait, they are not impossible."""
    line = watched(2, 4)
    assert outlook(line, (SMALL, 2)).prospect == "now"
    found = outlook(line, (SMALL, 2), (Demand(amounts_of(2)), 2))
    assert found.prospect == "wait"
    assert blocked_by(found) == [(QUOTA, "cpu", 6, 2, 4)]


def test_a_quota_for_others_is_not_in_the_way() -> None:
    """Its scopes select none of the demands, so that it limits nothing of them either."""
    line = Timeline()
    hard = amounts_of(1)
    line.controller.observe_quota(
        NS, QUOTA, ObservedQuota(hard, hard, hard, Selector([(True, frozenset({"BestEffort"}))])), line.now
    )
    line.watching()
    found = outlook(line)
    assert (found.prospect, found.limits) == ("now", {})
    assert outlook(line, (Demand(amounts_of(1), {"BestEffort"}), 1)).prospect == "wait"


@pytest.mark.parametrize("watched", [True, False])
def test_without_any_quota_it_depends_on_whether_all_are_known(watched: bool) -> None:
    """Where quotas are watched there is none; elsewhere nobody knows."""
    line = Timeline()
    if watched:
        line.controller.watching(line.now)
    found = outlook(line, namespace="other")
    assert (found.prospect, found.learned) == (("now", False) if watched else ("unknown", True))
    assert (found.blockers, found.limits, found.estimate) == ((), {}, None)


def test_a_refusal_teaches_a_part() -> None:
    """It proves that its quota applies to creates like this one, and says nothing of others."""
    line = Timeline()
    line.refuse(2, 3, 4)
    assert outlook(line, (Demand(amounts_of(2)), 1)).prospect == "wait"
    fits = outlook(line)
    assert (fits.prospect, fits.learned) == ("now", True)
    assert outlook(line, (Demand({"pods": ONE}), 1)).prospect == "unknown"
    assert outlook(line, (Demand(amounts_of(1), {"Terminating"}), 1)).prospect == "unknown"


def test_what_a_shape_is_really_charged_counts() -> None:
    """The server's own figure for equal creates replaces the one that was computed."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.settle(ticket, Rejected(QUOTA, requested=amounts_of(3), used=amounts_of(2), limited=amounts_of(4)))
    assert blocked_by(outlook(line)) == [(QUOTA, "cpu", 3, 2, 4)]


def test_asking_changes_nothing() -> None:
    """No shape is kept of what was only asked about."""
    line = watched(4, 4)
    line.submit(1)
    outlook(line)
    before, kept = line.seen(), kept_by(line.controller)
    outlook(line, (Demand(amounts_of(3)), 1))
    assert (line.seen(), kept_by(line.controller)) == (before, kept)


def test_a_gang_is_asked_for_as_a_whole() -> None:
    """Each member counts under the quotas of its own scopes, whether its shape is known or not; no shape is kept."""
    line = Timeline()
    line.observe(1, 8)
    line.observe(0, 3, quota="gold", selector=Selector([(True, frozenset({"gold"}))]))
    line.watching()
    line.later(1)
    plain, gold = Demand(amounts_of(1)), Demand(amounts_of(1), ["gold"])
    line.submit(1)
    kept = kept_by(line.controller)
    assert outlook(line, (Parts([(plain, 3), (gold, 3)]), 1)).prospect == "now"
    found = outlook(line, (Parts([(plain, 5), (gold, 2)]), 1))
    assert (found.prospect, blocked_by(found)) == ("wait", [(QUOTA, "cpu", 7, 6, 8)])
    found = outlook(line, (Parts([(plain, 1), (gold, 4)]), 1))
    assert (found.prospect, blocked_by(found)) == ("never", [("gold", "cpu", 4, 3, 3)])
    assert kept_by(line.controller) == kept


def test_room_that_is_kept_for_another_is_no_room() -> None:
    """One that waits for long is next: smaller ones wait behind it, though they would fit."""
    line = watched(0, 4, Policy(overtakes_max=1, overtaken_for_max=1))
    line.submit(3)
    large = line.submit(2)
    line.submit(0.5)  # overtakes it
    line.later(2)
    line.submit(0.25)
    assert large.state == "waiting"
    found = outlook(line, (Demand(amounts_of(0.25)), 1))
    assert (found.prospect, found.blockers, found.kept) == ("wait", (), True)


def test_the_estimate_counts_what_waits_already() -> None:
    """As if one more stood at the end of the line: the answer is that of an equal create that really joins."""
    line = watched(0, 4)
    running = [line.ticket_of(line.submit(1)) for _ in range(4)]
    for ticket in running:
        line.settle(ticket, Created())
    line.observe(4, 4)
    waiting = [line.submit(1) for _ in range(30)]
    for _ in range(12):
        line.later(1)
        line.observe(3, 4, then=0.01)
        for ticket in tickets([effect for _, effect in line.log]):
            if not ticket.ended:
                line.settle(ticket, Created())
        line.observe(4, 4)
    asked = outlook(line).estimate
    joined = line.controller.explain(line.submit(1), line.now)
    assert waiting[-1].state == "waiting"
    assert asked is not None
    assert joined is not None
    assert asked == pytest.approx(joined.estimate)

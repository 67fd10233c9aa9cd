"""Law 11: never-fits is a verdict of facts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from backoff_ctrl.engine import Demand, ObservedQuota, Policy, Rejected
from tests.timeline import NS, ONE, QUOTA, Timeline, refusals, state_of, tickets


def too_big(limited: float = 2) -> Rejected:
    """Return the refusal of a create of three at an idle quota of two."""
    return Rejected(QUOTA, {"cpu": 3 * ONE}, {"cpu": 0}, {"cpu": round(limited * ONE)})


def test_an_observed_spec_gives_the_verdict_at_once() -> None:
    """More than the spec allows is refused before any call, with a reason for people; an equal amount is allowed."""
    line = Timeline()
    line.observe(0, 2)
    line.watching()
    equal = line.submit(2)
    line.submit(2.5)
    [refusal] = refusals(line.advance() or [e for _, e in line.log])

    assert equal.state == "sent"
    assert (refusal.reason, refusal.request.state) == ("never-fits", "over")
    assert refusal.detail == f"asks cpu=2500m, but quota {QUOTA} allows 2 in all"


@pytest.mark.parametrize(
    ("resource", "asked", "allowed"),
    [
        ("limits.memory", "3Gi", "2Gi"),
        ("requests.storage", "3Gi", "2Gi"),
        ("pods", "3221225472", "2147483648"),
    ],
)
def test_the_reason_writes_amounts_as_people_do(resource: str, asked: str, allowed: str) -> None:
    """Memory and storage in powers of two, all else in powers of ten."""
    line = Timeline()
    hard = {resource: 2 * 2**30 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {}), line.now)
    line.submit(demand=Demand({resource: 3 * 2**30 * ONE}))
    [refusal] = refusals([e for _, e in line.log])

    assert refusal.detail == f"asks {resource}={asked}, but quota {QUOTA} allows {allowed} in all"


def test_a_learned_quota_of_zero_is_probed_in_the_usual_rhythm() -> None:
    """Paused is not too small: its end is noticed as soon as that of any full quota."""
    line = Timeline(Policy(on_never_fits="wait"))
    ticket = line.ticket_of(line.submit(1))
    for most in (1, 2, 4, 8, 16, 20, 20):
        line.settle(ticket, Rejected(QUOTA, {"cpu": ONE}, {"cpu": 0}, {"cpu": 0}))
        ticket = line.next_ticket(within=most)


def test_the_spec_decides_and_not_what_is_enforced_at_the_moment() -> None:
    """A quota that was just widened enforces the old size for a while: the request waits."""
    line = Timeline()
    line.observe(0, 2, spec=4)
    line.watching()
    request = line.submit(3)
    assert request.state == "waiting"
    line.observe(0, 4, spec=4)
    line.later(1)

    assert state_of(request) == "sent"


def test_a_quota_of_zero_is_paused_and_not_never() -> None:
    """Zero is how people stop a namespace for a while: all requests wait, and say so."""
    line = Timeline()
    line.observe(0, 0)
    line.watching()
    request = line.submit(1)
    line.later(1000)
    assert request.state == "waiting"
    why = line.controller.explain(request, line.now)
    assert why is not None
    assert why.reason == "paused"
    line.observe(0, 2)
    line.later(1)
    assert state_of(request) == "sent"


def test_a_verdict_reaches_waiting_requests() -> None:
    """The quota shrank: requests that are too large now are refused, the others wait on."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    large, small = [line.submit(3) for _ in range(2)], line.submit(1)
    line.observe(4, 2)

    refused = refusals([e for _, e in line.log])
    assert [r.request for r in refused] == large
    assert {r.detail for r in refused} == {f"asks cpu=3, but quota {QUOTA} allows 2 in all"}
    assert small.state == "waiting"


@pytest.mark.parametrize("limited", [2, 1e-9], ids=["two", "a nano-unit"])
def test_one_refusal_is_no_verdict_and_the_second_counts_from_two_seconds_on(limited: float) -> None:
    """A quota that is about to change may be small for a moment: a second try, at least 2 s later, decides."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(3))
    line.later(0.1)
    line.settle(ticket, too_big(limited))
    first_at = line.now
    assert ticket.request.state == "waiting"

    again = line.next_ticket()
    assert line.now - first_at >= 2
    line.later(0.1)
    effects = line.settle(again, too_big(limited))

    assert [(e.request, e.reason) for e in refusals(effects)] == [(ticket.request, "never-fits")]


def test_a_second_refusal_that_comes_too_soon_is_no_verdict_either() -> None:
    """Two creates of one shape in flight, refused together, count as one."""
    line = Timeline()
    line.created(line.ticket_of(line.submit(3)))
    flying = [line.ticket_of(line.submit(3)) for _ in range(2)]
    line.later(0.1)
    line.settle(flying[0], too_big())
    line.later(1.8)
    line.settle(flying[1], too_big())

    assert refusals([e for _, e in line.log]) == []
    assert [t.request.state for t in flying] == ["waiting", "waiting"]


@pytest.mark.parametrize("start", [0, 1000])
def test_a_second_refusal_that_was_sent_too_soon_waits_for_a_third(start: float) -> None:
    """One second after the first is one second too early, however new it is, at any time of the day."""
    line = Timeline()
    line.later(start)
    ticket = line.ticket_of(line.submit(3))
    line.later(0.1)
    line.settle(ticket, too_big())
    line.later(0.5)
    soon = line.controller.force(line.request(3), line.now)
    line.later(0.5)
    assert refusals(line.settle(soon, too_big())) == []
    again = line.next_ticket()
    line.later(0.1)

    assert [r.reason for r in refusals(line.settle(again, too_big()))] == ["never-fits"] * 2


def test_a_second_refusal_two_seconds_after_the_first_is_the_verdict() -> None:
    """Exactly two seconds are enough."""
    line = Timeline()
    line.settle(line.ticket_of(line.submit(3)), too_big())
    line.later(0.5)
    second = line.controller.force(line.request(3), line.now)
    line.later(1.5)

    assert [r.request for r in refusals(line.settle(second, too_big()))] == [second.request]


def test_a_second_try_that_meets_a_larger_quota_ends_the_suspicion() -> None:
    """The quota has changed: the create fits now, and no request was refused."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(3))
    line.later(0.1)
    line.settle(ticket, too_big())
    again = line.next_ticket()
    line.later(0.1)
    line.settle(again, Rejected(QUOTA, {"cpu": 3 * ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE}))
    assert again.request.state == "waiting"
    third = line.next_ticket()
    line.created(third)
    assert third.request.state == "over"


def test_a_learned_verdict_holds_for_the_next_of_that_shape() -> None:
    """The quota said so twice: the next equal create is refused without a call, a while later too."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(3))
    for _ in range(2):
        line.later(0.1)
        line.settle(ticket, too_big())
        ticket = line.next_ticket() if ticket.request.state == "waiting" else ticket
    sent = len(line.admitted())
    line.submit(3)
    line.later(400)  # more than ``never_probe``
    line.submit(3)

    assert [r.reason for r in refusals([effect for _, effect in line.log[-2:]])] == ["never-fits"] * 2
    assert len(line.admitted()) == sent


def test_a_learned_verdict_falls_with_a_newer_fact() -> None:
    """Another shape's refusal shows a larger limit: the verdict was about the old one."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(3))
    for _ in range(2):
        line.later(0.1)
        line.settle(ticket, too_big())
        ticket = line.next_ticket() if ticket.request.state == "waiting" else ticket
    larger = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 5 * ONE}, {"cpu": 5 * ONE})
    line.controller.learn(NS, frozenset({"other"}), larger, line.now + 1, line.now + 2)
    line.later(3)

    assert line.submit(3).state in ("waiting", "sent")


def test_under_wait_a_watched_never_fits_waits_for_the_spec_to_change() -> None:
    """``on_never_fits="wait"``: no call and no refusal, until the owner widens the quota."""
    line = Timeline(Policy(on_never_fits="wait"))
    line.observe(0, 2)
    line.watching()
    request = line.submit(3)
    assert line.later(2000) == []
    why = line.controller.explain(request, line.now)
    assert why is not None
    assert (why.reason, why.asked, why.limited) == ("never-fits", 3 * ONE, 2 * ONE)
    line.observe(0, 4)
    line.later(1)

    assert request.state == "sent"


def test_under_wait_without_a_watch_such_a_shape_is_sent_seldom() -> None:
    """Every ``never_probe``: the quota may have been widened, and no report would say so."""
    line = Timeline(Policy(on_never_fits="wait", never_probe=300, cap=20))
    ticket = line.ticket_of(line.submit(3))
    asked = []
    for _ in range(5):
        line.later(0.1)
        line.settle(ticket, too_big())
        ticket = line.next_ticket(within=400)
        asked.append(line.now)
    gaps = [b - a for a, b in pairwise(asked)]

    assert min(gaps[1:]) >= 300
    assert max(gaps) <= 330


def test_a_shape_that_never_fits_does_not_hold_up_the_others() -> None:
    """It waits apart: small requests probe and are admitted in their own time."""
    line = Timeline(Policy(on_never_fits="wait"))
    ticket = line.ticket_of(line.submit(3))
    line.later(0.1)
    line.settle(ticket, too_big())
    ticket = line.next_ticket()
    line.later(0.1)
    line.settle(ticket, too_big())
    small = line.submit(1)

    assert small.state == "sent"


@pytest.mark.parametrize("named", ["pods", "cpu"])
def test_the_verdict_names_the_resource_that_is_too_small(named: str) -> None:
    """Of several limits it names the one that can never be met."""
    line = Timeline()
    hard = {"cpu": 4 * ONE, "pods": 4 * ONE, named: ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {}), line.now)
    line.watching()
    line.submit(demand=Demand({"cpu": 2 * ONE, "pods": 2 * ONE}))

    assert f"asks {named}=2, " in refusals([e for _, e in line.log])[0].detail
    assert tickets([e for _, e in line.log]) == []


def test_a_learned_verdict_falls_with_a_larger_limit_of_the_same_quota() -> None:
    """Another shape of the same class was refused by a larger limit: the verdict was about the old one."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(3))
    for _ in range(2):
        line.later(0.1)
        line.settle(ticket, too_big())
        ticket = line.next_ticket() if ticket.request.state == "waiting" else ticket
    assert line.submit(3).state == "over"
    larger = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 5 * ONE}, {"cpu": 5 * ONE})
    line.controller.learn(NS, frozenset(), larger, line.now + 1, line.now + 2)
    line.later(3)

    assert line.submit(3).state in ("waiting", "sent")


def test_an_old_spec_falls_with_a_newer_refusal_that_shows_a_larger_limit() -> None:
    """The watch is lost and the quota was widened since: the server's latest answer is the fact."""
    line = Timeline()
    line.observe(0, 2)
    line.watching()
    line.later(1)
    line.watch_lost()
    assert line.submit(3).state == "over"
    line.later(1)
    larger = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 5 * ONE}, {"cpu": 5 * ONE})
    line.controller.learn(NS, frozenset(), larger, line.now, line.now)

    assert line.submit(3).state == "waiting"
    assert line.submit(6).state == "over"


def test_a_quota_that_is_being_shrunk_gives_the_verdict_when_the_smaller_size_is_enforced() -> None:
    """While the larger size is still enforced the request waits; once it is not, it never fits."""
    line = Timeline()
    line.observe(4, 4, spec=2)
    line.watching()
    request = line.submit(3)
    assert request.state == "waiting"
    line.observe(4, 2, spec=2)

    assert [r.request for r in refusals([e for _, e in line.log])] == [request]


def test_an_edited_spec_changes_the_verdict_before_its_status_follows() -> None:
    """The quota controller enforces the new limits a moment later: the verdict follows the spec at once."""
    line = Timeline()
    line.observe(2, 2, spec=4)
    line.watching()
    waiting = line.submit(3)
    assert waiting.state == "waiting"
    [refusal] = refusals(line.observe(2, 2, spec=2))
    assert refusal.request is waiting

    line.observe(2, 2, spec=4)
    assert line.submit(3).state == "waiting"


def test_a_resource_without_a_used_amount_is_free() -> None:
    """A status may give a limit and no use: all of it is free, whether it was known before or not."""
    line = Timeline()
    hard = {"cpu": 2 * ONE}
    line.observe(2, 2)
    line.watching()
    for _ in range(2):
        line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {}), line.now)
        line.later(1)
        assert line.ceiling()["headroom"] == 2 * ONE
    line.controller.observe_quota(NS, "another", ObservedQuota({"pods": 1}, {"pods": 1}, {}), line.now)
    seen = line.controller.snapshot(line.now).namespaces[NS].quotas["another"]["pods"]
    assert (seen.used, seen.headroom) == (0, 1)

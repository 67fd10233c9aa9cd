"""Never fits by facts: never-fits is a verdict of facts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from backoff_ctrl.engine import Demand, ObservedQuota, Policy, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, refusals, settled, state_of, tickets, watched


def too_big(limited: float = 2) -> Rejected:
    """Return the refusal of a create of three at an idle quota of two."""
    return Rejected(QUOTA, {"cpu": 3 * ONE}, {"cpu": 0}, {"cpu": round(limited * ONE)})


def test_an_observed_spec_gives_the_verdict_at_once() -> None:
    """More than the spec allows is refused before any call, with a reason for people; an equal amount is allowed."""
    line = watched(0, 2)
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


def test_a_quota_of_zero_is_paused_and_not_never() -> None:
    """Zero is how people stop a namespace for a while: all requests wait, and say so."""
    line = watched(0, 0)
    request = line.submit(1)
    line.later(1000)
    assert request.state == "waiting"
    why = line.why(request)
    assert why.reason == "paused"
    line.observe(0, 2, then=1)
    assert state_of(request) == "sent"


def test_a_limit_of_zero_pauses_only_what_asks_for_it() -> None:
    """Services are forbidden, and two are left from before: a create without any waits for cores alone."""
    line = Timeline()
    hard, used = {"cpu": ONE, "services": 0}, {"cpu": ONE, "services": 2 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, used), line.now)
    line.watching()
    cores, both = line.submit(1), line.submit(demand=Demand({"services": ONE}))
    assert (line.why(cores).reason, line.why(cores).resource) == ("quota", "cpu")
    assert (line.why(both).reason, line.why(both).resource) == ("paused", "services")


def test_a_verdict_reaches_waiting_requests() -> None:
    """The quota shrank: requests that are too large now are refused, the others wait on."""
    line = watched(4, 4)
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


@pytest.mark.parametrize("start", [0, 1000])
@pytest.mark.parametrize(("after", "verdict"), [(1.0, False), (1.99, False), (2.0, True)])
def test_another_refusal_counts_if_it_comes_two_seconds_after_the_first(
    start: float, after: float, verdict: bool
) -> None:
    """However new its create is, at any time of the day; one that comes sooner is no verdict, and another decides."""
    line = Timeline()
    line.later(start)
    line.settle(line.ticket_of(line.submit(3)), too_big())
    line.later(0.5)
    second = line.controller.of(NS).force(line.request(3), line.now)
    line.later(after - 0.5)

    refused = refusals(line.settle(second, too_big()))
    assert [r.request for r in refused] == [second.request] * verdict
    if not verdict:
        refused = refusals(line.settle(line.next_ticket(), too_big()))
        assert [r.reason for r in refused] == ["never-fits"] * 2


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


@pytest.mark.parametrize("scopes", [frozenset[str](), frozenset({"other"})], ids=["same class", "another class"])
def test_a_learned_verdict_falls_with_a_newer_fact(scopes: frozenset[str]) -> None:
    """Another shape's refusal shows a larger limit: the verdict was about the old one."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(3))
    for _ in range(2):
        line.later(0.1)
        line.settle(ticket, too_big())
        ticket = line.next_ticket() if ticket.request.state == "waiting" else ticket
    assert line.submit(3).state == "over"
    larger = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 5 * ONE}, {"cpu": 5 * ONE})
    line.controller.learn(NS, scopes, larger, line.now + 1, line.now + 2)
    line.later(3)

    assert line.submit(3).state in ("waiting", "sent")


def test_under_wait_a_watched_never_fits_waits_for_the_spec_to_change() -> None:
    """``on_never_fits="wait"``: no call and no refusal, until the owner widens the quota."""
    line = watched(0, 2, Policy(on_never_fits="wait"))
    request = line.submit(3)
    assert line.later(2000) == []
    why = line.why(request)
    assert (why.reason, why.asked, why.limited) == ("never-fits", 3 * ONE, 2 * ONE)
    line.observe(0, 4, then=1)

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


def test_an_old_spec_falls_with_a_newer_refusal_that_shows_a_larger_limit() -> None:
    """The watch is lost and the quota was widened since: the server's latest answer is the fact."""
    line = settled(0, 2)
    line.watch_lost()
    assert line.submit(3).state == "over"
    line.later(1)
    line.learn(5, 5)

    assert line.submit(3).state == "waiting"
    assert line.submit(6).state == "over"


@pytest.mark.parametrize(
    ("first", "then", "end"),
    [
        pytest.param((0, 2, 4), (0, 4, 4), "sent", id="just widened: the old size is enforced for a while"),
        pytest.param((4, 4, 2), (4, 2, 2), "over", id="being shrunk: the larger size is still enforced"),
        pytest.param((2, 2, 4), (2, 2, 2), "over", id="edited: the status follows a moment later"),
        pytest.param((2, 2, 4), (2, 2, 4), "waiting", id="unchanged"),
    ],
)
def test_the_spec_decides_with_what_is_enforced_at_the_moment(
    first: tuple[float, float, float], then: tuple[float, float, float], end: str
) -> None:
    """A create of three waits, and what is reported then of used, limited and spec decides."""
    line = watched(first[0], first[1], spec=first[2])
    request = line.submit(3)
    assert request.state == "waiting"
    line.observe(then[0], then[1], spec=then[2], then=1)

    assert state_of(request) == end


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
    seen = line.seen().quotas["another"]["pods"]
    assert (seen.used, seen.headroom) == (0, 1)

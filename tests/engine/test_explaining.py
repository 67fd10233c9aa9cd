"""Explains itself: every waiting request can say what it waits for, its place, the next probe and an estimate."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Demand, Explanation, Failed, ObservedQuota, Overloaded, Policy, Request
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, tickets, watched, without_quotas


def test_a_full_quota_is_explained_in_numbers() -> None:
    """Quota, resource, asked, left, limited, place, waited."""
    line = watched(3, 4)
    line.submit(2)
    line.later(5)
    second = line.submit(1.5)
    line.later(10)

    assert line.why(second) == Explanation(
        reason="quota",
        quota=QUOTA,
        resource="cpu",
        asked=3 * ONE // 2,
        left=ONE,
        limited=4 * ONE,
        place=2,
        waited=10.0,
        next_probe=None,
        estimate=None,
    )


def test_left_excludes_what_is_held() -> None:
    """Creates in flight take room, too."""
    line = watched(1, 4)
    line.submit(2)

    assert line.why(line.submit(2)).left == ONE


def test_a_learned_block_shows_its_next_probe() -> None:
    """Seconds from now, counting down. One refusal is no basis for an estimate."""
    line = Timeline()
    ticket = line.refuse(1, 4, 4)
    why = line.why(ticket.request)
    assert why.next_probe is not None
    assert 0.5 <= why.next_probe <= 1
    assert why.estimate is None
    line.later(0.25)
    assert line.why(ticket.request).next_probe == pytest.approx(why.next_probe - 0.25)


def test_the_next_probe_is_never_in_the_past() -> None:
    """A shut block whose time has come shows 0."""
    line = Timeline()
    ticket = line.refuse(1, 4, 4)
    line.now += 100

    assert line.why(ticket.request).next_probe == 0


def test_nothing_known_is_first_contact() -> None:
    """One create is out to find out; the next waits for its answer."""
    line = Timeline()
    line.submit(1)
    why = line.why(line.submit(1))

    assert (why.reason, why.quota, why.resource, why.place) == ("first-contact", "", "", 1)
    assert (why.asked, why.left, why.limited) == (0, 0, 0)


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "nothing known"])
def test_an_overloaded_server_is_named_as_the_reason(watched: bool) -> None:
    """The flow is closed for a while: the reason is neither a quota nor first contact."""
    line = Timeline()
    if watched:
        line.watching()
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Overloaded(30.0))

    assert line.why(ticket.request).reason == "overload"


def test_a_slowed_namespace_is_named_as_the_reason() -> None:
    """Conflicts on quotas slow their namespace, and its explanation says so."""
    line = without_quotas(Policy(brake_base=60, cap=60))
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Overloaded(30.0, "namespace"))

    assert line.why(ticket.request).reason == "namespace-slowed"


def test_a_request_that_waits_for_its_turn_says_so() -> None:
    """Its room has settled this very moment: only the next ``advance`` is missing."""
    line = watched(4, 4)
    request = line.submit(1)
    line.controller.forget_quota(NS, QUOTA, line.now)

    assert line.why(request).reason == "its-turn"
    assert [t.request for t in tickets(line.advance())] == [request]


def test_of_several_ceilings_one_that_blocks_is_named() -> None:
    """A ceiling with room is not blamed."""
    line = Timeline()
    hard = {"cpu": 4 * ONE, "pods": 4 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": 0, "pods": 4 * ONE}), line.now)
    line.watching()

    assert line.why(line.submit(demand=Demand({"cpu": ONE, "pods": ONE}))).resource == "pods"


def test_a_request_that_does_not_wait_has_no_explanation() -> None:
    """New, sent and over requests give None."""
    line = without_quotas()
    request = line.request(1)
    assert line.controller.explain(request, line.now) is None
    line.controller.submit(request, line.now)
    assert line.controller.explain(request, line.now) is None
    [ticket] = tickets(line.advance())
    line.created(ticket)
    assert line.controller.explain(request, line.now) is None


def test_the_snapshot_shows_all_that_is_known() -> None:
    """Ceilings with source, age and block; waiting, outstanding and answered creates; flows and the brake."""
    line = watched(0, 4)
    done = line.ticket_of(line.submit(1))
    line.later(2)
    line.created(done)
    flying, conflicted = (line.ticket_of(line.submit(1, flow="x")) for _ in range(2))
    line.settle(conflicted, Overloaded(5.0, "namespace"))
    line.submit(4)
    line.later(0.01)
    seen = line.snapshot()
    namespace = seen.namespaces[NS]
    ceiling = namespace.quotas[QUOTA]["cpu"]

    assert (ceiling.limited, ceiling.used, ceiling.held, ceiling.headroom) == (4 * ONE, 0, 2 * ONE, 2 * ONE)
    assert (ceiling.source, ceiling.block, ceiling.attempts, ceiling.next_probe) == ("observed", None, 0, None)
    assert ceiling.age == pytest.approx(2.01)
    assert (namespace.observing, namespace.waiting, namespace.outstanding) == (True, 2, 1)
    assert (namespace.answered_holds, namespace.unproven) == (1, 0)
    assert namespace.brake is not None
    assert namespace.brake.closed_for > 4
    assert seen.flows["x"].in_flight == 1
    assert seen.settle_time == Policy().settle_time
    assert flying.sent == 2.0


def test_the_snapshot_of_a_learned_ceiling_shows_its_block() -> None:
    """The block's state, step and next probe."""
    line = Timeline()
    line.refuse(1, 4, 4)
    line.later(0.2)
    namespace = line.seen()
    ceiling = namespace.quotas[QUOTA]["cpu"]

    assert (ceiling.source, ceiling.block, ceiling.attempts) == ("learned", "shut", 0)
    assert ceiling.age == pytest.approx(0.2)
    assert (namespace.unproven_window, namespace.release_gap) == (1, 0.0)
    assert ceiling.next_probe is not None
    assert not ceiling.kept


def test_room_kept_for_a_request_does_not_block_it() -> None:
    """The room has just come: the request that it was kept for waits for its turn only."""
    line = watched(0, 4, Policy(overtakes_max=0, overtaken_for_max=0))
    small = line.ticket_of(line.submit(2))
    large = line.submit(3)
    assert line.cpu().kept
    line.controller.settle(small, Failed(), line.now)

    assert line.why(large).reason == "its-turn"


def drained(line: Timeline, rounds: int, amount: float = 1, every: float = 10) -> list[Request]:
    """Let a full quota make room for one waiting create every ten seconds; return who still waits."""
    line.observe(4, 4)
    line.watching()
    waiting = [line.submit(amount) for _ in range(rounds + 6)]
    for _ in range(rounds):
        line.later(every)
        line.observe(4 - amount, 4)
        line.created(line.next_ticket())
        line.observe(4, 4)
    return [request for request in waiting if request.state == "waiting"]


def test_the_estimate_follows_how_fast_others_get_in() -> None:
    """One every ten seconds: the fifth in line is estimated at fifty."""
    line = Timeline()
    fifth = drained(line, 12)[4]
    assert line.why(fifth).estimate == pytest.approx(50, rel=0.05)


def test_without_a_basis_there_is_no_estimate() -> None:
    """Too few got in so far, or fewer than four others are ahead: that is chance."""
    line = Timeline()
    assert line.why(drained(line, 4)[4]).estimate is None
    line = Timeline()
    *first, fifth = drained(line, 12)[:5]
    assert [line.why(each).estimate for each in first] == [None] * 4
    assert line.why(fifth).estimate == pytest.approx(50, rel=0.05)


def test_the_first_in_line_have_a_time_by_which_they_are_in() -> None:
    """One gets in every ten seconds, at random moments: 19 times of 20 the first one has not to wait for 40."""
    line = Timeline()
    waiting = drained(line, 12)
    latest = [line.why(each).latest or 0.0 for each in waiting]
    assert latest[0] == pytest.approx(36.5, rel=0.05)
    assert latest == sorted(latest)
    assert 50 < latest[4] < 110
    line = Timeline()
    assert line.why(drained(line, 4)[0]).latest is None


def test_a_small_create_is_not_estimated_by_the_large_ones_ahead() -> None:
    """It passes them; it waits for those of its size."""
    line = Timeline()
    small = drained(line, 12)[4]
    before = line.why(small).estimate
    for _ in range(20):
        line.submit(3.9, priority=10**6)
    assert line.why(small).estimate == before


def test_behind_many_shapes_an_estimate_takes_the_rest_to_be_like_the_first_ones() -> None:
    """A hundred shapes of about one each, behind six that get in one every ten seconds."""
    line = Timeline()
    drained(line, 12)
    last = [line.submit(1 - number / 2000) for number in range(1, 101)][-1]
    assert line.why(last).estimate == pytest.approx(10 * (6 + 97.5), rel=0.1)


def test_how_fast_large_creates_get_in_says_nothing_of_small_ones() -> None:
    """None of the small size has got in yet."""
    line = Timeline()
    drained(line, 12)
    assert line.why([line.submit(0.1) for _ in range(5)][-1]).estimate is None


def test_the_one_that_waits_longest_need_not_be_the_first_in_line() -> None:
    """One of a higher priority came later and stands before it."""
    line = watched(4, 4)
    assert line.controller.namespace(NS, line.now).oldest is None  # type: ignore[union-attr]
    line.submit(1)
    line.later(10)
    line.submit(2, priority=5)
    line.later(10)
    assert line.controller.namespace(NS, line.now).oldest == 20  # type: ignore[union-attr]

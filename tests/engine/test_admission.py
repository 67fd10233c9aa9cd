"""Laws 1, 2 and 8: exact amounts, no over-admission by own doing, and exactly those wake that now fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl import Created, Demand, Failed, ObservedQuota, Policy, Rejected
from tests.timeline import NS, ONE, QUOTA, Timeline, state_of, tickets

# Half of them end in a digit that no float of their size can tell.
BIG = st.one_of(st.integers(1, 10**30), st.integers(1, 10**12).map(lambda n: n * 10**18 + 1))
PATIENT = Policy(overtakes_max=4096, overtaken_for_max=86_400)


def observe(line: Timeline, used: dict[str, int], hard: dict[str, int]) -> None:
    """Tell a quota in bare nano-units."""
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, used), line.now)
    line.advance()


@given(used=BIG, room=BIG, more=st.integers(1, 3))
def test_one_nano_too_much_waits_and_an_exact_fit_goes(used: int, room: int, more: int) -> None:
    """At amounts far beyond what a float can tell apart, the last nano-unit decides."""
    line = Timeline()
    observe(line, {"cpu": used}, {"cpu": used + room})
    line.watching()
    large = line.submit(demand=Demand({"cpu": room + more}))
    exact = line.submit(demand=Demand({"cpu": room}))

    assert exact.state == "sent"
    assert large.state == ("waiting" if room + more <= used + room else "over")


@given(amounts=st.lists(BIG, min_size=1, max_size=12), limited=BIG)
def test_what_is_held_is_the_exact_sum(amounts: list[int], limited: int) -> None:
    """Held, used and headroom are integers, and add up without a rounding."""
    line = Timeline(Policy(on_never_fits="wait", overtakes_max=4096))
    observe(line, {"cpu": 0}, {"cpu": limited})
    line.watching()
    held = 0
    for amount in amounts:
        request = line.submit(demand=Demand({"cpu": amount}))
        fits = held + amount <= limited
        assert (request.state == "sent") is fits
        held += amount if fits else 0
    seen = line.ceiling()

    assert seen == {"limited": limited, "used": 0, "held": held, "headroom": limited - held}
    assert all(type(value) is int for value in seen.values())


@given(amounts=st.lists(BIG, min_size=1, max_size=12), data=st.data())
def test_what_is_given_back_is_the_exact_amount(amounts: list[int], data: st.DataObject) -> None:
    """Failed in any order, refused by nobody: to the last nano-unit nothing stays held."""
    line = Timeline()
    observe(line, {"cpu": 0}, {"cpu": 10**32})
    line.watching()
    flying = [line.ticket_of(line.submit(demand=Demand({"cpu": amount}))) for amount in amounts]
    for ticket in data.draw(st.permutations(flying)):
        line.settle(ticket, Failed())

    assert line.held() == 0


@pytest.mark.parametrize(
    ("used", "limited", "goes"),
    [(4, 4, False), (5, 4, False), (3, 4, True), (0, 1, True), (0, 0, False)],
    ids=["full", "over full", "room for one", "equal", "paused"],
)
def test_an_observed_quota_decides_without_asking(used: float, limited: float, goes: bool) -> None:
    """Full, overfull and paused wait without one call; room for exactly one lets exactly one go."""
    line = Timeline()
    line.observe(used, limited)
    line.watching()
    first, second = line.submit(1), line.submit(1)
    line.later(100)

    assert (first.state == "sent") is goes
    assert second.state == "waiting"


CREATE = st.tuples(st.integers(0, 5), st.integers(0, 2))


@given(
    line_of=st.lists(CREATE, min_size=1, max_size=25),
    cpu=st.integers(0, 20),
    pods=st.integers(0, 8),
    steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_news_admit_in_order_exactly_those_that_fit(
    line_of: list[tuple[int, int]], cpu: int, pods: int, steps: list[tuple[int, int]]
) -> None:
    """Each change of an observed quota admits the first-fit of the line, no more and no fewer, in order."""
    engine = Timeline(PATIENT)
    hard = {"cpu": 20, "pods": 8}
    observe(engine, {"cpu": 20, "pods": 8}, hard)
    engine.watching()
    free = [engine.submit(demand=Demand({})) for _ in range(2)]
    assert [r.state for r in free] == ["sent", "sent"]  # nothing is charged, nothing is waited for
    waiting = [engine.submit(demand=Demand({"cpu": c, "pods": p})) for c, p in line_of]
    waiting = [request for request in waiting if request.state == "waiting"]

    for c, p in [(cpu, pods), *steps]:
        observe(engine, {"cpu": c, "pods": p}, hard)
        want = []
        flying = [t.request for _, t in engine.log if t.request.state == "sent"]
        room = {
            "cpu": 20 - c - sum(r.demand.amounts.get("cpu", 0) for r in flying),
            "pods": 8 - p - sum(r.demand.amounts.get("pods", 0) for r in flying),
        }
        for request in waiting:
            amounts = request.demand.amounts
            if all(room[name] >= amount for name, amount in amounts.items()):
                want.append(request)
                for name, amount in amounts.items():
                    room[name] -= amount
        got = [ticket.request for ticket in tickets(engine.later(1))]

        assert got == want
        waiting = [request for request in waiting if request not in want]


def test_room_counts_after_the_settle_time_and_not_before() -> None:
    """The server's own cache trails its watch: 2 ms by default, and then at once."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    request = line.submit(1)
    line.later(10)
    assert line.observe(3, 4) == []
    assert line.controller.next_deadline() == pytest.approx(line.now + 0.002)
    assert line.later(0.0019) == []
    assert [t.request for t in tickets(line.later(0.0002))] == [request]


def test_room_that_is_taken_while_it_settles_is_gone() -> None:
    """What was heard of as free and then as used again never counts."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    line.submit(1)
    line.later(1)
    line.observe(2, 4)
    line.later(0.001)
    line.observe(4, 4)
    assert line.later(1) == []


def test_part_of_the_settling_room_may_go_and_the_rest_counts() -> None:
    """Two were freed, one was taken: one waiter goes."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    for _ in range(3):
        line.submit(1)
    line.observe(2, 4)
    line.later(0.001)
    line.observe(3, 4)

    assert len(tickets(line.later(1))) == 1


def test_a_stale_refusal_is_sent_again_soon_and_teaches_patience_only() -> None:
    """A refusal by a state that was replaced costs no back-off step and lowers no ceiling; the settle time grows."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    before = line.controller.snapshot(line.now).settle_time
    assert line.refused(ticket, 4, 4) == []
    assert line.ceiling()["used"] == 3 * ONE
    seen = line.controller.snapshot(line.now)
    assert seen.namespaces[NS].quotas[QUOTA]["cpu"].block is None
    assert before < seen.settle_time <= Policy().settle_max

    refused_at = line.now
    again = line.next_ticket()

    assert again.request is ticket.request
    assert not again.probe
    assert seen.settle_time <= line.now - refused_at <= 2 * seen.settle_time


def test_a_stale_refusal_finds_the_room_gone_again() -> None:
    """Between the sending and the refusal others filled it up: there is nothing to set aside."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    line.observe(5, 5)
    line.refused(ticket, 4, 4)

    assert line.ceiling()["used"] == 5 * ONE
    assert line.later(100) == []


def test_a_refusal_voids_the_room_that_was_still_settling() -> None:
    """A newer fact says full: the room that was heard of before it never counts."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    waiting = line.submit(1)
    line.observe(3, 4)
    line.later(0.001)
    rejected = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE})
    line.controller.learn(NS, frozenset(), rejected, line.now, line.now)
    line.later(0.1)

    assert waiting.state == "waiting"
    assert line.ceiling()["headroom"] == 0


def test_a_quota_that_was_learned_is_taken_over_when_it_is_observed() -> None:
    """The first sight of a quota replaces what refusals taught, and confirms no hold: it is a start, not a rise."""
    line = Timeline()
    line.created(line.ticket_of(line.submit(1)))
    large, second = line.ticket_of(line.submit(8)), line.ticket_of(line.submit(1))
    line.later(0.1)
    line.refused(large, 2, 9)
    line.observe(6, 9)
    assert line.ceiling()["used"] == 6 * ONE
    line.created(second)
    assert line.held() == ONE


def test_the_settle_time_learns_no_more_than_its_limit() -> None:
    """However often the server is behind, the wait after news stays bounded."""
    policy = Policy(settle_max=0.02)
    line = Timeline(policy)
    line.observe(4, 4)
    line.watching()
    line.submit(1)
    line.observe(3, 4)
    for _ in range(30):
        line.refused(line.next_ticket(), 4, 4)

    assert line.controller.snapshot(line.now).settle_time == 0.02


def test_a_refusal_by_the_present_state_is_no_stale_one() -> None:
    """The amounts are those last heard: somebody else was faster, and a block is the answer."""
    line = Timeline()
    line.observe(3, 4)
    line.watching()
    line.later(1)
    ticket = line.ticket_of(line.submit(1))
    line.refused(ticket, 4, 4)
    assert line.ceiling()["used"] == 4 * ONE
    assert line.later(0.4) == []
    assert line.next_ticket().probe  # the refusal contradicted the news: timers keep it alive
    line.observe(3, 4)  # the next news ends the block
    assert line.controller.snapshot(line.now).namespaces[NS].quotas[QUOTA]["cpu"].block == "probing"


def test_a_watched_full_quota_is_never_asked() -> None:
    """While news come by themselves there is no probe, for ever."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    for _ in range(100):
        line.submit(1)

    assert line.until(50_000) == []


def test_a_lost_watch_falls_back_to_probes_and_a_new_one_ends_them() -> None:
    """Knowledge ages without a watch: one asks at a time, until a list is complete again."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    for _ in range(10):
        line.submit(1)
    line.later(100)
    line.watch_lost()
    probe = line.next_ticket(within=30)
    assert probe.probe
    line.refused(probe, 4, 4)
    line.observe(4, 4)
    line.watching()

    assert line.later(1000) == []


def test_a_quota_that_is_gone_lets_everybody_go() -> None:
    """No quota, no reason to wait."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    waiting = [line.submit(1) for _ in range(5)]
    line.controller.forget_quota(NS, QUOTA, line.now)
    line.controller.forget_quota(NS, "never-heard-of", line.now)
    line.controller.forget_quota("elsewhere", QUOTA, line.now)

    assert [t.request for t in tickets(line.advance())] == waiting


def test_a_resource_that_a_quota_no_longer_limits_is_forgotten() -> None:
    """What spec and status do not name any more blocks nobody."""
    line = Timeline()
    observe(line, {"cpu": 0, "pods": 2}, {"cpu": 10, "pods": 2})
    line.watching()
    request = line.submit(demand=Demand({"cpu": 1, "pods": 1}))
    assert request.state == "waiting"
    observe(line, {"cpu": 0}, {"cpu": 10})

    assert state_of(request) == "sent"


def test_a_hint_is_no_headroom_but_brings_the_probe_forward() -> None:
    """An own pod ended: after a short lag one asks; that it was too early makes the lag grow."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.submit(1)
    line.refused(ticket, 4, 4)
    lags = []
    for _ in range(3):
        hinted_at = line.now
        line.controller.hint_release(NS, line.now)
        assert line.advance() == []
        assert line.ceiling()["headroom"] == 0
        probe = line.next_ticket()
        assert probe.probe
        lags.append(line.now - hinted_at)
        line.refused(probe, 4, 4)
    assert lags[0] == pytest.approx(Policy().release_lag)
    assert lags[0] < lags[1] < lags[2]

    line.controller.hint_release(NS, line.now)
    line.created(line.next_ticket())  # this time it was late enough: the lag shrinks again
    line.refused(line.next_ticket(), 4, 4)
    hinted_at = line.now
    line.controller.hint_release(NS, line.now)
    line.next_ticket()
    assert line.now - hinted_at < 2 * lags[2]


def test_a_hint_arms_for_after_the_lag_whatever_else_happens_before() -> None:
    """Somebody else arrives a moment after the hint: it is too early to ask all the same."""
    line = Timeline(Policy(release_lag=0.2))
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.refused(ticket, 4, 4)
    line.controller.hint_release(NS, line.now)
    assert line.later(0.1) == []
    gone = line.submit(2)
    line.controller.withdraw(gone, line.now)  # the line is looked over
    assert line.advance() == []
    assert tickets(line.later(0.11))[0].probe


def test_hints_where_news_come_by_themselves_or_nothing_is_known_do_nothing() -> None:
    """A hint into a watched, an unknown and a never-seen namespace moves nothing."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    line.submit(1)
    line.controller.hint_release(NS, line.now)
    line.controller.hint_release("nobody", line.now)

    assert line.later(100) == []


def test_ungated_creates_hold_room_and_teach() -> None:
    """``force`` admits at once, whatever is known; its outcome counts like any other."""
    line = Timeline()
    line.observe(4, 4)
    line.watching()
    request = line.request(1)
    ticket = line.controller.force(request, line.now)
    assert (ticket.request, ticket.probe, ticket.sent) == (request, False, line.now)
    assert line.held() == ONE
    line.controller.settle(ticket, Created(), line.now)
    assert line.held() == ONE
    line.observe(5, 4)
    assert line.held() == 0

    line.later(1)
    known = line.controller.force(line.request(1), line.now)
    line.controller.settle(known, Rejected(QUOTA, {"cpu": ONE}, {"cpu": 6 * ONE}, {"cpu": 4 * ONE}), line.now)
    assert line.ceiling()["used"] == 6 * ONE


def test_a_refusal_met_on_an_ungated_path_teaches() -> None:
    """``learn`` takes a refusal that no ticket stands for; older news than what is known do nothing."""
    line = Timeline()
    line.now = 10.0
    rejected = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE})
    line.controller.learn(NS, frozenset(), rejected, 9.0, line.now)
    line.advance()
    assert line.ceiling()["used"] == 4 * ONE
    request = line.submit(1)
    assert request.state == "waiting"
    older = Rejected(QUOTA, {"cpu": ONE}, {"cpu": ONE}, {"cpu": 4 * ONE})
    line.controller.learn(NS, frozenset(), older, 9.5, line.now)
    assert line.advance() == []

    assert line.ceiling()["used"] == 4 * ONE

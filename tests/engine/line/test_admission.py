"""Exact amounts, no over-admission of our own, and a wake admits exactly what now fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Created, Demand, Failed, ObservedQuota, Policy, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, state_of, tickets, watched, without_quotas

# Half of them end in a digit that a float of their size cannot represent.
BIG = st.one_of(st.integers(1, 10**30), st.integers(1, 10**12).map(lambda n: n * 10**18 + 1))
PATIENT = Policy(overtakes_max=4096, overtaken_for_max=86_400, overtaken_at_most=86_400)


def observe(line: Timeline, used: dict[str, int], hard: dict[str, int]) -> None:
    """Report a quota in bare nano-units."""
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, used), line.now)
    line.advance()


@given(used=BIG, room=BIG, more=st.integers(1, 3))
def test_one_nano_too_much_waits_and_an_exact_fit_is_admitted(used: int, room: int, more: int) -> None:
    """At amounts far beyond the precision of floats, the last nano-unit decides."""
    line = Timeline()
    observe(line, {"cpu": used}, {"cpu": used + room})
    line.watching()
    large = line.submit(demand=Demand({"cpu": room + more}))
    exact = line.submit(demand=Demand({"cpu": room}))

    assert exact.state == "sent"
    assert large.state == ("waiting" if room + more <= used + room else "over")


@given(amounts=st.lists(BIG, min_size=1, max_size=12), limited=BIG)
def test_held_is_the_exact_sum(amounts: list[int], limited: int) -> None:
    """Held, used and headroom are integers and add up without rounding."""
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
def test_a_failed_create_gives_back_the_exact_amount(amounts: list[int], data: st.DataObject) -> None:
    """Creates that fail in any order leave nothing held, to the last nano-unit."""
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
def test_an_observed_quota_decides_without_a_call(used: float, limited: float, goes: bool) -> None:
    """Full, overfull and paused quotas block without a call; room for exactly one admits exactly one."""
    line = watched(used, limited)
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
def test_a_quota_change_admits_in_order_exactly_what_fits(
    line_of: list[tuple[int, int]], cpu: int, pods: int, steps: list[tuple[int, int]]
) -> None:
    """Each change of an observed quota admits the first fit of the line, no more and no fewer, in order."""
    engine = Timeline(PATIENT)
    hard = {"cpu": 20, "pods": 8}
    observe(engine, {"cpu": 20, "pods": 8}, hard)
    engine.watching()
    free = [engine.submit(demand=Demand({})) for _ in range(2)]
    assert [r.state for r in free] == ["sent", "sent"]  # without a charge there is no wait
    waiting = [engine.submit(demand=Demand({"cpu": c, "pods": p})) for c, p in line_of]
    waiting = [request for request in waiting if request.state == "waiting"]

    for c, p in [(cpu, pods), *steps]:
        observe(engine, {"cpu": c, "pods": p}, hard)
        want = []
        flying = [request for request in engine.admitted() if request.state == "sent"]
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


def test_the_first_observation_of_a_learned_quota_replaces_it() -> None:
    """It replaces what refusals taught, and confirms no hold: it is a start, not a rise."""
    line = Timeline()
    line.created(line.ticket_of(line.submit(1)))
    large, second = line.ticket_of(line.submit(8)), line.ticket_of(line.submit(1))
    line.later(0.1)
    line.refused(large, 2, 9)
    line.observe(6, 9)
    assert line.ceiling()["used"] == 6 * ONE
    line.created(second)
    assert line.held() == ONE


def test_a_watched_full_quota_is_never_probed() -> None:
    """As long as changes are reported no probe is sent."""
    line = watched(4, 4)
    line.crowd(100)

    assert line.until(50_000) == []


def test_a_lost_watch_falls_back_to_probes_and_a_new_one_ends_them() -> None:
    """Without a watch knowledge ages: one request at a time is sent, until a list is complete again."""
    line = watched(4, 4)
    line.crowd(10)
    line.later(100)
    line.watch_lost()
    probe = line.next_ticket(within=30)
    assert probe.probe
    line.refused(probe, 4, 4)
    line.observe(4, 4)
    line.watching()

    assert line.later(1000) == []


def test_a_deleted_quota_admits_all() -> None:
    """Without a quota there is no reason to wait."""
    line = watched(4, 4)
    waiting = [line.submit(1) for _ in range(5)]
    line.controller.forget_quota(NS, QUOTA, line.now)
    line.controller.forget_quota(NS, "unknown", line.now)
    line.controller.forget_quota("elsewhere", QUOTA, line.now)

    assert [t.request for t in tickets(line.advance())] == waiting


def test_a_resource_that_a_quota_no_longer_limits_is_forgotten() -> None:
    """A resource that spec and status no longer name blocks no request."""
    line = Timeline()
    observe(line, {"cpu": 0, "pods": 2}, {"cpu": 10, "pods": 2})
    line.watching()
    request = line.submit(demand=Demand({"cpu": 1, "pods": 1}))
    assert request.state == "waiting"
    observe(line, {"cpu": 0}, {"cpu": 10})

    assert state_of(request) == "sent"


def test_ungated_creates_hold_room_and_teach() -> None:
    """``force`` admits at once, whatever is known; its outcome counts like any other."""
    line = watched(4, 4)
    request = line.request(1)
    ticket = line.controller.of(request.namespace).force(request, line.now)
    assert (ticket.request, ticket.probe, ticket.sent) == (request, False, line.now)
    assert line.held() == ONE
    line.controller.settle(ticket, Created(), line.now)
    assert line.held() == ONE
    line.observe(5, 4)
    assert line.held() == 0

    line.later(1)
    known = line.controller.of(NS).force(line.request(1), line.now)
    line.controller.settle(known, Rejected(QUOTA, {"cpu": ONE}, {"cpu": 6 * ONE}, {"cpu": 4 * ONE}), line.now)
    assert line.ceiling()["used"] == 6 * ONE


def test_the_refusal_of_an_ungated_create_teaches() -> None:
    """``learn`` takes a refusal without a ticket; a refusal older than what is known changes nothing."""
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


def test_a_refused_ungated_create_waits_behind_earlier_requests() -> None:
    """It jumps no queue, not even among requests of the same moment."""
    line = watched(4, 4)
    before = [line.submit(1) for _ in range(2)]
    forced = line.controller.of(NS).force(line.request(1), line.now)
    line.refused(forced, 4, 4)
    line.observe(1, 4)

    assert [t.request for t in tickets(line.later(0.1))] == [*before, forced.request]


def test_an_ungated_create_is_no_first_contact() -> None:
    """It is not counted among the unproven creates: it takes none of their places and gives none back."""
    line = Timeline()
    for _ in range(3):
        line.created(line.controller.of(NS).force(line.request(1), line.now))
    assert [line.submit(1).state for _ in range(3)] == ["sent", "waiting", "waiting"]
    assert line.seen().unproven == 1


def test_a_watch_that_is_lost_in_one_namespace_goes_on_in_the_others() -> None:
    """Where it is lost probes are sent; elsewhere none is needed."""
    line = without_quotas()
    for namespace in (NS, "team-b"):
        line.observe(4, 4, namespace=namespace)
        line.submit(1, namespace=namespace)
    line.watch_lost(NS)
    seen = line.snapshot().namespaces

    assert (seen[NS].observing, seen["team-b"].observing) == (False, True)
    assert [t.request.namespace for t in tickets(line.later(100))] == [NS]

"""Bounded: idle state is forgotten, state in use is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Created, Demand, Failed, Overloaded, Policy, Rejected, TicketError
from backoff_ctrl.engine.look.pages import GONE_MAX
from tests.kit.costs import kept_by, lines_of
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, watched, without_quotas

if TYPE_CHECKING:
    pass


def test_idle_namespaces_shapes_and_ceilings_expire() -> None:
    """After ``idle_ttl`` nothing is left of a namespace that only learned from refusals, nor an alarm for it."""
    line = Timeline(Policy(idle_ttl=600))
    line.refuse(1, 4, 4)
    line.created(line.next_ticket())
    assert NS in line.snapshot().namespaces
    line.later(1300)
    seen = line.snapshot()

    assert seen.namespaces == {}
    assert seen.flows == {}
    assert line.controller.next_deadline() is None


def test_many_idle_namespaces_are_forgotten_in_slices() -> None:
    """A decision waits for one slice at most, however many namespaces there are. A namespace in use stays."""
    line = Timeline(Policy(idle_ttl=100))
    for i in range(1000):
        line.observe(0, 4, namespace=f"n{i}")
    line.until(60)
    line.observe(4, 4, namespace="n7")
    slices = []
    while line.now < 140:
        due = line.controller.next_deadline()
        assert due is not None
        line.now = max(line.now, due)
        slices.append(lines_of(line.advance))

    assert list(line.snapshot().namespaces) == ["n7"]
    assert 10 < max(slices) < 4000
    assert len(slices) > 10


def test_state_in_use_does_not_expire() -> None:
    """Waiting requests, creates in flight and watched quotas keep their namespace."""
    line = Timeline(Policy(idle_ttl=10, ticket_max=86_400))
    line.observe(4, 4, namespace="observed")
    line.observe(4, 4, namespace="waited")
    line.controller.watching(line.now, "observed")
    line.controller.watching(line.now, "waited")
    line.submit(1, namespace="waited")
    line.submit(1, namespace="flying")
    line.until(1000)

    assert set(line.snapshot().namespaces) == {"observed", "waited", "flying"}


def test_a_learned_ceiling_without_a_new_fact_expires_and_a_fresh_one_stays() -> None:
    """Old knowledge of a namespace is dropped, new knowledge of the same namespace is not."""
    line = watched(4, 4, quota="seen", policy=Policy(idle_ttl=100))
    for moment in (0.0, 1.0):
        line.now = moment
        refused = line.request(1)
        line.refused(line.controller.of(refused.namespace).force(refused, line.now), 4, 4, quota="old")
        line.controller.of(refused.namespace).withdraw(refused, line.now)
    line.until(400)

    assert list(line.seen().quotas) == ["seen"]


def test_recently_used_state_does_not_expire() -> None:
    """The time of the last use decides: the shape's charge, its quota and the flow's window are kept."""
    line = Timeline(Policy(idle_ttl=100))
    line.created(line.ticket_of(line.submit(9)))
    line.later(50)
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Overloaded(0.0))
    line.settle(line.next_ticket(), Rejected(QUOTA, {"cpu": 2 * ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE}))
    line.created(line.next_ticket())
    cut = line.snapshot().flows[""].size
    line.until(120)
    probe, waiting = line.submit(1), line.submit(1)
    assert line.ticket_of(probe).probe

    why = line.why(waiting)
    assert (why.quota, why.asked) == (QUOTA, 2 * ONE)
    assert line.snapshot().flows[""].size == cut < Policy().overload_start


def test_the_shape_of_a_waiting_request_does_not_expire() -> None:
    """However long it waits: what the server charges its equals stays known."""
    line = watched(0, 2, Policy(idle_ttl=100))
    line.settle(line.ticket_of(line.submit(1)), Created(Demand({"cpu": 2 * ONE})))
    line.observe(2, 2)
    line.submit(1)
    line.until(1000)

    why = line.why(line.submit(1))
    assert (why.asked, why.place) == (2 * ONE, 2)


def test_quota_and_flow_of_a_create_in_flight_do_not_expire() -> None:
    """A probe takes long: its quota and its flow are still there when the answer comes."""
    line = Timeline(Policy(idle_ttl=10, ticket_max=86_400))
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    probe = line.next_ticket()
    line.until(1000)
    seen = line.snapshot()
    assert (seen.namespaces[NS].quotas[QUOTA]["cpu"].held, seen.flows[""].in_flight) == (ONE, 1)
    line.settle(probe, Failed())

    assert (line.held(), line.snapshot().flows[""].in_flight) == (0, 0)


def test_a_quota_that_was_read_once_is_forgotten_and_a_watched_one_is_not() -> None:
    """A quota read before the first create and never watched goes with its idle namespace, to be read again later."""
    line = Timeline(Policy(idle_ttl=100))
    line.observe(0, 4, then=250)
    assert NS not in line.snapshot().namespaces
    line.watching()
    line.observe(0, 4, then=250)
    assert NS in line.snapshot().namespaces


def test_namespaces_that_came_and_went_under_a_watch_of_all_are_forgotten() -> None:
    """The watch reports its quotas again when one comes back: nothing is kept for idle namespaces."""
    line = without_quotas()
    for i in range(100):
        line.created(line.ticket_of(line.submit(1, namespace=f"n{i}")))
    line.later(2000)

    assert line.snapshot().namespaces == {}
    assert line.controller.next_deadline() is None
    assert [line.submit(1, namespace="n0").state for _ in range(3)] == ["sent"] * 3


def test_a_namespace_that_is_watched_by_itself_comes_back_watched() -> None:
    """It was forgotten while idle, and its watch will not report again that it is healthy."""
    line = Timeline(Policy(idle_ttl=100))
    line.watching("other")
    line.later(250)
    assert line.snapshot().namespaces == {}
    line.submit(1, namespace="other")
    assert line.seen("other").observing


def test_what_is_watched_of_a_namespace_outlives_the_namespace_where_it_differs_from_all_others() -> None:
    """One is lost, the others are watched: so it is when they come back."""
    line = without_quotas(Policy(idle_ttl=100))
    line.watch_lost("n1")
    line.later(250)
    assert line.snapshot().namespaces == {}
    for name, observing in (("n1", False), ("n2", True)):
        line.submit(1, namespace=name)
        assert line.seen(name).observing is observing


def test_nothing_is_kept_of_namespaces_that_were_watched_one_by_one() -> None:
    """They come and go for weeks: what is remembered of their ends is all that is left."""
    line = Timeline()
    kept = []
    for number in range(3 * GONE_MAX):
        line.watching(f"n{number}")
        line.watch_lost(f"n{number}")
        if number % GONE_MAX == GONE_MAX - 1:
            line.later(4000)
            kept.append(kept_by(line.controller))
    assert max(kept) < 1.1 * kept[0]


def test_the_late_end_of_a_ticket_whose_namespace_is_forgotten_is_ignored() -> None:
    """The engine gave the ticket up, then forgot the idle namespace; only then its sender reports."""
    line = Timeline(Policy(ticket_max=10, idle_ttl=20))
    ticket = line.ticket_of(line.submit(1))
    line.later(100)
    assert NS not in line.snapshot().namespaces

    assert line.created(ticket) == []
    assert NS not in line.snapshot().namespaces


def test_a_second_end_in_a_forgotten_namespace_is_still_the_callers_bug() -> None:
    """The first end was reported in time."""
    line = Timeline(Policy(idle_ttl=20))
    ticket = line.ticket_of(line.submit(1))
    line.created(ticket)
    line.later(100)

    with pytest.raises(TicketError, match="was settled before"):
        line.created(ticket)

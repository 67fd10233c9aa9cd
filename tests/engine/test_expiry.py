"""Law 13: what is idle is forgotten, what is in use is not."""

from __future__ import annotations

from backoff_ctrl.engine import Created, Demand, Failed, Overloaded, Policy, Rejected
from tests.timeline import NS, ONE, QUOTA, Timeline


def test_idle_namespaces_shapes_and_ceilings_expire() -> None:
    """After ``idle_ttl`` nothing is left of a namespace that only learned, and no alarm with it."""
    line = Timeline(Policy(idle_ttl=600))
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.refused(ticket, 4, 4)
    line.created(line.next_ticket())
    assert NS in line.controller.snapshot(line.now).namespaces
    line.later(1300)
    seen = line.controller.snapshot(line.now)

    assert seen.namespaces == {}
    assert seen.flows == {}
    assert line.controller.next_deadline() is None


def test_what_is_used_does_not_expire() -> None:
    """Waiters, creates in flight and watched quotas keep their namespace."""
    line = Timeline(Policy(idle_ttl=10, ticket_max=86_400))
    line.observe(4, 4, namespace="observed")
    line.observe(4, 4, namespace="waited")
    line.controller.watching(line.now, "observed")
    line.controller.watching(line.now, "waited")
    line.submit(1, namespace="waited")
    line.submit(1, namespace="flying")
    line.until(1000)

    assert set(line.controller.snapshot(line.now).namespaces) == {"observed", "waited", "flying"}


def test_a_learned_ceiling_that_nobody_heard_of_again_expires_and_a_fresh_one_stays() -> None:
    """Old knowledge goes, new knowledge of the same namespace does not."""
    line = Timeline(Policy(idle_ttl=100))
    line.observe(4, 4, quota="seen")
    line.watching()
    for moment in (0.0, 1.0):
        line.now = moment
        refused = line.request(1)
        line.refused(line.controller.force(refused, line.now), 4, 4, quota="old")
        line.controller.withdraw(refused, line.now)
    line.until(400)

    assert list(line.controller.snapshot(line.now).namespaces[NS].quotas) == ["seen"]


def test_what_was_used_a_moment_ago_does_not_expire() -> None:
    """Forgetting looks at when a thing was used last: the shape's charge, its quota and the flow's window are kept."""
    line = Timeline(Policy(idle_ttl=100))
    line.created(line.ticket_of(line.submit(9)))
    line.later(50)
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Overloaded(0.0))
    line.settle(line.next_ticket(), Rejected(QUOTA, {"cpu": 2 * ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE}))
    line.created(line.next_ticket())
    cut = line.controller.snapshot(line.now).flows[""].size
    line.until(120)
    probe, waiting = line.submit(1), line.submit(1)
    assert line.ticket_of(probe).probe

    why = line.controller.explain(waiting, line.now)
    assert why is not None
    assert (why.quota, why.asked) == (QUOTA, 2 * ONE)
    assert line.controller.snapshot(line.now).flows[""].size == cut < Policy().overload_start


def test_what_somebody_waits_for_does_not_expire() -> None:
    """However long it takes: the equal of one who waits is known to be charged what that one is."""
    line = Timeline(Policy(idle_ttl=100))
    line.observe(0, 2)
    line.watching()
    line.settle(line.ticket_of(line.submit(1)), Created(Demand({"cpu": 2 * ONE})))
    line.observe(2, 2)
    line.submit(1)
    line.until(1000)

    why = line.controller.explain(line.submit(1), line.now)
    assert why is not None
    assert (why.asked, why.place) == (2 * ONE, 2)


def test_what_a_create_on_its_way_met_does_not_expire() -> None:
    """A probe takes long: its quota and its flow are still there when the answer comes."""
    line = Timeline(Policy(idle_ttl=10, ticket_max=86_400))
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    probe = line.next_ticket()
    line.until(1000)
    seen = line.controller.snapshot(line.now)
    assert (seen.namespaces[NS].quotas[QUOTA]["cpu"].held, seen.flows[""].in_flight) == (ONE, 1)
    line.settle(probe, Failed())

    assert (line.held(), line.controller.snapshot(line.now).flows[""].in_flight) == (0, 0)


def test_a_quota_that_was_read_once_is_forgotten_and_a_watched_one_is_not() -> None:
    """What was read before the first create, and never watched, goes with the idle namespace: a new one reads anew."""
    line = Timeline(Policy(idle_ttl=100))
    line.observe(0, 4)
    line.later(250)
    assert NS not in line.controller.snapshot(line.now).namespaces
    line.watching()
    line.observe(0, 4)
    line.later(250)
    assert NS in line.controller.snapshot(line.now).namespaces


def test_namespaces_that_came_and_went_under_a_watch_of_all_are_forgotten() -> None:
    """The watch gives what it knows back when one comes again: nothing is kept for the idle."""
    line = Timeline()
    line.watching()
    for i in range(100):
        line.created(line.ticket_of(line.submit(1, namespace=f"n{i}")))
    line.later(2000)

    assert line.controller.snapshot(line.now).namespaces == {}
    assert line.controller.next_deadline() is None
    assert [line.submit(1, namespace="n0").state for _ in range(3)] == ["sent"] * 3


def test_a_namespace_that_is_watched_by_itself_comes_back_watched() -> None:
    """It was forgotten while nobody used it, and the watch will not say again that it sees it."""
    line = Timeline(Policy(idle_ttl=100))
    line.watching("other")
    line.later(250)
    assert line.controller.snapshot(line.now).namespaces == {}
    line.submit(1, namespace="other")
    assert line.controller.snapshot(line.now).namespaces["other"].observing


def test_nothing_is_kept_of_namespaces_that_were_watched_one_by_one() -> None:
    """They come and go for weeks; what is not as with all others is remembered, and nothing else."""
    line = Timeline(Policy(idle_ttl=100))
    for i in range(50):
        line.watching(f"n{i}")
        line.watch_lost(f"n{i}")
    line.later(250)
    assert line.controller.snapshot(line.now).namespaces == {}
    assert line.controller._watched == {}

    line.watching()
    line.watch_lost("n1")
    for name, observing in (("n1", False), ("n2", True)):
        line.submit(1, namespace=name)
        assert line.controller.snapshot(line.now).namespaces[name].observing is observing

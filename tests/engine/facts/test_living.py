"""Wakes on news: where the ends of our creates are reported, no count of ``used`` is believed below what lives."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Created, Demand, ObservedQuota
from backoff_ctrl.engine.facts.ceilings import Ceiling, send, use
from backoff_ctrl.engine.facts.entries import MISSED_FOR
from backoff_ctrl.engine.facts.living import ENDED_MAX, LIVES_MAX, Life, Living
from backoff_ctrl.engine.facts.quotas import Context, Quota, Settling
from tests.kit.followed import SETTLED, Followed, full
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, tickets


@pytest.mark.parametrize(("counted", "ended", "free"), [(2, "", 0), (2, "a", 1), (3, "ab", 1), (2, "ab", 2)])
def test_only_ended_creates_make_room(counted: int, ended: str, free: int) -> None:
    """A recount that lacks living creates frees nothing; what it frees beyond those counts in full."""
    line = full()
    for name in ended:
        assert line.end(name) == []  # an end alone is no room: the quota's report is

    assert len(line.count_again(counted)) == free


def test_doubted_room_counts_as_soon_as_the_end_is_reported() -> None:
    """The quota's report may overtake the pod's."""
    line = full()
    assert line.count_again(3) == []

    assert len(line.end("c")) == 1
    assert line.end("d") == []


def test_a_create_that_a_recount_lacked_and_finds_again_changes_nothing() -> None:
    """Its room was never given away, and is no new room later."""
    line = full()
    assert line.count_again(2) == []
    assert line.count_again(4) == []
    assert line.cpu().used == 4 * ONE
    assert tickets(line.later(5)) == []


def test_living_creates_are_shown_as_used() -> None:
    """An explanation shows no room that is not believed."""
    line = full()
    line.count_again(1)
    assert (line.cpu().used, line.cpu().headroom) == (4 * ONE, 0)
    line.end("a")
    assert (line.cpu().used, line.cpu().headroom, line.cpu().held) == (3 * ONE, 0, ONE)


def test_an_end_reported_before_the_answer_leaves_nothing_behind() -> None:
    """The watch may be faster than the answer: a create that is over does not count as living for ever."""
    line = Followed()
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    line.wait_in_line()
    line.observe(4, 4)
    line.end("a")
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))

    assert len(line.count_again(3)) == 1


def test_an_end_before_the_hold_has_ended_counts_too() -> None:
    """The answer has come, its charge is not observed yet, and the pod is over already."""
    line = Followed()
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    line.wait_in_line()
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))
    line.end("a")
    line.observe(4, 4)

    assert len(line.count_again(3)) == 1


def test_where_ends_may_be_missed_nothing_counts_as_living() -> None:
    """A lost watch does not mean that nothing has ended; earlier creates are unknown when it comes back."""
    line = full()
    line.count_again(2)
    line.controller.ends_told(NS, line.now, told=False)
    assert len(tickets(line.advance())) == 2

    line = full()
    line.controller.ends_told(NS, line.now, told=False)
    line.controller.ends_told(NS, line.now, told=True)
    assert len(line.count_again(1)) == 3


def test_a_create_answered_twice_lives_once() -> None:
    """A retry under an idempotency key is answered with the first one's object: one end is the end of both."""
    line = Followed()
    line.observe(0, 1)
    for _ in range(2):
        ticket = line.controller.of(NS).force(line.request(1), line.now)
        line.observe(1, 1)
        line.settle(ticket, Created(stored="a"))
        line.later(0.1)
    line.end("a")
    line.observe(0, 1)
    waiter = line.submit(1)
    line.later(SETTLED)

    assert waiter.state == "sent"


def test_an_end_counts_at_every_ceiling() -> None:
    """A pod is charged for more than one resource."""
    line = Followed()
    two = {"cpu": 4 * ONE, "pods": 4 * ONE}

    def report(used: int) -> None:
        seen = ObservedQuota(two, two, dict.fromkeys(two, used * ONE))
        line.controller.observe_quota(NS, QUOTA, seen, line.now)
        line.later(SETTLED)

    report(0)
    sent = [line.ticket_of(line.submit(demand=Demand(dict.fromkeys(two, ONE)))) for _ in range(4)]
    report(4)
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))
    report(2)
    line.end("a")
    quota = line.seen().quotas[QUOTA]
    assert {name: ceiling.used for name, ceiling in quota.items()} == dict.fromkeys(two, 3 * ONE)


def test_ends_may_be_reported_from_before_the_first_create() -> None:
    """The watch of a namespace may begin before anything else is known of it."""
    line = Timeline()
    line.controller.ends_told(NS, line.now, told=True)
    assert line.snapshot().namespaces == {}
    line.observe(0, 4)

    assert line.seen().ends_told


def test_a_namespace_that_was_forgotten_gets_its_ends_as_before() -> None:
    """The watch outlives what the engine forgets."""
    line = Followed()
    line.controller.forget_quota(NS, QUOTA, line.now)
    line.later(10_000)
    assert NS not in line.snapshot().namespaces
    line.observe(0, 4)
    line.create("a", "b", "c", "d")
    line.wait_in_line()

    assert line.count_again(2) == []
    line.controller.ends_told(NS, line.now, told=False)
    line.controller.forget_quota(NS, QUOTA, line.now)
    line.later(20_000)
    line.observe(0, 4)
    assert not line.seen().ends_told


def test_an_end_is_a_hint_where_quotas_are_not_watched() -> None:
    """As ``hint_release``: a reason to probe soon."""
    line = Timeline()
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    line.controller.ended(NS, "a", line.now)
    line.controller.ended("unknown", "a", line.now)
    before = line.controller.next_deadline()
    hinted = Timeline()
    hinted.refused(hinted.ticket_of(hinted.submit(1)), 4, 4)
    hinted.controller.hint_release(NS, hinted.now)

    assert before == hinted.controller.next_deadline()
    watched = full()
    watched.later(10)
    before = watched.controller.next_deadline()
    watched.controller.ended(NS, "another client's", watched.now)
    assert watched.controller.next_deadline() == before
    assert len(tickets(line.later(0.1))) == len(tickets(hinted.later(0.1))) == 1


def test_lives_and_ends_are_bounded() -> None:
    """Creates beyond the limit are not counted; unknown ends are kept for a while only."""
    living = Living(followed=True)
    assert all(isinstance(living.begin(f"pod-{n}", 0.0), Life) for n in range(LIVES_MAX))
    assert living.begin("one more", 0.0) is None
    living.end("pod-0", 0.0)
    assert living.begin("one more", 0.0) is not None

    for n in range(ENDED_MAX + 1):
        living.end(f"unknown-{n}", 0.0)
    living.end("pod-1", 0.0)
    living.end("pod-2", 0.0)
    assert living.begin("unknown-1", 0.0) is None
    assert living.begin("unknown-0", 0.0) is not None
    assert living.begin("", 0.0) is None
    assert Living(followed=False).begin("a", 0.0) is None


def test_a_look_is_due_only_where_there_is_a_doubt() -> None:
    """An end says whether the doubt fell; without a doubt nothing is due."""
    living, ceiling = Living(followed=True), Ceiling("q", "cpu", 4, 2)
    lives = [living.begin(name, 0.0) for name in "abc"]
    for number, life in enumerate(lives):
        assert life is not None
        life.count(Quota("q", Context(Settling(), 1.0)), ((ceiling, 1),))
        assert living.doubtful is (number == 2)
    assert (ceiling.doubt, living.look([ceiling], 0.0)) == (1, False)
    assert (living.doubtful, living.look_at) == (False, MISSED_FOR)

    assert [living.end(name, 0.0) for name in "abcd"] == [True, False, False, False]
    assert (ceiling.living, ceiling.doubt, ceiling.room) == (0, 0, 2)
    assert living.look([ceiling], MISSED_FOR) is False
    assert living.look_at == float("inf")


def test_ended_creates_stay_known_whatever_is_forgotten() -> None:
    """A recount that lacks them is right."""
    living = Living(followed=True)
    over, alive = living.begin("over", 0.0), living.begin("alive", 0.0)
    assert over is not None
    assert alive is not None
    living.end("over", 0.0)
    living.follow([], followed=True)

    assert (over.known, alive.known) == (True, False)


def test_a_probe_disproves_what_a_quota_has_told_and_no_count_of_lives() -> None:
    """Three were stored: of a limit of 4 no more than 1 was used before. What else we took to live changes nothing."""
    line = full()
    line.count_again(3)
    line.watch_lost(NS)
    for _ in range(3):
        line.created(line.next_ticket())
        line.submit(1)
    (ceiling,) = line.controller.of(NS).knowledge.ceilings()
    assert ceiling.used == (4 - 3) * ONE


def test_a_create_that_counts_as_used_at_once_is_hidden_by_what_lives() -> None:
    """``used`` is no less than what lives: what is added below that takes no room."""
    ceiling = Ceiling("q", "cpu", 10, 1)
    ceiling.live(5)
    send(((ceiling, 2),))
    assert ceiling.room == 3
    use(((ceiling, 2),))
    assert (ceiling.used, ceiling.pending, ceiling.room) == (3, 0, 5)

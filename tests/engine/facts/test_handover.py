"""Holds are handed over, never dropped and never counted twice, in any order of events and reports."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

import pytest

from backoff_ctrl.engine import Abandoned, Created, Demand, Expired, Failed, ObservedQuota, Overloaded, Policy
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, tickets, watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backoff_ctrl.engine import Ticket

pytestmark = [pytest.mark.long, pytest.mark.no_cover]
AMOUNTS: Final = {"1": 3, "2": 5, "3": 2}  # all different, and no two add up to the third
OTHERS: Final = 4
LIMIT: Final = 1000
Before = dict[str, str]  # event -> the event that must come first


def orders(before: Before, *, merged: bool) -> Iterator[list[str]]:
    """Enumerate every order of the events, with a report (T) wherever one is due.

    Events that begin with C (charge), R (release), X (another client's charge) or K (recount) happen at the server and
    cause a report; A is an answer. Each report delivers the oldest state, or only the newest where ``merged``.
    """

    def go(done: list[str], pending: int) -> Iterator[list[str]]:
        left = [event for event in before if event not in done]
        if not left and not pending:
            yield list(done)
            return
        for event in left:
            if not before[event] or before[event] in done:
                yield from go([*done, event], pending + (event[0] in "CRXK"))
        if pending:
            yield from go([*done, "T"], 0 if merged else pending - 1)

    return go([], 0)


def replays(
    before: Before, *, merged: bool = False, recounts_are_known: bool = False
) -> Iterator[tuple[list[str], Replay, Iterator[str]]]:
    """Enumerate every order of the events, with a replay of it, and the events that make it happen, one by one.

    Events with which the order before began as well are not given out but happen at once: the same calls give the
    same answers (deterministic), so that what was true after them need not be looked at again.
    """
    creates = "".join(sorted(event[1] for event in before if event[0] == "C"))
    last: list[str] = []
    for order in orders(before, merged=merged):
        replay = Replay(creates, recounts_are_known=recounts_are_known)
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(last, order, strict=False)))
        yield order, replay, replay.play(order, merged=merged, known=known)
        last = order


class Replay:
    """One order of events, played to an engine in one instant, beside the server's truth."""

    def __init__(self, creates: str, *, recounts_are_known: bool = False) -> None:
        """Admit the creates into an observed quota with plenty of room."""
        self.recounts_are_known = recounts_are_known
        self.line = Timeline()
        self.truth = 0
        self.news: list[tuple[int, bool]] = []  # ``used``, and whether a recount wrote it
        self.reported: list[str] = []  # the events that were reported to the engine
        self.happened: list[str] = []
        self.missed = 0
        self.observe(0)
        self.line.watching()
        self.tickets: dict[str, Ticket] = {}
        for name in creates:
            request = self.line.submit(demand=Demand({"cpu": AMOUNTS[name]}))
            self.tickets[name] = self.line.ticket_of(request)

    def observe(self, used: int, *, recounted: bool = False) -> None:
        """Report a state of the quota."""
        by = frozenset({"cpu"}) if recounted else frozenset[str]()
        seen = ObservedQuota({"cpu": LIMIT}, {"cpu": LIMIT}, {"cpu": used}, recounted=by)
        self.line.controller.observe_quota(NS, QUOTA, seen, self.line.now)

    def step(self, event: str, *, merged: bool) -> None:
        """Play one event."""
        kind, name = event[0], event[1:]
        if kind == "T":
            reported = len(self.news) if merged else 1
            used, recounted = self.news[reported - 1]
            self.observe(used, recounted=recounted and self.recounts_are_known)
            self.reported += self.happened[len(self.reported) : len(self.reported) + reported]
            del self.news[:reported]
        elif kind == "A":
            self.line.controller.settle(self.tickets[name], Created(), self.line.now)
        else:
            if kind == "C":
                self.truth += AMOUNTS[name]
            elif kind == "R":
                self.truth -= AMOUNTS[name]
            elif kind == "X":
                self.truth += OTHERS
            elif name == "lost":  # a recount that lacks a create
                self.missed = AMOUNTS["1"]
                self.truth -= self.missed
            elif name == "found":
                self.truth += self.missed
            self.news.append((self.truth, kind == "K"))
            self.happened.append(event)
        self.line.controller.advance(self.line.now)

    def play(self, order: list[str], *, merged: bool, known: int) -> Iterator[str]:
        """Let all events happen, and give out each but the first ``known`` once it has."""
        for place, event in enumerate(order):
            self.step(event, merged=merged)
            if place >= known:
                yield event

    def believed(self) -> int:
        """Return used + held as the engine has it."""
        seen = self.line.controller.snapshot(self.line.now).namespaces[NS].quotas[QUOTA]["cpu"]
        return seen.used + seen.held

    def held(self) -> int:
        """Return what is held."""
        return self.line.held()


TWO: Final[Before] = {"C1": "", "C2": "", "A1": "C1", "A2": "C2"}
THREE: Final[Before] = {**TWO, "C3": "", "A3": "C3"}
RELEASES: Final[Before] = {"R1": "C1", "R2": "C2"}


@pytest.mark.parametrize("merged", [False, True], ids=["reported one by one", "reports merged"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(TWO | RELEASES, id="two creates, both released"),
        pytest.param(THREE, id="three creates"),
        pytest.param(TWO | {"R1": "C1", "K": ""}, id="two creates, one released, a recount that finds all right"),
        pytest.param(THREE | {"R1": "A1", "C2": "C1", "C3": "C2"}, id="three creates in turn, the first released"),
    ],
)
def test_own_creates_are_never_missed_and_never_counted_twice(before: Before, merged: bool) -> None:
    """At every moment used + held covers what the server has charged; at the end it is exactly that."""
    count = 0
    for order, replay, events in replays(before, merged=merged):
        for event in events:
            assert replay.believed() >= replay.truth, f"missed after {event} of {order}"
        replay.line.later(1.1)
        assert (replay.held(), replay.believed()) == (0, replay.truth), f"counted twice: {order}"
        count += 1
    assert count > 100


def test_rises_alone_confirm_every_hold_when_nothing_is_released() -> None:
    """With charges only, reported one by one, no hold has to end by time: each order ends at once without holds."""
    for order in orders(THREE, merged=False):
        replay = Replay("123")
        for event in order:
            replay.step(event, merged=False)

        assert replay.held() == 0, order


@pytest.mark.parametrize("merged", [False, True], ids=["reported one by one", "reports merged"])
def test_another_clients_charge_hides_at_most_its_own_amount(merged: bool) -> None:
    """A rise does not say whose it is; what it may hide is bounded, and over after the next reports."""
    for order, replay, events in replays(TWO | {"X": "", "R1": "A1"}, merged=merged):
        for event in events:
            assert replay.believed() >= replay.truth - OTHERS, f"missed after {event} of {order}"
        assert replay.believed() >= replay.truth
        replay.line.later(1.1)

        assert (replay.held(), replay.believed()) == (0, replay.truth), order


def test_a_recount_that_misses_a_create_ends_right() -> None:
    """The quota controller may write a sum without a create in flight and correct it later: the end is exact."""
    for order, replay, events in replays(TWO | {"Klost": "C1", "Kfound": "Klost"}):
        for event in events:
            assert replay.believed() >= replay.truth - AMOUNTS["1"], f"missed after {event} of {order}"
        replay.line.later(1.1)

        assert (replay.held(), replay.believed()) == (0, replay.truth), order


def test_a_recount_that_finds_a_create_again_confirms_no_other_hold() -> None:
    """If the object shows that a recount wrote it, its rise adds no credit: nothing reported is missed."""
    lost_and_found: Before = TWO | {"Klost": "C1", "Kfound": "Klost"}
    for order, replay, events in replays(lost_and_found, recounts_are_known=True):
        for event in events:
            unreported = AMOUNTS["1"] if "Kfound" in replay.happened and "Kfound" not in replay.reported else 0
            assert replay.believed() >= replay.truth - unreported, f"missed after {event} of {order}"
        replay.line.later(1.1)

        assert (replay.held(), replay.believed()) == (0, replay.truth), order


def test_the_oldest_answered_hold_is_confirmed_first() -> None:
    """A rise ends the hold that was answered first, not a smaller one behind it."""
    replay = Replay("12")
    for event in ("C2", "C1", "A2", "A1"):  # the answer to 2 (five) came first
        replay.step(event, merged=False)
    replay.observe(3)
    assert replay.held() == 8  # a rise of three does not cover the five, and none jumps the queue
    replay.observe(8)
    assert replay.held() == 0


def test_an_answer_whose_charge_was_seen_before_makes_room_at_once() -> None:
    """Until then it counts twice, as held and as used; no time has to pass."""
    line = watched(0, 4)
    ticket = line.ticket_of(line.submit(2))
    line.observe(2, 4)
    waiter = line.submit(2)
    assert waiter.state == "waiting"

    assert [each.request for each in tickets(line.created(ticket))] == [waiter]


def test_a_fall_confirms_nothing() -> None:
    """A report of room ends no hold: the charge that a hold stands for is yet to be observed."""
    line = watched(5, 10)
    line.created(line.ticket_of(line.submit(2)))
    line.observe(3, 10)
    assert line.held() == 2 * ONE
    line.observe(1, 10)

    assert line.held() == 2 * ONE


def test_a_hold_of_several_resources_ends_when_all_of_them_rose() -> None:
    """A create is charged as a whole: a rise of one resource alone is another client's."""
    line = Timeline()

    def observe(cpu: int, pods: int) -> None:
        hard = {"cpu": 100, "pods": 100}
        line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": cpu, "pods": pods}), line.now)
        line.advance()

    observe(0, 0)
    line.watching()
    request = line.submit(demand=Demand({"cpu": 4, "pods": 1}))
    line.created(line.ticket_of(request))
    observe(4, 0)
    assert line.held() == 5
    observe(4, 1)
    assert line.held() == 0


@pytest.mark.parametrize("waiters", [0, 1], ids=["none waits", "one waits"])
def test_an_answered_hold_ends_a_short_time_after_its_201(waiters: int) -> None:
    """Its charge may be hidden behind a release: 50 ms after the answer it counts as observed."""
    line = watched(0, 3)
    line.created(line.ticket_of(line.submit(2)))
    for _ in range(waiters):
        line.submit(2)
    line.later(0.049)
    assert line.held() == 2 * ONE

    effects = line.later(0.002)

    assert len(tickets(effects)) == waiters
    if not waiters:
        newcomer = line.submit(3)  # a request submitted now finds it ended, even before any alarm
        assert newcomer.state == "sent"


def test_an_answered_hold_ends_in_time_for_a_waiting_request() -> None:
    """The 201 itself sets the alarm: a request that waited before it is admitted 50 ms after it."""
    line = watched(0, 3)
    running, waiting = line.ticket_of(line.submit(2)), line.submit(2)
    line.later(10)
    line.created(running)
    assert tickets(line.later(0.049)) == []
    assert [t.request for t in tickets(line.later(0.002))] == [waiting]


def test_without_a_watch_an_answered_hold_lasts_until_the_next_list() -> None:
    """While changes are not reported no hold ends by time; the list that begins the next watch ends it."""
    line = watched(0, 10)
    ticket = line.ticket_of(line.submit(2))
    line.watch_lost()
    line.created(ticket)
    line.later(100)
    assert line.held() == 2 * ONE
    line.observe(2, 10)
    line.watching()

    assert line.held() == 0


@pytest.mark.parametrize("newer", [False, True], ids=["no fact since", "a fact since"])
def test_without_any_report_an_answered_hold_counts_as_used_in_the_end(newer: bool) -> None:
    """No list comes: after ``ticket_max`` the hold ends, and its charge counts unless a newer fact contains it."""
    line = watched(0, 10, Policy(ticket_max=120))
    ticket = line.ticket_of(line.submit(2))
    line.watch_lost()
    line.later(1)
    line.created(ticket)
    line.later(1)
    if newer:
        line.learn(3, 10, asked=9)
    line.until(123)

    assert line.ceiling() == {
        "limited": 10 * ONE,
        "used": (3 if newer else 2) * ONE,
        "held": 0,
        "headroom": (7 if newer else 8) * ONE,
    }


@pytest.mark.parametrize("outcome", [Failed(), Abandoned(), Expired(), Overloaded()], ids=lambda o: o.event)
def test_a_create_that_stores_nothing_leaves_no_hold(outcome: Failed | Abandoned | Expired | Overloaded) -> None:
    """Failed, abandoned, expired and overloaded give the reservation back at once."""
    line = watched(0, 10, Policy(brake_base=60))
    ticket = line.ticket_of(line.submit(2))
    assert line.held() == 2 * ONE

    line.controller.settle(ticket, outcome, line.now)

    assert line.held() == 0


def test_a_refused_create_leaves_no_hold_and_no_credit() -> None:
    """The reservation of a refused create is free, and a rise observed meanwhile confirms no later hold."""
    line = watched(0, 10)
    ticket = line.ticket_of(line.submit(2))
    line.observe(2, 10)  # another client's
    line.controller.settle(ticket, Failed(), line.now)
    assert line.held() == 0
    line.created(line.ticket_of(line.submit(2)))

    assert line.held() == 2 * ONE


def test_a_rise_while_nothing_is_held_confirms_nothing_later() -> None:
    """Other clients came before us: their charges add no credit."""
    line = watched(0, 10)
    line.observe(5, 10)
    line.created(line.ticket_of(line.submit(2)))
    assert line.held() == 2 * ONE
    line.observe(7, 10)
    assert line.held() == 0


def test_a_created_hold_of_a_learned_quota_moves_into_used() -> None:
    """Without reports the 201 itself is the fact: used rises by the charge, and nothing is held twice."""
    line = Timeline()
    first = line.submit(1)
    line.created(line.ticket_of(first))
    a, b = line.ticket_of(line.submit(6)), line.ticket_of(line.submit(1))
    line.refused(a, 4, 8)
    before: Mapping[str, object] = line.ceiling()
    assert before["used"] == 4 * ONE
    more = [line.ticket_of(line.submit(1)) for _ in range(2)]
    line.created(b, *more)

    after = line.ceiling()
    assert after["used"] == 7 * ONE
    assert after["held"] == 0


def test_holds_stay_when_the_quota_is_resized() -> None:
    """Its owner widens it: each create in flight, and each answered one, holds what it held before."""
    line = watched(0, 10)
    flying = [line.ticket_of(line.submit(cpu)) for cpu in (1, 2, 3)]
    line.created(flying[0])
    line.observe(0, 20)

    assert line.held() == 6 * ONE
    assert line.ceiling()["headroom"] == 14 * ONE

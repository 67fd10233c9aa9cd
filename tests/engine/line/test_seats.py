"""A place survives: a place survives its caller; an empty seat is never admitted, and ends by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Abandoned, Identity, ObservedQuota, Policy, Rejected, Request
from backoff_ctrl.engine.line.seats import Seat, Seats
from tests.kit.costs import kept_by
from tests.kit.examples import examples
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, refusals, tickets, watched

if TYPE_CHECKING:
    from collections.abc import Callable


ANN = Identity("ann", "pods/a")
ANN_TOO = Identity("ann", "pods/b")
BOB = Identity("bob", "pods/a")


def leave(line: Timeline, request: Request, identity: Identity = ANN, retry_after: float = 0.0) -> None:
    """Withdraw a request with a seat."""
    line.controller.of(request.namespace).withdraw(request, line.now, identity, retry_after)
    line.advance()


def come_again(line: Timeline, identity: Identity = ANN, cpu: float = 1, *, priority: int = 0) -> Request:
    """Submit a new request of a caller that may have been there before."""
    request = line.request(cpu, priority=priority)
    line.controller.submit(request, line.now, identity)
    line.advance()
    return request


def test_who_comes_again_has_the_old_place() -> None:
    """Ahead of all who came meanwhile, of equal and of other shapes; and it is sent first."""
    line = watched(4, 4)
    first = line.submit(1)
    leave(line, first)
    others = [line.submit(cpu) for cpu in (1, 2, 1)]
    line.later(5)
    again = come_again(line)

    assert (line.place(again), again.joined) == (1, first.joined)
    line.observe(3, 4)
    assert [ticket.request for ticket in tickets(line.later(0.01))] == [again]
    assert [line.place(other) for other in others] == [1, 2, 3]


def test_who_comes_again_to_the_middle_of_a_row_of_equals_has_the_old_place() -> None:
    """Between the equal one before and the equal one behind."""
    line = watched(4, 4)
    before, leaver, behind = (line.submit(1) for _ in range(3))
    leave(line, leaver)
    again = come_again(line)

    assert [line.place(request) for request in (before, again, behind)] == [1, 2, 3]


def test_an_empty_seat_is_never_admitted_and_holds_nobody_up() -> None:
    """Room comes while the caller is away: who waits gets it. The caller comes into free room and is sent at once."""
    line = watched(2, 2)
    leave(line, line.submit(1))
    waiter = line.submit(1)
    line.observe(0, 2)

    assert [ticket.request for ticket in tickets(line.later(1))] == [waiter]
    assert come_again(line).state == "sent"


@pytest.mark.parametrize(("retry_after", "lasting"), [(0.0, 10.0), (4.0, 10.0), (30.0, 60.0)])
def test_a_seat_is_kept_for_twice_the_retry_after_and_ten_seconds_at_least(retry_after: float, lasting: float) -> None:
    """A moment before the end it is still there, and at the end it is gone."""
    for away, kept in ((lasting - 0.001, True), (lasting, False)):
        line = watched(4, 4)
        first = line.submit(1)
        leave(line, first, retry_after=retry_after)
        line.later(away)

        assert (come_again(line).joined == first.joined) is kept


def test_overtakings_are_counted_on() -> None:
    """Overtaken twice before it left and once after it came again: with a limit of three, room is kept for it."""
    line = watched(4, 4, Policy(overtakes_max=3, overtaken_for_max=0))
    large = line.submit(3)

    def overtake() -> None:
        line.observe(3, 4)
        line.submit(1)
        line.created(line.next_ticket())
        line.observe(4, 4)

    overtake()
    overtake()
    leave(line, large)
    large = come_again(line, cpu=3)
    assert large.overtaken == 2
    overtake()
    line.observe(3, 4)

    assert line.submit(1).state == "waiting"
    assert tickets(line.later(1)) == []


def test_keeping_pauses_for_a_caller_that_comes_again_and_again() -> None:
    """Its returns do not wind back the clock by which kept room that does not grow is given to others."""
    line = watched(4, 4, Policy(overtakes_max=0, overtaken_for_max=0, keep_stalled=60))
    line.observe(3, 4)
    large = line.submit(3)
    for _ in range(20):
        line.later(3)
        leave(line, large)
        line.later(1)
        large = come_again(line, cpu=3)

    assert line.submit(1).state == "sent"


def test_who_comes_again_is_overtaken_instead_of_those_behind() -> None:
    """It is the first that is blocked there, as it was before it left."""
    line = watched(4, 4)
    line.observe(2, 4, then=1)
    large = line.submit(4)
    leave(line, large)
    behind = line.submit(3)
    large = come_again(line, cpu=4)
    assert line.submit(1).state == "sent"

    assert (large.overtaken, behind.overtaken) == (1, 0)


def test_a_caller_without_a_seat_of_its_own_takes_the_oldest_of_its_equals() -> None:
    """The same who, and an equal demand; another caller, or another demand, takes none."""
    line = watched(4, 4)
    first, second = line.submit(1), line.submit(1)
    leave(line, second, Identity("ann", 2))
    leave(line, first, Identity("ann", 1))
    line.later(1)

    assert come_again(line, BOB).joined == line.now
    assert come_again(line, ANN, cpu=2).joined == line.now
    assert [come_again(line, ANN).seq for _ in range(3)] == [first.seq, second.seq, 5]


def test_a_caller_takes_its_own_seat_before_an_older_one_of_its_equals() -> None:
    """Each of two identities comes back to its own place."""
    line = watched(4, 4)
    first, second = line.submit(1), line.submit(1)
    leave(line, first, ANN)
    leave(line, second, ANN_TOO)

    assert come_again(line, ANN_TOO).seq == second.seq
    assert come_again(line, ANN).seq == first.seq


def test_a_new_priority_counts_from_the_old_time() -> None:
    """Who asks for more priority the second time has the place that it would have had with it from the start."""
    line = watched(4, 4, Policy(age_step=30))
    first = line.submit(1)
    line.later(1)
    ahead = line.submit(1, priority=1)
    leave(line, first)
    again = come_again(line, priority=1)

    assert (line.place(again), line.place(ahead)) == (1, 2)
    assert again.rank == -30.0


def test_the_longest_wait_counts_from_the_first_time() -> None:
    """``wait_max`` is no shorter for those who wait in pieces, and no longer."""
    line = watched(4, 4, Policy(wait_max=100, seat_ttl=60))
    first = line.submit(1)
    line.later(50)
    leave(line, first)
    line.later(40)
    again = come_again(line)

    assert [refusal.request for refusal in refusals(line.later(11))] == [again]


def test_a_ticket_given_back_unsent_keeps_its_place() -> None:
    """The caller hung up between the decision and the sending."""
    line = watched(4, 4)
    first = line.submit(1)
    line.later(1)
    line.observe(3, 4)
    [ticket] = tickets(line.later(0.01))
    line.settle(ticket, Abandoned(ANN))
    line.observe(4, 4, then=1)

    assert come_again(line).joined == first.joined


def test_a_full_line_takes_no_seat_away() -> None:
    """It is refused as all others are; the seat is still there when somebody has left."""
    line = watched(4, 4, Policy(waiters_max=1))
    first = line.submit(1)
    leave(line, first)
    other = line.submit(1)
    line.controller.submit(line.request(1), line.now, ANN)
    assert [refusal.reason for refusal in refusals(line.advance())] == ["too-many-waiting"]
    line.controller.of(other.namespace).withdraw(other, line.now)

    assert come_again(line).joined == first.joined


def test_more_seats_than_the_policy_allows_cost_those_that_end_first() -> None:
    """The number of empty seats is bounded, and shown."""
    line = watched(4, 4, Policy(seats_max=3))
    waiters = [line.submit(1) for _ in range(5)]
    for number, waiter in enumerate(waiters):
        leave(line, waiter, Identity(number, ""))
    assert line.seen().seats == 3
    came = [come_again(line, Identity(number, "")).seq for number in range(5)]

    assert [seq in [w.seq for w in waiters] for seq in came] == [False, False, True, True, True]


def test_no_seats_where_the_policy_says_none() -> None:
    """Everybody who comes again goes to the end."""
    line = watched(4, 4, Policy(seats_max=0))
    leave(line, line.submit(1))
    line.later(1)
    assert come_again(line).joined == line.now


def test_a_namespace_with_seats_is_not_forgotten_until_they_end() -> None:
    """An idle namespace that was learned from a refusal goes only with its last seat."""
    line = Timeline(Policy(idle_ttl=10, seat_ttl=100))
    ticket = line.ticket_of(line.submit(1))
    line.refused(ticket, 4, 4)
    leave(line, ticket.request)
    line.until(90)
    assert line.seen().seats == 1
    line.until(120)
    assert line.snapshot().namespaces == {}


def test_a_refused_create_whose_caller_has_gone_leaves_a_seat() -> None:
    """It rejoins the line by the server's refusal, and is withdrawn with a seat."""
    line = Timeline()
    request = line.submit(1)
    line.later(1)
    line.controller.settle(line.ticket_of(request), Rejected(QUOTA, {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}), line.now)
    leave(line, request)

    assert come_again(line).joined == 0.0


def test_who_comes_again_to_never_fit_is_refused() -> None:
    """The quota shrank meanwhile: a seat is no promise."""
    line = watched(4, 4)
    leave(line, line.submit(3))
    line.observe(2, 2)
    request = line.request(3)
    line.controller.submit(request, line.now, ANN)

    assert [refusal.reason for refusal in refusals(line.advance())] == ["never-fits"]


def test_a_request_with_an_identity_is_submitted_once() -> None:
    """As without one: a second time is the caller's bug."""
    line = watched(4, 4)
    waiting = line.submit(1)
    leave(line, line.submit(1))
    with pytest.raises(RuntimeError, match="'submit' is not allowed"):
        line.controller.submit(waiting, line.now, ANN)


@pytest.mark.parametrize("seed", range(examples(10)))
def test_seats_leave_no_trace_when_they_are_taken_or_end(seed: int) -> None:
    """Thousands come and go with a few callers, demands and lengths: nothing grows beyond what is kept."""
    dice = random.Random(seed)
    seats, now, seq, most = Seats(200), 0.0, 0, 0
    acts: list[Callable[[], object]] = [
        lambda: seats.keep(
            Seat(identity, shape, now - dice.random(), seq, 0, 0.0, now + dice.choice([1, 5, 600])), now
        ),
        lambda: seats.take(identity, shape, now),
    ]
    for _ in range(5000):
        now, seq = now + dice.random() / 50, seq + 1
        identity, shape = Identity(dice.randrange(3), dice.randrange(20)), str(dice.randrange(3))
        dice.choice(acts)()
        assert len(seats) <= 200
        most = max(most, kept_by(seats)) if seq % 500 == 0 else most
    seats.expire(now + 601)

    assert most < 6000
    assert (len(seats), kept_by(seats) <= kept_by(Seats(200)) + 1) == (0, True)


def test_room_kept_by_several_ceilings_is_found_again() -> None:
    """Two resources block it: it is next for both again as soon as it is back, and nobody slips past."""
    line = Timeline(Policy(overtakes_max=0, overtaken_for_max=0))
    hard = {"cpu": 4 * ONE, "pods": 4 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": 2 * ONE, "pods": 0}), line.now)
    line.watching()
    large = line.submit(3)
    leave(line, large)
    come_again(line, cpu=3)

    assert line.cpu().kept
    assert line.submit(1).state == "waiting"

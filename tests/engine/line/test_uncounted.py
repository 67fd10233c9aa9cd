"""A quota names a kind, and its controller has not counted it yet: creates of that shape wait, all others go on."""

from __future__ import annotations

from backoff_ctrl.engine import Created, Failed, Policy, Uncounted
from backoff_ctrl.engine.facts.outcomes import Outcome
from tests.kit.timeline import Timeline, flying, settled, state_of

POLICY = Policy(base=1, cap=8)


def stuck(creates: int = 3) -> Timeline:
    """Return a line in which creates of one cpu are not counted yet: one was sent, and the others wait."""
    line = settled(0, 100, POLICY)
    first = line.submit(1)
    line.settle(line.ticket_of(first), Uncounted())
    for _ in range(creates - 1):
        line.submit(1)
    return line


def test_creates_of_that_shape_wait_and_all_others_go_on() -> None:
    """The namespace is not slowed."""
    line = stuck()
    assert flying(line) == []
    other = line.submit(2)
    assert state_of(other) == "sent"
    assert line.seen().brake is None


def test_it_is_sent_again_one_at_a_time_and_ever_more_rarely() -> None:
    """While one is out, the others of its shape wait for its answer."""
    line = stuck()
    pauses = []
    for _ in range(5):
        since = line.now
        while not flying(line):
            line.later(0.1)
        pauses.append(line.now - since)
        (ticket,) = flying(line)
        line.settle(ticket, Uncounted())
    assert pauses[0] <= 2.1
    assert pauses[0] < pauses[2] < pauses[4] <= 8.2


def test_many_that_are_refused_in_one_round_count_once() -> None:
    """Else a burst would be sent again after a minute, though the kind is counted a second later."""
    line = settled(0, 100, Policy(base=1, cap=60))
    line.crowd(12)
    for ticket in flying(line):
        line.settle(ticket, Uncounted())
    assert flying(line) == []
    since = line.now
    while not flying(line):
        line.later(0.1)
    assert line.now - since <= 1.2


def test_news_of_a_quota_lets_one_try_at_once() -> None:
    """A ceiling that is new is what was waited for, perhaps."""
    line = stuck()
    line.observe(0, 7, quota="another", then=0.05)
    assert len(flying(line)) == 3


def test_any_other_end_lets_all_go_on() -> None:
    """Counted, or refused for another reason: the shape is as any other again."""
    outcomes: list[Outcome] = [Created(), Failed()]
    for outcome in outcomes:
        line = stuck()
        while not flying(line):
            line.later(0.1)
        line.settle(flying(line)[0], outcome)
        line.later(0.05)
        assert len(flying(line)) == 2


def test_why_it_waits_is_said() -> None:
    """In the word of the status API."""
    line = stuck(0)
    request = line.submit(1)
    why = line.why(request)
    assert why.reason == "not-counted-yet"

"""The brake: a namespace whose webhooks fail, or that loses races for a quota, is slowed down by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.engine import Failed, Overloaded, Policy
from tests.kit.timeline import NS, Timeline, flying, without_quotas

if TYPE_CHECKING:
    from backoff_ctrl.engine.overload import WindowSnapshot


def brake(line: Timeline, namespace: str = NS) -> WindowSnapshot:
    """Return the brake of a namespace, which must have one."""
    seen = line.seen(namespace).brake
    assert seen is not None
    return seen


def grown(creates: int, start: int) -> Timeline:
    """Return a line after 400 creates were stored: its window has grown to some thirty."""
    line = without_quotas(Policy(overload_start=start, overload_max=64))
    line.crowd(creates)
    for _ in range(400):
        line.created(flying(line)[0])
    return line


def test_a_broken_webhook_slows_its_own_namespace_only() -> None:
    """Evaluation time-outs do, too: fewer creates at once there, and no change elsewhere."""
    line = without_quotas(Policy(overload_start=64, brake_base=10))
    for _ in range(20):
        line.submit(1, namespace="a")
    line.later(0.1)
    victim = flying(line)[0]
    line.settle(victim, Overloaded(None, "namespace"))
    assert line.submit(1, namespace="a").state == "waiting"
    assert line.submit(1, namespace="b").state == "sent"
    assert line.snapshot().flows[""].size == 64
    assert brake(line, "a").size < 64
    assert 0 <= brake(line, "a").closed_for <= 10


def test_lost_races_for_a_quota_slow_only_a_little() -> None:
    """Admission charges a batch with one write: fewer creates in flight make as many writes, and lose as often."""
    line = without_quotas(Policy(overload_start=64))
    for _ in range(200):
        line.submit(1, namespace="a")
    line.later(0.1)
    for ticket in flying(line)[:10]:
        line.settle(ticket, Overloaded(None, "quota"))  # all at one moment: they count as one
    assert brake(line, "a").size == 63
    assert 0 < brake(line, "a").closed_for <= Policy().race_base

    line.created(flying(line)[0])
    assert brake(line, "a").size > 63  # races are lost by chance: answers to earlier creates count, too
    line.later(Policy().race_base)
    assert len(flying(line)) == 63
    for _ in range(100):
        line.created(flying(line)[0])
    assert line.seen("a").brake is None


def test_a_lost_race_takes_one_from_what_was_in_flight() -> None:
    """A window that has grown is not cut to its start, and the brake is released when it has grown back."""
    line = grown(2000, start=4)
    many = len(flying(line))
    line.settle(flying(line)[0], Overloaded(None, "quota"))
    assert brake(line).size == many - 1 > 20
    line.later(0.02)

    while brake(line).size == many - 1:
        line.created(flying(line)[0])
    for _ in range(many):
        line.created(flying(line)[0])
    assert line.seen().brake is None


def test_a_brake_without_effect_is_released() -> None:
    """A window grows only while half of it is in use: after a rush it might never reach its old size."""
    line = grown(425, start=4)
    line.settle(flying(line)[0], Overloaded(None, "quota"))
    line.later(0.02)
    for ticket in flying(line):
        line.settle(ticket, Failed())
    assert brake(line).size > 20

    for _ in range(2):
        line.created(line.ticket_of(line.submit(1)))
    assert line.seen().brake is None


def test_creates_one_at_a_time_release_the_brake_of_a_lost_race() -> None:
    """They never use half of any window."""
    line = without_quotas()
    line.settle(line.ticket_of(line.submit(1)), Overloaded(None, "quota"))
    line.created(line.next_ticket(within=1))

    assert line.seen().brake is None


def test_the_brake_of_a_race_among_several_credentials_is_released() -> None:
    """A namespace may have more in flight than one window allows: the brake ends at the largest window size."""
    line = without_quotas(Policy(overload_start=8, overload_max=8))
    for number in range(200):
        line.submit(1, flow=f"credential-{number % 2}")
    assert len(flying(line)) == 16
    line.settle(flying(line)[0], Overloaded(None, "quota"))
    line.later(0.02)
    for _ in range(60):
        line.created(flying(line)[0])

    assert line.seen().brake is None
    assert len(flying(line)) == 16


def test_answers_to_creates_sent_before_the_brake_do_not_release_it() -> None:
    """The webhook broke after they were sent; and a Retry-After is kept to its end."""
    line = without_quotas(Policy(overload_start=64))
    line.crowd(200)
    line.later(0.1)
    line.settle(flying(line)[0], Overloaded(30.0, "namespace"))
    line.created(*flying(line))
    assert brake(line).size == 64 * 0.7
    assert flying(line) == []
    line.later(29.9)
    assert flying(line) == []


def test_a_longer_retry_after_of_the_same_moment_keeps_the_brake_on() -> None:
    """Creates sent after the first pause were stored, but the second pause is not over."""
    line = without_quotas(Policy(overload_start=4, overload_cut=0.99))
    first, second, _ = (line.ticket_of(line.submit(1)) for _ in range(3))
    line.later(0.1)
    line.settle(first, Overloaded(1.0, "namespace"))
    line.later(3)
    again = line.ticket_of(first.request)
    line.settle(second, Overloaded(30.0, "namespace"))
    line.created(again)

    assert brake(line).size > 4
    assert brake(line).closed_for >= 30


def test_a_webhook_that_breaks_after_a_lost_race_gets_its_own_brake() -> None:
    """However many were in flight then, and also if the failed create was sent before the race was lost."""
    line = grown(2000, start=16)
    line.later(0.1)
    raced, failed, *_ = flying(line)
    line.settle(raced, Overloaded(None, "quota"))
    line.later(0.05)
    line.settle(failed, Overloaded(None, "namespace"))

    assert brake(line).size == 16 * 0.7
    assert brake(line).closed_for > 0


def test_a_requested_pause_outlasts_a_new_brake() -> None:
    """The loser of a race got a Retry-After; a webhook that breaks meanwhile does not shorten it."""
    line = without_quotas()
    raced, failed = (line.ticket_of(line.submit(1)) for _ in range(2))
    line.settle(raced, Overloaded(30.0, "quota"))
    line.settle(failed, Overloaded(None, "namespace"))

    assert brake(line).closed_for >= 30


def test_a_quotas_refusal_is_a_good_answer() -> None:
    """Whatever was broken, admission has reached the quota again."""
    line = without_quotas(Policy(overload_start=4))
    line.crowd(40)
    line.later(0.1)
    line.settle(flying(line)[0], Overloaded(None, "namespace"))
    line.later(1)
    line.created(*flying(line))
    line.later(1)
    size = brake(line).size
    line.refused(flying(line)[0], 4, 4)
    assert brake(line).size > size


def test_constantly_lost_races_end_with_one_create_in_flight() -> None:
    """With ever longer pauses, so that whatever else writes the quota has it for itself."""
    line = without_quotas(Policy(overload_start=4))
    line.crowd(9)
    longest = 0.0
    for _ in range(40):
        for ticket in flying(line):
            line.settle(ticket, Overloaded(None, "quota"))
        longest = max(longest, brake(line).closed_for)
        line.later(31)
    assert len(flying(line)) == 1
    assert 1 < longest <= Policy().cap


def test_the_brake_lets_creates_pass_when_its_pause_is_over() -> None:
    """The refused create is sent again after a short jitter, at its old place."""
    line = without_quotas()
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.settle(ticket, Overloaded(None, "namespace"))
    refused_at = line.now
    again = line.next_ticket(within=1)

    assert again.request is ticket.request
    assert line.now - refused_at <= Policy().brake_base


def test_the_brake_is_released_where_the_window_cannot_outgrow_its_start() -> None:
    """As many in flight as the server allows at first: that is slow no more."""
    line = without_quotas(Policy(overload_start=4, overload_max=4))
    line.crowd(100)
    line.settle(flying(line)[0], Overloaded(None, "namespace"))
    for _ in range(60):
        line.later(0.2)
        line.created(flying(line)[0])

    assert line.seen().brake is None


def test_the_brake_is_released_after_good_answers() -> None:
    """Conflicts are over in milliseconds: after some hundred 201s the namespace is as fast as the others."""
    line = without_quotas(Policy(overload_start=16))
    line.crowd(1200)
    for _ in range(3):
        line.later(0.2)
        line.settle(flying(line)[0], Overloaded(None, "namespace"))
    slowed = len(flying(line))
    for _ in range(1000):
        line.later(0.2)
        line.created(flying(line)[0])

    assert len(flying(line)) > slowed
    assert len(flying(line)) >= 16

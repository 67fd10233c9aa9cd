"""Memory over a restart: what was learned of quotas is known to the next process, and used with care."""

from __future__ import annotations

from backoff_ctrl.engine import Memory, Policy, RememberedCeiling, RememberedQuota
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, state_of, tickets

ANYBODY: frozenset[str] = frozenset()


def learned(*, limited: float = 4, used: float = 4) -> Timeline:
    """A line that learned a quota from one refusal at time 0; the refused request was withdrawn."""
    line = Timeline()
    too_large = line.submit(limited - used + 1)
    line.refused(line.next_ticket(), used, limited)
    line.controller.of(too_large.namespace).withdraw(too_large, line.now)
    return line


def restarted(memory: Memory, now: float = 0.0) -> Timeline:
    """A new process with this memory."""
    line = Timeline()
    line.now = now
    line.controller.recall(memory, now)
    return line


def memory_of(limited: int, used: int, *, age: float = 0.0, applies: bool = True) -> Memory:
    """A memory of one quota on cpu."""
    ceiling = RememberedCeiling(limited * ONE, used * ONE, age)
    return Memory({NS: {QUOTA: RememberedQuota({"cpu": ceiling}, {ANYBODY: applies})}}, 0.002)


def test_a_learned_ceiling_is_known_after_a_restart() -> None:
    """A full quota gets one probe at once, and a thousand waiting requests cause no more: no herd after a restart."""
    line = restarted(learned().controller.remember(5.0))
    line.crowd(1000)
    assert len(line.admitted()) == 1
    assert line.ticket_of(line.admitted()[0]).probe
    assert (line.ceiling()["limited"], line.ceiling()["used"]) == (4 * ONE, 4 * ONE)


def test_held_amounts_count_as_used_after_a_restart() -> None:
    """Creates in flight when the process ended may have been stored."""
    line = learned(limited=8, used=0)
    line.submit(3)
    assert line.held() > 0
    quota = line.controller.remember(line.now).quotas[NS][QUOTA]
    assert quota.ceilings["cpu"].used == line.held()


def test_the_scope_class_is_remembered() -> None:
    """Whether a quota applies was learned, perhaps by a refusal for each class: a no stays a no."""
    line = restarted(memory_of(1, 1, applies=False))
    assert state_of(line.submit(1)) == "sent"
    assert not line.ticket_of(line.admitted()[0]).probe


def test_room_that_is_remembered_is_taken_slowly() -> None:
    """It may be gone by now: creates begin with one in flight, and each success allows more."""
    line = restarted(memory_of(1000, 0))
    line.crowd(100)
    assert len(line.admitted()) == 1
    line.created(line.ticket_of(line.admitted()[0]))
    assert len(line.admitted()) == 1 + 2
    most = 0
    for _ in range(100):
        flying = [ticket for ticket in tickets(effect for _, effect in line.log) if not ticket.ended]
        most = max(most, len(flying))
        if not flying:
            break
        line.created(*flying)
    assert len(line.admitted()) == 100
    assert most > 4


def test_facts_keep_their_age() -> None:
    """A fact that was old when the process ended is older now; the snapshot shows that."""
    memory = learned().controller.remember(50.0)
    line = restarted(memory, now=7.0)
    seen = line.controller.snapshot(10.0).namespaces[NS].quotas[QUOTA]["cpu"]
    assert (seen.age, seen.source) == (53.0, "learned")


def test_an_old_fact_is_not_recalled() -> None:
    """A fact that would have expired as idle does not come back by a restart."""
    ttl = Policy().idle_ttl
    assert restarted(memory_of(4, 4, age=ttl)).controller.snapshot(0.0).namespaces[NS].quotas
    assert not restarted(memory_of(4, 4, age=ttl + 1)).controller.snapshot(0.0).namespaces[NS].quotas


def test_a_fact_from_the_future_is_a_fact_of_now() -> None:
    """A clock was set back: the newest refusal still replaces what is remembered."""
    line = restarted(memory_of(4, 4, age=-1000.0))
    line.now = 1.0
    line.submit(3)
    line.refused(line.next_ticket(), 7, 9)
    assert (line.ceiling()["limited"], line.ceiling()["used"]) == (9 * ONE, 7 * ONE)


def test_memory_never_replaces_what_is_known() -> None:
    """A quota that this process knows is newer than any file."""
    line = learned(limited=4, used=3)
    line.controller.recall(memory_of(99, 0), line.now)
    assert line.ceiling()["limited"] == 4 * ONE


def test_an_observed_quota_replaces_what_is_remembered() -> None:
    """The watch has the last word, and nothing remembered is left beside it."""
    line = restarted(memory_of(1, 1))
    line.observe(0, 8)
    line.watching()
    line.later(1)
    assert state_of(line.submit(5)) == "sent"


def test_the_settle_time_is_remembered_within_the_policy() -> None:
    """It was learned from this server; a file with an absurd value cannot make the gate sluggish."""
    assert restarted(Memory({}, 0.05)).controller.snapshot(0.0).settle_time == 0.05
    assert restarted(Memory({}, 1e9)).controller.snapshot(0.0).settle_time == Policy().settle_max
    assert restarted(Memory({}, -1.0)).controller.snapshot(0.0).settle_time == Policy().settle_time


def test_nothing_known_is_nothing_remembered() -> None:
    """A namespace without quotas leaves no trace in the memory."""
    line = Timeline()
    line.submit(1)
    assert line.controller.remember(0.0).quotas == {}

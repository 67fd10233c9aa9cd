"""Facts teach what they prove: a fact teaches only what it proves, and older facts never overwrite newer ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Created, Demand, Failed, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, watched


@given(
    fact_sent=st.floats(1, 2),
    fact_took=st.floats(0, 1),
    sent=st.floats(1, 4),
    took=st.floats(0, 4),
    used=st.integers(0, 9),
)
def test_a_refusal_replaces_amounts_only_if_sent_after_the_newest_fact_was_received(
    fact_sent: float, fact_took: float, sent: float, took: float, used: int
) -> None:
    """For any times of two answers: received later is not enough, sent later is."""
    line = Timeline()
    facts = [(fact_sent, fact_sent + fact_took, 5), (sent, sent + took, used)]
    facts.sort(key=lambda fact: fact[1])
    for sent_at, received, amount in facts:
        rejected = Rejected(QUOTA, {"cpu": ONE}, {"cpu": amount}, {"cpu": 10})
        line.controller.learn(NS, frozenset(), rejected, sent_at, received)
    (_, received, first), (later_sent, _, last) = facts

    if later_sent != received:
        assert line.ceiling()["used"] == (last if later_sent > received else first)


def charged(line: Timeline, quota: str = QUOTA) -> int:
    """Return what is used and what is held."""
    seen = line.seen().quotas[quota]["cpu"]
    return seen.used + seen.held


def test_the_sending_time_in_the_outcome_counts_where_it_is_later() -> None:
    """A create that its driver sent again speaks of the second sending."""
    line = Timeline()
    tries = [line.ticket_of(line.submit(1))]
    line.created(*tries)
    one, two = (line.ticket_of(line.submit(5)) for _ in range(2))
    line.later(1)
    line.refused(one, 4, 8)
    line.later(1)
    resent = Rejected(QUOTA, {"cpu": 5 * ONE}, {"cpu": 6 * ONE}, {"cpu": 8 * ONE}, sent=1.5)
    line.settle(two, resent)

    assert line.ceiling()["used"] == 6 * ONE


def test_what_a_refusal_does_not_name_stays_as_it_was() -> None:
    """A refusal about cpu changes neither pods nor other quotas."""
    line = Timeline()
    line.fill_two()
    line.later(0.1)
    rejected = Rejected("a", {"cpu": ONE}, {"cpu": 9 * ONE}, {"cpu": 9 * ONE})
    line.controller.learn(NS, frozenset(), rejected, line.now, line.now)
    seen = line.seen().quotas

    assert seen["a"]["cpu"].used == 9 * ONE
    assert seen["b"]["pods"].used == ONE


def test_a_name_without_a_used_amount_teaches_nothing() -> None:
    """A text that lost a part is half a fact: that name is skipped."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.settle(ticket, Rejected(QUOTA, {"cpu": ONE}, {}, {"cpu": ONE}))

    assert line.seen().quotas[QUOTA] == {}
    assert line.next_ticket().request is ticket.request


def test_creates_answered_after_a_refused_one_was_sent_are_counted_on_top() -> None:
    """The refusal's used may lack a create of ours that was stored while the refusal was on its way."""
    line = Timeline()
    line.created(line.ticket_of(line.submit(1)))
    large, quick = line.ticket_of(line.submit(8)), line.ticket_of(line.submit(1))
    line.later(0.1)
    line.refused(large, 2, 9)  # the quota is known now
    line.later(0.1)
    second, first = (line.ticket_of(line.submit(cpu)) for cpu in (3, 1))
    line.later(0.1)
    line.created(first)
    line.later(0.1)
    line.refused(second, 7, 9)
    assert charged(line) == 7 * ONE + 2 * ONE  # the first, and the one without an answer
    line.settle(quick, Failed())


def test_creates_answered_before_a_refused_one_was_sent_are_in_its_used() -> None:
    """No create is counted twice because it was remembered for too long."""
    line = Timeline()
    line.created(line.ticket_of(line.submit(1)))
    anchor, teacher = (line.ticket_of(line.submit(cpu)) for cpu in (1, 8))
    line.later(0.1)
    line.refused(teacher, 2, 9)
    line.created(line.ticket_of(line.submit(1)))
    line.later(0.1)
    line.refuse(3, 7, 9)

    assert line.ceiling()["used"] == 7 * ONE
    line.settle(anchor, Failed())


def test_the_amounts_that_the_server_charges_are_learned_from_refusals() -> None:
    """Defaults and webhooks run before quota admission: a refusal that names more than we asked corrects the shape."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.settle(ticket, Rejected(QUOTA, {"cpu": 2 * ONE}, {"cpu": 3 * ONE}, {"cpu": 4 * ONE}))
    waiting = line.submit(1)
    assert waiting.state == "waiting"
    why = line.why(waiting)
    assert (why.asked, why.left) == (2 * ONE, ONE)


def test_the_amounts_that_the_server_charges_are_learned_from_stored_objects() -> None:
    """The object in a 201 is the truth: its charge replaces the estimate, its own hold included."""
    line = watched(0, 10)
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Created(Demand({"cpu": 3 * ONE})))
    assert line.held() == 3 * ONE
    line.observe(3, 10)
    assert line.held() == 0
    line.submit(1)
    assert line.held() == 3 * ONE
    same = line.ticket_of(line.submit(1))
    line.settle(same, Created(Demand({"cpu": 3 * ONE})))
    assert line.held() == 6 * ONE


def test_a_stored_object_with_the_expected_charge_changes_nothing() -> None:
    """Zero amounts and equal ones are no difference."""
    line = watched(0, 10)
    ticket = line.ticket_of(line.submit(demand=Demand({"cpu": ONE}, ["Terminating"])))
    line.settle(ticket, Created(Demand({"cpu": ONE, "pods": 0}, ["Terminating"])))

    assert line.held() == ONE


@pytest.mark.parametrize("later", [0, 0.1], ids=["at that moment", "later"])
def test_an_unnamed_ceiling_with_a_newer_fact_keeps_its_amounts(later: float) -> None:
    """The probe shows that pods had room when it was sent; a fact received since then stays."""
    line = Timeline()
    both = {"cpu": ONE, "pods": ONE}
    request = line.submit(demand=Demand(both))
    line.later(0.1)
    line.settle(line.ticket_of(request), Rejected("a", both, both, both))
    probe = line.next_ticket()
    line.later(later)
    pods = Rejected("a", {"pods": ONE}, {"pods": 7 * ONE}, {"pods": 7 * ONE})
    line.controller.learn(NS, frozenset(), pods, line.now, line.now)
    line.later(0.1)
    line.settle(probe, Rejected("a", {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}))
    seen = line.seen().quotas["a"]

    assert (seen["pods"].used, seen["pods"].headroom) == (7 * ONE, 0)


def test_an_unnamed_ceiling_that_has_room_by_now_keeps_its_amounts() -> None:
    """A create of ours failed while the probe was out: that explains the room, and no more is invented."""
    line = Timeline()
    both = {"cpu": ONE, "pods": ONE}
    line.settle(line.ticket_of(line.submit(demand=Demand(both))), Rejected("a", both, both, both))
    two = Rejected("a", {"pods": 2 * ONE}, {"pods": ONE}, {"pods": 2 * ONE})
    line.now += 0.1
    line.controller.learn(NS, frozenset(), two, line.now, line.now)
    other = line.controller.of(NS).force(line.request(demand=Demand({"pods": ONE})), line.now)
    probe = line.next_ticket()
    line.settle(other, Failed())
    line.settle(probe, Rejected("a", {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}))
    pods = line.seen().quotas["a"]["pods"]

    assert (pods.used, pods.headroom) == (ONE, ONE)


def test_a_stored_charge_that_a_refusal_taught_already_changes_nothing() -> None:
    """The correction by a refusal and the object in the 201 agree."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.settle(ticket, Rejected(QUOTA, {"cpu": 2 * ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE}))
    probe = line.next_ticket()
    line.settle(probe, Created(Demand({"cpu": 2 * ONE})))

    assert (line.ceiling()["used"], line.held()) == (4 * ONE, 0)


def test_a_refusal_whose_figures_show_room_slows_the_namespace_and_teaches_no_ceiling() -> None:
    """By its own figures the create fits: a ceiling from it would admit the create at once, again and again."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    assert line.refused(ticket, 1, 4) == []
    seen = line.seen()

    assert seen.quotas == {}
    assert seen.brake is not None
    assert line.next_ticket(within=1).request is ticket.request


def test_a_success_beside_creates_without_an_answer_disproves_nothing() -> None:
    """Held room blocked the probe, not used room; the creates without an answer may still be refused."""
    line = Timeline()
    line.created(line.ticket_of(line.submit(1)))
    large = line.submit(5)
    line.later(0.1)
    line.refused(line.ticket_of(large), 4, 6)
    flying = [line.ticket_of(line.submit(1)) for _ in range(2)]
    line.submit(1)
    line.controller.of(large.namespace).withdraw(large, line.now)
    probe = line.next_ticket()
    while probe in flying:
        probe = line.next_ticket()
    assert probe.probe
    line.created(probe)

    assert charged(line) == 5 * ONE + 2 * ONE


def test_each_name_in_a_refusal_teaches_by_itself() -> None:
    """Of three names one has a newer fact, one lost a part in the text, and the last is new: that one counts."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(demand=Demand({"cpu": ONE, "pods": ONE})))
    line.later(0.1)
    line.learn(9, 9)
    line.later(0.1)
    used, limited = {"cpu": 5 * ONE, "pods": 3 * ONE}, {"cpu": 9 * ONE, "memory": 7, "pods": 3 * ONE}
    line.settle(ticket, Rejected(QUOTA, {"pods": ONE}, used, limited))
    seen = line.seen().quotas[QUOTA]

    assert {name: (c.used, c.block) for name, c in seen.items()} == {
        "cpu": (9 * ONE, "shut"),
        "pods": (3 * ONE, "shut"),
    }


def test_a_create_of_ours_is_counted_on_top_only_in_the_refusing_quota() -> None:
    """Two quotas limit the same resource: the ``used`` of one says nothing about the other."""
    line = Timeline()
    for quota in ("a", "b"):
        rejected = Rejected(quota, {"cpu": ONE}, {"cpu": 2 * ONE}, {"cpu": 9 * ONE})
        line.controller.learn(NS, frozenset(), rejected, line.now, line.now)
    line.later(0.1)
    _, slow, quick = (line.ticket_of(line.submit(1)) for _ in range(3))
    line.created(quick)
    line.refused(slow, 9, 9, quota="a")

    assert [charged(line, quota) for quota in ("a", "b")] == [9 * ONE + 2 * ONE, 2 * ONE + 2 * ONE]  # one has no answer


def test_a_create_of_ours_that_is_held_is_not_counted_on_top() -> None:
    """Where quotas are watched its answered hold stands for it already."""
    line = watched(0, 9)
    line.later(0.1)
    _, slow, quick = (line.ticket_of(line.submit(1)) for _ in range(3))
    line.created(quick)
    line.refused(slow, 9, 9)

    assert (line.ceiling()["used"], line.ceiling()["held"]) == (9 * ONE, 2 * ONE)


def test_where_others_are_watched_a_quota_that_was_only_learned_keeps_what_was_answered() -> None:
    """No watch has shown it yet, and no event will have its charge: it is held, and then counts as used."""
    line = Timeline()
    line.watching()
    large = line.ticket_of(line.submit(9))
    line.later(0.1)
    line.refused(large, 2, 10)
    line.withdraw(large.request)
    line.submit(1)
    line.created(line.ticket_of(line.submit(4)))
    line.later(2)
    assert charged(line) == (2 + 1 + 4) * ONE

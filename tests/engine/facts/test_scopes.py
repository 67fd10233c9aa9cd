"""Scope classes: amounts belong to the quota; whether it applies belongs to the scope class, and is learned apart."""

from __future__ import annotations

from backoff_ctrl.engine import Created, Demand, Rejected, Selector
from tests.kit.timeline import ONE, Timeline, watched

GOLD = Selector([(True, frozenset({"gold"}))])


def test_an_observed_selector_decides_which_classes_a_quota_charges() -> None:
    """A full quota of one class blocks that class, and no other."""
    line = watched(4, 4, selector=GOLD)

    assert line.submit(demand=Demand({"cpu": ONE}, ["gold"])).state == "waiting"
    assert line.submit(1).state == "sent"


def test_a_changed_selector_counts_at_once() -> None:
    """The owner narrows the quota: classes that it no longer selects need not wait."""
    line = watched(4, 4)
    plain, gold = line.submit(1), line.submit(demand=Demand({"cpu": ONE}, ["gold"]))
    line.observe(4, 4, selector=GOLD)

    assert (plain.state, gold.state) == ("sent", "waiting")


def learned_full(line: Timeline) -> None:
    """Teach a full quota by a refusal of the class without scope facts."""
    line.refuse(1, 4, 4)


def test_a_refusal_proves_the_quota_for_its_own_class_only() -> None:
    """The plain class is blocked; for the gold one that is unknown, so one create may find out."""
    line = Timeline()
    learned_full(line)
    assert line.submit(1).state == "waiting"
    first, second = (line.submit(demand=Demand({"cpu": ONE}, ["gold"])) for _ in range(2))

    assert (first.state, second.state) == ("sent", "waiting")


def test_an_admission_that_the_quota_would_have_refused_proves_that_it_does_not_apply() -> None:
    """The quota is full and the gold create was stored: gold is not charged there, and no longer probes."""
    line = Timeline()
    learned_full(line)
    gold = Demand({"cpu": ONE}, ["gold"])
    line.created(line.ticket_of(line.submit(demand=gold)))
    seen = line.cpu()
    assert (seen.used, seen.held, seen.block) == (4 * ONE, 0, "shut")
    assert [line.submit(demand=gold).state for _ in range(2)] == ["sent", "sent"]


def test_an_admission_that_the_quota_has_room_for_proves_nothing() -> None:
    """Whether gold is charged there stays open, and a refusal may still prove it."""
    line = Timeline()
    line.refuse(2, 3, 4)
    gold = line.submit(demand=Demand({"cpu": ONE}, ["gold"]))
    line.created(line.ticket_of(gold))
    assert line.ceiling()["used"] == 3 * ONE
    another = line.ticket_of(line.submit(demand=Demand({"cpu": ONE}, ["gold"])))
    line.later(0.1)
    line.refused(another, 4, 4)

    assert line.submit(demand=Demand({"cpu": ONE}, ["gold"])).state == "waiting"


def test_learning_that_a_class_is_not_charged_keeps_other_holds_right() -> None:
    """All holds are counted afresh, the proving create's among them."""
    line = Timeline()
    pod = Demand({"cpu": 3, "pods": 1})
    gold = Demand({"cpu": 3, "pods": 1}, ["gold"])
    first, second, third = line.submit(demand=pod), line.submit(demand=pod), line.submit(demand=gold)
    line.settle(line.ticket_of(first), Rejected("all", {"cpu": 3}, {"cpu": 0}, {"cpu": 2}))
    line.settle(line.ticket_of(third), Rejected("gold", {"cpu": 3}, {"cpu": 0}, {"cpu": 2}))
    line.until(2.1)
    assert len(line.admitted()) == 4
    line.created(line.ticket_of(first))  # the quota "gold" would have refused it: it does not apply
    seen = line.seen().quotas

    assert (seen["all"]["cpu"].used, seen["all"]["cpu"].held) == (-1, 6)  # the second was sent, as a probe
    assert line.ticket_of(second).probe


def test_a_refusal_proves_yes_whatever_the_selector_says() -> None:
    """The server has the last word on what it charges."""
    line = watched(4, 4, selector=GOLD)
    line.refuse(1, 4, 4)

    assert line.submit(1).state == "waiting"


def test_a_stored_object_of_another_class_corrects_the_shape() -> None:
    """Admission set a priority class: from the next create on, the shape is charged as that class is."""
    line = watched(3, 4, selector=GOLD)
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Created(Demand({"cpu": ONE}, ["gold"])))
    line.observe(4, 4, selector=GOLD)

    assert line.submit(1).state == "waiting"

"""Adds up what a controller's entries say, and compares that with the sums its ceilings keep."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backoff_ctrl.engine import Controller
    from backoff_ctrl.engine.facts.ceilings import Ceiling
    from backoff_ctrl.engine.facts.entries import Claims
    from backoff_ctrl.engine.facts.quotas import Quota
    from backoff_ctrl.engine.line.knowledge import Knowledge

Sums = dict[str, "Counter[Ceiling]"]
SUMS = ("pending", "maybe", "risen", "fallen", "reserved", "kept", "fresh")


def add_up(controller: Controller, namespace: str) -> None:
    """Check each ceiling of a namespace without callers that are away."""
    handler = controller.of(namespace)
    knowledge = handler.knowledge
    sums: Sums = {name: Counter() for name in SUMS}
    returning: Counter[tuple[Claims | None, Ceiling]] = Counter()
    for ticket in knowledge.outstanding:
        _add(sums["pending"], ticket.shape.meets)
    for quota in knowledge.quotas.values():
        _add_entries(quota, sums)
        for left in quota.left:
            for ceiling, amount in left.back.items():
                returning[left.gang, ceiling] += amount
    _add_gangs(knowledge, sums)
    for _, _, ceiling, amount, epoch in handler.settling._heap:
        sums["fresh"][ceiling] += amount if epoch == ceiling.epoch else 0
    for ceiling in knowledge.ceilings():
        for name, added in sums.items():
            assert getattr(ceiling, name) == added[ceiling], f"a sum is wrong: {name} of {ceiling.resource}"
        for gang in knowledge.gangs:
            assert gang.returning.get(ceiling, 0) == returning[gang, ceiling], "a sum is wrong: returning"
        taken = sum(getattr(ceiling, name) for name in ("charged", "pending", "reserved", "fresh", "doubted"))
        assert ceiling.room == ceiling.limited - taken, f"a sum is wrong: room of {ceiling.resource}"


def _add(sums: Counter[Ceiling], amounts: Iterable[tuple[Ceiling, int]]) -> None:
    for ceiling, amount in amounts:
        assert amount > 0, "an entry of nothing"
        sums[ceiling] += amount


def _add_entries(quota: Quota, sums: Sums) -> None:
    for pending in quota.pending:
        _add(sums["pending"], pending.charges)
        _add(sums["maybe"], pending.charges if pending.member else ())
    for rise in quota.rises:
        _add(sums["risen"], rise.amounts.items())
    for fall in quota.falls:
        _add(sums["fallen"], fall.amounts.items())
    for left in quota.left:
        _add(sums["maybe"], left.back.items())
        assert all(amount <= left.amounts[ceiling] for ceiling, amount in left.back.items()), "more back than left"


def _add_gangs(knowledge: Knowledge, sums: Sums) -> None:
    for gang in knowledge.gangs:
        for ceiling, amount in gang.covered.items():
            sums["reserved"][ceiling] += amount
            sums["kept"][ceiling] += amount if gang.keeps else 0

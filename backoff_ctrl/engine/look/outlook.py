"""What would become of a create that was not submitted: the answer to "would this fit, and if not, why not?"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.shapes import Shape
from backoff_ctrl.engine.handler import ComputeResourceAwareBackOffHandler as Handler
from backoff_ctrl.engine.line.knowledge import Knowledge

from .explaining import estimate
from .looking import Blocker

Prospect = Literal["now", "wait", "never", "unknown"]
"""``now``: it fits; ``wait``: it does not fit yet; ``never``: one create of it asks for more than a quota's limit;
``unknown``: too little is known of the quotas."""
_NOTHING: Final = Demand({})
NOTHING_ELSEWHERE: Final[Mapping[tuple[str, str], int]] = {}
_LAST: Final = 1 << 62
"""The number of a request behind all others of its rank."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would happen. ``estimate`` is seconds from now until it is admitted; None where there is no basis.

    ``blockers`` are the ceilings in the way. ``kept``: there is room, but it is kept for a create that has waited long.
    ``learned``: what is known comes from refusals, so that there may be quotas that are unknown here.
    ``limits`` names the resources that each quota limits that applies to any of the demands. ``why_never`` is a
    sentence where the prospect is never.
    """

    prospect: Prospect
    blockers: tuple[Blocker, ...]
    estimate: float | None
    kept: bool
    learned: bool
    limits: Mapping[str, frozenset[str]]
    why_never: str = ""


def nothing_known(*, observing: bool) -> Outlook:
    """Return the outlook in a namespace without known quotas: it has no quota (``observing``), or they are unknown."""
    return Outlook("now" if observing else "unknown", (), None, kept=False, learned=not observing, limits={})


def outlook(
    handler: Handler,
    wanted: Iterable[tuple[Demand, int]],
    now: float,
    elsewhere: Mapping[tuple[str, str], int] = NOTHING_ELSEWHERE,
) -> Outlook:
    """Say what would happen to creates that come now, each demand so many times, all at once.

    ``elsewhere`` is what other gates hold and reserve, by quota and resource. Asking teaches no fact and reserves no
    room.
    """
    knowledge = handler.knowledge
    asked: dict[Ceiling, int] = {}
    never: dict[tuple[str, str], Blocker] = {}
    limits: dict[str, frozenset[str]] = {}
    unsure = kept = False
    why_never = ""
    last = _last_in_line(handler, now)
    for demand, times in wanted:
        shape = _shape(knowledge, demand)
        knowledge.know(shape)
        for ceiling, amount in shape.meets:
            asked[ceiling] = asked.get(ceiling, 0) + amount * times
        if shape.never is not None:
            never[shape.never[:2]] = _never(handler, shape.never)
            why_never = why_never or shape.never_sentence()
        unsure = unsure or bool(shape.unsure)
        kept = kept or handler.keeping.closes(shape, last)
        limits |= {q.name: frozenset(q.ceilings) for q in knowledge.quotas.values() if q.applies(shape.scopes)}
    # what settles counts as left: it settles soon
    left = {ceiling: ceiling.left - elsewhere.get((ceiling.quota, ceiling.resource), 0) for ceiling in asked}
    full = {ceiling: amount for ceiling, amount in asked.items() if amount > left[ceiling]}
    blockers = {
        (c.quota, c.resource): Blocker(c.quota, c.resource, amount, left[c], c.limited) for c, amount in full.items()
    } | never
    known = knowledge.observing or bool(asked and not unsure)
    return Outlook(
        _prospect(never=bool(never), blocked=bool(full) or kept, known=known),
        tuple(blockers.values()),
        estimate(handler, last, tuple(full.items()), now, in_line=False)[0] if full and not never else None,
        kept=kept and not full,
        learned=not knowledge.observing,
        limits=limits,
        why_never=why_never,
    )


def _shape(knowledge: Knowledge, demand: Demand) -> Shape:
    """Return the shape of a demand, or one to be thrown away: a question leaves no trace."""
    shape = knowledge.shapes.get(demand.key)
    if shape is None:
        shape = Shape(demand)
        if isinstance(demand, Parts):
            shape.parts = tuple((_shape(knowledge, part), count) for part, count in demand.parts)
    return shape


def _prospect(*, never: bool, blocked: bool, known: bool) -> Prospect:
    if never:
        return "never"
    if blocked:
        return "wait"
    return "now" if known else "unknown"


def _last_in_line(handler: Handler, now: float) -> Request:
    """Return a request that stands where one would that joined now."""
    request = Request("", handler.namespace, _NOTHING)
    request.rank, request.seq, request.joined = now, _LAST, now
    return request


def _never(handler: Handler, why: tuple[str, str, int, int]) -> Blocker:
    quota, resource, asked, limited = why
    ceiling = handler.knowledge.quotas[quota].ceilings.get(resource)
    return Blocker(quota, resource, asked, limited if ceiling is None else ceiling.left, limited)

"""Pages for those who look from outside: each call takes a moment, however many namespaces and waiters there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import place_of
from backoff_ctrl.engine.gangs.gang import room_for
from backoff_ctrl.engine.handler import ComputeResourceAwareBackOffHandler
from backoff_ctrl.engine.shared import Shared

from .explaining import Explanation, WaitReason, cause, explain


@dataclass(frozen=True, slots=True)
class Blocker:
    """A ceiling that a request waits for; amounts in nano-units."""

    quota: str
    resource: str
    asked: int
    left: int
    limited: int


@dataclass(frozen=True, slots=True)
class WaitingSnapshot:
    """A request that waits. ``place`` is its place among those of equal size and more, as a cursor.

    ``at`` is when it was looked at: the seconds in ``why`` count from there.
    """

    request: Request
    why: Explanation
    blockers: tuple[Blocker, ...]
    place: tuple[float, int]
    at: float


def blockers(handler: ComputeResourceAwareBackOffHandler, request: Request) -> tuple[Blocker, ...]:
    """List all the ceilings without room for a request."""
    shape = handler.knowledge.shape_of(request.demand)
    handler.knowledge.know(shape)
    return tuple(
        Blocker(ceiling.quota, ceiling.resource, asked, ceiling.left, ceiling.limited)
        for ceiling, asked in shape.meets
        if asked > room_for(request, ceiling)
    )


def waiting(
    handler: ComputeResourceAwareBackOffHandler,
    shared: Shared,
    after: tuple[float, int] | None,
    limit: int,
    now: float,
) -> list[WaitingSnapshot]:
    """Return up to ``limit`` requests that wait behind the place ``after`` (None: from the first on), in order."""
    found = handler.line.behind(after, limit)
    ahead = handler.line.ahead(place_of(found[0])) if found else 0
    return [
        WaitingSnapshot(
            request,
            explain(handler, request, ahead + number, shared, now),
            blockers(handler, request),
            place_of(request),
            now,
        )
        for number, request in enumerate(found)
    ]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many requests wait: by reason, and by each quota and resource that they wait for."""

    reasons: Counter[WaitReason]
    blocked: Counter[tuple[str, str]]


def tally(
    handler: ComputeResourceAwareBackOffHandler, shared: Shared, start: int, limit: int, now: float
) -> tuple[Tally, int | None]:
    """Count who waits why and for what, in up to ``limit`` rows from row ``start`` on; say with which row to go on.

    A row of equal requests waits for one reason, except that room may be kept for its head.
    """
    found = Tally(Counter(), Counter())
    order = handler.line.order
    for _, _, row in islice(order, start, start + limit):
        count = len(row.waiting) - row.dead
        _count(found, handler, row.waiting[0], 1, shared, now)
        if count > 1:
            _count(found, handler, row.waiting[-1], count - 1, shared, now)
    return found, start + limit if start + limit < len(order) else None


def _count(
    found: Tally,
    handler: ComputeResourceAwareBackOffHandler,
    request: Request,
    number: int,
    shared: Shared,
    now: float,
) -> None:
    reason, ceilings = cause(handler, request, shared, now)
    found.reasons[reason] += number
    for ceiling in ceilings:
        found.blocked[ceiling.quota, ceiling.resource] += number

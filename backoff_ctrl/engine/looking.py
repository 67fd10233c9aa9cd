"""Pages for those who look from outside: each call takes a moment, however many namespaces and waiters there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

from .explaining import Explanation, WaitReason, explain, reason_of
from .gangs import room_for
from .handler import ComputeResourceAwareBackOffHandler
from .requests import Request
from .roll import place_of
from .shapes import Row
from .shared import Shared


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


def reasons(
    handler: ComputeResourceAwareBackOffHandler, shared: Shared, start: int, limit: int, now: float
) -> tuple[Counter[WaitReason], int | None]:
    """Count why requests wait, by up to ``limit`` rows from row ``start`` on; say also with which row to go on.

    A row of equal requests waits for one reason, except that room may be kept for its head.
    """
    found: Counter[WaitReason] = Counter()
    order = handler.line.order
    for _, _, row in islice(order, start, start + limit):
        _count(found, handler, row, shared, now)
    return found, start + limit if start + limit < len(order) else None


def _count(
    found: Counter[WaitReason],
    handler: ComputeResourceAwareBackOffHandler,
    row: Row,
    shared: Shared,
    now: float,
) -> None:
    count = len(row.waiting) - row.dead
    found[reason_of(handler, row.waiting[0], shared, now)] += 1
    if count > 1:
        found[reason_of(handler, row.waiting[-1], shared, now)] += count - 1

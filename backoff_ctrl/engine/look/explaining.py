"""What the engine shows of itself: why a request waits, and what is known, reserved and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from backoff_ctrl.engine.facts.ceilings import AHEAD_MIN, TREND_SPAN, Ceiling, Charges
from backoff_ctrl.engine.facts.quotas import Quota
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import Place
from backoff_ctrl.engine.facts.shapes import Shape
from backoff_ctrl.engine.gangs.gang import Draw, GangSnapshot, Reservation, gang_snapshot, room_for
from backoff_ctrl.engine.handler import ComputeResourceAwareBackOffHandler
from backoff_ctrl.engine.overload import WindowSnapshot
from backoff_ctrl.engine.shared import Shared

WaitReason = Literal[
    "quota",
    "kept-for-another",
    "never-fits",
    "paused",
    "paused-by-operator",
    "first-contact",
    "overload",
    "namespace-slowed",
    "not-counted-yet",
    "comes-back",
    "its-turn",
]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request waits. Amounts are nano-units; times other than ``waited`` are seconds from now, or None.

    ``quota`` and ``resource`` are empty if no quota is the reason. ``place`` is 1 for the first in line.
    ``estimate`` is a guess from how fast others got in lately; None where that gives no basis, as for the first few in
    line. ``latest``: by the same rate it is in by then 19 times of 20. ``beside``: further resources of that quota
    which lack room for it, each with the amounts asked, left and limited.
    """

    reason: WaitReason
    quota: str
    resource: str
    asked: int
    left: int
    limited: int
    place: int
    waited: float
    next_probe: float | None
    estimate: float | None
    beside: tuple[tuple[str, int, int, int], ...] = ()
    latest: float | None = None


@dataclass(frozen=True, slots=True)
class CeilingSnapshot:
    """One ceiling: amounts in nano-units, ages and times in seconds from now.

    ``doubt`` is the part of ``used`` that the quota object does not show: charges of our own creates that are known to
    live, or that have ended since the last recount. ``reserved`` is what admitted gangs may still draw.
    ``unsettled`` is the part of ``headroom`` that is news still. ``trend`` is by how much ``used`` rose in the last
    minutes, less than 0 if it fell; None: it is not known for so long, or there was no news since.
    """

    limited: int
    used: int
    doubt: int
    unsettled: int
    held: int
    reserved: int
    headroom: int
    source: Literal["learned", "observed"]
    age: float
    block: Literal["shut", "ready", "probing"] | None
    attempts: int
    next_probe: float | None
    kept: bool
    trend: int | None


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """One namespace: its ceilings by quota and resource, and its counts of waiting requests and creates in flight.

    ``observing``: changes of its quotas are reported; ``ends_told``: so are the ends of what we create there;
    ``oldest``: how long the one has waited that waits longest, in seconds, None if the line is empty. ``seats``: places
    kept for callers that went away. ``overtakings`` and ``stale`` (refusals by a state older than ours, by quota) count
    since the namespace is known. ``gangs`` are the admitted ones that are not complete.
    """

    quotas: Mapping[str, Mapping[str, CeilingSnapshot]]
    observing: bool
    ends_told: bool
    waiting: int
    oldest: float | None
    seats: int
    outstanding: int
    answered_holds: int
    unproven: int
    unproven_window: int
    release_gap: float
    brake: WindowSnapshot | None
    overtakings: int
    stale: Mapping[str, int]
    gangs: tuple[GangSnapshot, ...] = ()
    waiting_gangs: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole engine; ``settle_time`` is in seconds."""

    namespaces: Mapping[str, NamespaceSnapshot]
    flows: Mapping[str, WindowSnapshot]
    settle_time: float


def explain(
    handler: ComputeResourceAwareBackOffHandler, request: Request, ahead: int, shared: Shared, now: float
) -> Explanation:
    """Explain why a waiting request, with so many ahead of it in line, is not sent yet."""
    shape = handler.knowledge.shape_of(request.demand)
    handler.knowledge.know(shape)
    reason, ceiling, asked = _reason(handler, request, shape, shared, now)
    block = handler.probing.blocks.get(ceiling) if ceiling is not None else None
    if isinstance(request, Reservation) and handler.gangs is not None and not handler.knowledge.observing:
        block = handler.gangs.reads.block  # its probe is a read
    next_probe = max(0.0, block.due - now) if block is not None and block.state == "shut" else None
    seconds, latest = estimate(handler, request, shape.meets, now) if reason == "quota" else (None, None)
    return Explanation(
        reason=reason,
        quota=ceiling.quota if ceiling is not None else "",
        resource=ceiling.resource if ceiling is not None else "",
        asked=asked,
        left=ceiling.left if ceiling is not None else 0,
        limited=ceiling.limited if ceiling is not None else 0,
        place=ahead + 1,
        waited=now - request.joined,
        next_probe=next_probe,
        estimate=seconds,
        beside=tuple(
            (other.resource, more, other.left, other.limited)
            for other, more in shape.meets
            if ceiling is not None and other is not ceiling and other.quota == ceiling.quota
            if more > room_for(request, other)
        ),
        latest=latest,
    )


def cause(
    handler: ComputeResourceAwareBackOffHandler, request: Request, shared: Shared, now: float
) -> tuple[WaitReason, list[Ceiling]]:
    """Say in a word why a waiting request is not sent yet, and list the ceilings that it waits for."""
    shape = handler.knowledge.shape_of(request.demand)
    handler.knowledge.know(shape)
    reason, ceiling, _ = _reason(handler, request, shape, shared, now)
    waits_for = [each for each, asked in shape.meets if asked > room_for(request, each)]
    if ceiling is not None and ceiling not in waits_for:  # its room is kept for another
        waits_for.append(ceiling)
    return reason, waits_for


def estimate(
    handler: ComputeResourceAwareBackOffHandler, request: Request, meets: Charges, now: float, *, in_line: bool = True
) -> tuple[float | None, float | None]:
    """Estimate the seconds until a request is admitted, and the latest: by the ceiling that takes longest.

    Each is None without a basis. ``meets`` is what it is charged, and where. ``in_line``: it waits; else it is one that
    might come.
    """
    line = handler.line
    longest = latest = 0.0
    fewest = None
    for ceiling, asked in meets:
        if asked <= room_for(request, ceiling):
            continue
        if ceiling.drain is None:
            return None, None
        waiting, count = line.ahead_at(request, ceiling, asked)
        if not in_line:
            waiting, count = waiting + asked, count + 1
        needed = waiting - ceiling.left if waiting > ceiling.left > 0 else waiting
        found = ceiling.drain.seconds_for(needed, count, asked, line.head_joined, now)
        if found is None:
            return None, None
        longest, latest = max(longest, found[0]), max(latest, found[1])
        fewest = count if fewest is None else min(fewest, count)
    if fewest is None:
        return None, None
    return (longest if fewest >= AHEAD_MIN else None), latest


def _reason(
    handler: ComputeResourceAwareBackOffHandler, request: Request, shape: Shape, shared: Shared, now: float
) -> tuple[WaitReason, Ceiling | None, int]:
    """Find what blocks the request, the most lasting reason first."""
    if handler.pace.halted or handler.is_away(request):
        return "paused-by-operator" if handler.pace.halted else "comes-back", None, 0
    kept = handler.keeping.kept
    place: Place = (request.rank, request.seq)
    own: Mapping[Ceiling, int] = {}
    if isinstance(request, Draw) and request.gang.whole:  # it stands at its gang's place, and has that one's room
        place, own = request.gang.place, request.gang.covered
    for ceiling, asked in shape.meets:
        if shape.never is not None and shape.never[:2] == (ceiling.quota, ceiling.resource):
            return "never-fits", ceiling, asked
    for ceiling, asked in shape.meets:
        if asked > room_for(request, ceiling):
            return ("paused" if ceiling.limited == 0 else "quota"), ceiling, asked
    if isinstance(request, Reservation) and not handler.knowledge.observing:
        return "first-contact", None, 0  # the quotas are read for it, again and again
    for ceiling, asked in shape.meets:
        if ceiling in kept and kept[ceiling] < place and asked > own.get(ceiling, 0):
            return "kept-for-another", ceiling, asked
    return _reason_beside_quota(handler, request, shape, shared, now), None, 0


def _reason_beside_quota(
    handler: ComputeResourceAwareBackOffHandler, request: Request, shape: Shape, shared: Shared, now: float
) -> WaitReason:
    if not shape.meets and not handler.knowledge.observing and handler.pace.unproven >= handler.pace.window:
        return "first-contact"
    if now < shape.resend_at:
        return "not-counted-yet"
    if handler.pace.brake is not None and not handler.pace.brake.is_open(now):
        return "namespace-slowed"
    if not shared.flow(request.flow).is_open(now):
        return "overload"
    return "its-turn"


def namespace_snapshot(handler: ComputeResourceAwareBackOffHandler, now: float) -> NamespaceSnapshot:
    knowledge = handler.knowledge
    gangs = handler.gangs
    return NamespaceSnapshot(
        quotas={
            name: {resource: _ceiling(handler, quota, c, now) for resource, c in quota.ceilings.items()}
            for name, quota in knowledge.quotas.items()
        },
        observing=knowledge.observing,
        ends_told=knowledge.living.followed,
        waiting=handler.line.size,
        oldest=now - handler.line.first_joined(handler.policy.age_step) if handler.line.size else None,
        seats=0 if handler.knowledge.away is None else handler.knowledge.away.empty_seats(now),
        outstanding=len(knowledge.outstanding),
        answered_holds=sum(len(quota.holds.answered) for quota in knowledge.quotas.values()),
        unproven=handler.pace.unproven,
        unproven_window=handler.pace.window,
        release_gap=handler.keeping.release_gap,
        brake=handler.pace.brake.snapshot(now) if handler.pace.brake is not None else None,
        overtakings=handler.keeping.overtakings,
        stale={name: quota.stale for name, quota in knowledge.quotas.items() if quota.stale},
        gangs=()
        if gangs is None
        else tuple(gang_snapshot(gang, gangs.given_back_at(gang, now) - now) for gang in knowledge.gangs),
        waiting_gangs=0 if gangs is None else gangs.waiting,
    )


def _ceiling(
    handler: ComputeResourceAwareBackOffHandler, quota: Quota, ceiling: Ceiling, now: float
) -> CeilingSnapshot:
    block = handler.probing.blocks.get(ceiling)
    return CeilingSnapshot(
        limited=ceiling.limited,
        used=ceiling.used,
        doubt=ceiling.doubt,
        unsettled=ceiling.unsettled,
        held=ceiling.held,
        reserved=ceiling.reserved,
        headroom=ceiling.left,
        source="observed" if quota.observed else "learned",
        age=now - ceiling.answered,
        block=block.state if block is not None else None,
        attempts=block.attempts if block is not None else 0,
        next_probe=max(0.0, block.due - now) if block is not None and block.state == "shut" else None,
        kept=ceiling in handler.keeping.kept,
        trend=ceiling.trend(now) if quota.observed or now - ceiling.answered < TREND_SPAN else None,
    )

"""A gang: several creates that are admitted as one. Its reservation, what was drawn of it, and what it lacks.

The whole waits in line as one request. Once admitted, its amounts are *reserved*, and each member that is sent *draws*
its amounts from there: they become held, and no other room changes. ``covered`` is the part of what is still needed
that is backed by room; what strangers took of it is the gang's *deficit*. Room that is missing is taken from the
youngest gang first, so that of two gangs that lack room the elder is completed, and they never wait for each other.

A gang may *keep* its room: when a member of it ends, the room is reserved again for the member that follows, as long as
the gang wants so many members. It has no limit, and ends only when it is given back. ``members`` says how.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import Place
from backoff_ctrl.engine.facts.shapes import Shape
from backoff_ctrl.engine.tickets import Refusal, Ticket

GangEnd = Literal["complete", "given-back", "limit", "absorbed"]


class Reservation(Request):
    """The request of a whole gang. ``limit``: seconds from one draw to the next; then what is undrawn is given back.

    ``keeps``: it keeps its room until it is given back: the room of a member that ends is for the next one.
    """

    __slots__ = ("keeps", "limit", "parts")

    def __init__(
        self,
        id: str,  # noqa: A002
        namespace: str,
        parts: Parts,
        priority: int = 0,
        flow: str = "",
        limit: float | None = None,
        *,
        keeps: bool = False,
    ) -> None:
        """Describe the gang; ``Controller.reserve`` begins it. Without a limit, the policy's counts.

        ``GangError`` for a limit that is not above 0, and for one of a gang that ``keeps`` its room: it has no limit.
        """
        if keeps and limit is not None:
            raise GangError(f"the gang {id} keeps its room until it is given back: it has no limit")
        if limit is not None and not limit > 0:  # NaN is above no number
            raise GangError(f"the limit of the gang {id} is a number of seconds above 0, not {limit!r}")
        super().__init__(id, namespace, parts, priority, flow)
        self.parts = parts
        self.limit = limit
        self.keeps = keeps


class Draw(Request):
    """One member of a gang that is to be created now. ``part`` counts the gang's parts from 0."""

    __slots__ = ("gang", "has_own_room", "part", "row_mark")

    passes_line = True

    def __init__(self, id: str, gang: Gang, part: int, flow: str = "") -> None:  # noqa: A002
        """Describe the member; ``GangError`` if the gang has no such part."""
        if not 0 <= part < len(gang.shapes):
            raise GangError(f"the gang {gang.id} has {len(gang.shapes)} parts: there is no part {part + 1}")
        super().__init__(id, gang.namespace, gang.shapes[part].demand, gang.priority, flow)
        self.gang = gang
        self.part = part
        self.has_own_room = gang.whole
        self.row_mark = f"{flow}\0{gang.id}"  # members of one gang wait together, and with no other request


class Gang:
    """A gang that was admitted. Amounts are nano-units.

    ``undrawn`` counts the members of each part that may still be drawn, ``drawn`` those that were. ``whole`` is false
    where the quotas can't be read: then its members go one by one, without a reservation.
    Of a gang that ``keeps`` its room, ``drawn`` counts the members that live, ``alive`` the same by part, and
    ``wanted`` the members that each part is to have at a time.
    """

    __slots__ = (
        "alive", "covered", "drawn", "end", "id", "in_flight", "keeps", "limit", "moved", "namespace", "needs",
        "not_before", "place", "priority", "returning", "shapes", "since", "uids", "undrawn", "waiting", "waiting_of",
        "wanted", "whole",
    )  # fmt: skip

    def __init__(self, request: Reservation, shapes: Sequence[Shape], limit: float, now: float, *, whole: bool) -> None:
        """Start without drawn members and covered amounts; ``shapes`` are those of the parts, in order."""
        self.id = request.id
        self.namespace = request.namespace
        self.priority = request.priority
        self.place: Place = (request.rank, request.seq)
        self.shapes = tuple(shapes)
        self.keeps = request.keeps
        self.undrawn = [count for _, count in request.parts.parts]
        self.wanted = list(self.undrawn)
        self.alive = [0] * len(self.shapes)
        self.drawn = 0
        self.in_flight = 0
        self.limit = limit
        self.since = now  # the limit counts from here: the last draw, or the admission
        self.moved = now  # the last draw that the server did not send back, or the admission
        self.not_before = now  # no draw is sent before that
        self.whole = whole
        self.needs: dict[Ceiling, int] = {}
        self.covered: dict[Ceiling, int] = {}
        self.returning: dict[Ceiling, int] = {}  # the part of it that is still charged to members that have ended
        self.waiting: dict[Draw, None] = {}
        self.waiting_of = [0] * len(self.shapes)  # how many of those, by part
        self.uids: set[str] = set()  # of the members that others created
        self.end: GangEnd | None = None

    @property
    def left(self) -> int:
        """The number of members that may still be drawn."""
        return sum(self.undrawn)

    def lacks(self, ceiling: Ceiling) -> int:
        """Return what is needed here and not covered: the deficit."""
        return self.needs.get(ceiling, 0) - self.covered.get(ceiling, 0)

    @property
    def deficits(self) -> dict[Ceiling, int]:
        """What is needed and not covered, by ceiling."""
        covered = self.covered
        return {c: need - covered[c] for c, need in self.needs.items() if need > covered[c]}

    @property
    def free(self) -> Mapping[Ceiling, int]:
        """What is covered and not charged any more to members that have ended."""
        returning = self.returning
        return {c: n - returning.get(c, 0) for c, n in self.covered.items()} if returning else self.covered

    def expect(self, ceiling: Ceiling, amount: int) -> None:
        """Note that so much more (or less) of it is still charged to members that have ended."""
        self.returning[ceiling] = self.returning.get(ceiling, 0) + amount

    def may_draw(self, part: int) -> bool:
        """Say whether a member of this part is left for one more draw, beside those that wait already."""
        return self.undrawn[part] > self.waiting_of[part]

    def waits(self, draw: Draw) -> None:
        """Note a draw that waits: no other draw may take its member."""
        self.waiting[draw] = None
        self.waiting_of[draw.part] += 1

    def waits_no_more(self, draw: Draw) -> None:
        """Note that a draw was sent, withdrawn or refused; twice is no error."""
        if draw in self.waiting:
            del self.waiting[draw]
            self.waiting_of[draw.part] -= 1

    def recount(self) -> None:
        """Count afresh what is needed where, as the shapes say now; no part of it is reserved at this moment.

        All of it is covered at first, but for what was lacking before: that is made up at the gang's place in line.
        """
        if not self.whole:
            return
        lacked = self.deficits
        self.needs, self.covered = {}, {}
        for shape, count in zip(self.shapes, self.undrawn, strict=True):
            for ceiling, amount in shape.meets:
                self._need(ceiling, count * amount)
        for ceiling in lacked.keys() & self.covered.keys():
            self.uncover(ceiling, min(lacked[ceiling], self.covered[ceiling]))

    def _need(self, ceiling: Ceiling, amount: int) -> None:
        self.needs[ceiling] = self.needs.get(ceiling, 0) + amount
        self.covered.setdefault(ceiling, 0)
        self.cover(ceiling, amount)

    def cover(self, ceiling: Ceiling, amount: int) -> None:
        """Reserve room, whether or not there is as much."""
        self.covered[ceiling] += amount
        ceiling.set_apart(amount, keeps=self.keeps)

    def uncover(self, ceiling: Ceiling, amount: int) -> None:
        self.covered[ceiling] -= amount
        ceiling.set_apart(-amount, keeps=self.keeps)

    def draws(self, part: int, now: float) -> None:
        """Take one member's amounts out of what is reserved; the caller holds them from now on."""
        self.undrawn[part] -= 1
        self.lives(part)
        self.since = now
        if not self.whole:
            return
        for ceiling, amount in self.shapes[part].meets:
            self.needs[ceiling] -= amount
            self.uncover(ceiling, min(amount, self.covered[ceiling]))

    def put_back(self, part: int) -> None:
        """Take a draw back, whose create was not stored."""
        self.alive[part] -= 1
        self.drawn -= 1
        self.demand(part)

    def demand(self, part: int, count: int = 1) -> None:
        """Reserve room for so many more members, whether or not there is as much."""
        self.undrawn[part] += count
        if self.whole and self.end is None:
            for ceiling, amount in self.shapes[part].meets:
                self._need(ceiling, count * amount)

    def lives(self, part: int, count: int = 1) -> None:
        """Count members that live."""
        self.alive[part] += count
        self.drawn += count

    def grow(self, part: int, wanted: int, alive: int, undrawn: int) -> None:
        """Take in the members of an equal part of another gang."""
        self.wanted[part] += wanted
        self.lives(part, alive)
        self.demand(part, undrawn)

    def returns(self, part: int) -> bool:
        """Count a member that has ended, and reserve its room again if another is wanted; say whether it is."""
        self.alive[part] -= 1
        self.drawn -= 1
        if self.alive[part] + self.undrawn[part] >= self.wanted[part]:
            return False
        self.demand(part)
        return True

    def drop(self, part: int, count: int) -> list[tuple[Ceiling, int]]:
        """Want so many undrawn members less; return the room that this gives back. What is lacking goes first."""
        self.undrawn[part] -= count
        given = []
        for ceiling, amount in self.shapes[part].meets if self.whole else ():
            need = self.needs[ceiling] = self.needs[ceiling] - count * amount
            if (over := self.covered[ceiling] - need) > 0:
                self.uncover(ceiling, over)
                given.append((ceiling, over))
        return given

    def pause_limit(self, since: float, until: float) -> None:
        """Leave this time out of the limit."""
        self.since += until - max(since, self.since)
        self.moved += until - max(since, self.moved)

    def release(self) -> None:
        for ceiling, amount in self.covered.items():
            ceiling.set_apart(-amount, keeps=self.keeps)
        self.needs, self.covered = {}, {}

    def part_of(self, charged: Demand, among: Sequence[int] | None = None) -> int | None:
        """Return the part that a member made by others is of: of equal charge, else that which lacks most members.

        ``among`` are the parts that it may be of; None: all. None is returned for one too many, beside the draws that
        wait. One of a gang that keeps its room is never of another part than that of equal charge, since its end would
        return the wrong one's room.
        """
        parts = range(len(self.undrawn)) if among is None else among
        left = [part for part in parts if self.may_draw(part)]
        equal = self._like(charged, left)
        if self.keeps and not equal and self._like(charged, parts):
            return None
        return max(equal or left, key=self.undrawn.__getitem__, default=None)

    def _like(self, charged: Demand, parts: Iterable[int]) -> list[int]:
        return [part for part in parts if self.shapes[part].charges(charged)]

    def part_beyond(self, charged: Demand, among: Sequence[int] | None = None) -> int:
        """Return the part that a member is of which is one too many."""
        parts = range(len(self.shapes)) if among is None else among
        return next(iter([*self._like(charged, parts), *parts]), 0)

    def part_as(self, shape: Shape, like: int) -> int | None:
        """Return the part of this shape, that of the same number if possible, or None."""
        same = [part for part, each in enumerate(self.shapes) if each is shape]
        return like if like in same else next(iter(same), None)

    def is_next(self, draw: Draw) -> bool:
        """Say whether this draw may go now where members go one by one: the largest first, when no other is out.

        Of equal ones any may go: their order is the line's.
        """
        if self.in_flight:
            return False
        return self._size(draw.part) >= max(
            (self._size(part) for part, count in enumerate(self.waiting_of) if count), default=0.0
        )

    def _size(self, part: int) -> float:
        """Weigh a member: the sum of its amounts, each as a share of the largest part's."""
        amounts = self.shapes[part].demand.amounts
        largest = {name: max(shape.demand.amounts.get(name, 0) for shape in self.shapes) for name in amounts}
        return sum(amount / largest[name] for name, amount in amounts.items())


def room_for(request: Request, ceiling: Ceiling) -> int:
    """Return the room that a request may take: everybody's, and what its own gang has reserved."""
    if isinstance(request, Draw) and request.gang.whole:
        return room_for_gang(request.gang, ceiling)
    return ceiling.room


def room_for_gang(gang: Gang, ceiling: Ceiling) -> int:
    """Return the room that a draw may take. What members that have ended are still charged is no room yet."""
    return max(-gang.returning.get(ceiling, 0), ceiling.room) + gang.covered.get(ceiling, 0)


def balance(gangs: Sequence[Gang], ceilings: Iterable[Ceiling]) -> None:
    """Let the youngest gangs give up what strangers took: no more is covered than there is room."""
    for ceiling in ceilings:
        if ceiling.room >= 0 or not ceiling.reserved:
            continue
        for gang in reversed(gangs):
            if not (lacking := ceiling.lacking):
                break
            if covered := gang.covered.get(ceiling, 0):
                gang.uncover(ceiling, min(lacking, covered))


@dataclass(frozen=True, slots=True)
class Grant:
    """What ``Controller.advance`` returns when a whole gang was admitted: draw its members from now on."""

    request: Reservation
    gang: Gang


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What ``Controller.advance`` returns when a gang's limit has passed: what was undrawn is no longer reserved."""

    gang: Gang
    drawn: int
    undrawn: int


@dataclass(frozen=True, slots=True)
class Look:
    """What ``Controller.advance`` returns when a gang waits where quotas can be read but are not watched.

    Read the quotas of the namespace, report each with ``observe_quota``, then say ``Controller.looked``.
    """

    namespace: str


Effect: TypeAlias = "Ticket | Refusal | Grant | GivenBack | Look"
"""What ``Controller.advance`` returns."""


@dataclass(frozen=True, slots=True)
class GangSnapshot:
    """One admitted gang: its members, and what it lacks by quota and resource in nano-units.

    ``until`` is when its limit ends, in seconds from now; infinity for one that ``keeps`` its room until it is given
    back. Then ``drawn`` are the members that live, and ``wanted`` those that it is to have at a time.
    """

    id: str
    drawn: int
    undrawn: int
    whole: bool
    lacks: Mapping[tuple[str, str], int]
    until: float
    keeps: bool = False
    wanted: int = 0


def gang_snapshot(gang: Gang, until: float) -> GangSnapshot:
    lacks = {(ceiling.quota, ceiling.resource): amount for ceiling, amount in gang.deficits.items()}
    return GangSnapshot(gang.id, gang.drawn, gang.left, gang.whole, lacks, until, gang.keeps, sum(gang.wanted))

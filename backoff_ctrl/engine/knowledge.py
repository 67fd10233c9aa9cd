"""What a namespace knows of its quotas, and what each shape meets there.

Structure (which quota has which ceilings, and applies to whom) carries a ``version``: shapes look at it anew when
it moved, and what is held is recounted. Amounts change without it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .backoff import FOREVER
from .ceilings import Ceiling
from .living import Living
from .quotas import Quota
from .shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping

    from .demand import Demand
    from .outcomes import Rejected
    from .policy import Policy
    from .quotas import ObservedQuota
    from .tickets import Ticket


class Knowledge:
    """The quotas of one namespace as facts have told them, and the creates of ours that facts may not contain."""

    __slots__ = ("living", "observing", "outstanding", "quotas", "recent", "shapes", "version")

    def __init__(self, *, observing: bool, ends_told: bool) -> None:
        """Know nothing but which news comes by itself: of quotas, and of the ends of what is created."""
        self.quotas: dict[str, Quota] = {}
        self.shapes: dict[str, Shape] = {}
        self.outstanding: dict[Ticket, None] = {}  # in the order they were sent
        self.recent: deque[tuple[float, Shape]] = deque()  # answered 201 while others were outstanding
        self.living = Living(told=ends_told)
        self.version = 0
        self.observing = observing

    def ceilings(self) -> Iterator[Ceiling]:
        """Go through every ceiling."""
        for quota in self.quotas.values():
            yield from quota.ceilings.values()

    def shape_of(self, demand: Demand) -> Shape:
        """Return the shape of a demand, new where it is the first of it."""
        shape = self.shapes.get(demand.key)
        if shape is None:
            shape = self.shapes[demand.key] = Shape(demand)
        return shape

    def is_watched(self, quota: str) -> bool:
        """Say whether the changes of this quota, which is known, are reported."""
        return self.observing and self.quotas[quota].observed

    def know(self, shape: Shape) -> None:
        """Bring what a shape meets up to the present structure."""
        if shape.version == self.version:
            return
        amounts = shape.amounts
        scopes = shape.scopes
        quotas = []
        unsure = []
        for quota in self.quotas.values():
            applies = quota.applies(scopes)
            if applies is None:
                unsure.append(quota)
            elif applies:
                charges = tuple((c, amounts[name]) for name, c in quota.ceilings.items() if amounts.get(name))
                if charges:
                    quotas.append((quota, charges))
        shape.quotas = tuple(quotas)
        shape.meets = tuple(charge for _, charges in quotas for charge in charges)
        shape.unsure = tuple(unsure)
        shape.never = self._never(shape, amounts)
        shape.version = self.version

    def _never(self, shape: Shape, amounts: Mapping[str, int]) -> tuple[str, str, int, int] | None:
        """Find the quota that a shape can never fit: by its observed spec, else by what two refusals said."""
        for quota in self.quotas.values():
            if not quota.applies(shape.scopes):
                continue
            for name, limited in quota.spec.items():
                ceiling = quota.ceilings.get(name)
                largest = limited if ceiling is None else max(limited, ceiling.limited)  # a refusal may be newer
                if limited > 0 and largest < amounts.get(name, 0):
                    return quota.name, name, amounts[name], largest
        if shape.verdict is not None:
            quota_name, name = shape.verdict
            found = self.quotas.get(quota_name)
            ceiling = found.ceilings.get(name) if found is not None and not found.spec else None
            if ceiling is not None and 0 < ceiling.limited < amounts.get(name, 0):
                return quota_name, name, amounts[name], ceiling.limited
        return None

    def restructure(self) -> None:
        """Take in a change of structure: shapes look anew, and what is held is counted afresh."""
        self.version += 1
        for ceiling in self.ceilings():
            ceiling.room += ceiling.held
            ceiling.held = 0
        for ticket in self.outstanding:
            self.know(ticket.shape)
            for ceiling, amount in ticket.shape.meets:
                ceiling.reserve(amount)
        for quota in self.quotas.values():
            for _, charges, _ in quota.holds.answered:
                for ceiling, amount in charges:
                    ceiling.reserve(amount)
        for ceiling in self.ceilings():
            ceiling.credit = min(ceiling.credit, ceiling.held)

    def answered(self, shape: Shape, stored: str, now: float) -> bool:
        """Hand a created ticket's hold over: to the watch, else into ``used``. Say whether holds ended by it."""
        handed = False
        life = self.living.begin(stored, now) if self.observing else None
        for quota, charges in shape.quotas:
            if quota.observed:
                handed = quota.holds.add(charges, now, life) or handed
            else:
                for ceiling, amount in charges:
                    ceiling.held -= amount  # its room stays taken: used
        shape.used_at = now
        if self.outstanding:
            self.recent.append((now, shape))
            oldest = next(iter(self.outstanding)).sent
            while self.recent and self.recent[0][0] < oldest:
                self.recent.popleft()
        elif self.recent:
            self.recent.clear()
        return handed

    def accept(self, rejected: Rejected, scopes: frozenset[str], sent: float, now: float) -> dict[str, int]:
        """Take in what a refusal teaches; return by how much the headroom grew where it replaced amounts.

        It proves that the quota applies to this scope class in any case. Amounts: only those it names, and only if
        it was sent after the newest fact about them was received; what is not named stays as it was.
        """
        quota = self.quotas.get(rejected.quota)
        if quota is None:
            quota = self.quotas[rejected.quota] = Quota(rejected.quota)
        structural = quota.applies(scopes) is not True
        if structural:
            quota.classes[scopes] = True
        fresh = {}
        for name, limited in rejected.limited.items():
            used = rejected.used.get(name)
            if used is None:
                continue
            ceiling = quota.ceilings.get(name)
            if ceiling is None:
                ceiling = quota.ceilings[name] = Ceiling(quota.name, name, limited, used)
                structural = True
            elif sent <= ceiling.answered:
                continue
            structural = structural or limited != ceiling.limited  # verdicts of never-fits hang on it
            fresh[name] = (limited - used) - (ceiling.left + ceiling.doubt + ceiling.held)
            ceiling.believe(limited, used)
            ceiling.answered = now
        if structural:
            self.restructure()
        if self.recent and not quota.observed:
            self._add_recent(quota, fresh.keys(), sent)
        return fresh

    def _add_recent(self, quota: Quota, fresh: Collection[str], sent: float) -> None:
        """Count creates of ours, answered after the refused one was sent: its ``used`` may lack them."""
        for at, shape in self.recent:
            if at >= sent:
                self.know(shape)
                for ceiling, amount in shape.meets:
                    if ceiling.quota == quota.name and ceiling.resource in fresh:
                        ceiling.charge(amount)

    def observe(self, name: str, seen: ObservedQuota, now: float) -> list[tuple[Ceiling, int]]:
        """Take in a quota object; return the room that it adds, which has yet to settle."""
        quota = self.quotas.get(name)
        if quota is None:
            quota = self.quotas[name] = Quota(name)
        first = not quota.observed
        structural = first or quota.selector != seen.selector or dict(quota.spec) != dict(seen.spec)
        if first:
            quota.observed = True
            for ceiling in quota.ceilings.values():
                ceiling.seen = seen.used.get(ceiling.resource, 0)
        else:
            quota.note_history(now)
        if quota.selector != seen.selector:
            quota.selector = seen.selector
            quota.classes.clear()
        quota.spec = dict(seen.spec)
        rooms = []
        for resource, limited in seen.hard.items():
            used = seen.used.get(resource, 0)
            found = quota.ceilings.get(resource)
            if found is None:
                quota.ceilings[resource] = Ceiling(name, resource, limited, used)
                structural = True
                continue
            structural = structural or limited != found.limited
            if room := found.observe(limited, used, recounted=resource in seen.recounted):
                rooms.append((found, room))
        for resource in [r for r in quota.ceilings if r not in seen.hard]:
            del quota.ceilings[resource]
            structural = True
        for ceiling in quota.ceilings.values():
            ceiling.answered = now
        if structural:
            self.restructure()
        return rooms

    def forget(self, name: str) -> bool:
        """Drop a quota that is gone; say whether it was known."""
        known = self.quotas.pop(name, None) is not None
        if known:
            self.restructure()
        return known

    def disprove(self, ticket: Ticket) -> None:
        """Learn from a probe that got in: what was believed of ``used`` left no room for it, so less is used."""
        for ceiling, _ in ticket.shape.meets:
            over = -ceiling.room
            if over > 0 and ticket.sent > ceiling.answered:
                over -= sum(amount for other in self.outstanding for c, amount in other.shape.meets if c is ceiling)
                if over > 0:
                    ceiling.disprove(over)

    def admitted_against(self, ticket: Ticket) -> bool:
        """Settle whether quotas of unknown scope apply: an admission that one would have refused proves no."""
        shape = ticket.shape
        amounts = shape.amounts
        proved = False
        for quota in shape.unsure:
            if any(amounts.get(name) and amounts[name] > c.room for name, c in quota.ceilings.items()):
                quota.classes[shape.scopes] = False
                proved = True
        if proved:
            self.outstanding[ticket] = None  # its own hold is recounted with the others
            self.restructure()
            del self.outstanding[ticket]
        return proved

    def correct_from(self, shape: Shape, charged: Demand, ticket: Ticket) -> None:
        """Compare what a stored object is charged with what was expected of its shape, and learn the difference."""
        shape.charged_key = charged.key
        expected = shape.amounts
        names = expected.keys() | charged.amounts.keys()
        truth = {name: charged.amounts.get(name, 0) for name in names}
        if truth == expected and charged.scopes == shape.scopes:
            return
        shape.scopes = charged.scopes
        shape.learn_charged(truth)
        self.outstanding[ticket] = None  # its own hold is recounted with the others
        self.restructure()
        self.know(shape)
        del self.outstanding[ticket]

    def correct(self, shape: Shape, requested: Mapping[str, int]) -> None:
        """Learn from a refusal what the server charges a shape: defaults and webhooks run before quota."""
        for name, asked in requested.items():
            if shape.amounts.get(name) != asked:
                shape.learn_charged(requested)
                self.restructure()
                return

    def end_holds(self, now: float, policy: Policy) -> bool:
        """End the holds answered ``answered_hold`` ago while the watch is healthy; say whether any ended.

        Without a watch they wait for the next list, but not for ever: after ``ticket_max`` they count as used.
        """
        ended = False
        for quota in self.quotas.values():
            if not quota.holds.answered:
                continue
            if self.observing:
                ended = quota.holds.end_old(now, policy.answered_hold) or ended
            else:
                quota.holds.use_old(now, policy.ticket_max)
        return ended

    def next_end(self, answered_hold: float, ticket_max: float) -> float:
        """Return when time alone ends a hold next; infinity if it ends none."""
        at = FOREVER
        if self.outstanding:
            at = next(iter(self.outstanding)).sent + ticket_max
        lasting = answered_hold if self.observing else ticket_max
        for quota in self.quotas.values():
            if quota.holds.answered:
                at = min(at, quota.holds.answered[0][0] + lasting)
        return at

    def forget_shapes(self, limit: float, waiting: Container[Shape]) -> None:
        """Drop the shapes not used since ``limit`` of which no create is ``waiting`` or outstanding."""
        sent = {ticket.shape for ticket in self.outstanding}
        for key, shape in list(self.shapes.items()):
            if shape.used_at <= limit and shape not in waiting and shape not in sent:
                del self.shapes[key]

    def forget_idle(self, limit: float) -> bool:
        """Drop the quotas without a fact since ``limit``, except the watched ones; say whether there were any."""
        idle = [
            name
            for name, quota in self.quotas.items()
            if not self.is_watched(name) and all(ceiling.answered <= limit for ceiling in quota.ceilings.values())
        ]
        for name in idle:
            del self.quotas[name]
        if idle:
            self.restructure()
        return bool(idle)

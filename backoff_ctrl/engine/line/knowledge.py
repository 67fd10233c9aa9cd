"""What is known of the quotas of one namespace, and which ceilings each shape meets.

The structure (which quota has which ceilings, and applies to which scope classes) has a ``version``. When it changes,
held amounts are counted afresh, and each shape looks up its ceilings again. Amounts change without a new version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.ceilings import NO_FACT, Ceiling, send, use
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.entries import BESIDE_GANGS, Pending
from backoff_ctrl.engine.facts.living import Living
from backoff_ctrl.engine.facts.outcomes import Rejected
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.engine.facts.quotas import Context, ObservedQuota, Quota, Settling
from backoff_ctrl.engine.facts.shapes import Shape
from backoff_ctrl.engine.gangs.gang import Gang
from backoff_ctrl.engine.gangs.members import Members
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.engine.tickets import Ticket

from .seats import Away

_MANY: Final = 4  # times as many resources as a demand has: then those of the demand are gone over


class Knowledge:
    """The quotas of one namespace as facts show them, and our own creates that the facts may not contain yet."""

    __slots__ = (
        "away", "context", "gangs", "living", "members", "observing", "outstanding", "quotas", "shapes", "undated_at",
        "version",
    )  # fmt: skip

    def __init__(self, settling: Settling, lag: float, *, observing: bool, ends_told: bool) -> None:
        """Start without any facts. ``observing``: changes of quotas are reported; ``ends_told``: ends of creates.

        ``lag``: how much later than a fall its end is reported at the most, in seconds.
        """
        self.context = Context(settling, lag)
        self.quotas: dict[str, Quota] = {}
        self.shapes: dict[str, Shape] = {}
        self.outstanding: dict[Ticket, None] = {}  # in the order they were sent
        self.gangs: list[Gang] = []  # the admitted ones that are not complete, by their place in line
        self.members: Members | None = None  # living ones, of gangs that keep their room
        self.away: Away | None = None  # requests whose callers are away, once there are any
        self.living = Living(followed=ends_told)
        self.version = 0
        self.observing = observing
        self.undated_at = (
            NO_FACT  # of the newest fact that dates no ceiling: a 201, a quota deleted, a watch begun or lost
        )

    def ceilings(self) -> Iterator[Ceiling]:
        for quota in self.quotas.values():
            yield from quota.ceilings.values()

    @property
    def size(self) -> int:
        """The number of ceilings."""
        return sum(len(quota.ceilings) for quota in self.quotas.values())

    def shape_of(self, demand: Demand) -> Shape:
        """Return the shape of a demand; the first time, make it."""
        shape = self.shapes.get(demand.key)
        if shape is None:
            shape = self.shapes[demand.key] = Shape(demand)
            if isinstance(demand, Parts):
                shape.parts = tuple((self.shape_of(part), count) for part, count in demand.parts)
        return shape

    def is_watched(self, quota: str) -> bool:
        """Say whether the changes of this quota, which is known, are reported."""
        return self.observing and self.quotas[quota].observed

    def know(self, shape: Shape) -> None:
        """Bring the ceilings that a shape meets up to the present structure."""
        if shape.version == self.version:
            return
        if shape.resend_at:
            shape.resend_at = 0.0  # perhaps it is counted now
        if shape.parts:
            self._know_whole(shape)
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
                ceilings = quota.ceilings
                charges = tuple((ceilings[name], amounts[name]) for name in _common(ceilings, amounts))
                if charges:
                    quotas.append((quota, charges))
        shape.quotas = tuple(quotas)
        shape.meets = tuple(charge for _, charges in quotas for charge in charges)
        shape.unsure = tuple(unsure)
        shape.never = self._never(shape, amounts)
        shape.version = self.version

    def _know_whole(self, shape: Shape) -> None:
        """Bring a gang's shape up to the present structure: it meets what its parts meet, with the sum of them."""
        total: dict[Ceiling, int] = {}
        for part, count in shape.parts:
            self.know(part)
            for ceiling, amount in part.meets:
                total[ceiling] = total.get(ceiling, 0) + count * amount
        shape.meets = tuple(total.items())
        shape.never = self._whole_never(shape)
        if shape.never is None:
            shape.suspected = None
        shape.version = self.version

    def _whole_never(self, shape: Shape) -> tuple[str, str, int, int] | None:
        """Find the quota that a gang can never fit: a part alone, or by the observed spec the sum of them."""
        for part, _ in shape.parts:
            if part.never is not None:
                return part.never
        for quota in self.quotas.values():
            for name, limited in quota.spec.items():
                asked = sum(
                    count * part.amounts.get(name, 0) for part, count in shape.parts if quota.applies(part.scopes)
                )
                ceiling = quota.ceilings.get(name)
                largest = limited if ceiling is None else max(limited, ceiling.limited)
                if limited > 0 and largest < asked:
                    return quota.name, name, asked, largest
        return None

    def _never(self, shape: Shape, amounts: Mapping[str, int]) -> tuple[str, str, int, int] | None:
        """Find the quota that a shape can never fit, by its observed spec, else by two refusals."""
        for quota in self.quotas.values():
            if not quota.applies(shape.scopes):
                continue
            for name in _common(quota.spec, amounts):
                limited, ceiling = quota.spec[name], quota.ceilings.get(name)
                largest = limited if ceiling is None else max(limited, ceiling.limited)  # a refusal may be newer
                if limited > 0 and largest < amounts[name]:
                    return quota.name, name, amounts[name], largest
        if shape.verdict is not None:
            quota_name, name = shape.verdict
            found = self.quotas.get(quota_name)
            ceiling = found.ceilings.get(name) if found is not None and not found.spec else None
            if ceiling is not None and 0 < ceiling.limited < amounts.get(name, 0):
                return quota_name, name, amounts[name], ceiling.limited
        return None

    def restructure(self) -> None:
        """Begin a new version of the structure, and count what is held afresh."""
        self.version += 1
        # Counted afresh instead of corrected: the sums do not show which holds a changed quota charges.
        for ceiling in self.ceilings():
            ceiling.restart()
        for ticket in self.outstanding:
            self.know(ticket.shape)
            send(ticket.shape.meets)
        for quota in self.quotas.values():
            quota.add_again()
        for gang in self.gangs:
            for shape in gang.shapes:
                self.know(shape)
            gang.recount()
        if self.members is not None:
            self.members.recount(self.know)
        if self.away is not None:
            self.away.recount()

    def answered(self, ticket: Ticket, stored: str, now: float) -> bool:
        """Let a created ticket be pending until ``used`` shows its charge; say whether anything is pending no more.

        While a gang lacks members it lasts longer: one that ends before its charge was read would cost the gang its
        room. Where no watch will show the charge, it counts as used as soon as no create is under way whose refusal
        may have been decided before this one was charged.
        """
        ended = False
        shape = ticket.shape
        life = self.living.begin(stored, now) if self.observing else None
        for quota, charges in shape.quotas:
            if not (quota.observed or quota.pending or self.outstanding or life):
                use(charges)  # as ``_fold`` does; nearly every create of a learned quota comes here
                continue
            pending = Pending(now, charges, ticket.facts, life, BESIDE_GANGS if self.gangs else 1)
            ended = quota.answered(pending) or ended
            if not quota.observed:
                self._fold(quota)
        shape.used_at = now
        return ended

    def appeared(self, charged: Demand, now: float, *, member: bool = True) -> Shape:
        """Note the charge of a pod that others created; return its shape. Not a ``member``: it waits for no rise.

        The shape is not that of creates which ask for this much: those may be charged more.
        """
        shape = Shape(charged)
        self.know(shape)
        self.undated_at = now  # as after a 201: a list that was asked for before may lack it
        for quota, charges in shape.quotas:
            quota.appeared(charges, now, member=member)
            if not quota.observed:
                self._fold(quota)
        return shape

    def _fold(self, quota: Quota) -> None:
        """Count as used what was answered before all that is under way was sent: no later refusal can lack it."""
        quota.fold(next(iter(self.outstanding)).sent if self.outstanding else FOREVER)

    def accept(self, rejected: Rejected, scopes: frozenset[str], sent: float, now: float) -> dict[Ceiling, int]:
        """Learn from a refusal; return the ceilings whose amounts it replaced, and by how much their headroom grew.

        In any case it proves that the quota applies to this scope class. It replaces only the amounts it names, and
        only if its create was sent after the newest fact about them was received; the rest stays as it was.
        """
        quota = self.quotas.get(rejected.quota)
        if quota is None:
            quota = self.quotas[rejected.quota] = Quota(rejected.quota, self.context)
        elif not self.is_watched(rejected.quota):
            quota.fold(sent)
        structural = not quota.classes.get(scopes) and quota.applies(scopes) is not True
        if structural:
            quota.classes[scopes] = True
        fresh = {}
        taken = rejected.used
        for name, limited in rejected.limited.items():
            used = taken.get(name)
            if used is None:
                continue
            ceiling = quota.ceilings.get(name)
            if ceiling is None:
                ceiling = quota.ceilings[name] = Ceiling(quota.name, name, limited, used)
                structural = True
            elif sent <= ceiling.answered:  # the server decided it, perhaps, before the fact that is known
                continue
            elif limited != ceiling.limited:
                structural = True  # never-fits depends on it
            fresh[ceiling] = ceiling.learn(limited, used, now)
        if structural:
            self.restructure()
        return fresh

    def believes_list(self, name: str, sent: float) -> bool:
        """Say whether a list of quotas requested at ``sent`` is newer than all that is known of this quota.

        Where quotas are watched it never is. It may lack creates of ours that were answered since.
        """
        if self.observing or sent <= self.undated_at:
            return False
        quota = self.quotas.get(name)
        return quota is None or all(ceiling.answered < sent for ceiling in quota.ceilings.values())

    def observe(
        self, name: str, seen: ObservedQuota, now: float, settled_at: float, recount_lag: float, sent: float | None
    ) -> list[Ceiling]:
        """Take in a quota object; return the ceilings that gain room, which counts from ``settled_at`` on.

        Room that a recount shows may be that of a create which was answered less than ``recount_lag`` seconds ago.
        ``sent``: it comes from a list that was requested then and belongs to no watch.
        """
        self.context.facts += 1
        quota = self.quotas.get(name)
        if quota is None:
            quota = self.quotas[name] = Quota(name, self.context)
        elif sent is not None:
            quota.fold(sent)
        structural = not quota.observed or quota.selector != seen.selector or quota.spec != seen.spec
        if not quota.observed:
            quota.observed = True
            for ceiling in quota.ceilings.values():
                ceiling.begin_watch(seen.used.get(ceiling.resource, 0))
        else:
            quota.note_history(now)
        if quota.selector != seen.selector:
            quota.selector = seen.selector
            quota.classes.clear()  # refusals and admissions proved it of the selector that was
        quota.spec = dict(seen.spec)
        for resource, limited in seen.hard.items():
            found = quota.ceilings.get(resource)
            structural = structural or found is None or limited != found.limited
            if found is None:
                quota.ceilings[resource] = Ceiling(name, resource, limited, seen.used.get(resource, 0))
        for resource in [r for r in quota.ceilings if r not in seen.hard]:
            del quota.ceilings[resource]
            structural = True
        gained = quota.read(seen, now, settled_at, recount_lag)
        if structural:
            self.restructure()
        return gained

    def forget(self, name: str, now: float) -> bool:
        """Drop a deleted quota; say whether it was known."""
        self.undated_at = now
        known = self.quotas.pop(name, None) is not None
        if known:
            self.restructure()
        return known

    def disprove(self, ticket: Ticket) -> None:
        """Learn from an admitted probe: the ``used`` we believed left no room for it, so less is used."""
        for ceiling, _ in ticket.shape.meets:
            over = ceiling.over
            if over > 0 and ticket.sent > ceiling.answered:
                over -= sum(amount for other in self.outstanding for c, amount in other.shape.meets if c is ceiling)
                if over > 0:
                    ceiling.disprove(over)

    def admitted_against(self, ticket: Ticket) -> bool:
        """Learn which unsure quotas do not apply: those that would have refused this admitted create.

        Say whether there were any.
        """
        shape = ticket.shape
        amounts = shape.amounts
        proved = False
        for quota in shape.unsure:
            if any(amounts.get(name) and amounts[name] > c.room + c.reserved for name, c in quota.ceilings.items()):
                quota.classes[shape.scopes] = False
                proved = True
        if proved:
            self.outstanding[ticket] = None  # its own hold is recounted with the others
            self.restructure()
            del self.outstanding[ticket]
        return proved

    def correct_from(self, shape: Shape, charged: Demand, ticket: Ticket) -> None:
        """Learn what a stored object is charged, if that differs from what was expected of its shape."""
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
        """Learn from a refusal what the server charges a shape: defaults and webhooks run before quota admission."""
        shape.learn_charged(requested)
        self.restructure()

    def end_holds(self, now: float, policy: Policy) -> bool:
        """Where a quota is watched, end the holds answered ``answered_hold`` ago; say whether any ended.

        At others they last until a newer fact, but at most for ``ticket_max``: then they count as used.
        """
        ended = False
        for quota in self.quotas.values():
            if self.observing and quota.observed:
                ended = quota.end_old(now, policy.answered_hold) or ended
            else:
                quota.fold_old(now, policy.ticket_max)
        return ended

    def next_end(self, policy: Policy, delay: float) -> float:
        """Return when the next hold ends by time alone; or infinity.

        ``delay``: an answered one may be ended this long after its 201, if that is later: no request waits for it.
        """
        at = FOREVER
        if self.outstanding:
            at = next(iter(self.outstanding)).sent + policy.ticket_max
        for quota in self.quotas.values():
            if quota.pending:
                oldest = quota.pending[0].at
                watched = self.observing and quota.observed
                ends = quota.oldest_ends(policy.answered_hold) if watched else oldest + policy.ticket_max
                at = min(at, max(ends, oldest + delay))
        return at

    def forget_shapes(self, limit: float, waiting: Collection[Shape]) -> None:
        """Drop the shapes not used since ``limit`` of which no create is ``waiting`` or outstanding."""
        sent = {ticket.shape for ticket in self.outstanding}
        sent.update(shape for gang in self.gangs for shape in gang.shapes)
        lasting = [*waiting, *(shape for shape in self.shapes.values() if shape.used_at > limit)]
        sent.update(part for shape in lasting for part, _ in shape.parts)
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


def _common(limits: Mapping[str, object], amounts: Mapping[str, int]) -> Iterator[str]:
    """Yield the resources that are limited and asked for. A pool of tokens may limit thousands, and each task three."""
    if len(limits) <= _MANY * len(amounts):
        return (name for name in limits if amounts.get(name))
    return (name for name, amount in amounts.items() if amount and name in limits)

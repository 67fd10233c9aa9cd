"""The naive twin: an exact server, and the laws checked by adding up lists. It imports nothing of the engine.

``TwinServer`` is the truth: its quotas charge a create before it is stored, admit an exact fit, and name only the
exceeded resources of the first quota that is violated. ``TwinLaws`` receives the same facts as the engine and computes,
the slow way, the least that the engine must believe to be taken. Where the laws leave the engine a choice, the twin
assumes the choice that takes least, so that it never blames the engine wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Amounts = dict[str, int]
NEVER = float("-inf")


class TwinRefusal(NamedTuple):
    """The answer of a full quota."""

    quota: str
    requested: Amounts
    used: Amounts
    limited: Amounts


@dataclass
class TwinQuota:
    """A quota at the server; ``wants`` is the scope fact that it selects by, if any."""

    hard: Amounts
    used: Amounts
    wants: str | None = None

    def applies(self, scopes: frozenset[str]) -> bool:
        """Say whether it charges a create with these scope facts."""
        return self.wants is None or self.wants in scopes


class TwinServer:
    """Quotas by namespace and name, exact at every moment."""

    def __init__(self) -> None:
        """Start without quotas."""
        self.quotas: dict[str, dict[str, TwinQuota]] = {}
        self.creates = 0
        self.refused = 0

    def create(self, namespace: str, amounts: Amounts, scopes: frozenset[str] = frozenset()) -> TwinRefusal | None:
        """Charge a create, or return the refusal of the first quota that it violates."""
        self.creates += 1
        quotas = [(n, q) for n, q in sorted(self.quotas.get(namespace, {}).items()) if q.applies(scopes)]
        for name, quota in quotas:
            over = [r for r in quota.hard if amounts.get(r, 0) and quota.used[r] + amounts[r] > quota.hard[r]]
            if over:
                self.refused += 1
                return TwinRefusal(
                    name,
                    {r: amounts[r] for r in sorted(over)},
                    {r: quota.used[r] for r in sorted(over)},
                    {r: quota.hard[r] for r in sorted(over)},
                )
        for _, quota in quotas:
            for r in quota.hard:
                quota.used[r] += amounts.get(r, 0)
        return None

    def release(self, namespace: str, amounts: Amounts, scopes: frozenset[str] = frozenset()) -> None:
        """Give back what a stored object was charged."""
        for quota in self.quotas.get(namespace, {}).values():
            if quota.applies(scopes):
                for r in quota.hard:
                    quota.used[r] -= amounts.get(r, 0)


@dataclass(eq=False)
class TwinCreate:
    """One admission as the laws see it."""

    namespace: str
    amounts: Amounts
    scopes: frozenset[str]
    sent: float
    probe: bool
    unproven: bool
    lacked_room_at: list[tuple[str, str]]
    answered: float | None = None


@dataclass
class TwinCeiling:
    """The least that is taken of one resource, by the facts delivered so far."""

    limited: int
    used: int
    seen: int
    rise: int = 0  # of observed ``used`` since no create of ours was in flight
    quiet_until: float = NEVER


@dataclass
class TwinKnown:
    """What is known of one quota. ``answered`` brackets the time when its newest accepted fact was received."""

    ceilings: dict[str, TwinCeiling] = field(default_factory=dict)
    wants: str | None = None
    observed: bool = False
    contradicted: bool = False
    proved: set[frozenset[str]] = field(default_factory=set)
    contained: list[TwinCreate] = field(default_factory=list)  # answered before its newest fact was asked for
    answered: tuple[float, float] = (NEVER, NEVER)
    reported: list[dict[str, tuple[int, int]]] = field(default_factory=list)

    def applies(self, scopes: frozenset[str]) -> bool:
        """Say whether the quota charges this scope class for sure."""
        return scopes in self.proved or (self.observed and (self.wants is None or self.wants in scopes))


class TwinLaws:
    """The facts that one engine received, in order, and what must follow from them."""

    def __init__(self, *, base: float, answered_hold: float, unproven_max: int) -> None:
        """Start with nothing known; the three settings are those of the engine beside it."""
        self.base = base
        self.answered_hold = answered_hold
        self.unproven_max = unproven_max
        self.known: dict[str, dict[str, TwinKnown]] = {}
        self.creates: list[TwinCreate] = []
        self.healthy: dict[str, bool] = {}
        self.successes: dict[str, int] = {}
        self.told: dict[str, float] = {}  # the newest 201, deleted quota, and begin or loss of a watch

    # -- what was admitted

    def outstanding(self, namespace: str) -> list[TwinCreate]:
        """List the creates that have no answer yet."""
        return [c for c in self.creates if c.namespace == namespace and c.answered is None]

    def held(self, namespace: str, known: TwinKnown, resource: str, now: float) -> int:
        """Add up the least that is reserved: outstanding creates, and answered ones that no rise can have confirmed."""
        self._age(namespace, now)
        mine = [c for c in self.creates if c.namespace == namespace and known.applies(c.scopes)]
        flying = sum(c.amounts.get(resource, 0) for c in mine if c.answered is None)
        if not known.observed:
            return flying
        answered = [c for c in mine if c.answered is not None and c not in known.contained]
        return flying + max(0, sum(c.amounts.get(resource, 0) for c in answered) - known.ceilings[resource].rise)

    def admit(
        self, namespace: str, amounts: Amounts, scopes: frozenset[str], probe: bool, now: float
    ) -> tuple[TwinCreate, list[str]]:
        """Note an admission; return it and a sentence for each law that it breaks."""
        broken = []
        lacking = []
        meets = False
        for name, known in self.known.get(namespace, {}).items():
            for resource, ceiling in known.ceilings.items():
                amount = amounts.get(resource, 0)
                if not amount or not known.applies(scopes):
                    continue
                meets = True
                held = self.held(namespace, known, resource, now)
                if ceiling.used + held + amount <= ceiling.limited:
                    continue
                lacking.append((name, resource))
                what = f"{name}/{resource}: {ceiling.used} used + {held} held + {amount} > {ceiling.limited}"
                if not probe:
                    broken.append(f"never over-admits: over-admission at {what}")
                if now < ceiling.quiet_until:
                    broken.append(f"one probe: asked again {ceiling.quiet_until - now} s too early at {what}")
                if known.observed and self.healthy.get(namespace) and not known.contradicted:
                    broken.append(f"wakes on news: probed though changes are reported at {what}")
                if any((name, resource) in other.lacked_room_at for other in self.outstanding(namespace)):
                    broken.append(f"one probe: a second probe at {what}")
        unproven = not meets and not self.healthy.get(namespace, False)
        flying = sum(c.unproven for c in self.outstanding(namespace))
        if unproven and flying >= min(self.unproven_max, 1 + self.successes.get(namespace, 0)):
            broken.append(f"gentle start: {flying + 1} unproven in flight")
        create = TwinCreate(namespace, amounts, scopes, now, probe, unproven, lacking)
        self.creates.append(create)
        return create, broken

    # -- how it ended

    def created(self, create: TwinCreate, now: float) -> None:
        """Note a 201: a probe's success disproves the amounts that would have refused it."""
        self.successes[create.namespace] = self.successes.get(create.namespace, 0) + create.unproven
        for known in self.known.get(create.namespace, {}).values():
            for resource, ceiling in known.ceilings.items():
                amount = create.amounts.get(resource, 0)
                if not amount or not known.applies(create.scopes):
                    continue
                if create.probe:
                    ceiling.used = min(ceiling.used, ceiling.limited - self._all_held(create, known, resource))
                if not known.observed:
                    ceiling.used += amount
        create.answered = self.told[create.namespace] = now
        self._age(create.namespace, now)

    def over(self, create: TwinCreate) -> None:
        """Note an end without a charge."""
        self.creates.remove(create)

    def rejected(self, create: TwinCreate, refusal: TwinRefusal, now: float) -> None:
        """Note a refusal: newer amounts replace older ones, only of the resources it names."""
        self.over(create)
        known = self.known.setdefault(create.namespace, {}).setdefault(refusal.quota, TwinKnown())
        known.proved.add(create.scopes)
        low, high = known.answered
        stale = self._may_be_stale(create.namespace, known, refusal)
        surely = create.sent > high and not stale
        if create.sent > low:
            known.answered = (now, now) if surely else (low, now)
            self._contain(create.namespace, known, create.sent)
        for resource, limited in refusal.limited.items():
            used = refusal.used[resource]
            ceiling = known.ceilings.get(resource)
            if ceiling is None:
                known.ceilings[resource] = TwinCeiling(limited, used, used)
            elif surely:
                ceiling.limited, ceiling.used = limited, used
                known.contradicted = True
                if (refusal.quota, resource) in create.lacked_room_at:
                    ceiling.quiet_until = now + self.base / 2
            elif create.sent > low:
                ceiling.limited, ceiling.used = max(limited, ceiling.limited), min(used, ceiling.used)
                known.contradicted = True
        if create.probe and create.sent > low:  # the resources that its quota did not name had room for it
            for resource, ceiling in known.ceilings.items():
                amount = create.amounts.get(resource, 0)
                if amount and resource not in refusal.limited:
                    room = ceiling.limited - amount - self._all_held(create, known, resource)
                    ceiling.used = min(ceiling.used, room)

    # -- changes of quotas

    def observed(self, namespace: str, name: str, quota: TwinQuota, now: float) -> None:
        """Note a quota object in the state in which it was reported."""
        known = self.known.setdefault(namespace, {}).setdefault(name, TwinKnown())
        first = not known.observed
        if first:  # until now each 201 counted as used at once
            known.contained += [c for c in self.creates if c.answered is not None]
        if first or known.wants != quota.wants:
            known.proved.clear()
        known.observed, known.wants = True, quota.wants
        known.answered = (now, now)
        known.reported.append({r: (quota.used[r], quota.hard[r]) for r in quota.hard})
        for other in self.known[namespace].values():
            other.contradicted = other.contradicted and not (other.observed and self.healthy.get(namespace, False))
        self._age(namespace, now)
        for resource, limited in quota.hard.items():
            used = quota.used[resource]
            ceiling = known.ceilings.setdefault(resource, TwinCeiling(limited, used, used))
            ceiling.rise += 0 if first else max(0, used - ceiling.seen)
            ceiling.limited, ceiling.used, ceiling.seen = limited, used, used
            ceiling.quiet_until = NEVER

    def too_old(self, namespace: str, name: str, sent: float) -> bool:
        """Say whether a list of no watch, requested at ``sent``, is surely older than what is known of a quota."""
        known = self.known.get(namespace, {}).get(name, TwinKnown())
        return self.healthy.get(namespace, False) or sent <= max(known.answered[0], self.told.get(namespace, NEVER))

    def listed(self, namespace: str, name: str, quota: TwinQuota, sent: float, now: float) -> None:
        """Note a quota in a list of no watch that the engine believed."""
        known = self.known.get(namespace, {}).get(name)
        if known is not None:
            self._contain(namespace, known, sent)
        self.observed(namespace, name, quota, now)

    def forgotten(self, namespace: str, name: str, now: float) -> None:
        """Note that a quota was deleted."""
        self.known.get(namespace, {}).pop(name, None)
        self.told[namespace] = now

    def watched(self, namespace: str, healthy: bool, now: float) -> None:
        """Note whether changes are reported."""
        self._age(namespace, now)
        self.healthy[namespace] = healthy
        self.told[namespace] = now

    def hinted(self, namespace: str) -> None:
        """Note a hint, which may bring any probe forward."""
        for known in self.known.get(namespace, {}).values():
            for ceiling in known.ceilings.values():
                ceiling.quiet_until = NEVER

    # -- details

    def _contain(self, namespace: str, known: TwinKnown, sent: float) -> None:
        """Count the creates answered before ``sent`` as used, where no watch will: a fact asked for since has them."""
        if self.healthy.get(namespace) or not known.observed:
            return
        mine = [c for c in self.creates if c.namespace == namespace and known.applies(c.scopes)]
        before = [c for c in mine if c.answered is not None and c.answered < sent and c not in known.contained]
        for resource, ceiling in known.ceilings.items():
            amount = sum(c.amounts.get(resource, 0) for c in before)
            unconfirmed = max(0, amount - ceiling.rise)
            ceiling.rise = max(0, ceiling.rise - amount)
            ceiling.used += unconfirmed
            ceiling.seen += unconfirmed
        known.contained += before

    def _all_held(self, but: TwinCreate, known: TwinKnown, resource: str) -> int:
        """Add up the most that may be reserved beside one create, itself included where it still counts."""
        mine = [c for c in self.creates if c.namespace == but.namespace and known.applies(c.scopes)]
        return sum(c.amounts.get(resource, 0) for c in mine if c.answered is not None or c is but)

    def _age(self, namespace: str, now: float) -> None:
        """End answered holds by time while the watch is healthy; forget rises once no create of ours is in flight."""
        lasting = self.answered_hold if self.healthy.get(namespace) else float("inf")
        observed = any(known.observed for known in self.known.get(namespace, {}).values())
        self.creates = [
            c
            for c in self.creates
            if c.namespace != namespace or c.answered is None or (observed and c.answered + lasting > now)
        ]
        if not any(c.namespace == namespace for c in self.creates):
            for known in self.known.get(namespace, {}).values():
                for ceiling in known.ceilings.values():
                    ceiling.rise = 0

    def _may_be_stale(self, namespace: str, known: TwinKnown, refusal: TwinRefusal) -> bool:
        """Say whether the refusal speaks of a state that was reported before and replaced since."""
        if not known.observed or not self.healthy.get(namespace):
            return False
        said = {r: (refusal.used[r], refusal.limited[r]) for r in refusal.limited}
        return any(all(old.get(r) == said[r] for r in said) for old in known.reported[:-1])


class TwinWaiter(NamedTuple):
    """One who waits: its place in line, who it is, and what it asks."""

    place: tuple[float, int]
    name: str
    amounts: Amounts


class TwinPassing:
    """Bounded overtaking beside a server that reports all at once: who passed whom since when, by the whole line."""

    def __init__(self, at_most: float, tolerance: float) -> None:
        """``at_most``: how long after the first that passed others may still pass; ``tolerance``: for what settles."""
        self.at_most = at_most + tolerance
        self.first: dict[str, float] = {}

    def admitted(self, one: TwinWaiter, line: list[TwinWaiter], room: Amounts, now: float) -> list[str]:
        """Note an admission; return a sentence for each waiter that it passed too late. ``room``: before it."""
        broken = []
        for resource in (r for r, amount in one.amounts.items() if amount):
            blocked = [each for each in line if each.amounts.get(resource, 0) > room[resource]]
            following = min(blocked, default=None)
            if following is None or one.place < following.place:
                continue
            since = self.first.setdefault(following.name, now)
            if now > since + self.at_most:
                broken.append(
                    f"overtaking: {one.name} passed {following.name} {now - since} s after the first that did"
                )
        return broken


class TwinPlace(NamedTuple):
    """A place in line: when it was joined, its number among equals, how often it was overtaken."""

    joined: float
    number: int
    overtaken: int


class TwinSeats:
    """The places that callers left: a plain list that is searched from end to end."""

    def __init__(self, ttl: float) -> None:
        """Each place is kept for ``ttl`` seconds."""
        self.ttl = ttl
        self.left: list[tuple[str, tuple[object, object], str, TwinPlace, float, str]] = []
        self.due: dict[str, tuple[str, float, float]] = {}  # of those away: namespace, when due, and until when
        self.late: dict[str, list[float]] = {}  # how late callers came, by namespace

    def keep(
        self, namespace: str, identity: tuple[object, object], shape: str, place: TwinPlace, now: float, away: str = ""
    ) -> None:
        """Keep a place; ``away`` is the request that still stands there."""
        self.left.append((namespace, identity, shape, place, now + self.ttl, away))

    def leave(self, away: str, namespace: str, retry_after: float, now: float) -> None:
        """Note when the caller of a request is due back: at most a second later than told, as callers come."""
        late = self.late.get(namespace, [])[-100:]
        allowed = 1.0 if len(late) < 8 else min(1.0, max(late))
        self.due[away] = namespace, now + retry_after, now + retry_after + allowed

    def come_back(self, away: str, now: float) -> None:
        """Note that a caller is there again."""
        namespace, due, _ = self.due[away]
        self.late.setdefault(namespace, []).append(max(0.0, now - due))
        self.give_up(away)

    def give_up(self, away: str) -> None:
        """Keep the place of a request no longer that was away."""
        self.left = [seat for seat in self.left if seat[5] != away]

    def take(
        self, namespace: str, identity: tuple[object, object], shape: str, now: float
    ) -> tuple[TwinPlace, str] | None:
        """Take the oldest place of this identity, else of the same caller's equals, and who still stands there."""
        here = [seat for seat in self.left if seat[0] == namespace and now < seat[4]]
        mine = [seat for seat in here if seat[1] == identity]
        equals = [seat for seat in here if seat[1][0] == identity[0] and seat[2] == shape]
        equals = [seat for seat in equals if seat[5] not in self.due or self.due[seat[5]][2] <= now]
        oldest = min(mine or equals, key=lambda seat: seat[3], default=None)
        if oldest is None:
            return None
        self.left.remove(oldest)
        return oldest[3], oldest[5]

    def count(self, namespace: str, now: float) -> int:
        """Count the places that are kept."""
        return sum(seat[0] == namespace and now < seat[4] for seat in self.left)

"""Find out who holds a quota: compare its ``used`` with the charges of the existing objects. Pure.

Use beyond these charges is *overdue* (from pods whose deletion should be finished: no longer charged, but still in
``used``) or *leaked* (charged for an object that was never stored, or whose end was missed). Both are released when the
quota controller recounts: at the next release in the namespace, at the latest at its resync
(``--resource-quota-sync-period``, 5 minutes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from backoff_ctrl.engine.facts.quantities import taken_share
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.kube.answers.fields import FieldError, items, mapping, mappings, metadata_of

from .live import By, Ending, Live, Termination
from .quotas import read_quota
from .resources import DEVICE_CLASSES, JOBS, PODS, is_extended, kinds_of

JSON = dict[str, Any]

RESYNC: Final = 300.0
"""The quota controller's default resync period, in seconds."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was read from the cluster: the quotas before and after listing all objects that they charge.

    ``unread``: kinds that could not be listed, with the reason. ``malformed``: the number of unreadable objects.
    ``extended``: the extended resources that DeviceClasses stand for; None: the classes could not be listed.
    """

    namespace: str
    before: Sequence[JSON]
    objects: Sequence[Live]
    after: Sequence[JSON]
    unread: Mapping[str, str] = field(default_factory=dict)
    malformed: int = 0
    extended: Collection[str] | None = ()


@dataclass(frozen=True, slots=True)
class Holder:
    """One owner's objects of one kind. ``ending``: the first end of a charge, which frees ``ends`` nano-units."""

    owner: str
    kind: str
    objects: int
    finished: int
    amount: int
    oldest: datetime | None
    ending: Ending
    ends: int


@dataclass(frozen=True, slots=True)
class Holding:
    """One resource of one quota, in nano-units. ``hard`` and ``used`` are None if the server has not counted yet.

    ``uncounted``: charges of existing objects beyond ``used``. ``busy``: ``used`` changed while objects were listed.
    ``unread``: charged kinds that could not be listed; if there are any, overdue, leaked and uncounted stay 0.
    """

    resource: str
    hard: int | None
    used: int | None
    holders: tuple[Holder, ...]
    overdue: int = 0
    leaked: int = 0
    uncounted: int = 0
    busy: bool = False
    unread: tuple[str, ...] = ()

    @property
    def full(self) -> bool:
        """Whether all of it is used. An unused limit of 0 is not full: it forbids a resource."""
        return self.hard is not None and self.used is not None and self.used >= self.hard and not self.forbids

    @property
    def fullness(self) -> float:
        """The used share of the limit; 0 if it is unknown."""
        return 0.0 if self.hard is None or self.used is None else taken_share(self.used, self.hard)

    @property
    def forbids(self) -> bool:
        """Whether its limit is 0, and its use, too."""
        return self.hard == 0 == self.used


@dataclass(frozen=True, slots=True)
class QuotaHolders:
    """One quota, its fullest resource first.

    ``problem``: why its holders are unknown, or what is wrong with it. ``scopes``: its scopes, in readable form.
    """

    name: str
    holdings: tuple[Holding, ...]
    problem: str = ""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The holders of all quotas. ``stuck``: charged pods whose deletion should be finished, the oldest first."""

    namespace: str
    at: datetime
    quotas: tuple[QuotaHolders, ...]
    stuck: tuple[tuple[Live, Termination], ...]
    unread: Mapping[str, str]
    malformed: int

    @property
    def holdings(self) -> list[tuple[str, Holding]]:
        """All resources, each with the name of its quota."""
        return [(quota.name, holding) for quota in self.quotas for holding in quota.holdings]

    @property
    def excess(self) -> bool:
        """Whether anything is overdue or leaked. Worth a second snapshot, since creates in flight look the same."""
        return any(holding.overdue or holding.leaked for _, holding in self.holdings)

    @property
    def wrong(self) -> bool:
        """Whether anything needs attention: a full resource, excess charge, a stuck pod, or missing information."""
        problems = any(quota.problem for quota in self.quotas) or self.unread or self.malformed
        odd = any(holding.full or holding.used is None for _, holding in self.holdings)
        return bool(odd or self.excess or self.stuck or problems)


def limits_extended(quotas: Iterable[JSON]) -> bool:
    """Return whether a quota limits an extended resource, for which a DeviceClass may stand."""
    return any(is_extended(name) for quota in quotas for name in _names(quota))


def charged_kinds(quotas: Iterable[JSON], extended: Collection[str] = ()) -> list[str]:
    """Return the kinds to list: all that these quotas charge. Jobs and pods come first: they explain the others.

    ``extended``: the extended resources that DeviceClasses stand for.
    """
    kinds = {kind for quota in quotas for name in _names(quota) for kind in kinds_of(name, extended)}
    return sorted(kinds, key=lambda kind: (kind != JOBS, kind != PODS, kind))


def attribute(snapshot: Snapshot, now: datetime) -> Report:
    before = {quota_name(quota): quota for quota in snapshot.before}
    jobs = {each.name: each for each in snapshot.objects if each.resource == JOBS}
    quotas: list[QuotaHolders] = []
    stuck: dict[str, tuple[Live, Termination]] = {}
    for quota in snapshot.after:
        earlier = before.get(quota_name(quota), quota)
        try:
            observed, was = read_quota(quota), read_quota(earlier)
        except FieldError as error:
            quotas.append(QuotaHolders(quota_name(quota), (), f"its holders are unknown: {error}", _scopes(quota)))
            continue
        objects = [each for each in snapshot.objects if observed.selector.applies(each.charged.scopes)]
        holdings = []
        for name in observed.spec or observed.hard:
            holdings.append(_holding(name, observed, was, objects, jobs, snapshot))
            charged = (each for each in objects if name in each.charged.amounts or name in each.owed)
            stuck |= {each.name: (each, each.stuck) for each in charged if each.stuck}
        holdings.sort(key=lambda each: (-each.fullness, each.resource))
        quotas.append(QuotaHolders(quota_name(quota), tuple(holdings), _problem(observed), _scopes(quota)))
    quotas.sort(key=lambda each: (-max((holding.fullness for holding in each.holdings), default=0), each.name))
    oldest = sorted(stuck.values(), key=lambda each: (each[1].since, each[0].name))
    return Report(snapshot.namespace, now, tuple(quotas), tuple(oldest), snapshot.unread, snapshot.malformed)


def confirmed(second: Report, first: Report) -> Report:
    """Return the second report, with only the excess that the first one also had: the rest was creates in flight."""
    seen = {(quota, holding.resource): holding for quota, holding in first.holdings}
    quotas = []
    for quota in second.quotas:
        holdings = []
        for holding in quota.holdings:
            then = seen.get((quota.name, holding.resource), holding)
            moved = holding.busy or then.busy or then.used != holding.used
            excess = min(holding.overdue + holding.leaked, then.overdue + then.leaked)
            overdue = min(excess, holding.overdue)
            holdings.append(replace(holding, overdue=overdue, leaked=excess - overdue, busy=moved))
        quotas.append(replace(quota, holdings=tuple(holdings)))
    return replace(second, quotas=tuple(quotas))


def _holding(
    name: str,
    now: ObservedQuota,
    was: ObservedQuota,
    objects: Iterable[Live],
    jobs: Mapping[str, Live],
    snapshot: Snapshot,
) -> Holding:
    """Sum up one resource: its holders, and the excess of ``used`` over their charges."""
    charged = [each for each in objects if name in each.charged.amounts]
    owed = sum(each.owed.get(name, 0) for each in objects)
    held = sum(each.charged.amounts[name] for each in charged)
    hard, used, before = now.hard.get(name), now.used.get(name), was.used.get(name)
    kinds = kinds_of(name, snapshot.extended or ())
    if snapshot.extended is None and is_extended(name):
        kinds += (DEVICE_CLASSES,)
    missing = tuple(kind for kind in kinds if kind in snapshot.unread)
    holding = Holding(name, hard, used, _holders(name, charged, jobs), busy=used != before, unread=missing)
    if used is None or missing:
        return holding
    lowest, highest = min(used, used if before is None else before), max(used, before or 0)
    excess = max(0, lowest - held)
    overdue = min(excess, owed)
    uncounted = max(0, held - highest)
    return replace(holding, overdue=overdue, leaked=excess - overdue, uncounted=uncounted)


def _holders(name: str, charged: Iterable[Live], jobs: Mapping[str, Live]) -> tuple[Holder, ...]:
    """Group the charges by owner and kind, the largest first."""
    groups = defaultdict(list)
    for each in charged:
        groups[each.owner, each.resource].append(each)
    found = [_holder(name, owner, kind, group, jobs) for (owner, kind), group in groups.items()]
    return tuple(sorted(found, key=lambda each: (-each.amount, each.owner, each.kind)))


def _holder(name: str, owner: str, kind: str, group: Sequence[Live], jobs: Mapping[str, Live]) -> Holder:
    endings = [(_ending(each, jobs, name), each.charged.amounts[name]) for each in group]
    first = min((ending for ending, _ in endings), key=_sooner)
    return Holder(
        owner,
        kind,
        objects=len(group),
        finished=sum(each.finished for each in group),
        amount=sum(amount for _, amount in endings),
        oldest=min((each.created for each in group if each.created), default=None),
        ending=first,
        ends=sum(amount for ending, amount in endings if ending == first),
    )


_ORDER: Final = (By.FINISHED, By.FINALIZERS, By.NODE, By.DELETION, By.TTL, By.DEADLINE, By.HAND, By.OWNER)


def _sooner(ending: Ending) -> tuple[bool, float, int]:
    """Sort key: endings with a known time first, by time; then the others, the easiest to bring about first."""
    return ending.at is None, ending.at.timestamp() if ending.at else 0.0, _ORDER.index(ending.by)


def _ending(each: Live, jobs: Mapping[str, Live], name: str) -> Ending:
    """Return what ends a charge. For a pod of a Job, the Job's own ending counts as well, if Jobs were listed."""
    ending = each.gone if name == "count/pods" else each.ending
    kind, _, owner = each.owner.partition("/")
    job = jobs.get(owner) if kind == "Job" and each.resource == PODS else None
    if job is None or ending.by is By.DELETION:
        return ending
    if name == "count/pods":
        return job.gone if job.gone.at and ending.by in {By.FINISHED, By.OWNER} else ending
    if job.made_end and not job.finished and (ending.at is None or job.made_end < ending.at):
        return Ending(By.DEADLINE, job.made_end)
    return ending


def _problem(quota: ObservedQuota) -> str:
    if not quota.spec:
        return "it limits no resource"
    if not quota.hard:
        return "it is not enforced yet, because the quota controller has not filled in its status"
    if dict(quota.spec) != dict(quota.hard):
        return "it was changed, but the quota controller has not applied the new limits yet"
    return ""


def _scopes(quota: JSON) -> tuple[str, ...]:
    spec = mapping(quota.get("spec"))
    words = [str(scope) for scope in items(spec.get("scopes"))]
    for each in mappings(mapping(spec.get("scopeSelector")).get("matchExpressions")):
        operator, values = str(each.get("operator")), ", ".join(map(str, items(each.get("values"))))
        parts = (str(each.get("scopeName")), "" if operator == "Exists" else operator, values)
        words.append(" ".join(filter(None, parts)))
    return tuple(words)


def _names(quota: JSON) -> set[str]:
    parts = (mapping(quota.get("spec")).get("hard"), mapping(quota.get("status")).get("hard"))
    return {str(name) for part in parts for name in mapping(part)}


def quota_name(quota: JSON) -> str:
    """Return the name of a quota, ``?`` if it is missing."""
    return str(metadata_of(quota).get("name") or "?")

"""Makes the JSON of the status API from what a gate knows: single objects, and pages of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from backoff_ctrl.engine.facts.quantities import quantity
from backoff_ctrl.engine.gangs.gang import Reservation
from backoff_ctrl.engine.look.explaining import CeilingSnapshot, NamespaceSnapshot
from backoff_ctrl.engine.look.looking import Blocker as Found
from backoff_ctrl.engine.look.looking import WaitingSnapshot
from backoff_ctrl.k8s.gate.creates.creation import Creation, owner_of
from backoff_ctrl.k8s.gate.creates.wait import SAME_KEY
from backoff_ctrl.k8s.kube.answers.fields import labels_of

from .asked import ProblemError, cursor
from .decisions import Told
from .shapes import (
    Block,
    Blocker,
    Ceiling,
    Counted,
    Decision,
    Gate,
    Namespace,
    Overload,
    Owner,
    Page,
    PolicyDocument,
    RequestHistory,
    Shadow,
    Waiting,
    Watch,
)
from .slices import sliced
from .sources import Source, shown

_Item = TypeVar("_Item")


class Documents:
    """The documents of one process: of each gate in it."""

    def __init__(self, sources: Sequence[Source], version: str) -> None:
        """``sources`` may change later."""
        self.sources = sources
        self.version = version

    # -- ceilings ---------

    def ceilings(self, where: Mapping[str, str | None], after: list[Any] | None, limit: int) -> Page[Ceiling]:
        """Return a page of ceilings; ``where`` holds ``namespace``, ``quota`` and ``resource``, or None for all."""
        items = self._ceilings(where, tuple(after) if after else (0, "", "", ""))
        return self._page("ceilings", items, limit)

    def _ceilings(self, where: Mapping[str, str | None], after: tuple[Any, ...]) -> Iterator[tuple[list[Any], Ceiling]]:
        for number, source, namespace, begins in self._namespaces(where.get("namespace"), after):
            found = source.namespace(namespace)
            if found is None:
                continue
            snapshot, now = found
            blocked = source.tally(namespace).blocked if snapshot.waiting else {}
            for quota, resources in sorted(snapshot.quotas.items()):
                if where.get("quota") not in (None, quota):
                    continue
                for resource, ceiling in sorted(resources.items()):
                    if where.get("resource") not in (None, resource) or (begins and (quota, resource) <= after[2:4]):
                        continue
                    key = (namespace, quota, resource)
                    waiting = blocked.get((quota, resource), 0)
                    yield [number, *key], ceiling_item(source, key, ceiling, now, waiting)

    # -- who waits ---------

    def waiting(self, namespace: str | None, after: list[Any] | None, limit: int) -> Page[Waiting]:
        """Return a page of waiting creates: by namespace, in the order of its line."""
        return self._page("waiting", self._waiting(namespace, tuple(after) if after else (0, ""), limit + 1), limit)

    def _waiting(
        self, namespace: str | None, after: tuple[Any, ...], limit: int
    ) -> Iterator[tuple[list[Any], Waiting]]:
        for number, source, name, begins in self._namespaces(namespace, after):
            place = (after[2], after[3]) if begins else None
            for each in source.waiting(name, place, limit):
                create = source.ledger.line.waiter_of(each.request)
                if create is not None:  # else it was admitted meanwhile
                    yield [number, name, *each.place], waiting_item(source, create, each)
            for follower, behind in source.followers(name, place):
                yield [number, name, *behind], following_item(source, follower)

    def request(self, id: str) -> RequestHistory:  # noqa: A002 - what the URL calls it
        """Return one create's history. Raises ``ProblemError`` for an unknown create."""
        for source in self.sources:
            told, forgotten = source.counters.ring.of(id)
            create = next((each for each in sliced(source.ledger.under_way()) if each.create_id == id), None)
            if not told and create is None:
                continue
            begun = bool(told) and told[0].event in ("waits", "created")
            kind, namespace, name = subject_of(told, create)
            over = create is None
            item = None if create is None else self._waits_now(source, create)
            return RequestHistory(
                as_of=self.as_of(),
                id=id,
                gate=source.name,
                namespace=namespace,
                kind=kind,
                name=name,
                state="over" if over else "sent" if item is None else "waiting",
                waiting=item,
                history=[decision(each) for each in told],
                complete=begun or not forgotten,
            )
        raise ProblemError(
            404, "no create with this id waits here, and none of the last decisions is about it", "#/path/id"
        )

    def _waits_now(self, source: Source, create: Any) -> Waiting | None:
        if create.follows:
            return following_item(source, create)
        request = create.request
        if request is None or request.state != "waiting":
            return None
        before = (request.rank, request.seq - 1)
        found = next(iter(source.waiting(request.namespace, before, 1)), None)
        return None if found is None or found.request is not request else waiting_item(source, create, found)

    # -- namespaces, overload, policy, gates ---------

    def namespaces(self, after: list[Any] | None, limit: int) -> Page[Namespace]:
        start = tuple(after) if after else (0, "")
        found = (
            ([number, name], namespace_item(source, name))
            for number, source, name, begins in self._namespaces(None, start)
            if not begins
        )
        return self._page("namespaces", found, limit)

    def overload(self) -> Page[Overload]:
        """Return all overload windows. There are few: one for a server, credential and priority level."""
        items = []
        for source in self.sources:
            windows, now = source.flows()
            for flow, window in windows:
                server, _, level = flow.partition("|")[0], *flow.rpartition("|")[1:]
                paused = source.clock.text(now + window.closed_for) if window.closed_for else None
                items.append(
                    Overload(flow_name(flow), server, level or None, round(window.size, 3), window.in_flight, paused)
                )
        return Page(self.as_of(), items)

    def policy(self) -> PolicyDocument:
        """Return the settings in force: those of the first gate, and the modes of all namespaces known."""
        if not self.sources:
            return PolicyDocument(self.as_of(), {}, {})
        source = self.sources[0]
        settings = dataclasses.asdict(source.ledger.policy)
        modes = {name: source.ledger.mode(name) for name in source.namespaces()}
        return PolicyDocument(self.as_of(), {"*": source.ledger.mode("*"), **modes}, settings)

    def gates(self) -> Page[Gate]:
        return Page(self.as_of(), [self._gate(source) for source in self.sources])

    def _gate(self, source: Source) -> Gate:
        counts = source.ledger.counts
        windows, _ = source.flows()
        return Gate(
            gate=source.name,
            server=source.server,
            version=self.version,
            started_at=shown(source.counters.started),
            namespaces=source.size,
            waiting=counts.waiting,
            in_flight=sum(window.in_flight for _, window in windows),
            failed_open=counts.failed_open,
            settle_seconds=round(source.settle_time(), 6),
        )

    # -- pages ---------

    def as_of(self) -> str:
        return shown(self.sources[0].clock.wall() if self.sources else 0.0)

    def _namespaces(self, only: str | None, after: tuple[Any, ...]) -> Iterator[tuple[int, Source, str, bool]]:
        """Yield gate by gate the namespaces from ``after`` on; the flag marks the one of ``after`` itself."""
        first, name = int(after[0]), str(after[1])
        for number, source in islice(enumerate(self.sources), first, None):
            if only is not None:
                if number > first or name in ("", only):
                    yield number, source, only, number == first and bool(name)
                continue
            if number == first and name:
                yield number, source, name, True
            for each in source.namespaces(name if number == first else ""):
                yield number, source, each, False

    def _page(self, kind: str, items: Iterable[tuple[list[Any], _Item]], limit: int) -> Page[_Item]:
        found = list(islice(items, limit + 1))
        following = cursor(kind, found[limit - 1][0]) if len(found) > limit else None
        return Page(self.as_of(), [item for _, item in found[:limit]], following)


LABELS_MAX: Final = 64


def ceiling_item(
    source: Source, key: tuple[str, str, str], found: CeilingSnapshot, now: float, waiting: int
) -> Ceiling:
    """Return one ceiling; ``waiting`` creates wait for it."""
    resource = key[2]
    text = source.clock.text
    block = None
    if found.block is not None:
        due = None if found.next_probe is None else text(now + found.next_probe)
        block = Block(found.block, found.attempts, due)
    return Ceiling(
        *key,
        limited=quantity(found.limited, resource),
        used=quantity(found.used, resource),
        held=quantity(found.held, resource),
        reserved=quantity(found.reserved, resource),
        headroom=quantity(found.headroom, resource),
        unsettled=quantity(found.unsettled, resource),
        kept=found.kept,
        source=found.source,
        heard_at=text(now - found.age) or "",
        block=block,
        trend=None if found.trend is None else quantity(found.trend, resource),
        waiting=waiting,
    )


def waiting_item(source: Source, create: Any, each: WaitingSnapshot) -> Waiting:
    why, text = each.why, source.clock.text
    return _waiting_item(
        source,
        create,
        since=text(each.request.joined) or "",
        place=why.place,
        reason=why.reason,
        blockers=list(map(blocker_item, each.blockers)),
        next_probe_at=None if why.next_probe is None else text(each.at + why.next_probe),
        estimated_at=None if why.estimate is None else text(each.at + why.estimate),
        estimated_by=None if why.latest is None else text(each.at + why.latest),
    )


def blocker_item(found: Found) -> Blocker:
    """Return one ceiling that a create waits for."""
    amounts = (found.asked, max(0, found.left), found.limited)  # a probe in flight holds more than there is
    return Blocker(found.quota, found.resource, *(quantity(amount, found.resource) for amount in amounts))


def following_item(source: Source, create: Any) -> Waiting:
    """Return a create that waits for another one with its key, and has no place in line."""
    since = source.clock.text(create.began) or ""
    return _waiting_item(
        source, create, since=since, place=None, reason=SAME_KEY, blockers=[], next_probe_at=None, estimated_at=None
    )


def _waiting_item(source: Source, create: Any, **waits: Any) -> Waiting:
    """Return a create, and how it waits."""
    creation = create.creation
    return Waiting(
        id=create.create_id,
        gate=source.name,
        namespace=creation.namespace,
        kind=creation.resource,
        name=creation.name,
        owner=_owner(creation),
        labels=_labels(creation),
        gang=_gang(create),
        priority=creation.priority,
        **waits,
    )


def _gang(create: Any) -> str | None:
    """Return the name of the gang that a create is a member of, or of the waiting gang itself."""
    gang = create.creation.gang
    if gang is not None:
        return str(gang.name)
    return create.creation.name if isinstance(create.request, Reservation) else None


def namespace_item(source: Source, name: str) -> Namespace:
    found = source.namespace(name)
    snapshot, now = found if found is not None else (None, 0.0)
    oldest = None if snapshot is None or snapshot.oldest is None else now - snapshot.oldest
    brake = None if snapshot is None else snapshot.brake
    slowed = brake is not None and brake.closed_for > 0
    return Namespace(
        namespace=name,
        mode=source.ledger.mode(name),
        watch=_watch(source, name),
        waiting=(0 if snapshot is None else snapshot.waiting) + len(source.followers(name)),
        oldest_since=source.clock.text(oldest),
        in_flight=0 if snapshot is None else snapshot.outstanding,
        quotas=0 if snapshot is None else len(snapshot.quotas),
        holding=snapshot is not None and _holds(snapshot),
        paused=source.ledger.is_halted(name),
        slowed_until=source.clock.text(now + brake.closed_for) if brake is not None and slowed else None,
        counted=_counted(source, name),
    )


def _holds(snapshot: NamespaceSnapshot) -> bool:
    return any(each.held or each.reserved for resources in snapshot.quotas.values() for each in resources.values())


def decision(told: Told) -> Decision:
    return Decision(
        told.seq,
        shown(round(told.at, 3)),
        told.gate,
        told.event,
        told.id,
        told.namespace,
        told.kind,
        told.name,
        told.lane or None,
        told.reason or None,
        told.quota or None,
        told.resource or None,
        told.probe,
        None if told.waited is None else round(told.waited, 3),
    )


def flow_name(flow: str) -> str:
    """Return a name for an overload window that reveals nothing of its credential."""
    return hashlib.sha256(flow.encode()).hexdigest()[:12]


def _counted(source: Source, name: str) -> Counted:
    counts = source.counters.of(name)
    found = source.namespace(name)
    sent = counts.attempts.total()
    created = sum(n for (_, answer), n in counts.attempts.items() if answer == "created")
    refused: dict[str, int] = {}
    for (_, answer), n in counts.attempts.items():
        if answer != "created":
            refused[answer] = refused.get(answer, 0) + n
    return Counted(
        sent=sent,
        created=created,
        refused=dict(sorted(refused.items())),
        declined=sum(n for (_, outcome), n in counts.creates.items() if outcome == "declined"),
        waits=0 if counts.waits is None else sum(counts.waits.counts),
        waited_seconds=0.0 if counts.waits is None else round(counts.waits.sum, 3),
        calls_saved_estimate=counts.saved,
        probes=counts.probes.total(),
        overtakings=0 if found is None else found[0].overtakings,
        stale_refusals=0 if found is None else sum(found[0].stale.values()),
        shadow=_shadow(counts.shadow) if counts.shadow else None,
    )


def _shadow(shadow: Mapping[str, int]) -> Shadow:
    return Shadow(sum(shadow.values()), shadow.get("wait", 0), shadow.get("refuse", 0))


def _watch(source: Source, name: str) -> Watch | None:
    status = source.watch_status(name)
    return (
        None if status is None else Watch(status.state.value, source.watch_clock.text(status.since) or "", status.why)
    )


def _owner(creation: Creation) -> Owner | None:
    found = owner_of(creation.body)
    return None if found is None else Owner(found.api_version, found.kind, found.name, found.uid)


def _labels(creation: Creation) -> dict[str, str]:
    labels: Mapping[Any, Any] = labels_of(creation.body)
    texts = ((name, value) for name, value in labels.items() if isinstance(name, str) and isinstance(value, str))
    return dict(islice(texts, LABELS_MAX))


def subject_of(told: Sequence[Told], create: Any) -> tuple[str, str, str]:
    if create is not None:
        return create.creation.resource, create.creation.namespace, create.creation.name
    return told[-1].kind, told[-1].namespace, told[-1].name

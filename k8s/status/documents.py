"""Makes the JSON of the status API from what a gate knows: single objects, and pages of them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from backoff_ctrl.engine.facts.quantities import quantity
from backoff_ctrl.engine.gangs.gang import Reservation
from backoff_ctrl.engine.look.explaining import CeilingSnapshot, NamespaceSnapshot
from backoff_ctrl.engine.look.looking import Blocker, WaitingSnapshot
from backoff_ctrl.k8s.gate.creates.creation import Creation, owner_of
from backoff_ctrl.k8s.gate.creates.wait import SAME_KEY
from backoff_ctrl.k8s.kube.answers.fields import labels_of

from . import shapes
from .asked import ProblemError, cursor, read_cursor
from .counters import Histogram, NamespaceCounts
from .decisions import KeptDecision
from .endpoints import Nothing, OfCeilings, OfNamespace, OfPage, OfRequest
from .slices import sliced
from .sources import Source, ceilings_of, shown

_Item = TypeVar("_Item")
After: TypeAlias = tuple[Any, ...]
"""A place in a list: the number of a gate, a namespace, and what follows in it."""


class Documents:
    """The documents of one process, of each gate in it: a method for each row of ``endpoints`` with a shape."""

    def __init__(self, sources: Sequence[Source], version: str) -> None:
        """``sources`` may change later."""
        self.sources = sources
        self.version = version

    # -- ceilings ---------

    def ceilings(self, query: OfCeilings) -> shapes.Page[shapes.Ceiling]:
        return self._page("ceilings", query, partial(self._ceilings, query))

    def _ceilings(self, query: OfCeilings, after: After) -> Iterator[tuple[list[Any], shapes.Ceiling]]:
        for number, source, namespace, begins in self._namespaces(query.namespace, after):
            found = source.namespace(namespace)
            if found is None:
                continue
            snapshot, now = found
            blocked = source.tally(namespace).blocked if snapshot.waiting else {}
            for key, ceiling in sorted(ceilings_of(snapshot), key=lambda each: each[0]):
                if query.takes(*key) and not (begins and key <= after[2:4]):
                    item = ceiling_item(source, (namespace, *key), ceiling, now, blocked.get(key, 0))
                    yield [number, namespace, *key], item

    # -- who waits ---------

    def waiting(self, query: OfNamespace) -> shapes.Page[shapes.Waiting]:
        """Return a page of waiting creates: by namespace, in the order of its line."""
        return self._page("waiting", query, partial(self._waiting, query))

    def _waiting(self, query: OfNamespace, after: After) -> Iterator[tuple[list[Any], shapes.Waiting]]:
        for number, source, name, begins in self._namespaces(query.namespace, after):
            place = (after[2], after[3]) if begins else None
            for each in source.waiting(name, place, query.limit + 1):
                create = source.ledger.line.waiter_of(each.request)
                if create is not None:  # else it was admitted meanwhile
                    yield [number, name, *each.place], waiting_item(source, create, each)
            for follower, behind in source.followers(name, place):
                yield [number, name, *behind], waiting_item(source, follower, None)

    def request(self, query: OfRequest) -> shapes.RequestHistory:
        """Return one create's history. Raises ``ProblemError`` for an unknown create."""
        for source in self.sources:
            told, forgotten = source.counters.ring.of(query.id)
            create = next((each for each in sliced(source.ledger.under_way()) if each.create_id == query.id), None)
            if not told and create is None:
                continue
            begun = bool(told) and told[0].event in ("waits", "created")
            made = None if create is None else create.creation
            item = None if create is None else self._waits_now(source, create)
            return shapes.RequestHistory(
                as_of=self.as_of(),
                id=query.id,
                gate=source.name,
                namespace=told[-1].namespace if made is None else made.namespace,
                kind=told[-1].kind if made is None else made.resource,
                name=told[-1].name if made is None else made.name,
                state="over" if made is None else "sent" if item is None else "waiting",
                waiting=item,
                history=[decision(each) for each in told],
                complete=begun or not forgotten,
            )
        raise ProblemError(
            404, "no create with this id waits here, and none of the last decisions is about it", "#/path/id"
        )

    def _waits_now(self, source: Source, create: Any) -> shapes.Waiting | None:
        if create.follows:
            return waiting_item(source, create, None)
        request = create.request
        if request is None or request.state != "waiting":
            return None
        before = (request.rank, request.seq - 1)
        found = next(iter(source.waiting(request.namespace, before, 1)), None)
        return None if found is None or found.request is not request else waiting_item(source, create, found)

    # -- namespaces, overload, policy, gates ---------

    def namespaces(self, query: OfPage) -> shapes.Page[shapes.Namespace]:
        return self._page("namespaces", query, self._namespace_items)

    def _namespace_items(self, after: After) -> Iterator[tuple[list[Any], shapes.Namespace]]:
        for number, source, name, begins in self._namespaces(None, after):
            if not begins:
                yield [number, name], namespace_item(source, name)

    def overload(self, _: Nothing) -> shapes.Page[shapes.Overload]:
        """Return all overload windows. There are few: one for a server, credential and priority level."""
        items = []
        for source in self.sources:
            windows, now = source.flows()
            for flow, window in windows:
                server, level = flow.partition("|")[0], flow.rpartition("|")[2]
                paused = source.clock.text(now + window.closed_for) if window.closed_for else None
                size = round(window.size, 3)
                items.append(shapes.Overload(flow_name(flow), server, level or None, size, window.in_flight, paused))
        return shapes.Page(self.as_of(), items)

    def policy(self, _: Nothing) -> shapes.PolicyDocument:
        """Return the settings in force: those of the first gate, and the modes of all namespaces known."""
        if not self.sources:
            return shapes.PolicyDocument(self.as_of(), {}, {})
        source = self.sources[0]
        modes = {name: source.ledger.mode(name) for name in ("*", *source.namespaces())}
        return shapes.PolicyDocument(self.as_of(), modes, dataclasses.asdict(source.ledger.policy))

    def gates(self, _: Nothing) -> shapes.Page[shapes.Gate]:
        return shapes.Page(self.as_of(), [self._gate(source) for source in self.sources])

    def _gate(self, source: Source) -> shapes.Gate:
        counts = source.ledger.counts
        windows, _ = source.flows()
        return shapes.Gate(
            gate=source.name,
            server=source.server,
            version=self.version,
            started_at=shown(source.counters.started),
            namespaces=source.ledger.controller.size,
            waiting=counts.waiting,
            in_flight=sum(window.in_flight for _, window in windows),
            failed_open=counts.failed_open,
            settle_seconds=round(source.ledger.controller.settle_time, 6),
        )

    # -- pages ---------

    def as_of(self) -> str:
        return shown(self.sources[0].clock.wall() if self.sources else 0.0)

    def _namespaces(self, only: str | None, after: After) -> Iterator[tuple[int, Source, str, bool]]:
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

    def _page(
        self,
        kind: str,
        query: OfCeilings | OfNamespace | OfPage,
        items: Callable[[After], Iterable[tuple[list[Any], _Item]]],
    ) -> shapes.Page[_Item]:
        """Return a page of the ``items`` behind a place. Raises ``ProblemError`` for a cursor of another list."""
        after = read_cursor(query.after, kind)
        found = list(islice(items((0, "") if after is None else tuple(after)), query.limit + 1))
        following = cursor(kind, found[query.limit - 1][0]) if len(found) > query.limit else None
        return shapes.Page(self.as_of(), [item for _, item in found[: query.limit]], following)


LABELS_MAX: Final = 64


def ceiling_item(
    source: Source, key: tuple[str, str, str], found: CeilingSnapshot, now: float, waiting: int
) -> shapes.Ceiling:
    """Return one ceiling; ``waiting`` creates wait for it."""
    resource = key[2]
    text = source.clock.text
    block = None
    if found.block is not None:
        due = None if found.next_probe is None else text(now + found.next_probe)
        block = shapes.Block(found.block, found.attempts, due)
    return shapes.Ceiling(
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


def waiting_item(source: Source, create: Any, found: WaitingSnapshot | None) -> shapes.Waiting:
    """Return a create that waits. None: for another one with its key, without a place in line."""
    creation, text = create.creation, source.clock.text
    waits: dict[str, Any] = {
        "since": text(create.began) or "", "place": None, "reason": SAME_KEY, "blockers": [], "next_probe_at": None,
        "estimated_at": None,
    }  # fmt: skip
    if found is not None:
        why, at = found.why, found.at
        waits = {
            "since": text(found.request.joined) or "",
            "place": why.place,
            "reason": why.reason,
            "blockers": list(map(blocker_item, found.blockers)),
            "next_probe_at": None if why.next_probe is None else text(at + why.next_probe),
            "estimated_at": None if why.estimate is None else text(at + why.estimate),
            "estimated_by": None if why.latest is None else text(at + why.latest),
        }
    return shapes.Waiting(
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


def blocker_item(found: Blocker) -> shapes.Blocker:
    """Return one ceiling that a create waits for."""
    amounts = (found.asked, max(0, found.left), found.limited)  # a probe in flight holds more than there is
    return shapes.Blocker(found.quota, found.resource, *(quantity(amount, found.resource) for amount in amounts))


def _gang(create: Any) -> str | None:
    """Return the name of the gang that a create is a member of, or of the waiting gang itself."""
    gang = create.creation.gang
    if gang is not None:
        return str(gang.name)
    return create.creation.name if isinstance(create.request, Reservation) else None


_UNKNOWN: Final = NamespaceSnapshot(
    quotas={}, observing=False, ends_told=False, waiting=0, oldest=None, seats=0, outstanding=0, answered_holds=0,
    unproven=0, unproven_window=0, release_gap=0.0, brake=None, overtakings=0, stale={},
)  # fmt: skip
"""Of a namespace that the engine knows nothing of."""


def namespace_item(source: Source, name: str) -> shapes.Namespace:
    snapshot, now = source.namespace(name) or (_UNKNOWN, 0.0)
    brake, text = snapshot.brake, source.clock.text
    return shapes.Namespace(
        namespace=name,
        mode=source.ledger.mode(name),
        watch=watch_of(source, name),
        waiting=snapshot.waiting + len(source.followers(name)),
        oldest_since=None if snapshot.oldest is None else text(now - snapshot.oldest),
        in_flight=snapshot.outstanding,
        quotas=len(snapshot.quotas),
        holding=any(ceiling.held or ceiling.reserved for _, ceiling in ceilings_of(snapshot)),
        paused=source.ledger.is_halted(name),
        slowed_until=text(now + brake.closed_for) if brake is not None and brake.closed_for > 0 else None,
        counted=_counted(source.counters.of(name), snapshot),
    )


def watch_of(source: Source, name: str) -> shapes.Watch | None:
    """Return how a namespace is watched; None: it is not."""
    status = source.watch_status(name)
    if status is None:
        return None
    return shapes.Watch(status.state.value, source.watch_clock.text(status.since) or "", status.why)


def decision(told: KeptDecision) -> shapes.Decision:
    return shapes.Decision(
        told.seq, shown(round(told.at, 3)), told.gate, told.event, told.id, told.namespace, told.kind, told.name,
        told.lane or None, told.reason or None, told.quota or None, told.resource or None, told.probe,
        None if told.waited is None else round(told.waited, 3),
    )  # fmt: skip


def flow_name(flow: str) -> str:
    """Return a name for an overload window that reveals nothing of its credential."""
    return hashlib.sha256(flow.encode()).hexdigest()[:12]


def _counted(counts: NamespaceCounts, snapshot: NamespaceSnapshot) -> shapes.Counted:
    sent, shadow, waits = counts.attempts.total(), counts.shadow, counts.waits or Histogram(())
    refused: Counter[str] = Counter()
    for (_, answer), number in counts.attempts.items():
        if answer != "created":
            refused[answer] += number
    return shapes.Counted(
        sent=sent,
        created=sent - refused.total(),
        refused=dict(sorted(refused.items())),
        declined=sum(number for (_, outcome), number in counts.creates.items() if outcome == "declined"),
        waits=sum(waits.counts),
        waited_seconds=round(waits.sum, 3),
        calls_saved_estimate=counts.saved,
        probes=counts.probes.total(),
        overtakings=snapshot.overtakings,
        stale_refusals=sum(snapshot.stale.values()),
        shadow=shapes.Shadow(shadow.total(), shadow["wait"], shadow["refuse"]) if shadow else None,
    )


def _owner(creation: Creation) -> shapes.Owner | None:
    found = owner_of(creation.body)
    return None if found is None else shapes.Owner(found.api_version, found.kind, found.name, found.uid)


def _labels(creation: Creation) -> dict[str, str]:
    labels: Mapping[Any, Any] = labels_of(creation.body)
    texts = ((name, value) for name, value in labels.items() if isinstance(name, str) and isinstance(value, str))
    return dict(islice(texts, LABELS_MAX))

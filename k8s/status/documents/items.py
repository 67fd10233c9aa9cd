"""From what a gate knows to single objects of the status API: one ceiling, one waiting create, one namespace."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.gangs import Reservation
from backoff_ctrl.engine.quantities import quantity
from backoff_ctrl.k8s.creates.creation import owner_of
from backoff_ctrl.k8s.creates.wait import SAME_KEY
from backoff_ctrl.k8s.status.shapes.documents import (
    Block,
    Blocker,
    Ceiling,
    Counted,
    Decision,
    Namespace,
    Owner,
    Shadow,
    Waiting,
    Watch,
)
from backoff_ctrl.k8s.status.sources import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backoff_ctrl.engine.explaining import CeilingSnapshot, NamespaceSnapshot
    from backoff_ctrl.engine.looking import Blocker as Found
    from backoff_ctrl.engine.looking import WaitingSnapshot
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.status.decisions import Told
    from backoff_ctrl.k8s.status.sources import Source

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
    """Return one waiting create."""
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
    """Return a create with how it waits."""
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
    """Name the gang that a create is a member of, or that waits itself."""
    gang = create.creation.gang
    if gang is not None:
        return str(gang.name)
    return create.creation.name if isinstance(create.request, Reservation) else None


def namespace_item(source: Source, name: str) -> Namespace:
    """Return one namespace."""
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
    """Return one decision."""
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
    """Name an overload window without giving anything of its credential away."""
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
    metadata = creation.body.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if not isinstance(labels, dict):
        return {}
    texts = ((name, value) for name, value in labels.items() if isinstance(name, str) and isinstance(value, str))
    return dict(islice(texts, LABELS_MAX))


def subject_of(told: Sequence[Told], create: Any) -> tuple[str, str, str]:
    if create is not None:
        return create.creation.resource, create.creation.namespace, create.creation.name
    return told[-1].kind, told[-1].namespace, told[-1].name

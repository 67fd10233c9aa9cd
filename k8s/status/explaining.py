"""What would happen to a manifest if it were created now: to the create itself, and to what its controller makes of it.

``explain`` asks an engine about the demands (``Ask``), adds what is refused however much room there is
(``admission_rules``), and makes the document of the status API. ``explained_by`` does so for the gates of this process;
where there is no gate, ``asking_listed`` asks the quotas of a namespace, just listed. ``confirm`` asks the API server
itself, by a dry run. Pure: nothing is reserved, and only the caller's ``ask`` sends anything.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quantities import quantity
from backoff_ctrl.engine.look.looking import Blocker
from backoff_ctrl.engine.look.outlook import Outlook, nothing_known
from backoff_ctrl.k8s.gate.creates.naming import WAIT_LABEL
from backoff_ctrl.k8s.gate.gangs import as_one, why_never
from backoff_ctrl.k8s.kube.answers.fields import (
    FieldError,
    labels_of,
    mapping_at,
    mappings,
    metadata_of,
    required_mapping_at,
)
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection, read_rejection
from backoff_ctrl.k8s.kube.charges.admission_rules import Item, claim_refusals, pod_refusals
from backoff_ctrl.k8s.kube.charges.device_claims import (
    UNKNOWN,
    Devices,
    drive,
    footprint_with_devices,
    has_devices,
    reading,
    templates_named,
)
from backoff_ctrl.k8s.kube.charges.devices import with_extended
from backoff_ctrl.k8s.kube.charges.filling import NO_CLASSES, Classes, claims, filled, pod_specs
from backoff_ctrl.k8s.kube.charges.filling import reading as reading_classes
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import Footprint as Charged
from backoff_ctrl.k8s.kube.charges.parts import Part as Made
from backoff_ctrl.k8s.kube.charges.parts import footprint_of
from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from backoff_ctrl.k8s.kube.charges.resources import resource_of
from backoff_ctrl.k8s.kube.paths import group_path, path_to

from .asked import ProblemError
from .bodies import fields_of
from .documents import blocker_item
from .shapes import Confirmation, Explained, ExplainedPart, Footprint, Part, Verdict
from .sources import Source, shown

Ask: TypeAlias = Callable[[Sequence[tuple[Demand, int]]], Outlook]
"""Returns what would happen to demands, each so many times."""
ReadDevices: TypeAlias = Callable[[Sequence[Made]], Devices]
"""Returns what a cluster says of the devices of the ResourceClaims among parts."""
ReadClasses: TypeAlias = Callable[[Mapping[str, Any], str, Sequence[Made]], Classes]
"""Returns what classes of a cluster add to a manifest of a resource with these parts."""
Answer: TypeAlias = tuple[int, dict[str, Any]]
AskServer: TypeAlias = Callable[[str, str, Mapping[str, Any] | None], Answer]
"""Takes a method, a path with its query, and a body; returns the API server's status and answer."""

NOT_COUNTED: Final = "LimitRange defaults are not known here and are left out"
CLASSES: Final = "extended resources of device classes are not known here and are left out"
LEARNED: Final = "the quotas are not watched: what is known was learned from refusals, and there may be more quotas"
KEPT: Final = "there is room, but it is reserved for a create that has waited long"
NUMBER: Final = "only the cluster knows how many {kind}s {maker} makes: one of each is counted"
SUSPENDED: Final = "{kind}s of {maker} are made when it is resumed"
LET_IN: Final = "whether the operator resumes it is known to the cluster: ask that with explain --kubeconfig FILE"
AS_ONE: Final = "it waits for room as one, and as one it never fits: {}"
UNREAD: Final = "the devices of these ResourceClaimTemplates are not known here and are left out: {}"
NEVER: Final = {
    "fail": "the gate declines at once what never fits (on_never_fits: fail)",
    "wait": "the gate lets what never fits wait until the limit is raised (on_never_fits: wait)",
}

DRY_RUN: Final = "dryRun=All"
"""Quota admission evaluates a dry run as it would a create, and charges nothing."""
RACES: Final = (
    "a dry run reserves and charges nothing: others may take the room before the create is sent, and two that fit one "
    "by one may not fit together"
)
WEBHOOKS: Final = (
    "webhooks that do not declare to be free of side effects are not called in a dry run: the server refuses it instead"
)
MADE: Final = "only the create itself was tried, not what its controller makes of it"
GATES: Final = "the server knows nothing of room that a gate holds, or keeps for a create that waits longer"
_VERSION: Final = re.compile(r"(?:([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)/)?([a-z0-9][-a-z0-9]*)")
_NEVER_KNOWN: Final = frozenset({Lane.RBAC, Lane.WEBHOOK, Lane.POLICY, Lane.EXISTS, Lane.NAMESPACE_TERMINATING})
"""What an explanation leaves to the API server."""
_REFUSED: Final = _NEVER_KNOWN | {Lane.MUST_SPECIFY, Lane.NO_COVERING_QUOTA, Lane.LIMIT_RANGE, Lane.INVALID}
"""What is refused however much room there is."""
_NO_DRY_RUN: Final = "does not support dry run"  # k8s.io/apiserver pkg/admission/plugin/webhook/errors
_STRANGER: Final = "system:anonymous"


def explain(
    manifest: Mapping[str, Any],
    ask: Ask,
    limit_ranges: Sequence[Item] | None,
    now: float,
    devices: ReadDevices = lambda _: UNKNOWN,
    classes: ReadClasses = lambda *_: NO_CLASSES,
) -> tuple[Explained, Mapping[str, Any]]:
    """Return what would happen to a manifest, and the manifest with what these LimitRanges (None: unknown) fill in.

    ``now`` is Unix time. ``devices`` reads what the ResourceClaims of the manifest and its pods ask for; it is called
    where there are any. ``classes`` reads what RuntimeClasses and the default StorageClass add. Raises ``ProblemError``
    for a malformed manifest.
    """
    with fields_of(manifest):
        items = limit_ranges or ()
        whole = footprint_of(manifest)  # before it is filled in: errors are about what was given
        resource = resource_of(manifest)
        given = filled(manifest, resource, whole.parts, items, classes(manifest, resource, whole.parts))
        whole = footprint_of(given)
        known, notes = UNKNOWN, list[str]()
        if has_devices(whole):
            known = devices(whole.parts)
            whole = footprint_with_devices(whole, known)
            notes += [CLASSES] if known.classes is None else []
        outlook = create = ask([(with_extended(footprint(given), known.classes or {}), 1)])
        notes += [] if limit_ranges is not None or not _has_pods(resource, whole) else [NOT_COUNTED]
        parts = [_part("create", create, list(_refusals(given, resource, items, create)), now)]
        if whole.parts:
            made = [part for part in whole.parts if not part.suspended] or list(whole.parts)
            notes += _notes_on(whole.parts)
            outlook = ask([(part.demand, 1 if part.count is None else part.count) for part in made])
            if labels_of(given).get(WAIT_LABEL) == "true" and (said := _why_never(given, resource, whole.parts, ask)):
                notes.append(AS_ONE.format(said))
            parts.append(_part("pods", outlook, list(_template_refusals(given, resource, made, items, ask)), now))
        if unread := set(templates_named(whole.parts)) - known.templates.keys():
            notes.append(UNREAD.format(", ".join(sorted(unread))))
        if create.learned or outlook.learned:
            notes.append(LEARNED)
        if create.kept or outlook.kept:
            notes.append(KEPT)
        first = parts[0]
        document = Explained(
            as_of=shown(now),
            verdict=first.verdict,
            blockers=first.blockers,
            estimated_at=first.estimated_at,
            footprint=_footprint(whole),
            parts=parts,
            note="; ".join(notes) or None,
        )
    return document, given


def explained_by(sources: Sequence[Source], manifest: Mapping[str, Any], namespace: str) -> Explained:
    """Return what would happen to a manifest, by the first gate that knows something of its namespace.

    Raises ``ProblemError`` for a malformed manifest.
    """

    def ask(wanted: Sequence[tuple[Demand, int]]) -> Outlook:
        found = nothing_known(observing=False)
        for source in sources:
            found = source.outlook(namespace, wanted)
            if found.prospect != "unknown":
                break
        return found

    found, _ = explain(manifest, ask, None, sources[0].clock.wall() if sources else time.time())
    if found.verdict == "never" and sources:
        note_on(found, NEVER[sources[0].ledger.policy.on_never_fits])
    if is_suspended(found):
        note_on(found, LET_IN)
    return found


def note_on(found: Explained, words: str) -> None:
    """Add words to the note of an explanation."""
    found.note = f"{found.note}; {words}" if found.note else words


def refuse(found: Explained, why: str) -> None:
    """Have an explanation say that the API server refuses the create, whatever its quotas leave."""
    found.verdict, found.let_in = "refused", None
    for part in found.parts:
        part.verdict, part.blockers, part.estimated_at, part.why = "refused", [], None, [why]


def is_suspended(found: Explained) -> bool:
    """Return whether it is about an object that makes nothing before it is resumed."""
    return bool(found.footprint.parts) and all(part.suspended for part in found.footprint.parts)


def asking_listed(namespace: str, quotas: Iterable[object]) -> tuple[Ask, list[str]]:
    """Return an ``Ask`` over these ResourceQuotas, which are all of the namespace, and the names of unreadable ones."""
    engine = Controller()
    unreadable = []
    for each in quotas:
        name = str(metadata_of(each).get("name", ""))
        try:
            engine.observe_quota(namespace, name, read_quota(each), 0.0)
        except FieldError:
            unreadable.append(name)
    if not unreadable:
        engine.watching(0.0, namespace)
    return lambda wanted: engine.outlook(namespace, wanted, 0.0), unreadable


def devices_of(namespace: str, ask: AskServer) -> ReadDevices:
    """Return who reads what a cluster says of devices in a namespace; what may not be read is unknown."""
    return lambda parts: drive(reading(namespace, parts), lambda path: ask("GET", path, None))


def classes_of(ask: AskServer) -> ReadClasses:
    """Return who reads what classes of a cluster add; what may not be read adds nothing."""
    return lambda *about: drive(reading_classes(*about), lambda path: ask("GET", path, None))


def _why_never(manifest: Mapping[str, Any], resource: str, made: Sequence[Made], ask: Ask) -> str:
    """Return why a manifest and all that is made of it never fit together, as a Task or the operator says it."""
    with suppress(GangError):
        asked = as_one(manifest, tuple(replace(part, suspended=False) for part in made), resource=resource)
        return why_never(asked, ask([(asked.parts, 1)]))
    return ""


def _part(part: Literal["create", "pods"], outlook: Outlook, why: list[str], now: float) -> ExplainedPart:
    if why:
        return ExplainedPart(part, "refused", [], None, why)
    at = None if outlook.estimate is None else shown(round(now + outlook.estimate, 3))
    return ExplainedPart(part, outlook.prospect, list(map(blocker_item, outlook.blockers)), at)


def _footprint(found: Charged) -> Footprint:
    return Footprint(
        kind=found.kind,
        estimated=found.estimated,
        amounts=_amounts(found.demand),
        scopes=sorted(found.demand.scopes),
        parts=[
            Part(part.kind, _amounts(part.demand), sorted(part.demand.scopes), part.count, part.made_by, part.suspended)
            for part in found.parts
        ],
    )


def _amounts(demand: Demand) -> dict[str, str]:
    return {name: quantity(amount, name) for name, amount in demand.amounts.items()}


def _refusals(manifest: Mapping[str, Any], resource: str, items: Sequence[Item], outlook: Outlook) -> Iterator[str]:
    if resource == "pods":
        yield from pod_refusals(required_mapping_at(manifest, "spec", ""), items, outlook.limits, "spec")
    elif resource == "persistentvolumeclaims":
        yield from (f"LimitRange: {why}" for why in claim_refusals(mapping_at(manifest, "spec", ""), items, "spec"))


def _template_refusals(
    manifest: Mapping[str, Any], resource: str, made: Sequence[Made], items: Sequence[Item], ask: Ask
) -> Iterator[str]:
    pods = [part for part in made if part.kind == "Pod" and part.template]
    for part, (spec, at) in zip(pods, pod_specs(manifest, resource, pods), strict=False):
        yield from pod_refusals(spec, items, ask([(part.demand, 1)]).limits, at)
    for claim, at in claims(manifest, resource, pods):
        yield from (f"LimitRange: {why}" for why in claim_refusals(claim["spec"], items, at))


def _has_pods(resource: str, whole: Charged) -> bool:
    return resource == "pods" or any(part.kind == "Pod" for part in whole.parts)


def _notes_on(parts: Sequence[Made]) -> list[str]:
    notes = [NUMBER.format(kind=p.kind, maker=p.made_by) for p in parts if p.count is None and not p.suspended]
    notes += [SUSPENDED.format(kind=p.kind, maker=p.made_by) for p in parts if p.suspended]
    return list(dict.fromkeys(notes))


# -- the API server's own answer ---------


def confirm(manifest: Mapping[str, Any], namespace: str, found: Explained, ask: AskServer) -> Confirmation:
    """Return the server's answer to a dry run of this create, beside what was found.

    ``ask`` decides with whose rights it is sent. Raises ``ProblemError`` if the server does not accept them.
    """
    path = _path_of(manifest, namespace, ask)
    untold = [RACES, WEBHOOKS, GATES, *([MADE] if found.footprint.parts else [])]
    if path is None:
        why = f"the server has no {manifest.get('kind')} in {manifest.get('apiVersion')}"
        return Confirmation("refused", None, 404, Lane.INVALID, why, [], untold)
    status, answer = _known(*ask("POST", f"{path}?{DRY_RUN}", manifest))
    if status in (200, 201):
        return Confirmation("now", _compared(found.verdict, "now"), status, None, "", [], untold)
    rejection = read_rejection(status, {}, json.dumps(answer))
    if _NO_DRY_RUN in rejection.message:
        return Confirmation("unknown", None, status, rejection.lane, rejection.message, [], untold)
    verdict: Verdict = "refused" if rejection.lane in _REFUSED else "unknown"
    if rejection.lane is Lane.QUOTA:
        verdict = "never" if rejection.never_fits else "wait"
    agrees = None if rejection.lane in _NEVER_KNOWN else _compared(found.verdict, verdict)
    blockers = [blocker_item(each) for each in _blockers(rejection)]
    return Confirmation(verdict, agrees, status, rejection.lane, rejection.message, blockers, untold)


def _path_of(manifest: Mapping[str, Any], namespace: str, ask: AskServer) -> str | None:
    """Return where a kind is created, by the server's discovery; None: the server does not have the kind."""
    match = _VERSION.fullmatch(str(manifest.get("apiVersion")))
    if match is None:
        return None
    base = group_path(str(manifest.get("apiVersion")))
    status, listed = _known(*ask("GET", base, None))
    if status == 404:
        return None
    if status != 200:
        raise ProblemError(503, f"the API server does not say which kinds it has: it answers {status} to {base}")
    for each in mappings(listed.get("resources")):
        name = str(each.get("name"))
        if each.get("kind") == manifest.get("kind") and "/" not in name:  # no subresource
            return path_to(base, name, namespace=namespace if each.get("namespaced") is True else None)
    return None


def _known(status: int, answer: dict[str, Any]) -> Answer:
    """Return the answer. Raises ``ProblemError`` if the server does not know the caller."""
    if status == 401 or (status == 403 and _STRANGER in str(answer.get("message"))):
        raise ProblemError(
            401,
            "the API server is asked with your own rights, and does not know you: send a Kubernetes token "
            "(Authorization: Bearer TOKEN), such as one from kubectl create token",
            "#/headers/Authorization",
        )
    return status, answer


def _compared(found: Verdict, server: Verdict) -> bool | None:
    return None if "unknown" in (found, server) else found == server


def _blockers(rejection: Rejection) -> Iterator[Blocker]:
    for name, asked in rejection.requested.items():
        yield Blocker(rejection.quota, name, asked, rejection.headroom.get(name, 0), rejection.limited.get(name, 0))

"""What would happen to a manifest that is created now: to the create itself, and to what its controller makes of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from backoff_ctrl.k8s.charges.fields import mapping_at, required_mapping_at
from backoff_ctrl.k8s.charges.footprint import footprint
from backoff_ctrl.k8s.charges.parts import Footprint, footprint_of
from backoff_ctrl.k8s.charges.resources import resource_of

from .admission import pod_refusals
from .limit_ranges import claim_refusals, fill_in
from .paths import found_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backoff_ctrl.engine.demand import Demand
    from backoff_ctrl.engine.looking import Blocker
    from backoff_ctrl.engine.outlook import Outlook
    from backoff_ctrl.k8s.charges.parts import Part
    from backoff_ctrl.k8s.status.shapes.explained import Verdict

    from .limit_ranges import Item

    Ask = Callable[[Sequence[tuple[Demand, int]]], Outlook]

NOT_COUNTED: Final = "LimitRange defaults are not known here and are left out"
LEARNED: Final = "the quotas are not watched: what is known was learned from refusals, and there may be more quotas"
KEPT: Final = "there is room, but it is reserved for a create that has waited long"
NUMBER: Final = "only the cluster knows how many {kind}s {maker} makes: one of each is counted"
SUSPENDED: Final = "{kind}s of {maker} are left out: they are made when it is resumed"


@dataclass(frozen=True, slots=True)
class PartVerdict:
    """What would happen to the create, or to all objects that are made of it. ``estimate`` is seconds from now."""

    part: Literal["create", "pods"]
    verdict: Verdict
    blockers: tuple[Blocker, ...]
    estimate: float | None
    why: tuple[str, ...] = ()
    """Why it is refused, whatever room there is."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen to a manifest. ``notes`` say what the answer rests on."""

    parts: tuple[PartVerdict, ...]
    footprint: Footprint
    notes: tuple[str, ...]
    filled: Mapping[str, Any]
    """The manifest with what LimitRanges fill in."""


def explain(manifest: Mapping[str, Any], ask: Ask, limit_ranges: Sequence[Item] | None) -> Explanation:
    """Say what would happen to a manifest, by what ``ask`` says of demands and these LimitRanges (None: unknown).

    Raises ``FootprintError`` for a malformed manifest.
    """
    items = limit_ranges or ()
    whole = footprint_of(manifest)  # before it is filled in: errors are about what was given
    filled: dict[str, Any] = copy.deepcopy(dict(manifest))
    resource = resource_of(filled)
    if items:
        for spec, _ in _pod_specs(filled, resource, whole.parts):
            fill_in(spec, items)
        whole = footprint_of(filled)
    demand = footprint(filled)
    create = ask([(demand, 1)])
    notes = [] if limit_ranges is not None or not _has_pods(resource, whole) else [NOT_COUNTED]
    parts = [_verdict("create", create, tuple(_refusals(filled, resource, items, create)))]
    if whole.parts:
        made = [part for part in whole.parts if not part.suspended]
        notes += _notes_on(whole.parts)
        outlook = ask([(part.demand, 1 if part.count is None else part.count) for part in made])
        why = tuple(_template_refusals(filled, resource, made, items, ask))
        parts.append(_verdict("pods", outlook, why))
    else:
        outlook = create
    if create.learned or outlook.learned:
        notes.append(LEARNED)
    if create.kept or outlook.kept:
        notes.append(KEPT)
    return Explanation(tuple(parts), whole, tuple(notes), filled)


def _verdict(part: Literal["create", "pods"], outlook: Outlook, why: tuple[str, ...]) -> PartVerdict:
    if why:
        return PartVerdict(part, "refused", (), None, why)
    return PartVerdict(part, outlook.prospect, outlook.blockers, outlook.estimate)


def _refusals(manifest: Mapping[str, Any], resource: str, items: Sequence[Item], outlook: Outlook) -> Iterator[str]:
    if resource == "pods":
        yield from pod_refusals(required_mapping_at(manifest, "spec", ""), items, outlook.limits, "spec")
    elif resource == "persistentvolumeclaims":
        yield from (f"LimitRange: {why}" for why in claim_refusals(mapping_at(manifest, "spec", ""), items, "spec"))


def _template_refusals(
    manifest: Mapping[str, Any], resource: str, made: Sequence[Part], items: Sequence[Item], ask: Ask
) -> Iterator[str]:
    pods = [part for part in made if part.kind == "Pod" and part.template]
    for part, (spec, at) in zip(pods, _pod_specs(manifest, resource, pods), strict=False):
        yield from pod_refusals(spec, items, ask([(part.demand, 1)]).limits, at)


def _pod_specs(manifest: Any, resource: str, parts: Sequence[Part]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each pod spec of a manifest with its path: its own, and those in pod templates."""
    paths = ["spec"] if resource == "pods" else [f"{p.template}.spec" for p in parts if p.kind == "Pod" and p.template]
    for path in paths:
        spec = found_at(path, manifest)
        if isinstance(spec, dict):
            yield spec, path


def _has_pods(resource: str, whole: Footprint) -> bool:
    return resource == "pods" or any(part.kind == "Pod" for part in whole.parts)


def _notes_on(parts: Sequence[Part]) -> list[str]:
    notes = [NUMBER.format(kind=p.kind, maker=p.made_by) for p in parts if p.count is None and not p.suspended]
    notes += [SUSPENDED.format(kind=p.kind, maker=p.made_by) for p in parts if p.suspended]
    return list(dict.fromkeys(notes))

"""An explanation as the document of the status API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.outlook import nothing_known
from backoff_ctrl.k8s.charges.fields import FootprintError
from backoff_ctrl.k8s.status.documents.items import quantity
from backoff_ctrl.k8s.status.shapes.documents import Blocker
from backoff_ctrl.k8s.status.shapes.explained import Explained, ExplainedPart, Footprint, Part
from backoff_ctrl.k8s.status.sources import shown

from .bodies import malformed
from .explanation import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backoff_ctrl.engine.demand import Demand
    from backoff_ctrl.engine.looking import Blocker as Ceiling
    from backoff_ctrl.engine.outlook import Outlook
    from backoff_ctrl.k8s.charges.parts import Footprint as Charged
    from backoff_ctrl.k8s.status.sources import Source

    from .explanation import Ask, Explanation, PartVerdict
    from .limit_ranges import Item


NEVER: Final = {
    "fail": "the gate declines at once what never fits (on_never_fits: fail)",
    "wait": "the gate lets what never fits wait until the limit is raised (on_never_fits: wait)",
}


def explained(
    manifest: Mapping[str, Any], ask: Ask, limit_ranges: Sequence[Item] | None, wall: Callable[[], float]
) -> Explained:
    """Return the document about a manifest. ``wall`` is Unix time. Raises ``ProblemError`` for a malformed manifest."""
    return document_of(explanation_of(manifest, ask, limit_ranges), wall())


def explanation_of(manifest: Mapping[str, Any], ask: Ask, limit_ranges: Sequence[Item] | None) -> Explanation:
    """Return what would happen to a manifest. Raises ``ProblemError`` for a malformed one."""
    try:
        return explain(manifest, ask, limit_ranges)
    except FootprintError as error:
        raise malformed(error, manifest) from None


def explained_by(sources: Sequence[Source], manifest: Mapping[str, Any], namespace: str) -> Explained:
    """Return the document about a manifest, by the first gate that knows something of its namespace.

    Raises ``ProblemError`` for a malformed manifest.
    """

    def ask(wanted: Sequence[tuple[Demand, int]]) -> Outlook:
        found = nothing_known(observing=False)
        for source in sources:
            found = source.outlook(namespace, wanted)
            if found.prospect != "unknown":
                break
        return found

    found = explained(manifest, ask, None, sources[0].clock.wall if sources else time.time)
    if found.verdict == "never" and sources:
        words = NEVER[sources[0].ledger.policy.on_never_fits]
        found.note = f"{found.note}; {words}" if found.note else words
    return found


def document_of(found: Explanation, now: float) -> Explained:
    """Return the document of an explanation that was made at this Unix time."""
    parts = [_part(part, now) for part in found.parts]
    create = parts[0]
    return Explained(
        as_of=shown(now),
        verdict=create.verdict,
        blockers=create.blockers,
        estimated_at=create.estimated_at,
        footprint=_footprint(found.footprint),
        parts=parts,
        note="; ".join(found.notes) or None,
    )


def _part(part: PartVerdict, now: float) -> ExplainedPart:
    return ExplainedPart(
        part=part.part,
        verdict=part.verdict,
        blockers=[_blocker(each) for each in part.blockers],
        estimated_at=None if part.estimate is None else shown(round(now + part.estimate, 3)),
        why=list(part.why),
    )


def _blocker(each: Ceiling) -> Blocker:
    amounts = (each.asked, max(0, each.left), each.limited)
    return Blocker(each.quota, each.resource, *(quantity(amount, each.resource) for amount in amounts))


def _footprint(found: Charged) -> Footprint:
    return Footprint(
        kind=found.kind,
        estimated=found.estimated,
        amounts=_amounts(found.demand),
        scopes=sorted(found.demand.scopes),
        parts=[
            Part(part.kind, _amounts(part.demand), sorted(part.demand.scopes), part.count, part.made_by)
            for part in found.parts
        ],
    )


def _amounts(demand: Demand) -> dict[str, str]:
    return {name: quantity(amount, name) for name, amount in demand.amounts.items()}

"""An explanation as sentences for people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.answers.fields import metadata_of
from backoff_ctrl.k8s.answers.printing import printable

from .amounts import rounded, span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.status.shapes import Blocker, Confirmation, Explained, ExplainedPart

_CREATE: Final = {
    "now": "would be created now",
    "wait": "would wait",
    "never": "never fits",
    "refused": "would be refused",
    "unknown": "not known here: too little is known about the quotas",
}
_PODS: Final = {
    "now": "all objects that it makes would fit now",
    "wait": "the objects that it makes would not all fit now",
    "never": "the objects that it makes never fit",
    "refused": "its pods would be refused",
    "unknown": "not known here whether the objects that it makes would fit",
}


def sentences(manifest: Mapping[str, Any], namespace: str, found: Explained) -> str:
    """Return what would happen to a manifest."""
    metadata = metadata_of(manifest)
    name = metadata.get("name") or metadata.get("generateName")
    title = f"{found.footprint.kind or 'object'} {namespace}/{name or '?'}"
    lines = []
    for part in found.parts:
        words = f"{title}: {_CREATE.get(part.verdict, part.verdict)}" if part.part == "create" else _pods(part)
        lines.append(f"{words}{_estimate(part, found.as_of)}")
        lines += [f"  {each}" for each in (*part.why, *map(_blocker, part.blockers))]
    if found.confirmation is not None:
        lines += _confirmation(found.confirmation)
    if found.note:
        lines.append(f"note: {found.note}")
    return "\n".join(printable(line) for line in lines)


def _confirmation(found: Confirmation) -> list[str]:
    """Return what the API server says itself, and what it can't."""
    words = _CREATE.get(found.verdict, found.verdict) if found.verdict != "unknown" else "it does not say"
    agrees = {True: "agrees", False: "disagrees", None: "was asked"}[found.agrees]
    lines = [f"the API server {agrees}: {words}"]
    if found.message:
        lines.append(f"  {found.message}")
    return lines + [f"a dry run can't tell: {each}" for each in found.untold]


def _pods(part: ExplainedPart) -> str:
    return f"  and then {_PODS.get(part.verdict, part.verdict)}"


def _estimate(part: ExplainedPart, as_of: str) -> str:
    if part.estimated_at is None:
        return ""
    left = (datetime.fromisoformat(part.estimated_at) - datetime.fromisoformat(as_of)).total_seconds()
    return f", for about {span(left)}"


def _blocker(each: Blocker) -> str:
    asked, left, limited = (rounded(n, each.resource, each.limited) for n in (each.asked, each.left, each.limited))
    return f"quota {each.quota}: {each.resource} asks {asked}, left {left} of {limited}"

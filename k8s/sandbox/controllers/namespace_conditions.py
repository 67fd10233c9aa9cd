"""Conditions of a namespace that is being deleted (``k8s.io/kubernetes`` ``pkg/controller/namespace/deletion``)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

_FIXED = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions",
     "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted",
     "All content successfully deleted, may be waiting on finalization"),
)  # fmt: skip


def set_conditions(namespace: JSON, left: Mapping[str, list[JSON]], now: str) -> None:
    """State what remains, by resource (``configmaps.``, ``jobs.batch``), and which finalizers keep it."""
    finalizers = Counter(
        finalizer
        for objects in left.values()
        for obj in objects
        for finalizer in obj["metadata"].get("finalizers") or ()
    )
    resources = ", ".join(f"{name} has {len(objects)} resource instances" for name, objects in sorted(left.items()))
    holders = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    conditions = [(type_, "False", reason, message) for type_, reason, message in _FIXED]
    conditions.append(
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {resources}")
    )
    if holders:
        text = f"Some content in the namespace has finalizers remaining: {holders}"
        conditions.append(("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", text))
    else:
        text = "All content-preserving finalizers finished"
        conditions.append(("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", text))
    status = namespace.setdefault("status", {})
    before = {each["type"]: each for each in status.get("conditions") or ()}
    status["conditions"] = [
        {
            "type": type_,
            "status": value,
            "lastTransitionTime": before[type_]["lastTransitionTime"]
            if type_ in before and before[type_]["status"] == value
            else now,
            "reason": reason,
            "message": message,
        }
        for type_, value, reason, message in conditions
    ]

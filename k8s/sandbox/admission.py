"""The admission chain of a create or change, in the order of the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answers import forbidden, not_found
from .kinds import NAMESPACES, PODS, PRIORITY_CLASSES

if TYPE_CHECKING:
    from .core import Core
    from .encoding import JSON
    from .kinds import Kind
    from .quota_admission import Attempt

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check_namespace(core: Core, kind: Kind, namespace: str, name: str) -> None:
    """``NamespaceLifecycle``: the namespace must be there and stay. Raises 404, 403."""
    if not kind.namespaced:
        return
    stored = core.store.of(NAMESPACES).get("", namespace)
    if stored is None:
        raise not_found(NAMESPACES, namespace)
    if b'"deletionTimestamp"' in stored.data and (stored.parse()["metadata"].get("deletionTimestamp")):
        message = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(kind, name, message, [cause])


def mutate(core: Core, kind: Kind, namespace: str, name: str, obj: JSON) -> None:
    """Plugins that change a new object: LimitRanger's defaults, then Priority. Raises 403."""
    core.limits.fill_in(kind, namespace, obj)
    if kind is PODS:
        _give_priority(core, name, obj)


def _give_priority(core: Core, name: str, pod: JSON) -> None:
    spec = pod["spec"]
    wanted = spec.get("priorityClassName") or _default_class(core)
    value, policy = 0, "PreemptLowerPriority"
    if wanted:
        stored = core.store.of(PRIORITY_CLASSES).get("", wanted)
        if stored is not None:
            found = stored.parse()
            value, policy = found.get("value", 0), found.get("preemptionPolicy") or policy
        elif wanted in _SYSTEM_PRIORITIES:
            value = _SYSTEM_PRIORITIES[wanted]
        else:
            raise forbidden(PODS, name, f"no PriorityClass with name {wanted} was found")
        spec["priorityClassName"] = wanted
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _default_class(core: Core) -> str:
    for stored in core.store.of(PRIORITY_CLASSES).within(""):
        if b'"globalDefault":true' in stored.data:
            return stored.name
    return ""


def validate(core: Core, attempt: Attempt) -> None:
    """Plugins that only look: LimitRanger's bounds, then quota as the last. Raises 403."""
    watched = attempt.old is None or (attempt.kind is not PODS) or attempt.subresource == "resize"
    if watched and attempt.subresource in {"", "resize"} and not _is_going(attempt.old):
        core.limits.check(attempt.kind, attempt.namespace, attempt.name, attempt.obj)
    core.quota.admit(attempt)


def _is_going(old: JSON | None) -> bool:
    return old is not None and bool(old["metadata"].get("deletionTimestamp"))

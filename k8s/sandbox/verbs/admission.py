"""The admission chain for a create or an update, in the order of the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.amounts.amounts import amount_of, canonical_list
from backoff_ctrl.k8s.sandbox.kinds.answers import forbidden, not_found
from backoff_ctrl.k8s.sandbox.kinds.kinds import (
    CLAIMS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
)

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.core import Core
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.quotas.quota_admission import Attempt
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def check_namespace(core: Core, kind: Kind, namespace: str, name: str) -> None:
    """``NamespaceLifecycle``: the namespace must exist and not be terminating. Raises 404, 403."""
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
    """Mutating plugins for a new object: LimitRanger's defaults, RuntimeClass, Priority. Raises 403."""
    core.limits.fill_in(kind, namespace, obj)
    if kind is PODS:
        _give_overhead(core, name, obj)
        _give_priority(core, name, obj)


def _give_overhead(core: Core, name: str, pod: JSON) -> None:
    """``RuntimeClass``: a pod has the overhead of its class and no other."""
    spec = pod["spec"]
    wanted = spec.get("runtimeClassName")
    stored = core.store.of(RUNTIME_CLASSES).get("", wanted) if wanted else None
    if wanted and stored is None:
        raise forbidden(PODS, name, f'pod rejected: RuntimeClass "{wanted}" not found')
    overhead = ((stored.parse().get("overhead") or {}).get("podFixed") or {}) if stored is not None else {}
    if overhead:
        fixed = canonical_list(overhead)
        if spec.setdefault("overhead", fixed) != fixed:
            raise forbidden(PODS, name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    elif spec.get("overhead"):
        raise forbidden(
            PODS, name, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )


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
    _set_computed(name, spec, "priority", "integer value of priority", value)
    _set_computed(name, spec, "preemptionPolicy", "string value of PreemptionPolicy", policy)


def _set_computed(name: str, spec: JSON, field: str, called: str, value: Any) -> None:
    """Set a field computed from the PriorityClass; a pod may only repeat it. Raises 403."""
    given = spec.get(field)
    if given is not None and given != value:
        why = f"the {called} ({given}) must not be provided in pod spec; priority admission controller computed {value}"
        raise forbidden(PODS, name, f"{why} from the given PriorityClass name")
    spec[field] = value


def _default_class(core: Core) -> str:
    for stored in core.store.of(PRIORITY_CLASSES).within(""):
        if b'"globalDefault":true' in stored.data:
            return stored.name
    return ""


def validate(core: Core, attempt: Attempt) -> None:
    """Validating plugins: LimitRanger's bounds, claim resize, quota as the last. Raises 403."""
    watched = attempt.old is None or (attempt.kind is not PODS) or attempt.subresource == "resize"
    if watched and attempt.subresource in {"", "resize"} and not _is_terminating(attempt.old):
        core.limits.check(attempt.kind, attempt.namespace, attempt.name, attempt.obj)
    if attempt.kind is CLAIMS and attempt.old is not None and not attempt.subresource:
        _check_resize(core, attempt, attempt.old)
    core.quota.admit(attempt)


def _check_resize(core: Core, attempt: Attempt, old: JSON) -> None:
    """``PersistentVolumeClaimResize``: a claim grows only where its StorageClass allows it."""
    asked = [((each["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
             for each in (old, attempt.obj)]  # fmt: skip
    if amount_of(asked[1]).nano <= amount_of(asked[0]).nano:
        return
    stored = core.store.of(STORAGE_CLASSES).get("", attempt.obj["spec"].get("storageClassName") or "")
    if stored is None or not stored.parse().get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
            "resize"
        )
        raise forbidden(attempt.kind, attempt.name, why)


def _is_terminating(old: JSON | None) -> bool:
    return old is not None and bool(old["metadata"].get("deletionTimestamp"))

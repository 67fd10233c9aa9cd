"""What one object is charged, by quota resource name, and to which quotas: the evaluators of quota admission.

It shares no code with the gate's footprint, so that each proves the other. Sources:
``k8s.io/kubernetes/pkg/quota/v1/evaluator/core`` and ``k8s.io/apiserver/pkg/quota/v1/generic/evaluator.go`` (1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from backoff_ctrl.k8s.lab.sandbox.objects.kinds import CLAIMS, DEVICE_CLAIMS, PODS, SERVICES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.selectors import requirement_matches

from .amounts import DECIMAL, NANO, ONE, Amount, amount_of
from .resources import HUGE_PAGES, asked, containers_of, has_pod_level, pod_limits, pod_requests

Requirement = Mapping[str, Any]

_COUNT = "count/resourceclaims.resource.k8s.io"
_BY_CLASS = ".deviceclass.resource.k8s.io/devices"
_IMPLICIT_REQUEST = "requests.deviceclass.resource.kubernetes.io/"
_MOST = 32  # AllocationResultsMaxSize: what "All" is charged as


def device_charge(claim: Mapping[str, Any]) -> dict[str, Amount]:
    """Count the devices of each class; of alternative requests the largest counts."""
    number: dict[str, int] = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        worst: dict[str, int] = {}
        for one in request.get("firstAvailable") or [request.get("exactly") or {}]:
            name = one.get("deviceClassName", "")
            wanted = _MOST if one.get("allocationMode") == "All" else one.get("count") or 1
            worst[name] = max(worst.get(name, 0), wanted)
        for name, wanted in worst.items():
            number[name] = number.get(name, 0) + wanted
    amounts = {f"{name}{_BY_CLASS}": Amount(NANO * wanted, DECIMAL) for name, wanted in number.items()}
    implicit = {f"{_IMPLICIT_REQUEST}{name}": Amount(NANO * wanted, DECIMAL) for name, wanted in number.items()}
    return {_COUNT: ONE, **amounts, **implicit}


def names_of_devices(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if name == _COUNT or name.endswith(_BY_CLASS))


_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_POD_NAMES = frozenset(
    {"count/pods", "pods", *_COMPUTE, *(f"requests.{n}" for n in _COMPUTE), *(f"limits.{n}" for n in _COMPUTE)}
)
_SERVICE_NAMES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_CLAIM_NAMES = frozenset({"count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"})
_CLASS = ".storageclass.storage.k8s.io/"
_ALIASES = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})
_MUST_BE_SET = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class Charge(NamedTuple):
    """Amounts by quota resource name, and the facts that scopes test."""

    amounts: Mapping[str, Amount]
    terminating: bool = False
    best_effort: bool = False
    priority_class: str = ""
    crosses_namespaces: bool = False
    attribute_classes: frozenset[str] = frozenset()


def charge_of(kind: Kind, obj: Mapping[str, Any], now: float) -> Charge:
    """What an object is charged at the time ``now`` (Unix seconds). Raises ``AmountError``."""
    if kind is PODS:
        return _pod(obj, now)
    if kind is SERVICES:
        return Charge(_service(obj))
    if kind is CLAIMS:
        return Charge(_claim(obj), attribute_classes=_attribute_classes(obj))
    if kind is DEVICE_CLAIMS:
        return Charge(device_charge(obj))
    return _counted(kind.group_resource)


def gives_back(kind: Kind, before: Charge, after: Charge) -> bool:
    """Whether a change of an object makes the quota controller recount (``DefaultUpdateFilter``).

    A pod that only lowers its requests does not. Every change of a claim does: the filter compares pointers.
    """
    if kind is PODS:
        ended = "pods" in before.amounts and "pods" not in after.amounts
        return ended or before.terminating != after.terminating
    if kind is SERVICES:
        return _sort_of_service(before) != _sort_of_service(after)
    return kind is CLAIMS


def _sort_of_service(charge: Charge) -> tuple[bool, bool]:
    """The types that ``GetQuotaServiceType`` distinguishes: load balancers, others with node ports, the rest."""
    balanced = bool(charge.amounts["services.loadbalancers"].nano)
    return balanced, not balanced and bool(charge.amounts["services.nodeports"].nano)


@lru_cache(maxsize=4096)
def _counted(group_resource: str) -> Charge:
    amounts = {f"count/{group_resource}": ONE}
    if group_resource in _ALIASES:
        amounts[group_resource] = ONE
    return Charge(amounts)


def matching_names(kind: Kind, names: Iterable[str]) -> frozenset[str]:
    if kind is PODS:
        return frozenset(name for name in names if name in _POD_NAMES or _is_pod_extra(name))
    if kind is SERVICES:
        return _SERVICE_NAMES.intersection(names)
    if kind is CLAIMS:
        return frozenset(name for name in names if name in _CLAIM_NAMES or _is_class_name(name))
    if kind is DEVICE_CLAIMS:
        return names_of_devices(names)
    own = {f"count/{kind.group_resource}"}
    if kind.group_resource in _ALIASES:
        own.add(kind.group_resource)
    return frozenset(own.intersection(names))


def _is_pod_extra(name: str) -> bool:
    if name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}")):
        return True
    return name.startswith("requests.") and (_is_extended(name) or name.startswith(f"requests.{_IMPLICIT}"))


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _is_class_name(name: str) -> bool:
    return name.endswith((f"{_CLASS}persistentvolumeclaims", f"{_CLASS}requests.storage"))


def missing_constraints(spec: Mapping[str, Any], required: Iterable[str]) -> str:
    """The ``must specify`` message for cpu and memory that containers leave unset; empty when all are set."""
    wanted = _MUST_BE_SET.intersection(required)
    if not wanted or has_pod_level(spec):
        return ""
    missing: dict[str, set[str]] = {}
    for container in containers_of(spec):
        present = _compute_names(asked(container, "requests"), asked(container, "limits"))
        for name in wanted.difference(present):
            missing.setdefault(name, set()).add(container.get("name", ""))
    parts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
    return f"must specify {'; '.join(parts)}" if parts else ""


def _pod(pod: Mapping[str, Any], now: float) -> Charge:
    spec = pod.get("spec") or {}
    amounts: dict[str, Amount] = {"count/pods": ONE}
    if holds_compute(pod, now):
        amounts.update(_compute_names(pod_requests(spec), pod_limits(spec)))
    return Charge(
        amounts,
        terminating=(spec.get("activeDeadlineSeconds") or 0) >= 0 and spec.get("activeDeadlineSeconds") is not None,
        best_effort=_is_best_effort(pod),
        priority_class=spec.get("priorityClassName") or "",
        crosses_namespaces=_crosses_namespaces(spec),
    )


def holds_compute(pod: Mapping[str, Any], now: float) -> bool:
    """Whether a pod is still charged for more than ``count/pods`` (``QuotaV1Pod``)."""
    if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return False
    deadline = freed_at(pod)
    return deadline is None or now <= deadline


def freed_at(pod: Mapping[str, Any]) -> float | None:
    """When a pod that is being deleted stops being charged: ``deletionTimestamp`` plus the grace period.

    The timestamp includes the grace period already; Kubernetes' evaluator adds it again, and so does this.
    """
    metadata = pod["metadata"]
    grace = metadata.get("deletionGracePeriodSeconds")
    if grace is None or not metadata.get("deletionTimestamp"):
        return None
    return datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() + float(grace)


def _compute_names(requests: Mapping[str, Amount], limits: Mapping[str, Amount]) -> dict[str, Amount]:
    """``podComputeUsageHelper``: requests and limits under the names that quotas use."""
    result = {"pods": ONE}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(HUGE_PAGES):
            result[name] = result[f"requests.{name}"] = amount
        elif _is_extended(name) or name.startswith(_IMPLICIT):
            result[f"requests.{name}"] = amount
    for name in _COMPUTE:
        if name in limits:
            result[f"limits.{name}"] = limits[name]
    return result


def _is_best_effort(pod: Mapping[str, Any]) -> bool:
    """``GetPodQOS``: a BestEffort pod requests and limits neither cpu nor memory."""
    known = (pod.get("status") or {}).get("qosClass")
    if known:
        return bool(known == "BestEffort")
    spec = pod.get("spec") or {}
    whole = spec.get("resources") is not None  # pod-level resources decide, even when they are empty
    holders = [spec] if whole else list(containers_of(spec))
    return not any(
        amount.nano > 0
        for holder in holders
        for side in ("requests", "limits")
        for name, amount in asked(holder, side).items()
        if name in {"cpu", "memory"}
    )


def _crosses_namespaces(spec: Mapping[str, Any]) -> bool:
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(side) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(each.get("podAffinityTerm") or {} for each in preferred)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


def _service(service: Mapping[str, Any]) -> dict[str, Amount]:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or ()
    balanced = spec.get("type") == "LoadBalancer"
    node_ports = len(ports) if balanced or spec.get("type") == "NodePort" else 0
    if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(1 for port in ports if port.get("nodePort"))
    return {
        "count/services": ONE,
        "services": ONE,
        "services.loadbalancers": Amount(NANO * balanced, DECIMAL),
        "services.nodeports": Amount(NANO * node_ports, DECIMAL),
    }


def _claim(claim: Mapping[str, Any]) -> dict[str, Amount]:
    spec = claim.get("spec") or {}
    annotations = claim["metadata"].get("annotations") or {}
    storage_class = annotations.get("volume.beta.kubernetes.io/storage-class", spec.get("storageClassName") or "")
    amounts = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
    requested = (spec.get("resources") or {}).get("requests") or {}
    if "storage" in requested:
        storage = _whole(amount_of(requested["storage"]))
        allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
        if allocated is not None:
            storage = max(storage, _whole(amount_of(allocated)), key=lambda amount: amount.nano)
        amounts["requests.storage"] = storage
        if storage_class:
            amounts[f"{storage_class}{_CLASS}requests.storage"] = storage
    if storage_class:
        amounts[f"{storage_class}{_CLASS}persistentvolumeclaims"] = ONE
    return amounts


def _whole(amount: Amount) -> Amount:
    """Storage is charged in whole bytes (k8s#94313)."""
    return amount.rounded_up(NANO)


def _attribute_classes(claim: Mapping[str, Any]) -> frozenset[str]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    names = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return frozenset(name for name in names if name)


SCOPES = frozenset(
    {
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    }
)


def requirements_of(spec: Mapping[str, Any]) -> tuple[Requirement, ...]:
    plain = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return (*plain, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ()))


def applies(requirements: tuple[Requirement, ...], kind: Kind, charge: Charge) -> bool:
    return all(_holds(requirement, kind, charge) for requirement in requirements)


def _holds(requirement: Requirement, kind: Kind, charge: Charge) -> bool:
    scope = requirement.get("scopeName", "")
    if kind is CLAIMS:
        return scope == "VolumeAttributesClass" and _names_hold(requirement, charge.attribute_classes)
    if kind is not PODS:
        return False
    if scope == "PriorityClass":
        return _names_hold(requirement, frozenset({charge.priority_class} - {""}))
    facts = {
        "Terminating": charge.terminating,
        "NotTerminating": not charge.terminating,
        "BestEffort": charge.best_effort,
        "NotBestEffort": not charge.best_effort,
        "CrossNamespacePodAffinity": charge.crosses_namespaces,
    }
    return facts.get(scope, False)


def _names_hold(requirement: Requirement, names: frozenset[str]) -> bool:
    """Evaluate a selector over names; where there are several (a claim that changes its class), one match is enough."""
    scope = str(requirement["scopeName"])
    if not names:
        return requirement_matches(requirement, {})
    return any(requirement_matches(requirement, {scope: name}) for name in names)

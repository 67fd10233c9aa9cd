"""The defaults that the API server fills in on new and changed objects, by kind."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.amounts.amounts import canonical_list
from backoff_ctrl.k8s.sandbox.kinds.answers import invalid
from backoff_ctrl.k8s.sandbox.kinds.kinds import CLAIMS, LIMIT_RANGES, NAMESPACES, PODS, QUOTAS, SERVICES

from .controller_defaults import TEMPLATED, default_controller
from .pod_defaults import default_pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON


def fill_in(kind: Kind, obj: JSON) -> None:
    """Fill in defaults and make quantities canonical. Raises ``AmountError``, and 422 for a pod without a spec."""
    if kind is PODS and not isinstance(obj.get("spec"), dict):
        raise invalid(kind, obj["metadata"].get("name", ""),
                      [("FieldValueRequired", "spec.containers", "Required value")])  # fmt: skip
    rule = _RULES.get(kind)
    if rule is not None:
        rule(obj)
    elif kind.plural == "secrets":
        _secret(obj)
    elif kind.plural in TEMPLATED:
        default_controller(kind.plural, obj)


def _namespace(obj: JSON) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _quota(obj: JSON) -> None:
    for field in ("spec", "status"):
        for side in ("hard", "used"):
            if (obj.get(field) or {}).get(side):
                obj[field][side] = canonical_list(obj[field][side])


def _limit_range(obj: JSON) -> None:
    """A default limit is the maximum; a default request is the default limit, else the minimum."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            if item.get(field):
                item[field] = canonical_list(item[field])
        if item.get("type") == "Container":
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            for field, values in (("default", default), ("defaultRequest", request)):
                if values:
                    item[field] = values


def _service(obj: JSON) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in {"LoadBalancer", "NodePort"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in {None, 0, ""}:
            port["targetPort"] = port.get("port")
        if not port.get("nodePort"):
            port.pop("nodePort", None)
    obj.setdefault("status", {"loadBalancer": {}})


def _claim(obj: JSON) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    for side in ("requests", "limits"):
        if (spec.get("resources") or {}).get(side):
            spec["resources"][side] = canonical_list(spec["resources"][side])
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _secret(obj: JSON) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    if plain:
        obj["data"] = {**(obj.get("data") or {}), **{k: b64encode(v.encode()).decode() for k, v in plain.items()}}


_RULES: dict[Kind, Callable[[JSON], None]] = {
    NAMESPACES: _namespace,
    PODS: default_pod,
    QUOTAS: _quota,
    LIMIT_RANGES: _limit_range,
    SERVICES: _service,
    CLAIMS: _claim,
}

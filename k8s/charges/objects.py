"""Compute the charges of claims, services and devices, beside the object count.

Sources: ``persistent_volume_claims.go``, ``services.go``, ``resource_claims.go`` and ``registry.go`` of
``pkg/quota/v1/evaluator/core``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.quantities import NANO

from .fields import FootprintError, amounts_at, count_at, mapping_at, mappings_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

LEGACY_COUNTS: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets"})
_ALL_DEVICES: Final = 32  # the allocation mode All is charged the most results that a claim can hold
_OF_DEVICE_CLASS: Final = "requests.deviceclass.resource.kubernetes.io/"
_BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def claim_amounts(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], path: str
) -> tuple[dict[str, int], frozenset[str]]:
    """Return what a PersistentVolumeClaim is charged, without its object count, and its scope facts."""
    resources = mapping_at(spec, "resources", path)
    asked = amounts_at(resources, "requests", f"{path}.resources").get("storage", 0)
    storage = -(-asked // NANO) * NANO  # whole bytes, rounded up
    charged = {"persistentvolumeclaims": NANO, "requests.storage": storage}
    beside = f"{path.removesuffix('spec')}metadata"
    annotations = mapping_at(metadata, "annotations", beside)
    given = annotations if _BETA_STORAGE_CLASS in annotations else spec
    key = _BETA_STORAGE_CLASS if given is annotations else "storageClassName"
    if name := text_at(given, key, path if given is spec else f"{beside}.annotations"):
        for resource in tuple(charged):
            charged[f"{name}.storageclass.storage.k8s.io/{resource}"] = charged[resource]
    volume_class = text_at(spec, "volumeAttributesClassName", path)
    facts = ("VolumeAttributesClass", f"VolumeAttributesClass={volume_class}") if volume_class else ()
    return charged, frozenset(facts)


def service_amounts(spec: Mapping[str, Any], path: str) -> dict[str, int]:
    """Return what a Service is charged, without its object count. Node ports are charged before they are allocated."""
    kind = text_at(spec, "type", path)
    ports = mappings_at(spec, "ports", path)
    charged = {"services": NANO}
    if kind == "LoadBalancer":
        charged["services.loadbalancers"] = NANO
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for index, port in enumerate(ports) if count_at(port, "nodePort", f"{path}.ports[{index}]")]
    if kind in {"NodePort", "LoadBalancer"}:
        charged["services.nodeports"] = len(ports) * NANO
    return charged


def device_amounts(spec: Mapping[str, Any], path: str) -> dict[str, int]:
    """Return what a ResourceClaim is charged for each device class, under both names, without its object count.

    If a class has an extended resource, the server charges that name as well; only the server knows it. Servers before
    v1.36 know only the first of the two names.
    """
    charged: dict[str, int] = {}
    devices = mapping_at(spec, "devices", path)
    for index, request in enumerate(mappings_at(devices, "requests", f"{path}.devices")):
        at = f"{path}.devices.requests[{index}]"
        alternatives = mappings_at(request, "firstAvailable", at)
        if not alternatives:
            # resource.k8s.io/v1beta1 has these fields on the request itself
            exactly = mapping_at(request, "exactly", at)
            alternatives = [exactly or request]
        highest: dict[str, int] = {}
        for alternative in alternatives:
            name, count = _devices(alternative, at)
            highest[name] = max(highest.get(name, 0), count)
        for name, count in highest.items():
            for key in (f"{name}.deviceclass.resource.k8s.io/devices", f"{_OF_DEVICE_CLASS}{name}"):
                charged[key] = charged.get(key, 0) + count * NANO
    return charged


def _devices(request: Mapping[str, Any], path: str) -> tuple[str, int]:
    """Return the device class and the largest number of devices of one request."""
    name = text_at(request, "deviceClassName", path)
    if not name:
        raise FootprintError(f"{path}.deviceClassName: required field is missing")
    if text_at(request, "allocationMode", path) == "All":
        return name, _ALL_DEVICES
    return name, count_at(request, "count", path) or 1

"""What the create of one object is charged, per quota resource, before it is sent.

A dict in, a ``Demand`` out. It equals what a v1.36 server charges; ``tests/data/charges.json`` records what one did
charge. The footprint follows from the manifest alone. It lacks what only the server knows and applies before quota
admission: LimitRange defaults, the default StorageClass and PriorityClass, the overhead of a RuntimeClass that
``spec.overhead`` does not repeat, the extended resource that a DeviceClass stands for, and mutating webhooks. The
server's answer (``requested:`` in a rejection, the object in a 201) is authoritative. Of a ``status`` in a manifest,
the server keeps only a pod's ``qosClass``, and so does this module.

Kinds that make pods later are charged only their own count: ``parts`` adds what they make.

Sources: ``persistent_volume_claims.go``, ``services.go``, ``resource_claims.go`` and ``registry.go`` of
``pkg/quota/v1/evaluator/core``; for pods see ``pods``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.answers.fields import (
    FieldError,
    amounts_at,
    count_at,
    mapping_at,
    mappings_at,
    required_mapping_at,
    text_at,
)

from .pods import pod_amounts, shape_of
from .resources import LEGACY_COUNTS, is_charged, resource_of


def footprint(manifest: Mapping[str, Any], *, resource: str | None = None) -> Demand:
    """Return what the create of this manifest is charged, under every resource name that a quota could limit.

    ``resource`` is ``RESOURCE[.GROUP]`` if the caller knows it (from the URL); otherwise it is derived from kind and
    apiVersion. Raises ``FieldError`` for a malformed manifest; its message begins with the path of the field.
    """
    return charge(checked(manifest), resource or resource_of(manifest))


def checked(manifest: object) -> Mapping[str, Any]:
    """Raise ``FieldError`` if the manifest is not an object."""
    if not isinstance(manifest, Mapping):
        raise FieldError("manifest: must be an object with fields such as kind and spec")
    return manifest


SHAPES_MAX: Final = 1024
REMEMBERED: dict[bytes, Demand] = {}
"""What pods of each shape are charged; to clear it at any time only means to read them again."""


def charge(manifest: Mapping[str, Any], resource: str, at: str = "spec") -> Demand:
    """Return what the create of this object is charged. Raises ``FieldError`` for a malformed one.

    ``at`` is the path of the object's ``spec`` in errors, for objects that are a section of a larger manifest. Pods of
    one shape are read once: a task's, a Job's and its pods' charges are asked for again and again.
    """
    shape = shape_of(manifest) if resource == "pods" else None
    if shape is None:
        return _charge(manifest, resource, at)
    known = REMEMBERED.get(shape)
    if known is None:
        known = _charge(manifest, resource, at)
        if len(REMEMBERED) >= SHAPES_MAX:
            REMEMBERED.clear()
        REMEMBERED[shape] = known
    return known


def _charge(manifest: Mapping[str, Any], resource: str, at: str) -> Demand:
    if not is_charged(checked(manifest), resource):
        return Demand({})
    amounts, scopes = _special_charge(manifest, resource, at)
    amounts[f"count/{resource}"] = NANO
    if resource in LEGACY_COUNTS:
        amounts[resource] = NANO
    return Demand(amounts, scopes)


def _special_charge(manifest: Mapping[str, Any], resource: str, at: str) -> tuple[dict[str, int], frozenset[str]]:
    """Return the charge in addition to the object count, for the kinds that have one."""
    if resource == "pods":
        quality = text_at(mapping_at(manifest, "status", ""), "qosClass", "status")
        return pod_amounts(required_mapping_at(manifest, "spec", ""), at, quality)
    if resource == "persistentvolumeclaims":
        metadata = mapping_at(manifest, "metadata", "")
        return claim_amounts(metadata, required_mapping_at(manifest, "spec", ""), at)
    if resource == "services":
        return service_amounts(required_mapping_at(manifest, "spec", ""), at), frozenset()
    if resource == "resourceclaims.resource.k8s.io":
        return device_amounts(required_mapping_at(manifest, "spec", ""), at), frozenset()
    return {}, frozenset()


_ALL_DEVICES: Final = 32  # the allocation mode All is charged the most results that a claim can hold
OF_DEVICE_CLASS: Final = "requests.deviceclass.resource.kubernetes.io/"
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


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
    given = annotations if BETA_STORAGE_CLASS in annotations else spec
    key = BETA_STORAGE_CLASS if given is annotations else "storageClassName"
    if name := text_at(given, key, path if given is spec else f"{beside}.annotations"):
        for resource in tuple(charged):
            charged[f"{name}.storageclass.storage.k8s.io/{resource}"] = charged[resource]
    volume_class = text_at(spec, "volumeAttributesClassName", path)
    facts = ("VolumeAttributesClass", f"VolumeAttributesClass={volume_class}") if volume_class else ()
    return charged, frozenset(facts)


def service_amounts(spec: Mapping[str, Any], path: str) -> dict[str, int]:
    """Return what a Service is charged, without its object count. Node ports are charged before allocation."""
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
            for key in (f"{name}.deviceclass.resource.k8s.io/devices", f"{OF_DEVICE_CLASS}{name}"):
                charged[key] = charged.get(key, 0) + count * NANO
    return charged


def _devices(request: Mapping[str, Any], path: str) -> tuple[str, int]:
    """Return the device class and the largest number of devices of one request."""
    name = text_at(request, "deviceClassName", path)
    if not name:
        raise FieldError(f"{path}.deviceClassName: required field is missing")
    if text_at(request, "allocationMode", path) == "All":
        return name, _ALL_DEVICES
    return name, count_at(request, "count", path) or 1

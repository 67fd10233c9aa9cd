"""Which devices the ResourceClaims of pods ask for: their template says so, which is another object of the cluster.

``reading`` asks for the templates that parts name, and for the DeviceClasses that these name: a class may stand for an
extended resource, under whose name the server charges its devices as well. ``with_devices`` adds that to the parts. A
template that can't be read leaves its claims charged by their number alone. Pure: only who drives ``reading`` asks.

Sources: ``pkg/quota/v1/evaluator/core/resource_claims.go`` (``addExtendedResourceQuota``) and
``pkg/controller/resourceclaim/controller.go`` of k8s.io/kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.k8s.answers.fields import FieldError, mapping, mappings, text
from backoff_ctrl.k8s.cluster.paths import PathError, path_to

from .devices import with_extended
from .footprint import charge
from .parts import Part
from .resources import DEVICE_CLAIMS

Reading = Generator[str, Mapping[str, Any] | None, "Devices"]
"""Yields paths at the API server, and takes the object found there; None: it can't be read."""
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of the group ``resource.k8s.io``, the newest first: Kubernetes 1.34, 1.33 and 1.32."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What a cluster says of devices.

    ``templates``: the specs of the claims, by the name of their ResourceClaimTemplate. ``extended``: the extended
    resource of each DeviceClass that has one, ``nvidia.com/gpu``. ``unread`` are the templates that can't be read.
    """

    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    extended: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()


UNKNOWN: Final = Devices()


def templates_named(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return the ResourceClaimTemplates that parts are made from, once each."""
    return tuple(dict.fromkeys(part.claim_template for part in parts if part.claim_template))


def reading(namespace: str, parts: Iterable[Part]) -> Reading:
    """Ask for all that is to be known of the claims among these parts, which are made in this namespace."""
    templates: dict[str, Mapping[str, Any]] = {}
    names = templates_named(parts)
    for name in names:
        found = yield from _found("resourceclaimtemplates", name, namespace)
        if found is not None:
            templates[name] = mapping(mapping(found.get("spec")).get("spec"))
    extended: dict[str, str] = {}
    for name in dict.fromkeys(each for spec in templates.values() for each in _classes(spec)):
        found = yield from _found("deviceclasses", name)
        if resource := text(mapping((found or {}).get("spec")).get("extendedResourceName")):
            extended[name] = resource
    return Devices(templates, extended, frozenset(names) - templates.keys())


def _found(plural: str, name: str, namespace: str | None = None) -> Generator[str, Any, Mapping[str, Any] | None]:
    for version in VERSIONS:
        try:
            path = path_to(f"/apis/resource.k8s.io/{version}", plural, namespace=namespace, name=name)
        except PathError:
            return None  # no object can have this name
        found: Mapping[str, Any] | None = yield path
        if found is not None:
            return found
    return None


def _classes(spec: Mapping[str, Any]) -> Iterator[str]:
    for request in mappings(mapping(spec.get("devices")).get("requests")):
        for each in (request, mapping(request.get("exactly")), *mappings(request.get("firstAvailable"))):
            if name := text(each.get("deviceClassName")):
                yield name


def with_devices(parts: Iterable[Part], known: Devices) -> tuple[Part, ...]:
    """Return parts with what their ResourceClaims are charged for devices, as far as that is known."""
    return tuple(
        replace(part, demand=claim_charge(known.templates[part.claim_template], known))
        if part.claim_template in known.templates
        else part
        for part in parts
    )


def claim_charge(spec: Mapping[str, Any], known: Devices) -> Demand:
    """Return what a ResourceClaim of this spec is charged; by its number alone where the spec can't be read."""
    try:
        demand = charge({"kind": "ResourceClaim", "spec": spec}, DEVICE_CLAIMS)
    except FieldError:
        demand = charge({"kind": "ResourceClaim", "spec": {}}, DEVICE_CLAIMS)
    return with_extended(demand, known.extended)

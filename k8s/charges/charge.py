"""Compute what the create of one object is charged: its count, and more for pods, claims, Services and devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.quantities import NANO

from .fields import mapping_at, required_mapping_at, text_at
from .objects import LEGACY_COUNTS, claim_amounts, device_amounts, service_amounts
from .pods import pod_amounts
from .resource_names import is_charged

if TYPE_CHECKING:
    from collections.abc import Mapping


def charge(manifest: Mapping[str, Any], resource: str, at: str = "spec") -> Demand:
    """Return what the create of this object is charged. Raises ``FootprintError`` for a malformed one.

    ``at`` is the path of the object's ``spec`` in errors, for objects that are a section of a larger manifest.
    """
    if not is_charged(manifest, resource):
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

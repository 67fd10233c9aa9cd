"""Device classes that stand for an extended resource: a ResourceClaim is charged under the name of that, too. Pure.

Only the cluster knows ``spec.extendedResourceName`` of a DeviceClass, so a manifest alone does not show this charge.
Source: ``addExtendedResourceQuota`` of ``pkg/quota/v1/evaluator/core/resource_claims.go``, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, mapping_in, mappings, metadata_of, text

from .footprint import OF_DEVICE_CLASS
from .resources import DEVICE_CLAIMS

Classes = Mapping[str, str]
"""The extended resource of each device class that stands for one."""

FOR_A_POD: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that the scheduler made for the extended resources of a pod, which pays for them."""
_COUNT: Final = f"count/{DEVICE_CLAIMS}"


def classes_of(listed: Iterable[object]) -> dict[str, str]:
    """Return the extended resource of each of these DeviceClasses that has one."""
    classes = {}
    for each in listed:
        name = text(metadata_of(mapping(each)).get("name"))
        extended = text(mapping_in(each, "spec").get("extendedResourceName"))
        if name and extended:
            classes[name] = extended
    return classes


def with_extended(demand: Demand, classes: Classes, paid: Mapping[str, int] | None = None) -> Demand:
    """Return the demand of a ResourceClaim with the extended resources of its classes; any other as it is.

    ``paid``: the charge of the pod for whose extended resources the scheduler made the claim. The claim is charged for
    what the pod is not.
    """
    if _COUNT not in demand.amounts or (not classes and not paid):
        return demand
    found: dict[str, int] = {}
    for name, amount in demand.amounts.items():
        extended = classes.get(name.removeprefix(OF_DEVICE_CLASS)) if name.startswith(OF_DEVICE_CLASS) else None
        if extended is not None:
            # Of two classes for one resource the server charges one, either: the larger is enough.
            found[f"requests.{extended}"] = max(amount, found.get(f"requests.{extended}", 0))
    amounts = {**demand.amounts, **found}
    for name in [name for name in amounts if name.startswith("requests.")]:
        amounts[name] -= (paid or {}).get(name, 0)
        if amounts[name] <= 0:
            del amounts[name]
    return Demand(amounts, demand.scopes)


def pod_of(claim: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return name and uid of the pod for whose extended resources this claim was made; None: it is not such a claim."""
    if annotations_of(claim).get(FOR_A_POD) != "true":
        return None
    for each in mappings(metadata_of(claim).get("ownerReferences")):
        if each.get("controller") is True and (each.get("apiVersion"), each.get("kind")) == ("v1", "Pod"):
            return text(each.get("name")), text(each.get("uid"))
    return None


def pays_for(pod: Mapping[str, Any], uid: str, claim: str) -> bool:
    """Return whether a pod is the one with this uid, and is charged for what this claim has."""
    named = text(mapping_in(pod.get("status"), "extendedResourceClaimStatus").get("resourceClaimName"))
    return text(metadata_of(pod).get("uid")) == uid and named in ("", claim)

"""Compute what a manifest will be charged, per quota resource, before it is sent.

Pure: a dict in, a ``Demand`` out. It equals what a v1.36 server charges; ``tests/data/charges.json`` records what one
did charge. The footprint follows from the manifest alone. It lacks what only the server knows and applies before quota
admission: LimitRange defaults, the default StorageClass and PriorityClass, the overhead of a RuntimeClass that
``spec.overhead`` does not repeat, the extended resource that a DeviceClass stands for, and mutating webhooks. The
server's word (``requested:`` in a rejection, the object in a 201) is authoritative. Of a ``status`` in a manifest, the
server keeps only a pod's ``qosClass``, and so does this module.

``footprint`` is the charge of the create itself. Kinds that make pods later are charged only their own count;
``footprint_of`` adds an estimate of those pods and marks it as estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.quantities import NANO

from .fields import (
    FootprintError,
    count_at,
    mapping_at,
    mappings_at,
    required_mapping_at,
    text_at,
)
from .objects import LEGACY_COUNTS, claim_amounts, device_amounts, service_amounts
from .pods import pod_amounts
from .resource_names import is_charged, resource_of

__all__ = ["Footprint", "FootprintError", "footprint", "footprint_of"]

_REPLICATED: Final = frozenset({"deployments.apps", "replicasets.apps", "replicationcontrollers", "statefulsets.apps"})
_MAKERS: Final = _REPLICATED | {"jobs.batch", "cronjobs.batch", "daemonsets.apps"}

_Charge = tuple[dict[str, int], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a manifest will be charged. ``estimated``: it includes pods that a controller will create later."""

    kind: str
    estimated: bool
    demand: Demand


def footprint(manifest: Mapping[str, Any], *, resource: str | None = None) -> Demand:
    """Return what the create of this manifest is charged, under every resource name that a quota could limit.

    ``resource`` is ``RESOURCE[.GROUP]`` if the caller knows it (from the URL); otherwise it is derived from kind and
    apiVersion. Raises ``FootprintError`` for a malformed manifest; its message begins with the path of the field.
    """
    return Demand(*_charge(_checked(manifest), resource or resource_of(manifest)))


def footprint_of(manifest: Mapping[str, Any]) -> Footprint:
    """Return what a manifest will be charged, including all pods that it makes. Raises as ``footprint`` does.

    Jobs: the pods that run at once, none while suspended. CronJobs: one run. Deployments, ReplicaSets, StatefulSets
    (with their claims) and ReplicationControllers: all replicas, without the surge of a rollout. DaemonSets: no pods,
    since they make one for each node and the number of nodes is unknown.
    """
    resource = resource_of(_checked(manifest))
    mapping_at(manifest, "metadata", "")  # most charges do not need it, but the server rejects a malformed one
    amounts, scopes = _charge(manifest, resource)
    kind = text_at(manifest, "kind", "")
    if resource not in _MAKERS:
        return Footprint(kind, estimated=False, demand=Demand(amounts, scopes))
    later, scopes = _made_later(required_mapping_at(manifest, "spec", ""), resource, "spec")
    return Footprint(kind, estimated=True, demand=Demand(_added(amounts, later), scopes))


def _checked(manifest: object) -> Mapping[str, Any]:
    """Raise ``FootprintError`` if the manifest is not an object."""
    if not isinstance(manifest, Mapping):
        raise FootprintError("manifest: must be an object with fields such as kind and spec")
    return manifest


def _charge(manifest: Mapping[str, Any], resource: str) -> _Charge:
    """Return the charge and the scope facts of one create."""
    if not is_charged(manifest, resource):
        return {}, frozenset()
    amounts, scopes = _special_charge(manifest, resource)
    amounts[f"count/{resource}"] = NANO
    if resource in LEGACY_COUNTS:
        amounts[resource] = NANO
    return amounts, scopes


def _special_charge(manifest: Mapping[str, Any], resource: str) -> _Charge:
    """Return the charge in addition to the object count, for the kinds that have one."""
    if resource == "pods":
        quality = text_at(mapping_at(manifest, "status", ""), "qosClass", "status")
        return pod_amounts(required_mapping_at(manifest, "spec", ""), "spec", quality)
    if resource == "persistentvolumeclaims":
        metadata = mapping_at(manifest, "metadata", "")
        return claim_amounts(metadata, required_mapping_at(manifest, "spec", ""), "spec")
    if resource == "services":
        return service_amounts(required_mapping_at(manifest, "spec", ""), "spec"), frozenset()
    if resource == "resourceclaims.resource.k8s.io":
        return device_amounts(required_mapping_at(manifest, "spec", ""), "spec"), frozenset()
    return {}, frozenset()


def _made_later(spec: Mapping[str, Any], resource: str, path: str) -> _Charge:
    """Estimate the charge of what a controller will create for this spec, and the scope facts of its pods."""
    if resource == "cronjobs.batch":
        template = required_mapping_at(spec, "jobTemplate", path)
        job = required_mapping_at(template, "spec", f"{path}.jobTemplate")
        later, scopes = _made_later(job, "jobs.batch", f"{path}.jobTemplate.spec")
        return _added(later, {"count/jobs.batch": NANO}), scopes
    template = required_mapping_at(spec, "template", path)
    pod = required_mapping_at(template, "spec", f"{path}.template")
    amounts, scopes = pod_amounts(pod, f"{path}.template.spec")
    amounts["count/pods"] = NANO
    if resource == "daemonsets.apps":
        return {}, scopes
    if resource == "jobs.batch":
        return _times(amounts, _running_at_once(spec, path)), scopes
    replicas = count_at(spec, "replicas", path)
    replicas = 1 if replicas is None else replicas
    later = _times(amounts, replicas)
    if resource == "deployments.apps":
        later["count/replicasets.apps"] = NANO
    if resource == "statefulsets.apps":
        for index, claim in enumerate(mappings_at(spec, "volumeClaimTemplates", path)):
            at = f"{path}.volumeClaimTemplates[{index}]"
            metadata = mapping_at(claim, "metadata", at)
            charged, _ = claim_amounts(metadata, required_mapping_at(claim, "spec", at), f"{at}.spec")
            charged["count/persistentvolumeclaims"] = NANO
            later = _added(later, _times(charged, replicas))
    return later, scopes


def _running_at_once(spec: Mapping[str, Any], path: str) -> int:
    """Return the largest number of pods that a Job runs at once."""
    if spec.get("suspend") is True:
        return 0
    parallelism, completions = count_at(spec, "parallelism", path), count_at(spec, "completions", path)
    parallelism = 1 if parallelism is None else parallelism
    return parallelism if completions is None else min(parallelism, completions)


def _times(amounts: Mapping[str, int], number: int) -> dict[str, int]:
    return {name: amount * number for name, amount in amounts.items()}


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}

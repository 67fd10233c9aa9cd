"""What a manifest will be charged, per quota resource, before it is sent.

Pure: a dict in, a ``Demand`` out, the same that a v1.36 server charges: ``tests/data/charges.json`` holds what one
did charge. This is what follows from the manifest as it stands. What only the server knows runs before its quotas do
and is not in it: defaults of a LimitRange, the default StorageClass and PriorityClass, the overhead of a RuntimeClass
where ``spec.overhead`` does not repeat it, the extended resource that a DeviceClass stands for, mutating webhooks.
What the server says (``requested:`` in a refusal, the object in a 201) is the truth. Of a ``status`` in a
manifest the server keeps the ``qosClass`` of a pod and nothing else: so do we.

``footprint`` is the charge of the create itself. Kinds that make pods later are charged nothing but their
count; ``footprint_of`` adds an estimate of those pods, and says so.
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
    """What a manifest will be charged; ``estimated`` when pods that come later are in it."""

    kind: str
    estimated: bool
    demand: Demand


def footprint(manifest: Mapping[str, Any], *, resource: str | None = None) -> Demand:
    """Return what the create of this manifest is charged, by every name that a quota could have for it.

    ``resource`` is ``RESOURCE[.GROUP]`` where the caller knows it (from the URL), else kind and apiVersion
    give it. Raises ``FootprintError``, a sentence that begins with the path of the field, for a manifest
    that is malformed.
    """
    return Demand(*_charge(_checked(manifest), resource or resource_of(manifest)))


def footprint_of(manifest: Mapping[str, Any]) -> Footprint:
    """Return what a manifest will be charged with all pods that it makes; raises as ``footprint`` does.

    Jobs: as many pods as run at once, none while suspended. CronJobs: one run. Deployments, ReplicaSets,
    StatefulSets (with their claims), ReplicationControllers: all replicas, without the surge of a rollout.
    DaemonSets: their pods are not known, one for each node.
    """
    resource = resource_of(_checked(manifest))
    mapping_at(manifest, "metadata", "")  # no charge looks at it for most kinds, but the server would refuse it
    amounts, scopes = _charge(manifest, resource)
    kind = text_at(manifest, "kind", "")
    if resource not in _MAKERS:
        return Footprint(kind, estimated=False, demand=Demand(amounts, scopes))
    later, scopes = _made_later(required_mapping_at(manifest, "spec", ""), resource, "spec")
    return Footprint(kind, estimated=True, demand=Demand(_added(amounts, later), scopes))


def _checked(manifest: object) -> Mapping[str, Any]:
    """Refuse what is no object at all."""
    if not isinstance(manifest, Mapping):
        raise FootprintError("manifest: must be a set of fields such as kind and spec")
    return manifest


def _charge(manifest: Mapping[str, Any], resource: str) -> _Charge:
    """Return the charge of one create."""
    if not is_charged(manifest, resource):
        return {}, frozenset()
    amounts, scopes = _special_charge(manifest, resource)
    amounts[f"count/{resource}"] = NANO
    if resource in LEGACY_COUNTS:
        amounts[resource] = NANO
    return amounts, scopes


def _special_charge(manifest: Mapping[str, Any], resource: str) -> _Charge:
    """Return the charge beside the count, for the kinds that have one."""
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
    """Estimate what a controller will create for this spec, with the scope facts of its pods."""
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
    """Return how many pods a Job runs at once at most."""
    if spec.get("suspend") is True:
        return 0
    parallelism, completions = count_at(spec, "parallelism", path), count_at(spec, "completions", path)
    parallelism = 1 if parallelism is None else parallelism
    return parallelism if completions is None else min(parallelism, completions)


def _times(amounts: Mapping[str, int], number: int) -> dict[str, int]:
    """Multiply every amount."""
    return {name: amount * number for name, amount in amounts.items()}


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Add two lists of amounts."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}

"""Compute what an existing object is charged now, who owns it, and what will end the charge. Pure.

A footprint is the charge of a create; an existing object may be charged more or less. Sources, v1.36:
``PodUsageFunc`` and ``QuotaV1Pod`` of ``pkg/quota/v1/evaluator/core/pods.go``, ``getStorageUsage`` of
``persistent_volume_claims.go`` there, ``determineEffectiveRequests`` of
``k8s.io/component-helpers/resource/helpers.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.answers.fields import amounts_at, items, mapping, mapping_at, mappings_at, moment

from .footprint import footprint
from .resources import CLAIMS, DEVICE_CLAIMS, JOBS, PODS, SERVICES

_KINDS: Final = {
    PODS: "Pod",
    CLAIMS: "PersistentVolumeClaim",
    SERVICES: "Service",
    DEVICE_CLAIMS: "ResourceClaim",
    JOBS: "Job",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
}
ENDED: Final = ("Succeeded", "Failed")
"""The phases of a pod that has finished."""
_NOTHING: Final[Mapping[str, Any]] = {}


class By(StrEnum):
    """The event that ends a charge."""

    DELETION = "deletion"
    """The deletion is in progress and will end the charge at ``at``."""
    FINALIZERS = "finalizers"
    """The object is deleted, but finalizers keep it."""
    NODE = "node"
    """The pod is deleted, but its node has not confirmed that it ended."""
    DEADLINE = "deadline"
    """``activeDeadlineSeconds`` of the pod or its Job: the latest end."""
    TTL = "ttl"
    """``ttlSecondsAfterFinished`` of the Job."""
    FINISHED = "finished"
    """The object has finished and stays until it is deleted."""
    OWNER = "owner"
    """Only its owner, when that is scaled down or deleted. Deleting the object alone makes the owner replace it."""
    HAND = "hand"
    """Its end is not scheduled: the charge ends when the object finishes or is deleted."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a charge ends. ``at``: the time, if known. ``after``: the time after a start that is still to come.

    ``detail``: what holds the object up, such as its finalizers or its node.
    """

    by: By
    at: datetime | None = None
    detail: str = ""
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Termination:
    """An overdue deletion. ``since``: the deletionTimestamp; ``until``: the time at which the charge ends."""

    since: datetime
    until: datetime
    node: str
    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Live:
    """One existing object and its charge.

    ``owed``: amounts that are no longer charged, but that the quota drops only at the next release in the namespace.
    ``ending`` ends the amounts in ``charged``, except the object count: that ends when the object is ``gone``.
    ``made_end``: the time by which the pods of a Job must have finished.
    """

    resource: str
    name: str
    owner: str
    created: datetime | None
    charged: Demand
    owed: Mapping[str, int]
    ending: Ending
    gone: Ending
    finished: bool = False
    stuck: Termination | None = None
    made_end: datetime | None = None


def is_released(pod: Mapping[str, Any]) -> bool:
    """Return whether no quota charges a pod any more, though it may still be there.

    It has finished, or was deleted without a grace period, as one without a node always is: only finalizers keep it.
    """
    metadata = mapping(pod.get("metadata"))
    deleted = bool(metadata.get("deletionTimestamp")) and metadata.get("deletionGracePeriodSeconds") == 0
    return deleted or mapping(pod.get("status")).get("phase") in ENDED


def live(resource: str, obj: Mapping[str, Any], now: datetime) -> Live:
    """Return what an object of this kind is charged at ``now``. Raises ``FieldError`` if it is malformed."""
    metadata = mapping_at(obj, "metadata", "")
    name = str(metadata.get("name") or "?")
    created = moment(metadata.get("creationTimestamp"))
    owner = _owner(metadata, resource, name)
    if resource == PODS:
        return _live_pod(obj, name, owner, created, now)
    charged = footprint(_as_allocated(obj) if resource == CLAIMS else obj, resource=resource)
    if resource == JOBS:
        ending, made_end = _job_endings(obj, owner, name)
        finished = ending.by in {By.TTL, By.FINISHED}
        return Live(resource, name, owner, created, charged, {}, ending, ending, finished=finished, made_end=made_end)
    ending = _plain_ending(metadata, owner, resource, name)
    return Live(resource, name, owner, created, charged, {}, ending, ending)


def _live_pod(obj: Mapping[str, Any], name: str, owner: str, created: datetime | None, now: datetime) -> Live:
    """Read a pod.

    Its compute is charged until it finishes, or until two grace periods after its deletion was requested.
    """
    metadata, status = mapping_at(obj, "metadata", ""), mapping_at(obj, "status", "")
    whole = footprint(_as_resized(obj), resource=PODS)
    count = {"count/pods": NANO}
    ended = status.get("phase") in ENDED
    since, grace = moment(metadata.get("deletionTimestamp")), _seconds(metadata.get("deletionGracePeriodSeconds"))
    finalizers = _finalizers(metadata)
    node = str(mapping_at(obj, "spec", "").get("nodeName") or "")
    stuck, overdue = None, False
    if since is not None and since < now:
        until = since if grace is None else since + grace
        stuck = Termination(since, until, node, finalizers)
        overdue = grace is not None and until < now
    # with a grace period of 0 the deletion itself was the release
    owed = whole.amounts if overdue and not ended and grace else {}
    gone = _pod_gone(metadata, owner, name, ended=ended, stuck=stuck)
    return Live(
        PODS,
        name,
        owner,
        created,
        Demand(count, whole.scopes) if ended or overdue else whole,
        {each: amount for each, amount in owed.items() if each not in count},
        gone if ended or overdue else _pod_ending(obj, gone, stuck),
        gone,
        finished=ended,
        stuck=stuck,
    )


def _pod_gone(metadata: Mapping[str, Any], owner: str, name: str, *, ended: bool, stuck: Termination | None) -> Ending:
    """Return what will remove the pod object."""
    if stuck is not None:
        if stuck.finalizers:
            return Ending(By.FINALIZERS, detail=", ".join(stuck.finalizers))
        return Ending(By.NODE, detail=stuck.node)
    if since := moment(metadata.get("deletionTimestamp")):
        return Ending(By.DELETION, since)
    if ended:
        return Ending(By.FINISHED)
    return Ending(By.HAND if owner == _itself(PODS, name) else By.OWNER)


def _pod_ending(obj: Mapping[str, Any], gone: Ending, stuck: Termination | None) -> Ending:
    """Return what ends the charge of a pod that has not finished."""
    if stuck is not None:
        return Ending(By.DELETION, stuck.until)
    deadline = _seconds(mapping_at(obj, "spec", "").get("activeDeadlineSeconds"))
    if deadline is None or gone.by is By.DELETION:
        return gone
    begun = moment(mapping_at(obj, "status", "").get("startTime"))
    return Ending(By.DEADLINE, begun + deadline) if begun else Ending(By.DEADLINE, after=deadline)


def _plain_ending(metadata: Mapping[str, Any], owner: str, resource: str, name: str) -> Ending:
    """Return what ends the charge of an object that is charged as long as it exists."""
    if metadata.get("deletionTimestamp"):
        return Ending(By.FINALIZERS, detail=", ".join(_finalizers(metadata)))
    return Ending(By.HAND if owner == _itself(resource, name) else By.OWNER)


def _job_endings(job: Mapping[str, Any], owner: str, name: str) -> tuple[Ending, datetime | None]:
    """Return what ends the charge of a Job, and the time by which its pods must have finished."""
    metadata, spec, status = (mapping_at(job, key, "") for key in ("metadata", "spec", "status"))
    plain = _plain_ending(metadata, owner, JOBS, name)
    ttl, deadline = _seconds(spec.get("ttlSecondsAfterFinished")), _seconds(spec.get("activeDeadlineSeconds"))
    begun, over = moment(status.get("startTime")), _finish(status)
    must_end = begun + deadline if begun and deadline is not None else None
    if plain.by is By.FINALIZERS:
        return plain, must_end
    if over is not None:
        return (Ending(By.FINISHED) if ttl is None else Ending(By.TTL, over + ttl)), over
    if must_end is not None and ttl is not None:
        return Ending(By.DEADLINE, must_end + ttl), must_end
    return plain, must_end


def _finish(status: Mapping[str, Any]) -> datetime | None:
    """Return the time at which a Job finished, None if it has not."""
    for condition in mappings_at(status, "conditions", "status"):
        if condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True":
            return moment(condition.get("lastTransitionTime"))
    return None


def _as_allocated(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a claim with its allocated size, if that is larger than the request: an expansion was cancelled."""
    taken = amounts_at(mapping_at(obj, "status", ""), "allocatedResources", "status").get("storage")
    spec = mapping_at(obj, "spec", "")
    resources = mapping_at(spec, "resources", "spec")
    asked = amounts_at(resources, "requests", "spec.resources").get("storage")
    if taken is None or asked is None or taken <= asked:
        return obj
    requests = {**mapping_at(resources, "requests", "spec.resources"), "storage": f"{taken}n"}
    return {**obj, "spec": {**spec, "resources": {**resources, "requests": requests}}}


def _as_resized(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod whose containers request what is charged during a resize: the larger of the old and new amounts."""
    status, spec = mapping_at(pod, "status", ""), mapping_at(pod, "spec", "")
    listed = (mappings_at(status, key, "status") for key in ("containerStatuses", "initContainerStatuses"))
    known = {str(each.get("name")): each for statuses in listed for each in statuses if each.get("resources")}
    if not known:
        return pod
    refused = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in mappings_at(status, "conditions", "status")
    )
    changed = {}
    for key in ("containers", "initContainers"):
        containers = mappings_at(spec, key, "spec")
        if containers:
            running = key == "containers"
            changed[key] = [
                _resized(each, known[str(each.get("name"))], refused=refused)
                if str(each.get("name")) in known and (running or each.get("restartPolicy") == "Always")
                else each
                for each in containers
            ]
    return {**pod, "spec": {**spec, **changed}}


def _resized(container: Mapping[str, Any], status: Mapping[str, Any], *, refused: bool) -> Mapping[str, Any]:
    """Return a container with the larger of requested and actual amounts; an infeasible request does not count."""
    asked, has = mapping_at(container, "resources", "container"), mapping_at(status, "resources", "status")
    allocated = amounts_at(status, "allocatedResources", "status")
    wanted = [] if refused else [asked]
    resources = {}
    for side in ("requests", "limits"):
        amounts = [amounts_at(each, side, "container") for each in (*wanted, has)]
        if side == "requests":
            amounts.append(allocated)
        names = {name for each in amounts for name in each}
        resources[side] = {name: f"{max(each.get(name, 0) for each in amounts)}n" for name in sorted(names)}
    return {**container, "resources": resources}


def _owner(metadata: Mapping[str, Any], resource: str, name: str) -> str:
    """Return ``Kind/name`` of the object's controller, or of the object itself if it has no controller."""
    references = mappings_at(metadata, "ownerReferences", "metadata")
    for reference in references:
        if reference.get("controller") is True:
            return f"{reference.get('kind')}/{reference.get('name')}"
    return _itself(resource, name)


def _finalizers(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, items(metadata.get("finalizers"))))


def _itself(resource: str, name: str) -> str:
    return f"{_KINDS.get(resource, resource)}/{name}"


def _seconds(value: object) -> timedelta | None:
    """Read a number of seconds; None if it is malformed or more than Kubernetes accepts."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        return None
    return timedelta(seconds=value)

"""What the operator keeps of an object that can be let in: the fields that decide about it. Pure.

A Job may have 1.5 MB, most of it in lists that no charge reads (``env``): parsed, that takes 20 MB, for each Job of
each tenant. The shapes below list the fields that ``kinds``, ``again``, ``asking``, ``stages`` and ``charges`` read.
A patch that replaces a list needs the whole object, not what is kept of it (``patches.replaces_list``).
Of kinds without a shape (Spark's, and described ones, whose descriptions may name any field) all is kept but their
``managedFields``. What has ended makes no more pods: of it only what identifies it is kept (``identified``).

What is kept is as large as the user makes its lists: ``stubs`` bounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID, GANG_LABEL
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, mappings, metadata_of
from backoff_ctrl.k8s.kube.charges.footprint import BETA_STORAGE_CLASS
from backoff_ctrl.k8s.kube.charges.operators import SERVE_SERVICE
from backoff_ctrl.k8s.kube.watching.cache import without_managers
from backoff_ctrl.k8s.kube.watching.shares import size_of

from .children import JOB_SET_NAME
from .kinds import (
    ADMITTED,
    JOB,
    JOB_SET,
    MIN_PARALLELISM,
    PARALLELISM,
    PRIORITY,
    QUEUE_NAME,
    RELEASED_BY,
    STAY_SUSPENDED,
    SUSPENDED_BY,
    WAIT,
    WAITS_FOR,
    AdmissibleKind,
    field_at,
    patch_at,
)
from .patches import merged

SMALL: Final = 4 << 10
"""Bytes of memory of a field that identifies an object."""
IDENTIFIED_MAX: Final = 24 << 10
"""Bytes of memory of what identifies an object, at most, for any user's input. As a rule it has 3 kB."""
CONDITIONS: Final = 32
"""Conditions that are kept where a status is large. Kubernetes' Jobs have six."""

Shape: TypeAlias = "Mapping[str, Shape] | list[Shape] | Each | None"
"""The fields that are kept, with their own shapes; a list has the shape of its items; None: all of a value is kept."""


@dataclass(frozen=True, slots=True)
class Each:
    """An object that keeps all its fields, of any name: this is the shape of each of them."""

    shape: Shape


def _fields(*whole: str, **parts: Shape) -> dict[str, Shape]:
    """Return the shape of an object: fields that are kept as a whole, and those of which parts are kept."""
    return {**dict.fromkeys(whole), **parts}


_RESOURCES: Final = _fields("requests", "limits")
_CLAIM: Final = _fields(
    metadata=_fields(annotations=_fields(BETA_STORAGE_CLASS)),
    spec=_fields("storageClassName", "volumeAttributesClassName", resources=_fields("requests")),
)
_CONTAINER: Final = _fields("name", "restartPolicy", resources=_RESOURCES, ports=[_fields("name")])
_TERM: Final = _fields("namespaces", "namespaceSelector")
_TERMS: Final = _fields(
    requiredDuringSchedulingIgnoredDuringExecution=[_TERM],
    preferredDuringSchedulingIgnoredDuringExecution=[_fields(podAffinityTerm=_TERM)],
)
_POD: Final = _fields(
    "overhead",
    "runtimeClassName",
    "activeDeadlineSeconds",
    "priorityClassName",
    "serviceAccountName",
    containers=[_CONTAINER],
    initContainers=[_CONTAINER],
    volumes=[_fields(ephemeral=_fields(volumeClaimTemplate=_CLAIM))],
    resourceClaims=[_fields("resourceClaimTemplateName")],
    resources=_RESOURCES,
    affinity=_fields(podAffinity=_TERMS, podAntiAffinity=_TERMS),
)
_TEMPLATE: Final = _fields(metadata=_fields(labels=_fields(GANG_LABEL)), spec=_POD)
_JOB: Final = _fields("suspend", "parallelism", "completions", "managedBy", template=_TEMPLATE)
_JOB_SET: Final = _fields(
    "suspend",
    "managedBy",
    network=_fields("enableDNSHostnames"),
    volumeClaimPolicies=[_fields(templates=[_CLAIM])],
    replicatedJobs=[
        _fields("name", "replicas", dependsOn=[_fields("name", "status")], template=_fields(spec=_JOB)),
    ],
)
_RAY_CLUSTER: Final = _fields(
    "suspend",
    "managedBy",
    "enableInTreeAutoscaling",
    autoscalerOptions=_fields(resources=_RESOURCES),
    headGroupSpec=_fields(
        "serviceType",
        "enableIngress",
        template=_TEMPLATE,
        headService=_fields(spec=_fields("type", ports=[_fields()])),
    ),
    workerGroupSpecs=[
        _fields("replicas", "minReplicas", "maxReplicas", "numOfHosts", "suspend", template=_TEMPLATE),
    ],
)
_RAY_JOB: Final = _fields(
    "suspend",
    "managedBy",
    "clusterSelector",
    "submissionMode",
    "shutdownAfterJobFinishes",
    rayClusterSpec=_RAY_CLUSTER,
    submitterPodTemplate=_TEMPLATE,
)


def _training(replicas: str) -> Mapping[str, Shape]:
    of_a_type = _fields("replicas", template=_TEMPLATE)
    return _fields(
        runPolicy=_fields("suspend", "managedBy"), elasticPolicy=_fields("metrics"), **{replicas: Each(of_a_type)}
    )


SPECS: Final[Mapping[str, Mapping[str, Shape]]] = {
    JOB.resource: _JOB,
    JOB_SET.resource: _JOB_SET,
    "trainjobs.trainer.kubeflow.org": _fields("suspend", "managedBy"),  # its JobSet says which pods it makes
    "rayclusters.ray.io": _RAY_CLUSTER,
    "rayjobs.ray.io": _RAY_JOB,
    "jaxjobs.kubeflow.org": _training("jaxReplicaSpecs"),
    "mpijobs.kubeflow.org": _training("mpiReplicaSpecs"),
    "paddlejobs.kubeflow.org": _training("paddleReplicaSpecs"),
    "pytorchjobs.kubeflow.org": _training("pytorchReplicaSpecs"),
    "tfjobs.kubeflow.org": _training("tfReplicaSpecs"),
    "xgboostjobs.kubeflow.org": _training("xgbReplicaSpecs"),
}
"""By the resource of the kind: what is kept of its ``spec``."""
_METADATA: Final = _fields(
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "ownerReferences",
    labels=_fields(WAIT, QUEUE_NAME, GANG_LABEL, JOB_SET_NAME),
    annotations=_fields(
        ADMITTED,
        CREATE_ID,
        MIN_PARALLELISM,
        PARALLELISM,
        PRIORITY,
        RELEASED_BY,
        STAY_SUSPENDED,
        SUSPENDED_BY,
        WAITS_FOR,
        SERVE_SERVICE,
    ),
)
_CONDITION: Final = _fields("type", "status")
_LIVE_POD: Final = _fields(
    metadata=_fields(
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "ownerReferences",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        labels=_fields(GANG_LABEL),
    ),
    spec=_POD,
    status=_fields("phase"),
)
_STATUSES: Final[Mapping[str, Shape]] = {
    JOB.resource: _fields("active", "succeeded", "failedIndexes", "startTime", conditions=[_CONDITION]),
}


def shaped(kind: AdmissibleKind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of an object of this kind, with its kind, which lists leave out."""
    if kind.has_ended(body) and kind.has_ended(found := identified(kind, body)):
        return found
    spec = SPECS.get(kind.resource)
    if spec is None:
        found = without_managers(body)
    else:
        found = _kept(body, {"metadata": _METADATA, "spec": spec, "status": _STATUSES.get(kind.resource)})
    return {**found, "apiVersion": kind.api_version, "kind": kind.kind}


def shaped_pod(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a pod what it is charged by, whose it is, and whether it has ended."""
    found: dict[str, Any] = _kept(body, _LIVE_POD)
    return {**found, "apiVersion": "v1", "kind": "Pod"}


def identified(kind: AdmissibleKind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says whose an object is, whether it is suspended, and whether it has ended: a few kB at most."""
    metadata = _kept(metadata_of(body), _METADATA)
    annotations = {name: value for name, value in annotations_of(body).items() if _is_small(value)}
    owners = [each for each in mappings(metadata.get("ownerReferences")) if each.get("controller") is True]
    found: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            **metadata,
            "annotations": _kept(annotations, _METADATA["annotations"]),
            "ownerReferences": list(filter(_is_small, owners[:1])),
        },
    }
    for path in filter(None, (kind.suspend, kind.managed_by, *(need.path for need in kind.needs))):
        if (value := field_at(body, path)) is not None:
            found = merged(found, patch_at(path, value if _is_small(value) else True))  # what is large is there
    return found | {"status": _small_status(mapping(body.get("status")))}


def _small_status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    if _is_small(status):
        return status
    return {"conditions": [_kept(each, _CONDITION) for each in mappings(status.get("conditions"))[:CONDITIONS]]}


def _is_small(value: object) -> bool:
    return size_of(value, SMALL) <= SMALL


def _kept(value: Any, shape: Shape) -> Any:
    """Return what a shape keeps. A value of another type stays as it is, so that who reads it can say so."""
    if isinstance(shape, list):
        return [_kept(each, shape[0]) for each in value] if isinstance(value, list) else value
    if shape is None or not isinstance(value, Mapping):
        return value
    if isinstance(shape, Each):
        return {name: _kept(each, shape.shape) for name, each in value.items()}
    found = {}
    for name, part in shape.items():
        if name in value:
            found[name] = value[name] if part is None else _kept(value[name], part)
    return found

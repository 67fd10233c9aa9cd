"""The names by which quotas know kinds: ``Job`` of ``batch/v1`` is ``jobs.batch``; ``requests.cpu`` charges pods."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import FieldError, text_at

LEGACY_COUNTS: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets"})
# Irregular plurals, in lower case.
_PLURALS: Final = {
    "endpoints": "endpoints",
    "mongodbcommunity": "mongodbcommunity",
    "podmetrics": "pods",
    "securitycontextconstraints": "securitycontextconstraints",
}

# Kubernetes' own cluster-scoped kinds: no quota charges them.
_CLUSTER_WIDE: Final = frozenset(
    {
        "APIService",
        "CSIDriver",
        "CSINode",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrustBundle",
        "CustomResourceDefinition",
        "DeviceClass",
        "DeviceTaintRule",
        "FlowSchema",
        "IPAddress",
        "IngressClass",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ResourceSlice",
        "RuntimeClass",
        "ServiceCIDR",
        "StorageClass",
        "StorageVersionMigration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
        "VolumeAttributesClass",
    }
)

# pkg/quota/v1/install/registry.go: never counted.
_UNCOUNTED: Final = frozenset({"events", "events.events.k8s.io"})


def resource_of(manifest: Mapping[str, Any]) -> str:
    """Return ``RESOURCE`` or ``RESOURCE.GROUP`` of a manifest, by its kind and apiVersion.

    Custom kinds get the regular English plural: a guess, as kubectl makes it without a server. Raises
    ``FieldError`` if kind or apiVersion is missing, and for a list of objects.
    """
    kind, version = text_at(manifest, "kind", ""), text_at(manifest, "apiVersion", "")
    if not kind:
        raise FieldError("kind: required field is missing")
    if not version:
        raise FieldError("apiVersion: required field is missing")
    if kind.endswith("List") and "items" in manifest:
        raise FieldError(f"kind: {kind} is a list: pass its items one by one")
    group = version.rpartition("/")[0]
    return f"{plural_of(kind)}.{group}" if group else plural_of(kind)


def is_charged(manifest: Mapping[str, Any], resource: str) -> bool:
    """Return whether a quota can charge the object: false for cluster-scoped kinds and for events."""
    group = resource.partition(".")[2]
    own = not group or group.endswith(".k8s.io") or "." not in group
    return resource not in _UNCOUNTED and not (own and manifest.get("kind") in _CLUSTER_WIDE)


def plural_of(kind: str) -> str:
    """Return the lower-case plural of a kind."""
    word = kind.lower()
    if word in _PLURALS:
        return _PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in set("aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}s"


PODS: Final = "pods"
CLAIMS: Final = "persistentvolumeclaims"
SERVICES: Final = "services"
DEVICE_CLAIMS: Final = "resourceclaims.resource.k8s.io"
JOBS: Final = "jobs.batch"
WHOLE: Final = frozenset({PODS, CLAIMS, SERVICES, DEVICE_CLAIMS, JOBS})
"""Kinds that must be listed as whole objects; for all others (such as Secrets) the metadata is enough."""

DEVICE_CLASSES: Final = "deviceclasses.resource.k8s.io"
"""Cluster-wide; some stand for an extended resource (``devices``)."""

_COUNT: Final = "count/"
_IMPLICIT: Final = "requests.deviceclass.resource.kubernetes.io/"
_RESOURCE: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*")
_OF_PODS: Final = frozenset({"pods", "cpu", "memory", "ephemeral-storage"})


def is_extended(name: str) -> bool:
    """Return whether a quota limits an extended resource by this name, for which a DeviceClass may stand."""
    named = name.removeprefix("requests.")
    return name.startswith("requests.") and "/" in named and not name.startswith(_IMPLICIT)


def kinds_of(name: str, extended: Collection[str] = ()) -> tuple[str, ...]:
    """Return the kinds (``pods``, ``jobs.batch``) that a quota charges under this name; empty for an unknown name.

    ``extended``: the extended resources that DeviceClasses stand for: ResourceClaims are charged under these, too.
    """
    if name.startswith(_COUNT):
        kind = name.removeprefix(_COUNT)
        return (kind,) if _RESOURCE.fullmatch(kind) and kind not in _UNCOUNTED else ()
    if name in LEGACY_COUNTS:
        return (name,)
    if name.startswith(_IMPLICIT) or (is_extended(name) and name.removeprefix("requests.") in extended):
        return (PODS, DEVICE_CLAIMS)
    return next(((kind,) for kind, charges in _CHARGES if charges(name)), ())


_CHARGES: Final = (
    (CLAIMS, lambda name: name in {CLAIMS, "requests.storage"} or ".storageclass.storage.k8s.io/" in name),
    (SERVICES, lambda name: name == SERVICES or name.startswith("services.")),
    (DEVICE_CLAIMS, lambda name: name.endswith(".deviceclass.resource.k8s.io/devices")),
    (PODS, lambda name: name in _OF_PODS or name.startswith(("requests.", "limits.", "hugepages-"))),
)
"""Kinds and their tests, in order: the first test that accepts the name decides."""

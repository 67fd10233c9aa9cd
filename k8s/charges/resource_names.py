"""Map kinds to the resource names that quotas use: ``Job`` of ``batch/v1`` is ``jobs.batch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .fields import FootprintError, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    ``FootprintError`` if kind or apiVersion is missing, and for a list of objects.
    """
    kind, version = text_at(manifest, "kind", ""), text_at(manifest, "apiVersion", "")
    if not kind:
        raise FootprintError("kind: required field is missing")
    if not version:
        raise FootprintError("apiVersion: required field is missing")
    if kind.endswith("List") and "items" in manifest:
        raise FootprintError(f"kind: {kind} is a list: pass its items one by one")
    group = version.rpartition("/")[0]
    return f"{plural_of(kind)}.{group}" if group else plural_of(kind)


def is_charged(manifest: Mapping[str, Any], resource: str) -> bool:
    """Return whether any quota can charge the object: false for cluster-scoped kinds and for events."""
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

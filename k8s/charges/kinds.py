"""Map the resource names of quotas to the kinds of objects that they charge. Pure."""

from __future__ import annotations

import re
from typing import Final

from .objects import LEGACY_COUNTS

PODS: Final = "pods"
CLAIMS: Final = "persistentvolumeclaims"
SERVICES: Final = "services"
DEVICE_CLAIMS: Final = "resourceclaims.resource.k8s.io"
JOBS: Final = "jobs.batch"
WHOLE: Final = frozenset({PODS, CLAIMS, SERVICES, DEVICE_CLAIMS, JOBS})
"""Kinds that must be listed as whole objects; for all others (such as Secrets) the metadata is enough."""

_COUNT: Final = "count/"
_RESOURCE: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*")
_UNCOUNTED: Final = frozenset({"events", "events.events.k8s.io"})
_OF_PODS: Final = frozenset({"pods", "cpu", "memory", "ephemeral-storage"})


def kinds_of(name: str) -> tuple[str, ...]:
    """Return the kinds (``pods``, ``jobs.batch``) that a quota charges under this name; empty for an unknown name.

    ``requests.EXTENDED`` may also be charged for ResourceClaims, through a DeviceClass. Only the server knows that.
    """
    if name.startswith(_COUNT):
        kind = name.removeprefix(_COUNT)
        return (kind,) if _RESOURCE.fullmatch(kind) and kind not in _UNCOUNTED else ()
    if name in LEGACY_COUNTS:
        return (name,)
    if name.startswith("requests.deviceclass.resource.kubernetes.io/"):
        return (PODS, DEVICE_CLAIMS)
    return next(((kind,) for kind, charges in _CHARGES if charges(name)), ())


_CHARGES: Final = (
    (CLAIMS, lambda name: name in {CLAIMS, "requests.storage"} or ".storageclass.storage.k8s.io/" in name),
    (SERVICES, lambda name: name == SERVICES or name.startswith("services.")),
    (DEVICE_CLAIMS, lambda name: name.endswith(".deviceclass.resource.k8s.io/devices")),
    (PODS, lambda name: name in _OF_PODS or name.startswith(("requests.", "limits.", "hugepages-"))),
)
"""Kinds and their tests, in order: the first test that accepts the name decides."""

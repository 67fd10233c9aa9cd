"""Footprints of pods, remembered: a platform creates many pods of few shapes, and reads each twice.

What a pod is charged follows from its spec and status alone. Volumes, mounts and environments are never charged and
differ from pod to pod (the token volume that the API server adds has a random name): they are no part of the key.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, Final

from .footprint import footprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.engine.demand import Demand

SHAPES_MAX: Final = 1024
KEY_BYTES_MAX: Final = 8192  # beyond it a pod is read anew each time: keys must not fill the memory
_EXACT: Final = 2  # the version of marshal that writes equal values as equal bytes: no references

_DEMANDS: dict[bytes, Demand] = {}


def remembered_footprint(manifest: Mapping[str, Any], resource: str) -> Demand:
    """Return ``footprint(manifest, resource=resource)``, from memory if that shape was read before.

    Raises ``FootprintError`` as that does.
    """
    key = _key(manifest) if resource == "pods" else None
    if key is None:
        return footprint(manifest, resource=resource)
    known = _DEMANDS.get(key)
    if known is None:
        known = footprint(manifest, resource=resource)
        if len(_DEMANDS) >= SHAPES_MAX:
            _DEMANDS.clear()
        _DEMANDS[key] = known
    return known


def _key(manifest: Mapping[str, Any]) -> bytes | None:
    """Write down all that a charge could follow from; nothing for what is no plain JSON."""
    try:
        spec = dict(manifest["spec"])
        spec.pop("volumes", None)
        for name in ("containers", "initContainers"):
            if name in spec:
                spec[name] = [
                    {key: value for key, value in container.items() if key not in ("volumeMounts", "env")}
                    for container in spec[name]
                ]
        key = marshal.dumps((manifest.get("kind"), manifest.get("apiVersion"), manifest.get("status"), spec), _EXACT)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return key if len(key) <= KEY_BYTES_MAX else None

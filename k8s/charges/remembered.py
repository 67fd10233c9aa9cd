"""Cache the footprints of pods: a platform creates many pods of few shapes, and each footprint is read twice.

A pod's charge follows from its spec and status alone. Volumes, volume mounts and environment variables are never
charged and differ from pod to pod (the API server adds a token volume with a random name), so the key leaves them out.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, Final

from .footprint import footprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.engine.demand import Demand

SHAPES_MAX: Final = 1024
KEY_BYTES_MAX: Final = 8192  # pods with a longer key are not cached: keys must not fill the memory
_EXACT: Final = 2  # marshal version 2 uses no references, so equal values give equal bytes

_CONTAINERS: Final = ("containers", "initContainers")
_FREE: Final = ("volumeMounts", "env")  # of a container
_DEMANDS: dict[bytes, Demand] = {}


def remembered_footprint(manifest: Mapping[str, Any], resource: str) -> Demand:
    """Return ``footprint(manifest, resource=resource)``, from the cache if that shape was read before.

    Raises ``FootprintError`` as ``footprint`` does.
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
    """Serialise everything that can affect the charge; None for a manifest that is not plain JSON or too large."""
    try:
        parts = [manifest.get("kind"), manifest.get("apiVersion"), manifest.get("status")]
        for name, value in manifest["spec"].items():
            if name in _CONTAINERS and isinstance(value, list):
                parts.append(name)
                for container in value:
                    charged: list[Any] = []
                    for field, content in container.items():
                        if field not in _FREE:
                            charged += (field, content)
                    parts.append(charged)
            elif name != "volumes":
                parts += (name, value)
        key = marshal.dumps(parts, _EXACT)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return key if len(key) <= KEY_BYTES_MAX else None

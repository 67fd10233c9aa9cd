"""A pod on top of a PodTemplate of the cluster, ``default-pod-template-name``: what the task says itself is stronger.

As in Flyte, the template's containers are patterns: ``default`` is one for all containers, ``primary`` for the primary
one, any other for the container of its name; ``default-init`` and those of the same name for init containers.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from .reading import mapping, mappings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.protocol import JSON

_PRIMARY: Final = "primary"
_DEFAULTS: Final = {"containers": "default", "initContainers": "default-init"}


def on_template(spec: JSON, metadata: JSON, primary: str, template: Mapping[str, Any]) -> tuple[JSON, JSON]:
    """Return a pod's spec and its labels and annotations on top of a PodTemplate."""
    below = mapping(mapping(template.get("template")).get("spec"))
    plain = {key: value for key, value in below.items() if key not in _DEFAULTS}
    merged = _over(plain, {key: value for key, value in spec.items() if key not in _DEFAULTS})
    for key, default in _DEFAULTS.items():
        patterns = {each.get("name"): each for each in mappings(below.get(key))}
        if spec.get(key):
            merged[key] = [_container(each, primary, patterns, default) for each in spec[key]]
    own = mapping(mapping(template.get("template")).get("metadata"))
    return merged, {key: _over(mapping(own.get(key)), metadata.get(key) or {}) for key in ("labels", "annotations")}


def _container(own: JSON, primary: str, patterns: Mapping[Any, Mapping[str, Any]], default: str) -> JSON:
    """Return a container on top of the patterns that apply to it, the most general one below."""
    names = [default, _PRIMARY if own["name"] == primary else own["name"]]
    merged: JSON = {}
    for pattern in (patterns[name] for name in names if name in patterns):
        merged = _over(merged, pattern)
    return {**_over(merged, own), "name": own["name"]}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> JSON:
    """Return objects merged key by key; lists are joined, all else is what is above."""
    merged = deepcopy(dict(below))
    for key, value in above.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _over(known, value)
        elif isinstance(known, list) and isinstance(value, list) and key not in _WHOLE:
            merged[key] = [*known, *deepcopy(value)]
        else:
            merged[key] = deepcopy(value)
    return merged


_WHOLE: Final = frozenset({"command", "args"})
"""Lists that make sense only as a whole."""

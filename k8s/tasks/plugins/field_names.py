"""The names of fields in parts of manifests that a task or the platform writes: a container, a pod template, a Job.

The known names are those of the official client's models, which follow each release of Kubernetes. A server may be
newer than that client: an unknown name is an error here only where it is a known one misspelt or abbreviated. The API
server judges the others, since objects are created with strict validation of their fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from backoff_ctrl.k8s.kube.answers.spelling import abbreviated, hint, misspelt

CONTAINER: Final = "V1Container"
METADATA: Final = "V1ObjectMeta"
POD_SPEC: Final = "V1PodSpec"
VARIABLE: Final = "V1EnvVar"
"""Models of the official client."""
LEVELS_MAX: Final = 30
"""The schema of JSON in a definition refers to itself."""
_TYPE: Final = re.compile(r"(dict|list|Dict|List)?.*?([A-Za-z0-9]+)[\])]*")
_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""The resources of a container whose names have no domain, beside huge pages: a rule of the server's, in no model."""
_HUGE_PAGES: Final = "hugepages-"


class Flaw(NamedTuple):
    """A field with a wrong name, and what is wrong with it."""

    path: str
    said: str


class _Field(NamedTuple):
    model: str
    """Empty: its value has no model."""
    many: str
    """``list`` or ``dict`` of them; empty: one."""


def misspelt_field(found: Any, model: str, path: str) -> Flaw | None:
    """Return the first field, at any depth, whose name is a misspelt one, or None."""
    left = [(found, model, path, 0)]
    for value, of, at, level in left:  # it grows meanwhile
        fields = _fields(of)
        for name, inner in value.items() if isinstance(value, Mapping) else ():
            place, field = f"{at}.{name}".lstrip("."), fields.get(name)
            if field is None:
                meant = misspelt(str(name), fields) or abbreviated(str(name), fields)
                if meant is not None and meant not in value:  # beside the known one it may be a newer field
                    return Flaw(place, f"unknown; did you mean {meant}?")
            elif field.model and level < LEVELS_MAX:
                left += [(each, field.model, within, level + 1) for each, within in _each(inner, field.many, place)]
    return None


def unknown_field(found: Iterable[Any], known: Iterable[str], path: str) -> Flaw | None:
    """Return the first name that is not among the known ones; None: there is none."""
    names = set(known)
    wrong = next((name for name in found if name not in names), None)
    return None if wrong is None else Flaw(f"{path}.{wrong}".lstrip("."), f"unknown; {hint(str(wrong), names)}")


def unknown_resource(name: str, path: str, further: Iterable[str] = ()) -> Flaw | None:
    """Return what is wrong with the name of a container's resource; ``further``: names of ours. None: nothing."""
    known = {*_RESOURCES, *further}
    if "/" in name or name.startswith(_HUGE_PAGES) or name in known:
        return None
    near = misspelt(name, known)
    meant = f"did you mean {near}?" if near else f"choose from {', '.join(sorted(known))}, or write example.com/{name}"
    return Flaw(f"{path}.{name}".lstrip("."), f"unknown; {meant}")


def names_of(model: str) -> frozenset[str]:
    """Return the names of a model's fields."""
    return frozenset(_fields(model))


def model_of(api_version: str, kind: str) -> str:
    """Return the model of a kind; empty: the client has none, as for custom resources."""
    group, _, version = api_version.rpartition("/")
    name = f"{version.capitalize()}{kind}"
    return name if ("." not in group or group.endswith(".k8s.io")) and _model(name) else ""


def _each(value: Any, many: str, path: str) -> Iterable[tuple[Any, str]]:
    if many == "list":
        return ((each, f"{path}[{index}]") for index, each in enumerate(value if isinstance(value, list) else ()))
    if many == "dict":
        return ((each, f"{path}.{key}") for key, each in (value.items() if isinstance(value, Mapping) else ()))
    return ((value, path),)


@cache
def _fields(model: str) -> Mapping[str, _Field]:
    found = _model(model)
    return (
        {} if found is None else {key: _field(found.openapi_types[name]) for name, key in found.attribute_map.items()}
    )


def _field(type_: str) -> _Field:
    """Read a type as the generators of the client write it: ``V1Probe``, ``list[V1EnvVar]``, ``dict(str, str)``."""
    found = _TYPE.fullmatch(type_)
    if found is None or _model(found[2]) is None:
        return _Field("", "")
    return _Field(found[2], (found[1] or "").lower())


def _model(name: str) -> Any:
    """Return a model of the official client; None: it has none of this name."""
    from kubernetes import client  # noqa: PLC0415 - 0.25 s

    found = getattr(client, name, None)
    return found if hasattr(found, "attribute_map") and hasattr(found, "openapi_types") else None

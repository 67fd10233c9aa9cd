"""The fields in parts of manifests that a task or the platform writes: a container, a pod template, a Job.

The known names and types are those of the official client's models, which follow each release of Kubernetes. A server
may be newer than that client: an unknown name is an error here only where it is a known one misspelt or abbreviated.
The API server judges the others, since objects are created with strict validation of their fields. A known field keeps
its type.
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
_QUANTITIES: Final = frozenset({"requests", "limits", "overhead", "divisor", "sizeLimit", "hard", "used"})
"""Fields that the models call texts, and that may be numbers."""
_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "list": (list, "a list"), "dict": (Mapping, "an object"), "str": (str, "a text"), "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
}  # fmt: skip
"""The types of JSON by the names that the models give them."""


class Flaw(NamedTuple):
    """A field with a wrong name or a value of a wrong type, and what is wrong with it."""

    path: str
    said: str


class _Field(NamedTuple):
    model: str
    """Empty: its value has no model."""
    many: str
    """``list`` or ``dict`` of them; empty: one."""
    type: str
    """The type of each one, as in ``_TYPES``; empty: any."""


def field_flaw(found: Any, model: str, path: str) -> Flaw | None:
    """Return the first field, at any depth, with a misspelt name or a value of a wrong type, or None.

    The sentence leaves the value out: it may be a secret.
    """
    left = [(found, model, path, 0)]
    for value, of, at, level in left:  # it grows meanwhile
        fields = _fields(of)
        for name, inner in value.items() if isinstance(value, Mapping) else ():
            place, field = f"{at}.{name}".lstrip("."), fields.get(name)
            if field is None:
                meant = misspelt(str(name), fields) or abbreviated(str(name), fields)
                if meant is not None and meant not in value:  # beside the known one it may be a newer field
                    return Flaw(place, f"unknown; did you mean {meant}?")
                continue
            if flaw := _wrong_type(inner, field, place):
                return flaw
            if field.model and level < LEVELS_MAX:
                left += [(each, field.model, within, level + 1) for each, within in _each(inner, field.many, place)]
    return None


def unknown_field(found: Iterable[Any], known: Iterable[str], path: str) -> Flaw | None:
    """Return the first name that is not among the known ones; None: all are known."""
    names = set(known)
    wrong = next((name for name in found if name not in names), None)
    return None if wrong is None else Flaw(f"{path}.{wrong}".lstrip("."), f"unknown; {hint(str(wrong), names)}")


def unknown_resource(name: str, path: str, further: Iterable[str] = ()) -> Flaw | None:
    """Return what is wrong with the name of a container's resource; ``further``: names of ours. None: it is known."""
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


def _wrong_type(value: Any, field: _Field, path: str) -> Flaw | None:
    """Return where a field, or one of its values, has another type than its own; None: nowhere. null is of any type."""
    for each, within, wanted in [
        (value, path, field.many),
        *((each, within, field.type) for each, within in _each(value, field.many, path)),
    ]:
        if wanted and each is not None and not _is(each, wanted):
            remedy = ": write it in quotes" if wanted == "str" and not isinstance(each, list | Mapping) else ""
            return Flaw(within, f"must be {_TYPES[wanted][1]}, not {type_of(each)}{remedy}")
    return None


def type_of(value: Any) -> str:
    """Return the type of a JSON value in words."""
    return next((words for name, (_, words) in _TYPES.items() if _is(value, name)), "a number")


def _is(value: Any, name: str) -> bool:
    if name == "int" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name][0]) and (name == "bool" or not isinstance(value, bool))


def _each(value: Any, many: str, path: str) -> Iterable[tuple[Any, str]]:
    if many == "list":
        return ((each, f"{path}[{index}]") for index, each in enumerate(value if isinstance(value, list) else ()))
    if many == "dict":
        return ((each, f"{path}.{key}") for key, each in (value.items() if isinstance(value, Mapping) else ()))
    return ((value, path),)


@cache
def _fields(model: str) -> Mapping[str, _Field]:
    found = _model(model)
    if found is None:
        return {}
    return {key: _field(key, found.openapi_types[name]) for name, key in found.attribute_map.items()}


def _field(name: str, type_: str) -> _Field:
    """Read a type as the generators of the client write it: ``V1Probe``, ``list[V1EnvVar]``, ``dict(str, str)``."""
    found = _TYPE.fullmatch(type_)
    if found is None or name in _QUANTITIES:
        return _Field("", (found[1] or "").lower() if found else "", "")
    many, each = (found[1] or "").lower(), found[2]
    if _model(each) is not None:
        return _Field(each, many, "dict")
    return _Field("", many, each if each in _TYPES and len(re.findall(r"[\[(]", type_)) < 2 else "")


def _model(name: str) -> Any:
    """Return a model of the official client; None: it has none of this name."""
    from kubernetes import client  # noqa: PLC0415 - 0.25 s

    found = getattr(client, name, None)
    return found if hasattr(found, "attribute_map") and hasattr(found, "openapi_types") else None

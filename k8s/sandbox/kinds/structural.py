"""Structural schemas of custom resources: unknown fields are pruned, defaults filled in, values checked.

Source of the rules: ``k8s.io/apiextensions-apiserver`` ``pkg/apiserver/schema``; of the messages: ``kube-openapi``.
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.wire.problems import missing

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    Problem = tuple[str, str, str]

_ROOT = frozenset({"apiVersion", "kind", "metadata"})
_KEEPS = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
}  # fmt: skip


def prune_and_default(schema: JSON, obj: JSON, unknown: list[str]) -> JSON:
    """The object as it is stored. The paths of pruned fields are appended to ``unknown``."""
    pruned: JSON = _prune(schema, obj, "", unknown, root=True)
    _default(schema, pruned)
    return pruned


def _prune(schema: JSON, value: Any, path: str, unknown: list[str], *, root: bool = False) -> Any:
    if isinstance(value, list):
        below = schema.get("items") or {}
        return [_prune(below, each, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    known = _ROOT if root or schema.get(_EMBEDDED) else frozenset[str]()
    kept: JSON = {}
    for name, below in value.items():
        where = f"{path}.{name}" if path else name
        if name in properties:
            kept[name] = _prune(properties[name], below, where, unknown)
        elif name in known or schema.get(_KEEPS) or rest is True:
            kept[name] = below
        elif isinstance(rest, dict):
            kept[name] = _prune(rest, below, where, unknown)
        else:
            unknown.append(where)
    return kept


def _default(schema: JSON, value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _default(schema.get("items") or {}, each)
    if not isinstance(value, dict):
        return
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, below in properties.items():
        if value.get(name, 0) is None and not below.get("nullable"):
            del value[name]
        if name not in value and "default" in below:
            value[name] = copy.deepcopy(below["default"])
    for name, each in value.items():
        _default(properties.get(name) or (rest if isinstance(rest, dict) else {}), each)


def problems_of(schema: JSON, obj: JSON) -> list[Problem]:
    """Where an object violates its schema, sorted by field."""
    problems: list[Problem] = []
    _check(schema, {name: value for name, value in obj.items() if name not in _ROOT}, "", problems)
    return sorted(problems, key=lambda problem: problem[1])


def _check(schema: JSON, value: Any, path: str, problems: list[Problem]) -> None:
    if value is None and (schema.get("nullable") or not path):
        return
    if not _is_of_type(schema, value):
        wanted = "integer,string" if schema.get(_INT_OR_STRING) else schema.get("type")
        found = _type_of(value)
        text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        problems.append(("FieldValueTypeInvalid", path, text))
        return
    problems += _value_problems(schema, value, path)
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check(schema.get("items") or {}, each, f"{path}[{index}]", problems)
    elif isinstance(value, dict):
        _check_object(schema, value, path, problems)


def _check_object(schema: JSON, value: JSON, path: str, problems: list[Problem]) -> None:
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    problems += [missing(f"{path}.{name}".lstrip(".")) for name in schema.get("required") or () if name not in value]
    for name, below in value.items():
        found = properties.get(name, rest if isinstance(rest, dict) else None)
        if found is not None:
            _check(found, below, f"{path}.{name}".lstrip("."), problems)


def _is_of_type(schema: JSON, value: Any) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    if wanted is None:
        return True
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,))) and (wanted == "boolean" or not isinstance(value, bool))


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    order = ("string", "integer", "number", "array", "object")
    return next(name for name in order if isinstance(value, _TYPES[name]))


def _value_problems(schema: JSON, value: Any, path: str) -> list[Problem]:
    if isinstance(value, str):
        found = _text_problems(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = _number_problems(schema, value, path)
    elif isinstance(value, list | dict):
        found = _size_problems(schema, value, path)
    else:
        found = []
    choices = schema.get("enum")
    if choices and value not in choices:
        listed = ", ".join(json.dumps(each) for each in choices)
        text = f"Unsupported value: {json.dumps(value)}: supported values: {listed}"
        found.append(("FieldValueNotSupported", path, text))
    return found


def _text_problems(schema: JSON, value: str, path: str) -> list[Problem]:
    found: list[Problem] = []
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        found.append(("FieldValueTooLong", path, f"Too long: may not be more than {longest} bytes"))
    if shortest is not None and len(value) < shortest:
        found.append(_invalid(path, value, f"should be at least {shortest} chars long"))
    if pattern and not re.search(pattern, value):
        found.append(_invalid(path, value, f"should match '{pattern}'"))
    return found


def _number_problems(schema: JSON, value: float, path: str) -> list[Problem]:
    found: list[Problem] = []
    least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if least is not None and (value <= least if schema.get("exclusiveMinimum") else value < least):
        words = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        found.append(_invalid(path, value, f"should be {words} {least}"))
    if most is not None and (value >= most if schema.get("exclusiveMaximum") else value > most):
        words = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        found.append(_invalid(path, value, f"should be {words} {most}"))
    if step and value % step:
        found.append(_invalid(path, value, f"should be a multiple of {step}"))
    return found


def _size_problems(schema: JSON, value: list[Any] | JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    what = "Items" if isinstance(value, list) else "Properties"
    most, least = schema.get(f"max{what}"), schema.get(f"min{what}")
    if most is not None and len(value) > most:
        found.append(("FieldValueTooMany", path, f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        found.append(_invalid(path, len(value), f"should have at least {least} {what.lower()}"))
    return found


def _invalid(path: str, value: Any, text: str) -> Problem:
    return ("FieldValueInvalid", path, f"Invalid value: {json.dumps(value)}: {path} in body {text}")

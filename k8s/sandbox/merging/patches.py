"""JSON patch (RFC 6902) and merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError, bad_request, too_many_operations
from backoff_ctrl.k8s.sandbox.kinds.schema import json_word

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

_MOST_OPERATIONS = 10_000


def merge_patch(target: Any, patch: Any) -> Any:
    """Merge: null removes a field, objects merge recursively, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def json_patch(target: JSON, operations: Any) -> JSON:
    """Apply operations in order. Raises 400 for a malformed patch, 422 where an operation does not fit."""
    if not isinstance(operations, list):
        raise _no_patch(operations, "[]handlers.jsonPatchOp")
    if len(operations) > _MOST_OPERATIONS:
        raise too_many_operations(len(operations), _MOST_OPERATIONS)
    for each in operations:
        if not isinstance(each, dict):
            raise _no_patch(each, "handlers.jsonPatchOp")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        document = _apply(document, operation)
    if not isinstance(document, dict):
        raise _unfit()
    return document


def _apply(document: Any, operation: JSON) -> Any:
    name, path = operation.get("op"), _steps(operation.get("path"))
    if name == "test":
        if not _holds(document, path, operation.get("value")):
            raise _unfit()
        return document
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        return _replace(document, path, operation.get("value"))
    if name == "add":
        return _add(document, path, operation.get("value"))
    if name in {"copy", "move"}:
        source = _steps(operation.get("from"))
        value = copy.deepcopy(_read(document, source))
        return _add(_remove(document, source) if name == "move" else document, path, value)
    raise _unfit()


def _holds(document: Any, path: list[str], value: Any) -> bool:
    """Evaluate a test: a missing field equals null, if its parent exists."""
    if value is None and path:
        holder = _read(document, path[:-1])
        if isinstance(holder, dict):
            return holder.get(path[-1]) is None
    found = _read(document, path)
    return type(found) is type(value) and bool(found == value)


def _steps(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        if isinstance(path, str) or path is None:
            raise _unfit()
        raise bad_request(f"error decoding patch: json: cannot unmarshal {json_word(path)} into Go struct field "
                          "jsonPatchOp.path of type string")  # fmt: skip
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _index(items: list[Any], step: str, *, growing: bool = False) -> int:
    if step == "-" and growing:
        return len(items)
    if not step.isdecimal() or int(step) >= len(items) + growing:
        raise _unfit()
    return int(step)


def _read(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step)]
        else:
            raise _unfit()
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    holder = _read(document, path[:-1])
    _read(holder, path[-1:])
    if isinstance(holder, dict):
        del holder[path[-1]]
    else:
        del holder[_index(holder, path[-1])]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _read(document, path[:-1])
    if isinstance(holder, dict):
        holder[path[-1]] = value
    elif isinstance(holder, list):
        holder.insert(_index(holder, path[-1], growing=True), value)
    else:
        raise _unfit()
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """Set a field, existing or not (Kubernetes does so, unlike the RFC), or replace an existing item."""
    holder = _read(document, path[:-1]) if path else None
    if isinstance(holder, list):
        holder[_index(holder, path[-1])] = value
        return document
    return _add(document, path, value)


def _no_patch(value: Any, type_: str) -> ApiError:
    return bad_request(f"error decoding patch: json: cannot unmarshal {json_word(value)} into Go value of type {type_}")


def _unfit() -> ApiError:
    """422 without an explanation, as the API server answers."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})

"""JSON patch (RFC 6902) and merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from .answers import ApiError, bad_request

if TYPE_CHECKING:
    from .encoding import JSON


def merge_patch(target: Any, patch: Any) -> Any:
    """Merge: null removes, objects go deep, everything else replaces."""
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
    """Apply operations in order. Raises 400 for what is no patch, 422 where an operation does not fit."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request("json patch must be a list of operations")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        document = _apply(document, operation)
    if not isinstance(document, dict):
        raise _unfit("the patched document is no object")
    return document


def _apply(document: Any, operation: JSON) -> Any:
    name, path = operation.get("op"), _steps(operation.get("path"))
    if name == "test":
        if _read(document, path) != operation.get("value"):
            raise _unfit(f"testing value {operation.get('path')} failed: test failed")
        return document
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        _read(document, path)
        return _add(_remove(document, path), path, operation.get("value")) if path else operation.get("value")
    if name == "add":
        return _add(document, path, operation.get("value"))
    if name in {"copy", "move"}:
        source = _steps(operation.get("from"))
        value = copy.deepcopy(_read(document, source))
        return _add(_remove(document, source) if name == "move" else document, path, value)
    raise bad_request(f"Unexpected kind: {name}")


def _steps(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise bad_request(f"json patch: bad path {path!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _index(items: list[Any], step: str, *, growing: bool = False) -> int:
    if step == "-" and growing:
        return len(items)
    if not step.isdecimal() or int(step) >= len(items) + growing:
        raise _unfit(f"index {step} is out of bounds")
    return int(step)


def _read(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step)]
        else:
            raise _unfit(f"there is nothing at {step}")
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
        raise _unfit(f"there is no object or list above {path[-1]}")
    return document


def _unfit(why: str) -> ApiError:
    message = f"the server rejected our request due to an error in our request: {why}"
    return ApiError(422, "Invalid", message, {})

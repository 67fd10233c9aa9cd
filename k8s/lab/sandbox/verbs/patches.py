"""JSON patch (RFC 6902), merge patch (RFC 7386), and strategic merge patch.

In a strategic merge patch, lists of objects merge by a key that the API types define. Source:
``k8s.io/apimachinery/pkg/util/strategicpatch`` and the ``patchMergeKey`` tags of ``k8s.io/api`` (1.36).
"""

from __future__ import annotations

import copy
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError, bad_request, unexpected
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, json_word


def merge_patch(target: Any, patch: Any) -> Any:
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
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        document = _apply(document, operation)
    if not isinstance(document, dict):
        raise _unfit()
    return document


def _apply(document: Any, operation: JSON) -> Any:
    name, path, value = operation.get("op"), _steps(operation.get("path")), operation.get("value")
    if name == "test" and _holds(document, path, value):
        return document
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        return _replace(document, path, value)
    if name == "add":
        return _add(document, path, value)
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
        raise _unfit()
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


def _unfit() -> ApiError:
    """422 without an explanation, as the API server answers."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


# The keys by which a list of objects merges, by the name of the list; a strategic patch knows the first one only.
# ``ports`` depends on the kind.
LIST_KEYS: dict[str, tuple[str, ...]] = {
    "claims": ("name",), "conditions": ("type",), "containers": ("name",), "env": ("name",),
    "ephemeralContainers": ("name",), "hostAliases": ("ip",), "imagePullSecrets": ("name",),
    "initContainers": ("name",), "ownerReferences": ("uid",), "podIPs": ("ip",), "hostIPs": ("ip",),
    "resourceClaims": ("name",), "schedulingGates": ("name",), "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"), "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",), "volumes": ("name",),
}  # fmt: skip
_PORT_KEYS = {True: "port", False: "containerPort"}  # of a Service, of a container
SETS = frozenset({"finalizers"})


def strategic_merge(target: Any, patch: Any, *, service: bool = False) -> dict[str, Any]:
    """Merge a patch with its directives. ``service``: ``ports`` merge by ``port``. Raises 400 and 500."""
    if not isinstance(patch, dict):
        raise bad_request(f"error decoding patch: {json_word(patch)} is no object")
    return _merge(target if isinstance(target, dict) else {}, patch, service)


def merge_key(name: str, *, service: bool = False) -> str:
    if name == "ports":
        return _PORT_KEYS[service]
    return LIST_KEYS.get(name, ("",))[0]


def _merge(target: dict[str, Any], patch: dict[str, Any], service: bool) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise _unknown(directive)
    retained = patch.get("$retainKeys")
    kept = retained if isinstance(retained, list) else target
    result = {name: value for name, value in target.items() if name in kept}
    for name, value in patch.items():
        _merge_field(result, name, value, service)
    for name, value in patch.items():
        if name.startswith("$setElementOrder/"):
            _order(result, name.partition("/")[2], value, service)
    return result


def _merge_field(result: dict[str, Any], name: str, value: Any, service: bool) -> None:
    if name.startswith("$deleteFromPrimitiveList/"):
        _forget(result, name.partition("/")[2], value)
    elif name.startswith("$"):
        return
    elif value is None:
        result.pop(name, None)
    elif isinstance(value, dict):
        below = result.get(name)
        result[name] = _merge(below if isinstance(below, dict) else {}, value, service)
    elif isinstance(value, list):
        result[name] = _merge_list(name, result.get(name), value, service)
    else:
        result[name] = value


def _merge_list(name: str, target: Any, patch: list[Any], service: bool) -> list[Any]:
    existing = list(target) if isinstance(target, list) else []
    if name in SETS:
        return [value for value in patch if value not in existing] + existing
    key = merge_key(name, service=service)
    if not key or not all(isinstance(each, dict) for each in patch):
        return patch
    if any(each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if each.get("$patch") != "replace"]
    added: list[Any] = []
    for each in patch:
        if each.get("$patch") not in {None, "delete", "merge"}:
            raise _unknown(each["$patch"])
        if key not in each and existing:  # the server checks the keys only if there is something to merge with
            raise unexpected(f"map does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(existing) if isinstance(old, dict) and old.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            if at is not None:
                del existing[at]
        elif at is None:
            added.append(_merge({}, each, service))
        else:
            existing[at] = _merge(existing[at], each, service)
    return added + existing


def _forget(result: dict[str, Any], name: str, values: Any) -> None:
    if isinstance(result.get(name), list) and isinstance(values, list):
        result[name] = [value for value in result[name] if value not in values]


def _order(result: dict[str, Any], name: str, order: Any, service: bool) -> None:
    items = result.get(name)
    if not isinstance(items, list) or not isinstance(order, list):
        return
    key = merge_key(name, service=service)
    wanted = [each.get(key) if isinstance(each, dict) else each for each in order]

    def place(item: Any) -> int:
        value = item.get(key) if isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    result[name] = sorted(items, key=place)


def _unknown(directive: Any) -> ApiError:
    return unexpected(f"unknown patch type: {directive}")

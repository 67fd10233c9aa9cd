"""Strategic merge patch: lists of objects merge by a key that the API types define.

Source: ``k8s.io/apimachinery/pkg/util/strategicpatch`` and the ``patchMergeKey`` tags of ``k8s.io/api`` (1.36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request, unexpected
from backoff_ctrl.k8s.sandbox.kinds.schema import json_word

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError

# Merge keys by the name of the list; ``ports`` depends on the kind, see _PORT_KEYS.
MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "containerStatuses": (),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "resourceClaims": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_PORT_KEYS = {True: "port", False: "containerPort"}  # of a Service, of a container
SETS = frozenset({"finalizers"})


def strategic_merge(target: Any, patch: Any, *, service: bool = False) -> dict[str, Any]:
    """Merge a patch with its directives. ``service``: ``ports`` merge by ``port``. Raises 400 and 500."""
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        raise bad_request(f"json: cannot unmarshal {json_word(patch)} into Go value of type map[string]interface {{}}")
    return _merge(target if isinstance(target, dict) else {}, patch, service)


def merge_key(name: str, *, service: bool = False) -> str:
    """The key by which a list of objects merges; empty for a list that is replaced."""
    if name == "ports":
        return _PORT_KEYS[service]
    keys = MERGE_KEYS.get(name, ())
    return keys[0] if keys else ""


def _merge(target: dict[str, Any], patch: dict[str, Any], service: bool) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise _unknown(directive, patch)
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
            raise _unknown(each["$patch"], each)
        if key not in each and existing:  # the server checks the keys only if there is something to merge with
            raise unexpected(f"map: {_shown(each)} does not contain declared merge key: {key}")
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
    """Sort a merged list in the order that the patch gives; items that it does not name come last."""
    items = result.get(name)
    if not isinstance(items, list) or not isinstance(order, list):
        return
    key = merge_key(name, service=service)
    wanted = [each.get(key) if isinstance(each, dict) else each for each in order]

    def place(item: Any) -> int:
        value = item.get(key) if isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    result[name] = sorted(items, key=place)


def _unknown(directive: Any, patch: dict[str, Any]) -> ApiError:
    return unexpected(f"unknown patch type: {directive} in map: {_shown(patch)}")


def _shown(value: dict[str, Any]) -> str:
    """A map as Go prints it."""
    return f"map[{' '.join(f'{name}:{each}' for name, each in sorted(value.items()))}]"

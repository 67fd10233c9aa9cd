"""Server-side apply: which manager owns which fields, conflicts, and fields that are no longer applied.

An object is turned into a tree of steps, as in ``fieldsV1``: ``f:NAME`` into a map, ``k:KEYS`` into a list of objects,
``v:VALUE`` into a set. In a tree, merging and removing are alike for all of them, and a path names a field. Owners are
kept for objects that were applied, and for no others: the first apply meets what was there before as
``before-first-apply``.

The type of each list comes from the ``x-kubernetes-list-type`` marks in the OpenAPI document of Kubernetes 1.36. Source
of the rules: ``sigs.k8s.io/structured-merge-diff``, ``k8s.io/apimachinery`` ``pkg/util/managedfields``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError, bad_request, invalid_options, missing
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import SERVICES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .patches import LIST_KEYS, SETS

Path = tuple[str, ...]
Tree = dict[str, Any]  # a branch for each step: another tree, or a leaf

_ATOMIC = frozenset({
    "claimRef", "configMapKeyRef", "dataSource", "fieldRef", "involvedObject", "labelSelector", "namespaceSelector",
    "nodeSelector", "resourceFieldRef", "roleRef", "scaleTargetRef", "scopeSelector", "secretKeyRef", "selector",
    "targetRef",
})  # fmt: skip
_SERVERS = frozenset({"creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion",
                      "selfLink", "uid"})  # fmt: skip


class _Leaf(NamedTuple):
    """A value that has one owner as a whole: a scalar, an atomic map or list, an empty one."""

    value: Any


def _tree(kind: Kind, value: Any, path: Path = ()) -> Tree | _Leaf:
    name, in_metadata = path[-1][2:] if path else "", path[:1] == ("f:metadata",)
    found: Tree = {}
    if isinstance(value, dict) and (not kind.strategic or name not in _ATOMIC):
        found = {f"f:{key}": _tree(kind, below, (*path, f"f:{key}")) for key, below in value.items()
                 if below is not None}  # fmt: skip
    elif isinstance(value, list) and in_metadata and name in SETS:
        found = {f"v:{json.dumps(each)}": _Leaf(each) for each in value}
    elif isinstance(value, list) and (kind.strategic or in_metadata):  # lists of custom resources are atomic
        keys = _keys(kind, name)
        if keys and all(isinstance(each, dict) and keys[0] in each for each in value):
            found = {step: _tree(kind, each, (*path, step)) for each in value for step in (_item_step(keys, each),)}
    return found or _Leaf(value)


def _keys(kind: Kind, name: str) -> tuple[str, ...]:
    if name == "ports":
        return ("port", "protocol") if kind is SERVICES else ("containerPort", "protocol")
    return LIST_KEYS.get(name, ())


def _item_step(keys: tuple[str, ...], item: JSON) -> str:
    """The step to an item in a list of objects; a missing protocol means TCP."""
    named = {key: item.get(key, "TCP" if key == "protocol" else "") for key in sorted(keys)}
    return "k:" + json.dumps(named, separators=(",", ":"))


def _value(node: Tree | _Leaf) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    if next(iter(node), "f:")[:2] == "f:":
        return {step[2:]: _value(below) for step, below in node.items()}
    return [_value(below) for below in node.values()]


def _fields(node: Tree | _Leaf, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The fields that can have an owner: leaves with their value, and the items of lists."""
    if isinstance(node, _Leaf):
        if len(path) > 1 or (path and path[0] not in {"f:apiVersion", "f:kind", "f:metadata"}):
            yield path, node.value
        return
    if path and path[-1][:2] == "k:":
        yield path, None
    for step, below in node.items():
        if path != ("f:metadata",) or step[2:] not in _SERVERS:
            yield from _fields(below, (*path, step))


def _merge(target: Any, patch: Tree | _Leaf) -> Tree | _Leaf:
    if isinstance(patch, _Leaf) or not isinstance(target, dict):
        return target if isinstance(target, dict) and patch == _Leaf({}) else patch
    return {**target, **{step: _merge(target.get(step), below) for step, below in patch.items()}}


def _drop(node: Any, path: Path) -> None:
    """Remove a field, and the parents that this leaves empty."""
    step, rest = path[0], path[1:]
    if not isinstance(node, dict) or step not in node:
        return
    if rest:
        _drop(node[step], rest)
    if not rest or node[step] == {}:
        del node[step]


@dataclass(slots=True)
class Owner:
    """One entry of ``metadata.managedFields``: a manager, its operation, and the fields it owns."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""
    time: str = ""
    fields: set[Path] = field(default_factory=set)

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Writes with the same identity share an entry."""
        return (self.manager, self.operation, self.api_version, self.subresource)

    @property
    def description(self) -> str:
        if self.operation == "Apply":
            return f'"{self.manager}"'
        below = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.manager}"{below} using {self.api_version}'

    def as_entry(self) -> JSON:
        entry: JSON = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            entry["time"] = self.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": _packed(self.fields)}
        return {**entry, "subresource": self.subresource} if self.subresource else entry


def _packed(paths: set[Path]) -> JSON:
    """Paths as ``fieldsV1``: a field with others below it is marked as owned itself by a dot."""
    packed: JSON = {}
    for path in sorted(paths):
        level = packed
        for depth, step in enumerate(path[:-1], 1):
            level = level.setdefault(step, {})
            if path[:depth] in paths:
                level["."] = {}
        level.setdefault(path[-1], {})
    return packed


def _unpacked(packed: Any, path: Path = ()) -> Iterator[Path]:
    if path and (not packed or "." in packed):
        yield path
    for step, below in packed.items() if isinstance(packed, dict) else ():
        if step != ".":
            yield from _unpacked(below, (*path, step))


def _owners_of(obj: JSON) -> list[Owner]:
    return [
        Owner(
            str(entry.get("manager", "")), entry["operation"], str(entry.get("apiVersion", "")),
            str(entry.get("subresource", "")), str(entry.get("time", "")), set(_unpacked(entry["fieldsV1"])),
        )
        for entry in (obj.get("metadata") or {}).get("managedFields") or ()
        if entry.get("operation") in {"Apply", "Update"} and isinstance(entry.get("fieldsV1"), dict)
    ]  # fmt: skip


def _note(obj: JSON, owners: list[Owner]) -> None:
    """Write the owners that own something into an object: those that applied first, then by age."""
    kept = sorted((each for each in owners if each.fields), key=lambda each: (each.operation, each.time, each.manager))
    obj["metadata"]["managedFields"] = [each.as_entry() for each in kept]


def note_update(kind: Kind, before: JSON, obj: JSON, writer: Owner, now: str) -> None:
    """Move changed fields to the writer, and drop removed fields from all owners."""
    given = obj["metadata"].get("managedFields")
    if given and not any(given):  # a list of one empty entry drops all owners
        del obj["metadata"]["managedFields"]
        return
    owners = _owners_of(obj) or _owners_of(before)
    if not owners:
        return
    old, new = dict(_fields(_tree(kind, before))), dict(_fields(_tree(kind, obj)))
    changed = {path for path in new if path not in old or old[path] != new[path]}
    mine = next((each for each in owners if each.identity == writer.identity), writer)
    for each in owners:
        each.fields = {path for path in each.fields if path in new and (each is mine or path not in changed)}
    if changed - mine.fields:
        mine.time = now
    mine.fields |= changed
    _note(obj, owners if mine in owners else [*owners, mine])


class Application:
    """One apply by one manager."""

    def __init__(self, kind: Kind, subresource: str, manager: str, *, force: bool, now: str) -> None:
        """``now`` is the timestamp for managedFields. Raises 422 when ``manager`` is empty."""
        if not manager:
            raise invalid_options("PatchOptions", missing("fieldManager", "is required for apply patch"))
        self._kind = kind
        self._subresource = subresource
        self._owner = Owner(manager, "Apply", kind.api_version, subresource, time=now)
        self._force = force

    def onto(self, current: JSON, applied: JSON) -> JSON:
        """The object after the apply. Raises 409 where others own a field with another value."""
        metadata = applied.get("metadata") or {}
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        wanted, existing = self._half(applied), _tree(self._kind, current)
        fields, held = dict(_fields(wanted)), dict(_fields(existing))
        owners = _owners_of(current)
        if current and not owners:
            before = {path for path, _ in _fields(self._half(current))}
            owners.append(Owner("before-first-apply", "Update", self._kind.api_version, time=self._owner.time,
                                fields=before))  # fmt: skip
        mine = next((each for each in owners if each.identity == self._owner.identity), self._owner)
        others = [each for each in owners if each is not mine]
        self._check_conflicts({path for path in fields if held.get(path) != fields[path]}, others)
        result = _merge(existing, wanted)
        shared = {path[:depth] for each in others for path in each.fields for depth in range(1, len(path) + 1)}
        for path in sorted(mine.fields - fields.keys() - shared, key=len):
            if not _is_key(path) or path[:-1] not in shared:
                _drop(result, path)
        if fields.keys() != mine.fields:
            mine.time = self._owner.time
        mine.fields = set(fields)
        made: JSON = _value(result)
        made.setdefault("metadata", {}).update({f: metadata[f] for f in ("uid", "resourceVersion") if metadata.get(f)})
        _note(made, [*others, mine])
        return made

    def _half(self, obj: JSON) -> Tree | _Leaf:
        """The tree without what the path does not write: the status, or, on the status path, spec and data."""
        dropped = {"spec", "data"} if self._subresource == "status" else {"status"} if self._kind.has_status else set()
        metadata = {name: value for name, value in (obj.get("metadata") or {}).items()
                    if name not in _SERVERS or name in {"name", "namespace"}}  # fmt: skip
        kept = {name: value for name, value in obj.items() if name not in dropped}
        return _tree(self._kind, {**kept, "metadata": metadata})

    def _check_conflicts(self, changed: set[Path], others: list[Owner]) -> None:
        clashes: list[tuple[str, str]] = []
        for other in sorted(others, key=lambda each: each.description):
            clashing = sorted(changed & other.fields)
            if self._force:
                other.fields.difference_update(clashing)
            clashes += [(other.description, _text(path)) for path in clashing]
        if clashes and not self._force:
            causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": where}
                      for who, where in clashes]  # fmt: skip
            raise ApiError(409, "Conflict", _message(clashes), {"causes": causes})


def _is_key(path: Path) -> bool:
    """Whether a field is a key of its item: it stays as long as the item does."""
    return len(path) > 1 and path[-2][:2] == "k:" and path[-1][2:] in json.loads(path[-2][2:])


def _text(path: Path) -> str:
    """A path as a conflict message writes it: ``.spec.containers[name="c"].image``."""
    words = ""
    for step in path:
        sort, _, rest = step.partition(":")
        if sort == "f":
            words += f".{rest}"
        elif sort == "k":
            words += "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(rest).items()) + "]"
        else:
            words += f"[={rest}]"
    return words


def _message(clashes: list[tuple[str, str]]) -> str:
    if len(clashes) == 1:
        return f"Apply failed with 1 conflict: conflict with {clashes[0][0]}: {clashes[0][1]}"
    lines: list[str] = []
    for who in dict.fromkeys(who for who, _ in clashes):
        lines += [f"conflicts with {who}:", *(f"- {where}" for each, where in clashes if each == who)]
    return f"Apply failed with {len(clashes)} conflicts: " + "\n".join(lines)

"""Server-side apply: which manager owns which fields, conflicts, and fields that are no longer applied.

A path is a tuple of steps: ``f:NAME`` into a map, ``k:KEYS`` into a list of objects, ``v:VALUE`` into a set, as in
``fieldsV1``. The type of each list comes from the ``x-kubernetes-list-type`` marks in the OpenAPI document of
Kubernetes 1.36. Source: ``sigs.k8s.io/structured-merge-diff``, ``k8s.io/apimachinery`` ``pkg/util/managedfields``.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from backoff_ctrl.k8s.sandbox.objects.answers import ApiError, bad_request, invalid_options
from backoff_ctrl.k8s.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.sandbox.objects.protobuf import fields_by_name
from backoff_ctrl.k8s.sandbox.objects.schema import message_of
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

Path = tuple[str, ...]


_KEYS: dict[str, tuple[str, ...]] = {
    "claims": ("name",), "conditions": ("type",), "containers": ("name",), "env": ("name",),
    "ephemeralContainers": ("name",), "hostAliases": ("ip",), "imagePullSecrets": ("name",),
    "initContainers": ("name",), "ownerReferences": ("uid",), "podIPs": ("ip",), "reservedFor": ("uid",),
    "resourceClaimStatuses": ("name",), "resourceClaims": ("name",), "schedulingGates": ("name",),
    "secrets": ("name",), "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",), "volumeMounts": ("mountPath",), "volumes": ("name",),
}  # fmt: skip
_SETS = frozenset({"finalizers"})
_ATOMIC = frozenset({
    "claimRef", "configMapKeyRef", "dataSource", "fieldRef", "involvedObject", "labelSelector", "namespaceSelector",
    "nodeSelector", "resourceFieldRef", "roleRef", "scaleTargetRef", "scopeSelector", "secretKeyRef", "selector",
    "targetRef",
})  # fmt: skip
_NEVER_OWNED = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata",)})
_SERVERS = frozenset({"creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion",
                      "selfLink", "uid"})  # fmt: skip


class Layout(NamedTuple):
    """The list types of a kind: lists of custom resources are atomic, that is, replaced as a whole."""

    custom: bool = False
    service: bool = False

    def keys(self, path: Path) -> tuple[str, ...]:
        """The merge keys of the list of objects at a path; empty for an atomic list."""
        name = path[-1][2:] if path else ""
        if self.custom and path[:1] != ("f:metadata",):
            return ()
        if name == "ports":
            return ("port", "protocol") if self.service else ("containerPort", "protocol")
        return _KEYS.get(name, ())

    def is_set(self, path: Path) -> bool:
        """Whether the list at a path is a set of values."""
        return path[:1] == ("f:metadata",) and path[-1][2:] in _SETS

    def is_atomic(self, path: Path) -> bool:
        """Whether the map at a path is replaced as a whole."""
        return not self.custom and bool(path) and path[-1][2:] in _ATOMIC

    def items(self, path: Path, value: Any) -> dict[str, Any] | None:
        """The steps into a value, and what is below each; None for a leaf."""
        if isinstance(value, dict):
            if self.is_atomic(path):
                return None
            return {f"f:{name}": below for name, below in value.items() if below is not None}
        if not isinstance(value, list) or not path:
            return None
        if self.is_set(path):
            return {f"v:{json.dumps(each)}": None for each in value}
        keys = self.keys(path)
        if not keys or not all(isinstance(each, dict) and keys[0] in each for each in value):
            return None
        return {item_step(keys, each): each for each in value}


def layout_of(kind: Kind) -> Layout:
    """The layout of a kind."""
    return Layout(custom=not kind.strategic, service=kind.plural == "services")


def item_step(keys: tuple[str, ...], item: JSON) -> str:
    """The step to an item in a list of objects; a missing protocol means TCP."""
    named = {key: item.get(key, "TCP" if key == "protocol" else "") for key in sorted(keys)}
    return "k:" + json.dumps(named, separators=(",", ":"))


def applied_fields(layout: Layout, value: JSON) -> set[Path]:
    """The fields that an applied configuration claims: its leaves, and the items of its lists."""
    found: set[Path] = set()
    _apply(layout, value, (), found)
    return {path for path in found if _may_be_owned(path)}


def _apply(layout: Layout, value: Any, path: Path, found: set[Path]) -> None:
    items = layout.items(path, value)
    if not items:
        found.add(path)
        return
    if path and path[-1][:2] == "k:":
        found.add(path)
    for step, below in items.items():
        if step[:2] == "v:":
            found.add((*path, step))
        else:
            _apply(layout, below, (*path, step), found)


def changes(layout: Layout, before: Any, after: Any) -> tuple[set[Path], set[Path]]:
    """The fields that a write set, and those that it removed."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare(layout, before, after, (), changed, removed)
    return {path for path in changed if _may_be_owned(path)}, {path for path in removed if _may_be_owned(path)}


def _compare(layout: Layout, before: Any, after: Any, path: Path, changed: set[Path], removed: set[Path]) -> None:
    if before == after:
        return
    old, new = layout.items(path, before), layout.items(path, after)
    if old is None or new is None:
        changed.add(path)
        return
    for step, below in new.items():
        if step not in old:
            _all(layout, below, (*path, step), changed)
        else:
            _compare(layout, old[step], below, (*path, step), changed, removed)
    for step, below in old.items():
        if step not in new:
            _all(layout, below, (*path, step), removed)


def _all(layout: Layout, value: Any, path: Path, found: set[Path]) -> None:
    """Add a value that is new, or gone, with everything below it."""
    found.add(path)
    for step, below in (layout.items(path, value) or {}).items():
        _all(layout, below, (*path, step), found)


def _may_be_owned(path: Path) -> bool:
    """Whether a field can have an owner: the fields that the server sets cannot."""
    if path in _NEVER_OWNED or not path:
        return False
    return not (path[0] == "f:metadata" and path[1][2:] in _SERVERS)


def created_fields(layout: Layout, empty: JSON, obj: JSON) -> JSON:
    """The fields that a create set, packed: equal to ``pack(changes(...))``, at a fraction of its cost."""
    packed: JSON = {}
    for name, value in obj.items():
        if name == "metadata":
            found = _created_map(layout, {k: v for k, v in value.items() if k not in _SERVERS}, {}, within_meta=True)
        elif name in {"apiVersion", "kind"}:
            continue
        else:
            found = _created(layout, name, value, empty.get(name), within_meta=False)
        if found is not None:
            packed[f"f:{name}"] = found
    return packed


def _created(layout: Layout, name: str, value: Any, empty: Any, *, within_meta: bool) -> JSON | None:
    """None for a null, and for an empty struct that Go always writes."""
    if isinstance(value, dict):
        if name in _ATOMIC and not layout.custom:
            return {}
        return _created_map(layout, value, empty, within_meta=within_meta)
    if not isinstance(value, list):
        return None if value is None else {}
    path = ("f:metadata", f"f:{name}") if within_meta else (f"f:{name}",)
    items = layout.items(path, value)
    if not items:
        return {}
    packed: JSON = {} if isinstance(empty, list) else {".": {}}
    for step in sorted(items):
        below = items[step]
        packed[step] = {} if below is None else _created_map(layout, below, None, within_meta=within_meta)
    return packed


def _created_map(layout: Layout, value: JSON, empty: Any, *, within_meta: bool) -> JSON | None:
    known = isinstance(empty, dict)
    packed: JSON = {} if known else {".": {}}
    for name in sorted(value):
        below = value[name]
        if isinstance(below, dict | list):
            inner = empty.get(name) if known else None
            found = _created(layout, name, below, inner, within_meta=within_meta)
            if found is not None:
                packed["f:" + name] = found
        elif below is not None:
            packed["f:" + name] = {}
    if len(packed) > (not known):
        return packed
    return None if known else {}


@cache
def emptiness(kind: Kind) -> JSON:
    """An empty object of a kind as Go writes it: with its structs, without its pointers."""
    if not kind.strategic:
        return {"metadata": {}}
    return {"metadata": {}, **_empty(message_of(kind), 0)}


def _empty(message: str, depth: int) -> JSON:
    found: JSON = {}
    for name, each in fields_by_name(message).items() if depth < 6 else ():
        if name == "containers" and "r" in each.flags:
            found[name] = []
        elif not each.flags and "." in each.type and fields_by_name(each.type):
            found[name] = _empty(each.type, depth + 1)
    return found


def pack(paths: set[Path]) -> JSON:
    """Paths as ``fieldsV1``: a field with others below it is marked as owned itself by a dot."""
    packed: JSON = {}
    for path in sorted(paths):
        level = packed
        for step in path:
            level = level.setdefault(step, {})
        level["."] = {}
    _tidy(packed)
    return packed


def _tidy(level: JSON) -> None:
    for below in level.values():
        if below.keys() == {"."}:
            below.clear()
        else:
            _tidy(below)


def unpack(packed: JSON) -> set[Path]:
    """The paths in a ``fieldsV1``."""
    found: set[Path] = set()
    _unpack(packed, (), found)
    return found


def _unpack(packed: JSON, path: Path, found: set[Path]) -> None:
    if path and (not packed or "." in packed):
        found.add(path)
    for step, below in packed.items():
        if step != ".":
            _unpack(below if isinstance(below, dict) else {}, (*path, step), found)


def path_text(path: Path) -> str:
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


# Fields that the server sets after decoding a create: they have no owner unless the client sent them.
_UNOWNED: dict[str, tuple[Path, ...]] = {
    "pods": (("f:spec", "f:tolerations"), ("f:spec", "f:priority"), ("f:spec", "f:preemptionPolicy")),
    "jobs": (("f:metadata", "f:labels"), ("f:spec", "f:selector"),
             ("f:spec", "f:template", "f:metadata", "f:labels")),
    "namespaces": (("f:spec",), ("f:status",)),
    "services": (("f:spec", "f:clusterIP"), ("f:spec", "f:clusterIPs"), ("f:spec", "f:ipFamilies"),
                 ("f:spec", "f:ipFamilyPolicy"), ("f:status",)),
    "persistentvolumeclaims": (("f:metadata", "f:finalizers"), ("f:status",)),
}  # fmt: skip


@dataclass(slots=True)
class Owner:
    """One entry: a manager, its operation, and the fields it owns."""

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
        """The manager as a conflict message names it."""
        if self.operation == "Apply":
            return f'"{self.manager}"'
        below = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.manager}"{below} using {self.api_version}'

    def as_entry(self) -> JSON:
        """The entry as it is stored."""
        entry: JSON = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            entry["time"] = self.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": pack(self.fields)}
        return {**entry, "subresource": self.subresource} if self.subresource else entry


def owners_of(obj: JSON) -> list[Owner]:
    """The owners in an object's managedFields; malformed entries are left out."""
    owners = []
    for entry in (obj.get("metadata") or {}).get("managedFields") or ():
        fields = entry.get("fieldsV1")
        if entry.get("operation") in {"Apply", "Update"} and isinstance(fields, dict):
            owners.append(
                Owner(
                    str(entry.get("manager", "")), entry["operation"], str(entry.get("apiVersion", "")),
                    str(entry.get("subresource", "")), str(entry.get("time", "")), unpack(fields),
                )
            )  # fmt: skip
    return owners


def note(obj: JSON, owners: list[Owner]) -> None:
    """Write the owners that own something into an object: those that applied first, then by age."""
    kept = sorted((each for each in owners if each.fields), key=lambda each: (each.operation, each.time, each.manager))
    if kept:
        obj["metadata"]["managedFields"] = [each.as_entry() for each in kept]
    else:
        obj["metadata"].pop("managedFields", None)


def note_create(kind: Kind, obj: JSON, sent: JSON, manager: str, now: str) -> None:
    """Make the creator the owner of all fields, defaults included. Entries that came with the object (apply) stay."""
    if owners_of(obj):
        return
    whole = {**obj, "status": {}} if kind.has_status else obj
    fields = created_fields(layout_of(kind), emptiness(kind), whole)
    for path in _UNOWNED.get(kind.plural, ()):
        if not _says(sent, path):
            _drop(fields, path)
    entry: JSON = {"manager": manager or "unknown", "operation": "Update", "apiVersion": kind.api_version, "time": now}
    if fields:
        obj["metadata"]["managedFields"] = [{**entry, "fieldsType": "FieldsV1", "fieldsV1": fields}]
    else:
        obj["metadata"].pop("managedFields", None)


def _drop(packed: JSON, path: Path) -> None:
    """Remove a field, and the parents that this leaves empty."""
    step, *rest = path
    if not rest:
        packed.pop(step, None)
    elif step in packed:
        _drop(packed[step], tuple(rest))
        if not packed[step]:
            del packed[step]


def note_update(kind: Kind, before: JSON, obj: JSON, manager: str, subresource: str, now: str) -> None:
    """Move changed fields to the writer, and drop removed fields from all owners."""
    given = obj["metadata"].get("managedFields")
    if given is not None and given and not any(given):
        owners: list[Owner] = []  # a list of one empty entry drops all owners
    else:
        owners = owners_of(obj) or owners_of(before)
    changed, removed = changes(layout_of(kind), before, obj)
    writer = Owner(manager, "Update", kind.api_version, subresource)
    mine = next((each for each in owners if each.identity == writer.identity), None)
    for each in owners:
        each.fields -= removed
        if each is not mine:
            each.fields -= changed
    if changed:
        if mine is None:
            owners.append(mine := writer)
        if changed - mine.fields or not mine.time:
            mine.time = now
        mine.fields |= changed
    note(obj, owners)


def _says(sent: JSON, path: Path) -> bool:
    value: Any = sent
    for step in path:
        value = value.get(step[2:]) if isinstance(value, dict) else None
    return value is not None


_SERVER_SET = ("managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink")


class Application:
    """One apply by one manager."""

    def __init__(self, kind: Kind, subresource: str, manager: str, *, force: bool, now: str) -> None:
        """``now`` is the timestamp for managedFields. Raises 422 when ``manager`` is empty."""
        if not manager:
            problem = ("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")
            raise invalid_options("PatchOptions", problem)
        self._kind = kind
        self._subresource = subresource
        self._manager = manager
        self._force = force
        self._now = now
        self._layout = layout_of(kind)

    def onto(self, current: JSON, applied: JSON) -> JSON:
        """The object after the apply. Raises 409 where others own a field with another value."""
        metadata = applied.get("metadata") or {}
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        wanted = self._own_half(copy.deepcopy(applied))
        kept = {field: metadata[field] for field in ("uid", "resourceVersion") if metadata.get(field)}
        for name in _SERVER_SET:
            (wanted.get("metadata") or {}).pop(name, None)
        owners = self._owners(current)
        mine = next(each for each in owners if each.identity == self._identity.identity)
        others = [each for each in owners if each is not mine]
        fields = applied_fields(self._layout, wanted)
        self._check_conflicts(current, wanted, fields, others)
        result: JSON = self._merge(current, wanted, ())
        for path in sorted(mine.fields - fields, key=lambda each: (len(each), each)):
            if not any(path in each.fields for each in others):
                self._drop(result, path, others)
        if fields != mine.fields or not mine.time:
            mine.time = self._now
        mine.fields = fields
        result.setdefault("metadata", {}).update(kept)
        note(result, owners)
        return result

    @property
    def _identity(self) -> Owner:
        return Owner(self._manager, "Apply", self._kind.api_version, self._subresource)

    def _own_half(self, wanted: JSON) -> JSON:
        """Drop the status on the main path; drop spec and data on the status path."""
        if self._subresource == "status":
            return {field: value for field, value in wanted.items() if field not in {"spec", "data"}}
        if self._kind.has_status:
            wanted.pop("status", None)
        return wanted

    def _owners(self, current: JSON) -> list[Owner]:
        """All owners with this manager; an object without owners belongs to ``before-first-apply``."""
        owners = owners_of(current)
        if not owners and current:
            whole = self._own_half(copy.deepcopy(current))
            fields = applied_fields(self._layout, whole)
            owners.append(Owner("before-first-apply", "Update", self._kind.api_version, time=self._now, fields=fields))
        if all(each.identity != self._identity.identity for each in owners):
            owners.append(self._identity)
        return owners

    def _check_conflicts(self, current: JSON, wanted: JSON, fields: set[Path], others: list[Owner]) -> None:
        clashes: list[tuple[str, str]] = []
        for other in sorted(others, key=lambda each: each.description):
            clashing = sorted(
                path for path in fields & other.fields if self._at(current, path) != self._at(wanted, path)
            )
            if self._force:
                other.fields.difference_update(clashing)
            else:
                clashes += [(other.description, path_text(path)) for path in clashing]
        if clashes:
            causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": where}
                      for who, where in clashes]  # fmt: skip
            raise ApiError(409, "Conflict", _message(clashes), {"causes": causes})

    def _merge(self, target: Any, patch: Any, path: Path) -> Any:
        if isinstance(patch, dict) and not self._layout.is_atomic(path):
            result = dict(target) if isinstance(target, dict) else {}
            for field, value in patch.items():
                result[field] = self._merge(result.get(field), value, (*path, f"f:{field}"))
            return result
        if not isinstance(patch, list) or not path:
            return patch
        existing = list(target) if isinstance(target, list) else []
        if self._layout.is_set(path):
            return existing + [value for value in patch if value not in existing]
        keys = self._layout.keys(path)
        if not keys or not all(isinstance(each, dict) and keys[0] in each for each in patch):
            return patch
        places = {item_step(keys, each): index for index, each in enumerate(existing)}
        for each in patch:
            step = item_step(keys, each)
            if step in places:
                existing[places[step]] = self._merge(existing[places[step]], each, (*path, step))
            else:
                existing.append(each)
        return existing

    def _at(self, value: Any, path: Path) -> Any:
        """The value at a path; for list items and set values, whether they exist."""
        for depth, step in enumerate(path):
            sort, rest = step[:1], step[2:]
            if sort == "f":
                value = value.get(rest) if isinstance(value, dict) else None
            elif not isinstance(value, list):
                return None
            elif sort == "v":
                return json.loads(rest) in value
            else:
                keys = tuple(json.loads(rest))
                value = next((each for each in value if item_step(keys, each) == step), None)
                if depth == len(path) - 1:
                    return value is not None
        return value

    def _drop(self, value: Any, path: Path, others: list[Owner]) -> None:
        """Remove what is no longer applied; an item that others own in part stays."""
        *way, last = path
        holder = self._holder(value, tuple(way))
        if last[:1] == "f" and isinstance(holder, dict):
            below = holder.get(last[2:])
            if not isinstance(below, dict | list) or not any(
                each[: len(path)] == path for other in others for each in other.fields
            ):
                holder.pop(last[2:], None)
        elif last[:1] == "v" and isinstance(holder, list):
            wanted = json.loads(last[2:])
            holder[:] = [each for each in holder if each != wanted]
        elif isinstance(holder, list) and not any(
            each[: len(path)] == path for other in others for each in other.fields
        ):
            keys = tuple(json.loads(last[2:]))
            holder[:] = [each for each in holder if item_step(keys, each) != last]

    def _holder(self, value: Any, way: Path) -> Any:
        for step in way:
            if step[:1] == "f":
                value = value.get(step[2:]) if isinstance(value, dict) else None
            else:
                keys = tuple(json.loads(step[2:]))
                value = next((each for each in value or () if item_step(keys, each) == step), None)
        return value


def _message(clashes: list[tuple[str, str]]) -> str:
    if len(clashes) == 1:
        return f"Apply failed with 1 conflict: conflict with {clashes[0][0]}: {clashes[0][1]}"
    lines: list[str] = []
    for who in dict.fromkeys(who for who, _ in clashes):
        lines += [f"conflicts with {who}:", *(f"- {where}" for each, where in clashes if each == who)]
    return f"Apply failed with {len(clashes)} conflicts: " + "\n".join(lines)

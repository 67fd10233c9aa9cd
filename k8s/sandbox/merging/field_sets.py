"""Sets of fields in the form of ``fieldsV1``: made from objects, compared, packed and unpacked.

A path is a tuple of steps: ``f:NAME`` into a map, ``k:KEYS`` into a list of objects, ``v:VALUE`` into a set. The
type of each list comes from the ``x-kubernetes-list-type`` marks in the OpenAPI document of Kubernetes 1.36.
Source of the format: ``sigs.k8s.io/structured-merge-diff`` ``fieldpath``.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from backoff_ctrl.k8s.sandbox.kinds.protobuf import fields_by_name
from backoff_ctrl.k8s.sandbox.kinds.schema import message_of

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

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
    for name, field in fields_by_name(message).items() if depth < 6 else ():
        if name == "containers" and "r" in field.flags:
            found[name] = []
        elif not field.flags and "." in field.type and fields_by_name(field.type):
            found[name] = _empty(field.type, depth + 1)
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

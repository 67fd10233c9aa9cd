"""Server-side apply: who owns which field, conflicts, and fields that are no longer applied.

Ownership is tracked for managers that apply; a manager that updates owns nothing here. Lists merge by the keys
of strategic merge. Source of the format: ``sigs.k8s.io/structured-merge-diff`` (``fieldsV1``).
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from .answers import ApiError, bad_request, invalid_options
from .strategic import SETS, merge_key

if TYPE_CHECKING:
    from .encoding import JSON
    from .kinds import Kind

    Path = tuple[str, ...]

_NOT_OWNED = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace")})
_SERVER_SET = ("managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink")


class Application:
    """One apply of one manager."""

    def __init__(self, kind: Kind, name: str, manager: str, *, force: bool, now: str) -> None:
        """``now`` is the timestamp for managedFields. Raises 422 without a manager."""
        if not manager:
            problem = ("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")
            raise invalid_options("PatchOptions", problem)
        self._kind = kind
        self._name = name
        self._manager = manager
        self._force = force
        self._now = now
        self._service = kind.plural == "services"

    def onto(self, current: JSON, applied: JSON) -> JSON:
        """What the object becomes. Raises 409 where others own a field with another value."""
        metadata = applied.get("metadata") or {}
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        wanted = copy.deepcopy(applied)
        for field in _SERVER_SET:
            (wanted.get("metadata") or {}).pop(field, None)
        entries = list((current.get("metadata") or {}).get("managedFields") or ())
        mine, others = self._split(entries)
        fields = self._paths(wanted)
        self._check_conflicts(current, wanted, fields, others)
        result: JSON = self._merge(current, wanted)
        for path in sorted(mine - fields, key=lambda each: (-len(each), each[-1] != ".")):
            if not any(path in owned for _, owned in others):
                _drop(result, path)
        self._note(result, fields, others, entries)
        return result

    def _split(self, entries: list[JSON]) -> tuple[set[Path], list[tuple[str, set[Path]]]]:
        """My fields, and those of other managers that apply."""
        mine: set[Path] = set()
        others: list[tuple[str, set[Path]]] = []
        for entry in entries:
            owned = _unpack(entry.get("fieldsV1") or {})
            if entry.get("manager") == self._manager and entry.get("operation") == "Apply":
                mine |= owned
            else:
                others.append((str(entry.get("manager")), owned))
        return mine, others

    def _paths(self, value: JSON) -> set[Path]:
        found: set[Path] = set()
        _collect(value, (), self._service, found)
        return {path for path in found if path not in _NOT_OWNED}

    def _check_conflicts(
        self, current: JSON, wanted: JSON, fields: set[Path], others: list[tuple[str, set[Path]]]
    ) -> None:
        causes = []
        for manager, owned in others:
            clashing = sorted(p for p in fields & owned if _at(current, p) != _at(wanted, p))
            if self._force:
                owned.difference_update(clashing)
                continue
            message = f'conflict with "{manager}"'
            causes += [{"reason": "FieldManagerConflict", "message": message, "field": _told(p)} for p in clashing]
        if causes:
            plural = "s" if len(causes) > 1 else ""
            told = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
            message = f"Apply failed with {len(causes)} conflict{plural}: {told}"
            raise ApiError(409, "Conflict", message, {"causes": causes})

    def _merge(self, target: Any, patch: Any, name: str = "") -> Any:
        if isinstance(patch, dict):
            result = dict(target) if isinstance(target, dict) else {}
            for field, value in patch.items():
                result[field] = self._merge(result.get(field), value, field)
            return result
        if not isinstance(patch, list):
            return patch
        existing = list(target) if isinstance(target, list) else []
        if name in SETS:
            return existing + [value for value in patch if value not in existing]
        key = merge_key(name, service=self._service)
        if not key or not all(isinstance(each, dict) and key in each for each in patch):
            return patch
        for each in patch:
            at = next((i for i, old in enumerate(existing) if old.get(key) == each[key]), None)
            if at is None:
                existing.append(each)
            else:
                existing[at] = self._merge(existing[at], each)
        return existing

    def _note(self, result: JSON, fields: set[Path], others: list[tuple[str, set[Path]]], entries: list[JSON]) -> None:
        """Write managedFields: my entry anew, the others less what was forced from them."""
        left = iter(others)
        kept = []
        for entry in entries:
            if entry.get("manager") == self._manager and entry.get("operation") == "Apply":
                continue
            owned = next(left)[1]
            if owned:
                kept.append({**entry, "fieldsV1": _pack(owned)})
        kept.append(
            {
                "manager": self._manager,
                "operation": "Apply",
                "apiVersion": self._kind.api_version,
                "time": self._now,
                "fieldsType": "FieldsV1",
                "fieldsV1": _pack(fields),
            }
        )
        result.setdefault("metadata", {})["managedFields"] = kept


def _collect(value: Any, path: Path, service: bool, found: set[Path]) -> None:
    """Every leaf of an applied configuration, lists with a key by their items."""
    if isinstance(value, dict) and value:
        for name, below in value.items():
            _collect(below, (*path, f"f:{name}"), service, found)
        return
    name = path[-1].removeprefix("f:") if path else ""
    key = merge_key(name, service=service)
    if isinstance(value, list) and key and all(isinstance(each, dict) and key in each for each in value):
        for each in value:
            item = (*path, "k:" + json.dumps({key: each[key]}, separators=(",", ":")))
            found.add((*item, "."))
            _collect(each, item, service, found)
    elif isinstance(value, list) and name in SETS:
        found.update((*path, "v:" + json.dumps(each)) for each in value)
    elif path:
        found.add(path)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        sort, _, rest = step.partition(":")
        if step == ".":
            return True
        if sort == "f":
            value = value.get(rest) if isinstance(value, dict) else None
        elif sort == "k" and isinstance(value, list):
            wanted = json.loads(rest)
            value = next((each for each in value if wanted.items() <= each.items()), None)
        elif sort == "v" and isinstance(value, list):
            return json.loads(rest) in value
    return value


def _drop(value: Any, path: Path) -> None:
    """Remove a field, and list items of which nothing but the key is applied any more."""
    *way, last = path
    holder = _at(value, tuple(way))
    if last == "." and way:
        items = _at(value, tuple(way[:-1]))
        if isinstance(items, list) and holder in items:
            items.remove(holder)
    elif isinstance(holder, dict):
        holder.pop(last.removeprefix("f:"), None)
    elif isinstance(holder, list) and last.startswith("v:"):
        wanted = json.loads(last[2:])
        if wanted in holder:
            holder.remove(wanted)


def _pack(paths: set[Path]) -> JSON:
    packed: JSON = {}
    for path in sorted(paths):
        level = packed
        for step in path:
            level = level.setdefault(step, {})
    return packed


def _unpack(packed: JSON, path: Path = ()) -> set[Path]:
    found: set[Path] = set()
    for step, below in packed.items():
        if below:
            found |= _unpack(below, (*path, step))
        else:
            found.add((*path, step))
    return found


def _told(path: Path) -> str:
    """A path as a conflict names it: ``.spec.containers[name="c"].image``."""
    told = ""
    for step in path:
        sort, _, rest = step.partition(":")
        if sort == "f":
            told += f".{rest}"
        elif sort == "k":
            told += "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(rest).items()) + "]"
    return told

"""Server-side apply: conflicts, forced changes of ownership, and removal of fields that are no longer applied."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError, bad_request, invalid_options

from .field_sets import applied_fields, item_step, layout_of, path_text
from .managed_fields import Owner, note, owners_of

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    from .field_sets import Path

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
        for field in _SERVER_SET:
            (wanted.get("metadata") or {}).pop(field, None)
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

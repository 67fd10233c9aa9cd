"""``metadata.managedFields``: which manager last wrote which fields, and how.

Source of the rules: ``k8s.io/apimachinery`` ``pkg/util/managedfields`` and ``sigs.k8s.io/structured-merge-diff``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .field_sets import changes, created_fields, emptiness, layout_of, pack, unpack

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    from .field_sets import Path

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

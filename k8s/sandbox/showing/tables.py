"""Tables, as ``kubectl get`` asks for them, and objects reduced to their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.kinds import PODS
from backoff_ctrl.k8s.sandbox.wire.encoding import JSON, dump, load

from .columns import SCALE, Column, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind

_OVER = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
}
_TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


def table(kind: Kind, objects: Iterable[JSON], metadata: JSON, include: str = "", *, headed: bool = True) -> JSON:
    """A Table. ``include`` is the query's ``includeObject``: Metadata (the default), Object or None."""
    shown = list(objects)
    columns = SCALE if shown and shown[0].get("kind") == "Scale" else columns_of(kind)
    definitions = [_definition(column) for column in columns]
    rows = [_row(kind, columns, obj, include) for obj in shown]
    return {**_TABLE, "metadata": metadata, "columnDefinitions": definitions if headed else [], "rows": rows}


def table_shape(kind: Kind, include: str) -> Callable[[bytes], bytes]:
    """What a watch sends instead of an object: a Table with one row; only the first has column definitions."""
    headed = True

    def shape(data: bytes) -> bytes:
        nonlocal headed
        obj = load(data)
        if "name" not in obj["metadata"]:  # a bookmark
            return dump(table(kind, (), obj["metadata"], include, headed=False))
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        made = dump(table(kind, (obj,), metadata, include, headed=headed))
        headed = False
        return made

    return shape


def _row(kind: Kind, columns: Iterable[Column], obj: JSON, include: str) -> JSON:
    row: JSON = {"cells": [column.cell(obj) for column in columns], "object": _included(obj, include)}
    condition = _OVER.get((obj.get("status") or {}).get("phase", "")) if kind is PODS else None
    if condition:
        row["conditions"] = [{"type": "Completed", "status": "True", **condition}]
    return row


def _definition(column: Column) -> JSON:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": int(column.wide),
    }


def _included(obj: JSON, include: str) -> JSON | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return partial_object(obj)


def partial_object(obj: JSON) -> JSON:
    """An object reduced to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}

"""The form of an answer, chosen by ``Accept``: whole objects, a Table as ``kubectl get`` asks for it, or only metadata.

Answers are always JSON, even if a client prefers another encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from backoff_ctrl.k8s.lab.sandbox.objects.answers import bad_request, not_acceptable
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import PODS, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump, load
from backoff_ctrl.k8s.lab.sandbox.verbs.reading import Page, list_body
from backoff_ctrl.k8s.lab.sandbox.verbs.requests import Target

from .columns import SCALE, columns_of

_JSON = "application/json"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_READABLE = frozenset({_JSON, "application/*", "*/*", "", _PROTOBUF})
_TABLE, _PARTIAL, _PARTIAL_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"
_SHAPES = frozenset({"", _TABLE, _PARTIAL, _PARTIAL_LIST})
_META = "meta.k8s.io/v1"
_OVER = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
}


class Form(NamedTuple):
    """The form of an answer. ``shape`` is empty for whole objects; ``include`` applies to Tables."""

    shape: str = ""
    include: str = ""

    def of_one(self, target: Target, data: bytes) -> bytes:
        """Encode an object. Raises 406 where a list was requested."""
        if not self.shape:
            return data
        if self.shape == _PARTIAL_LIST:
            raise not_acceptable(f"you requested {_PARTIAL_LIST}, but the requested object is not a list")
        obj = load(data)
        if obj.get("kind") == "Status":
            return data
        if self.shape == _PARTIAL:
            return dump(_partial(obj))
        return dump(self._table(target.kind, (obj,), {"resourceVersion": obj["metadata"].get("resourceVersion", "")}))

    def of_page(self, target: Target, page: Page) -> bytes:
        """Encode a list. Raises 406 where a single object was requested."""
        if not self.shape:
            return list_body(target, page)
        if self.shape == _PARTIAL:
            raise not_acceptable(f"you requested {_PARTIAL}, but the requested object is a list")
        items = (item.parse() for item in page.items)
        if self.shape == _TABLE:
            return dump(self._table(target.kind, items, page.metadata()))
        head = {"kind": _PARTIAL_LIST, "apiVersion": _META, "metadata": page.metadata()}
        return dump({**head, "items": [_partial(item) for item in items]})

    def of_events(self, kind: Kind) -> Callable[[bytes], bytes] | None:
        """What converts the bytes of an object for a watch; None where they are sent unchanged."""
        if self.shape == _TABLE:
            return self._rows_of(kind)
        return (lambda data: dump(_partial(load(data)))) if self.shape else None

    def _rows_of(self, kind: Kind) -> Callable[[bytes], bytes]:
        """What a watch sends: a Table with one row for each object; only the first has column definitions."""
        headed = True

        def shape(data: bytes) -> bytes:
            nonlocal headed
            obj = load(data)
            if "name" not in obj["metadata"]:  # a bookmark
                return dump(self._table(kind, (), obj["metadata"], headed=False))
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            made = dump(self._table(kind, (obj,), metadata, headed=headed))
            headed = False
            return made

        return shape

    def _table(self, kind: Kind, objects: Iterable[JSON], metadata: JSON, *, headed: bool = True) -> JSON:
        shown = list(objects)
        columns = SCALE if shown and shown[0].get("kind") == "Scale" else columns_of(kind)
        definitions = [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": int(column.wide),
            }
            for column in columns
        ]
        rows = []
        for obj in shown:
            included = {"None": None, "Object": obj}.get(self.include, _partial(obj))
            row: JSON = {"cells": [column.cell(obj) for column in columns], "object": included}
            over = _OVER.get((obj.get("status") or {}).get("phase", "")) if kind is PODS else None
            if over:
                row["conditions"] = [{"type": "Completed", "status": "True", **over}]
            rows.append(row)
        head = {"kind": "Table", "apiVersion": _META, "metadata": metadata}
        return {**head, "columnDefinitions": definitions if headed else [], "rows": rows}


def _partial(obj: JSON) -> JSON:
    return {"kind": _PARTIAL, "apiVersion": _META, "metadata": obj["metadata"]}


def form_of(accept: str, include: str) -> Form:
    """The first supported form in an ``Accept`` header. Raises 406, and 400 for an invalid ``includeObject``."""
    shape = _shape_of(accept)
    if shape == _TABLE and include not in {"", "None", "Metadata", "Object"}:
        text = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {text}")
    return Form(shape, include)


@lru_cache(maxsize=256)
def _shape_of(accept: str) -> str:
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        shape = next((part[3:] for part in parameters if part.startswith("as=")), "")
        if media_type in _READABLE and shape in _SHAPES and not (shape and media_type == _PROTOBUF):
            return shape
    raise not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {_JSON}")

"""The form of an answer, chosen by ``Accept``: JSON or YAML; the whole object, a Table, or only metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import yaml

from backoff_ctrl.k8s.sandbox.http.columns import SCALE, Column, columns_of
from backoff_ctrl.k8s.sandbox.objects.answers import bad_request, not_acceptable
from backoff_ctrl.k8s.sandbox.objects.kinds import PODS, Kind
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, dump, load
from backoff_ctrl.k8s.sandbox.verbs.reading import Page, list_body
from backoff_ctrl.k8s.sandbox.verbs.requests import Target

_OVER = {
    "Succeeded": {"reason": "Succeeded", "message": "The pod has completed successfully."},
    "Failed": {"reason": "Failed", "message": "The pod failed."},
}
_TABLE_HEAD = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


def table(kind: Kind, objects: Iterable[JSON], metadata: JSON, include: str = "", *, headed: bool = True) -> JSON:
    """A Table. ``include`` is the query's ``includeObject``: Metadata (the default), Object or None."""
    shown = list(objects)
    columns = SCALE if shown and shown[0].get("kind") == "Scale" else columns_of(kind)
    definitions = [_definition(column) for column in columns]
    rows = [_row(kind, columns, obj, include) for obj in shown]
    return {**_TABLE_HEAD, "metadata": metadata, "columnDefinitions": definitions if headed else [], "rows": rows}


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


JSON_FORM = "application/json"
YAML_FORM = "application/yaml"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_READABLE = frozenset({JSON_FORM, "application/*", "*/*", "", _PROTOBUF})  # protobuf is answered with JSON
_TABLE, _PARTIAL, _PARTIAL_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"
_SHAPES = frozenset({_TABLE, _PARTIAL, _PARTIAL_LIST})
_KNOWN = f"{JSON_FORM}, {YAML_FORM}, {_PROTOBUF}"


class _Dumper(yaml.SafeDumper):
    """YAML as Go writes it: double quotes, also around words that only Go reads as booleans."""

    def choose_scalar_style(self) -> str:
        """Use double quotes, as Go does."""
        style: str = super().choose_scalar_style()
        return '"' if style == "'" else style


_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))


class Form(NamedTuple):
    """The form of an answer. ``shape`` is empty for whole objects; ``include`` applies to Tables."""

    media_type: str = JSON_FORM
    shape: str = ""
    include: str = ""

    def of_one(self, target: Target, data: bytes) -> bytes:
        """Encode an object. Raises 406 where a list was requested."""
        if self.shape == _PARTIAL_LIST:
            text = f"the requested object is not a list (*{_go_type(target.kind)})"
            raise not_acceptable(f"you requested {_PARTIAL_LIST}, but {text}")
        if self.shape:
            obj = load(data)
            if obj.get("kind") != "Status":
                return self._encoded(dump(self._shaped(target.kind, obj)))
        return self._encoded(data)

    def _shaped(self, kind: Kind, obj: JSON) -> JSON:
        if self.shape == _PARTIAL:
            return partial_object(obj)
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return table(kind, (obj,), metadata, self.include)

    def of_page(self, target: Target, page: Page) -> bytes:
        """Encode a list. Raises 406 where a single object was requested."""
        if self.shape == _PARTIAL:
            text = f"the requested object is a list (*{_go_type(target.kind)}List)"
            raise not_acceptable(f"you requested {_PARTIAL}, but {text}")
        if self.shape == _TABLE:
            items = (item.parse() for item in page.items)
            return self._encoded(dump(table(target.kind, items, page.metadata(), self.include)))
        if self.shape == _PARTIAL_LIST:
            head = {"kind": _PARTIAL_LIST, "apiVersion": "meta.k8s.io/v1", "metadata": page.metadata()}
            return self._encoded(dump({**head, "items": [partial_object(item.parse()) for item in page.items]}))
        return self._encoded(list_body(target, page))

    def of_events(self, kind: Kind) -> Callable[[bytes], bytes] | None:
        """What converts the bytes of an object for a watch; None where they are sent unchanged."""
        if self.shape == _TABLE:
            return table_shape(kind, self.include)
        if self.shape:
            return lambda data: dump(partial_object(load(data)))
        return None

    def _encoded(self, data: bytes) -> bytes:
        if self.media_type != YAML_FORM:
            return data
        text: str = yaml.dump(load(data), Dumper=_Dumper, default_flow_style=False, allow_unicode=True)
        return text.encode()


def form_of(accept: str, include: str) -> Form:
    """The first supported form in an ``Accept`` header. Raises 406, and 400 for an invalid ``includeObject``."""
    media_type, shape = _first(accept)
    if shape == _TABLE and include not in {"", "None", "Metadata", "Object"}:
        text = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {text}")
    return Form(media_type, shape, include)


@lru_cache(maxsize=256)
def _first(accept: str) -> tuple[str, str]:
    shaped = False
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        shape = next((part[3:] for part in parameters if part.startswith("as=")), "")
        if media_type not in _READABLE and media_type != YAML_FORM:
            continue
        if shape and (shape not in _SHAPES or media_type == _PROTOBUF):
            shaped = True
            continue
        return (YAML_FORM if media_type == YAML_FORM else JSON_FORM), shape
    if shaped:
        raise not_acceptable(f"only the following media types are accepted: {_KNOWN}")
    raise not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {_KNOWN}")


def _go_type(kind: Kind) -> str:
    """Go's name for the type of a kind inside the server."""
    return f"{kind.group.split('.')[0] or 'core'}.{kind.kind}" if kind.strategic else "unstructured.Unstructured"

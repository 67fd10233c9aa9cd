"""What the tests of payloads share: bodies put together by hand, and JSON as far as the reader of protobuf goes."""

from __future__ import annotations

from typing import Any, Final

from backoff_ctrl.k8s.sidecar.http.charged_fields import KINDS, MESSAGES, Field, Plain, Times
from backoff_ctrl.k8s.sidecar.http.payload import Payload
from backoff_ctrl.k8s.sidecar.http.protobuf import field, varint

JSON = dict[str, Any]
PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"
YAML: Final = b"application/yaml"
_OBJECT: Final = {1: Field("metadata", "meta.v1.ObjectMeta")}


def protobuf(body: bytes) -> Payload:
    return Payload(body, PROTOBUF)


def enveloped(raw: bytes, api_version: str = "v1", kind: str = "Pod") -> Payload:
    about = field(1, api_version.encode()) + field(2, kind.encode())
    return protobuf(b"k8s\0" + field(1, about) + field(2, raw) + field(3, b"") + field(4, b""))


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value & (2**64 - 1))


def projected(found: JSON) -> JSON:
    """Return what the reader of protobuf takes of an object: the fields of its table, and no zeros of plain fields."""
    name = KINDS.get((found["apiVersion"], found["kind"]))
    fields = MESSAGES[name] if name else _OBJECT
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], **_projected(found, fields.values())}


def _projected(found: JSON, fields: Any) -> JSON:
    taken = {}
    for name, type_, times in fields:
        value = found.get(name)
        if value is None or (times is Times.ONCE and isinstance(type_, Plain) and not value) or value == []:
            continue
        if isinstance(type_, str):
            inner = MESSAGES[type_].values()
            taken[name] = (
                [_projected(each, inner) for each in value] if times is Times.LIST else _projected(value, inner)
            )
        elif value != {}:
            taken[name] = value
    return taken


def without_empty(found: Any) -> Any:
    """Return an object without messages that hold nothing: Go writes each in protobuf, and only some in JSON."""
    if isinstance(found, list):
        return [without_empty(each) for each in found]
    if not isinstance(found, dict):
        return found
    slim = {name: without_empty(value) for name, value in found.items()}
    return {name: value for name, value in slim.items() if value != {}}

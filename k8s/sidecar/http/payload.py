"""A payload: the bytes of a body, with the content type that says how to read and mark them.

The object in a body (a manifest, a stored object, a Status) is read beside it, as the same plain dict for each form.
A mark is the name that was drawn, and the annotations by which the object is recognised: every other byte stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.naming import BODY_HASH, CREATE_ID

from .json_text import mark_json, read_json
from .messages import PayloadError
from .protobuf import mark_protobuf, read_protobuf

APPLY_PREFIX: Final = b"application/apply-patch+"


class Form(Enum):
    """The forms of a body that are read. Others, such as CBOR, pass unread."""

    JSON = b"application/json"
    YAML = b"application/yaml"
    PROTOBUF = b"application/vnd.kubernetes.protobuf"


_FORMS: Final = {
    b"": Form.JSON,  # the API server's default
    b"application/json": Form.JSON,
    b"application/yaml": Form.YAML,
    b"application/apply-patch+yaml": Form.YAML,
    b"application/vnd.kubernetes.protobuf": Form.PROTOBUF,
}
OURS: Final = frozenset({CREATE_ID, BODY_HASH})
"""Our annotations: in a creator's body they are copies, as in a manifest exported from a living pod."""


class Payload:
    """A body with the value of its Content-Type header, None where there is no such header."""

    __slots__ = ("body", "content_type", "form", "is_apply_patch")

    def __init__(self, body: bytes, content_type: bytes | None = None) -> None:
        media_type = (content_type or b"").partition(b";")[0].strip().lower()
        self.body = body
        self.content_type = content_type
        self.form = _FORMS.get(media_type)
        """How the body is read; None if it is not."""
        self.is_apply_patch = media_type.startswith(APPLY_PREFIX)
        """Whether this is a server-side apply, whose field manager owns all fields in it."""


def read(payload: Payload, expected: tuple[str, str] = ("", "")) -> dict[str, Any] | None:
    """Return the object in a body; None if its form is not read.

    From protobuf, only the metadata and charged fields, or the fields of a Status, are read. ``expected``: apiVersion
    and kind by the request's path, for a protobuf body without them. Raises ``PayloadError`` for a malformed body,
    and for one that the API server might read differently.
    """
    form = payload.form
    if form is None:
        return None
    if form is Form.PROTOBUF:
        return read_protobuf(payload.body, expected)
    found = read_json(payload.body) if form is Form.JSON else _read_yaml(payload.body)
    if not isinstance(found, dict):
        raise PayloadError("the body is not an object")
    return found


def _read_yaml(body: bytes) -> Any:
    from .yaml_text import read_yaml  # noqa: PLC0415 - loads in 20 ms, which hardly any creator needs

    return read_yaml(body)


def marked(payload: Payload, name: str, annotations: Mapping[str, str]) -> bytes | None:
    """Return the body with this name, if it is not empty, and these annotations; those of ``OURS`` that it has go.

    None if it can't be marked, and is to be sent as it is. A server-side apply is never marked: the marks would belong
    to its field manager, and the next apply would remove them. Raises ``PayloadError`` as ``read`` does.
    """
    if payload.form is None or payload.is_apply_patch:
        return None
    if payload.form is Form.YAML:
        from .yaml_text import mark_yaml  # noqa: PLC0415 - as above

        return mark_yaml(payload.body, name, annotations, OURS)
    return (mark_json if payload.form is Form.JSON else mark_protobuf)(payload.body, name, annotations, OURS)

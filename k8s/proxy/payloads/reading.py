"""Reads what a body says, beside the body: a manifest, a stored object or a Status, as the same plain dict."""

from __future__ import annotations

from typing import Any

from .json_text import read_json
from .payload import Form, Payload, PayloadError
from .protobuf import read_protobuf


def read(payload: Payload, expected: tuple[str, str] = ("", "")) -> dict[str, Any] | None:
    """Return the object in a body; None if its form is not one that is read.

    Of protobuf only metadata and the fields that are charged, or those of a Status, are there. ``expected``: apiVersion
    and kind by the request's path, for a protobuf body that names none. Raises ``PayloadError`` for a malformed body,
    and for one that the API server might read otherwise.
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

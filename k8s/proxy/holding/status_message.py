"""Writes a ``Status`` as protobuf, for clients that read nothing else (apimachinery ``meta/v1/generated.proto``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.proxy.payloads.protobuf import MAGIC
from backoff_ctrl.k8s.proxy.payloads.wire import field, varint

if TYPE_CHECKING:
    from collections.abc import Mapping


def status_message(status: Mapping[str, Any]) -> bytes:
    """Return a ``Status``, given as its JSON, in the envelope that the API server puts around every object."""
    kind = _text(1, "v1") + _text(2, "Status")
    return MAGIC + field(1, kind) + field(2, _status(status)) + _text(3, "") + _text(4, "")


def _status(status: Mapping[str, Any]) -> bytes:
    return (
        field(1, b"")
        + _text(2, status.get("status"))
        + _text(3, status.get("message"))
        + _text(4, status.get("reason"))
        + field(5, _details(status.get("details") or {}))
        + _number(6, status.get("code"))
    )


def _details(details: Mapping[str, Any]) -> bytes:
    causes = b"".join(field(4, _cause(cause)) for cause in details.get("causes") or ())
    return (
        _text(1, details.get("name"))
        + _text(2, details.get("group"))
        + _text(3, details.get("kind"))
        + causes
        + _number(5, details.get("retryAfterSeconds"))
    )


def _cause(cause: Mapping[str, Any]) -> bytes:
    return _text(1, cause.get("reason")) + _text(2, cause.get("message")) + _text(3, cause.get("field"))


def _text(number: int, value: str | None) -> bytes:
    return field(number, (value or "").encode())


def _number(number: int, value: int | None) -> bytes:
    return varint(number << 3) + varint(value or 0)

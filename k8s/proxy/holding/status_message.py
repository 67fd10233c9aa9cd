"""Writes a ``Status`` as protobuf, for clients that read nothing else (apimachinery ``meta/v1/generated.proto``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"


def status_message(status: Mapping[str, Any]) -> bytes:
    """Return a ``Status``, given as its JSON, in the envelope that the API server puts around every object."""
    kind = _text(1, "v1") + _text(2, "Status")
    return _MAGIC + _field(1, kind) + _field(2, _status(status)) + _text(3, "") + _text(4, "")


def _status(status: Mapping[str, Any]) -> bytes:
    return (
        _field(1, b"")
        + _text(2, status.get("status"))
        + _text(3, status.get("message"))
        + _text(4, status.get("reason"))
        + _field(5, _details(status.get("details") or {}))
        + _number(6, status.get("code"))
    )


def _details(details: Mapping[str, Any]) -> bytes:
    causes = b"".join(_field(4, _cause(cause)) for cause in details.get("causes") or ())
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
    return _field(number, (value or "").encode())


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _number(number: int, value: int | None) -> bytes:
    return bytes([number << 3]) + _varint(value or 0)


def _varint(value: int) -> bytes:
    low = bytearray()
    while value > 127:
        low.append(value & 127 | 128)
        value >>= 7
    low.append(value)
    return bytes(low)

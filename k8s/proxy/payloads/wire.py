"""Protobuf on the wire: fields out of bytes, and bytes of a field. Bounded: each field that is read is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .payload import LARGEST, PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT: Final = 0
BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
MOST_FIELDS: Final = 100_000
"""Fields that one body may have where it is read; an object that etcd stores has far fewer."""
_LARGEST_TAG: Final = 2**32 - 1  # Go cuts a field number off at 32 bits, and so would take a larger one for another
_MASK: Final = 2**64 - 1


class Piece(NamedTuple):
    """One field as it lies in the body: a number, or the bytes from ``start`` to ``stop``."""

    number: int
    wire_type: int
    start: int  # of a varint: its value
    stop: int
    length_at: int  # where the length is written


class Wire:
    """Reads the fields of one body. Raises ``PayloadError`` for what Kubernetes' own reader might read otherwise."""

    def __init__(self, data: bytes) -> None:
        """Take the body. Raises ``PayloadError`` if it is larger than any that the API server accepts."""
        if len(data) > LARGEST:
            raise PayloadError(f"the body is larger than {LARGEST >> 20} MiB")
        self.data = data
        self._left = MOST_FIELDS

    def pieces(self, at: int, stop: int) -> Iterator[Piece]:
        """Yield the fields of the message that lies between two places."""
        data = self.data
        while at < stop:
            self._left -= 1
            if self._left < 0:
                raise PayloadError(f"the body has more than {MOST_FIELDS} fields")
            tag, at = (data[at], at + 1) if data[at] < 0x80 else self._varint(at, stop)
            wire_type, length_at = tag & 7, at
            if not 8 <= tag <= _LARGEST_TAG:
                raise PayloadError("the body has a field without a valid number")
            if wire_type == BYTES:
                size, at = (data[at], at + 1) if at < stop and data[at] < 0x80 else self._varint(at, stop)
            elif wire_type == VARINT:
                value, at = self._varint(at, stop)
                yield Piece(tag >> 3, wire_type, value, at, length_at)
                continue
            elif wire_type in _FIXED:
                size = _FIXED[wire_type]
            else:
                raise PayloadError(f"the body has a field of wire type {wire_type}, which Kubernetes does not write")
            if size > stop - at:
                raise PayloadError("the body ends within a field")
            yield Piece(tag >> 3, wire_type, at, at + size, length_at)
            at += size

    def text(self, piece: Piece) -> str:
        """Return a field that is a text."""
        expect(piece, BYTES)
        try:
            return self.data[piece.start : piece.stop].decode()
        except UnicodeDecodeError:
            raise PayloadError("the body has a text that is not UTF-8") from None

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """Return a number of at most 64 bits, and where it ends."""
        value = shift = 0
        while at < stop:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _MASK, at
            shift += 7
            if shift > 63:
                raise PayloadError("the body has a number of more than 64 bits")
        raise PayloadError("the body ends within a field")


def expect(piece: Piece, wire_type: int) -> None:
    """Raise ``PayloadError`` if a field of the table is written in another way than its type is."""
    if piece.wire_type != wire_type:
        raise PayloadError(f"the body has a field {piece.number} of the wrong type")


def varint(value: int) -> bytes:
    """Write a number that is not negative."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def field(number: int, content: bytes) -> bytes:
    """Write a field that is a text or a message."""
    return varint(number << 3 | BYTES) + varint(len(content)) + content

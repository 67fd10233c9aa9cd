"""Kubernetes' protobuf: ``k8s\\0``, an envelope that names the kind, and in it the object.

Reads the fields of a table, marks metadata, and writes a ``Status``. Like Go's reader, this merges a message that
occurs twice, takes the last of a number or a text, and skips unknown fields. The depth is bounded by the table, which
is not recursive, and the number of fields by a count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from .charged_fields import KINDS, MESSAGES, Field, Plain, Times
from .messages import LARGEST, PayloadError

VARINT: Final = 0
BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
MOST_FIELDS: Final = 100_000
"""The most fields that are read of one body; an object that etcd stores has far fewer."""
_LARGEST_TAG: Final = 2**32 - 1  # Go truncates a field number to 32 bits, and so would misread a larger one
_MASK: Final = 2**64 - 1


class Piece(NamedTuple):
    """One field in the body: a number, or the bytes from ``start`` to ``stop``."""

    number: int
    wire_type: int
    start: int  # of a varint: its value
    stop: int
    length_at: int  # where the length is written


class Wire:
    """Reads the fields of one body. Raises ``PayloadError`` for what Kubernetes' own reader might read differently."""

    def __init__(self, data: bytes) -> None:
        """Take the body. Raises ``PayloadError`` if it is larger than any that the API server accepts."""
        if len(data) > LARGEST:
            raise PayloadError(f"the body is larger than {LARGEST >> 20} MiB")
        self.data = data
        self._left = MOST_FIELDS

    def pieces(self, at: int, stop: int) -> Iterator[Piece]:
        """Yield the fields of the message between two places."""
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
    """Raise ``PayloadError`` if a field of the table has another wire type than its own."""
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
    return varint(number << 3 | BYTES) + varint(len(content)) + content


MAGIC: Final = b"k8s\x00"
_TYPE, _RAW = 1, 2  # of the envelope, runtime.Unknown
_METADATA: Final = 1  # of every kind
_NAME, _ANNOTATIONS = 1, 12  # of ObjectMeta
_BY_NUMBER: Final[Mapping[int, Field]] = {_METADATA: Field("metadata", "meta.v1.ObjectMeta")}
_ENVELOPE: Final[Mapping[int, Field]] = {1: Field("apiVersion", Plain.TEXT), 2: Field("kind", Plain.TEXT)}
_ZEROS: Final[Mapping[Plain, Any]] = {
    Plain.TEXT: "", Plain.FLAG: False, Plain.INT32: 0, Plain.INT64: 0, Plain.TIME: None, Plain.QUANTITY: "0",
}  # fmt: skip
_BITS: Final = {Plain.INT32: 32, Plain.INT64: 64}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Envelope(NamedTuple):
    about: dict[str, Any]
    raw: Piece | None


def read_protobuf(body: bytes, expected: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Return the object in the body as the same dict as from JSON, with the fields that are read.

    ``expected``: apiVersion and kind where the envelope lacks them. Raises ``PayloadError``.
    """
    wire = Wire(body)
    about, raw = _opened(wire)
    api_version, kind = about.get("apiVersion") or expected[0], about.get("kind") or expected[1]
    found: dict[str, Any] = {"apiVersion": api_version, "kind": kind}
    if raw is not None:
        name = KINDS.get((api_version, kind))
        _read(wire, raw, MESSAGES[name] if name else _BY_NUMBER, found)
    return found


def mark_protobuf(body: bytes, name: str, annotations: Mapping[str, str], dropped: Collection[str]) -> bytes | None:
    """Return the body with a second metadata message behind the first, which the API server merges into it.

    Annotations to drop are cut out of the first; every other byte stays. None if the body holds no object.
    """
    wire = Wire(body)
    raw = _opened(wire).raw
    if raw is None:
        return None
    entries = (field(1, key.encode()) + field(2, value.encode()) for key, value in annotations.items())
    added = (field(_NAME, name.encode()) if name else b"") + b"".join(field(_ANNOTATIONS, each) for each in entries)
    inner = _without(wire, raw, dropped) + (field(_METADATA, added) if added else b"")
    return b"".join((body[: raw.length_at], varint(len(inner)), inner, body[raw.stop :]))


def _opened(wire: Wire) -> _Envelope:
    """Return the fields of the envelope, and where in it the object is: the last one counts."""
    if not wire.data.startswith(MAGIC):
        raise PayloadError("the body does not begin as Kubernetes' protobuf does")
    about: dict[str, Any] = {}
    raw = None
    for piece in wire.pieces(len(MAGIC), len(wire.data)):
        if piece.number in {_TYPE, _RAW}:
            expect(piece, BYTES)
        if piece.number == _TYPE:
            _read(wire, piece, _ENVELOPE, about)
        elif piece.number == _RAW:
            raw = piece
    return _Envelope(about, raw)


def _without(wire: Wire, raw: Piece, dropped: Collection[str]) -> bytes:
    """Return the object without these annotations."""
    kept, at = [], raw.start
    for message in wire.pieces(raw.start, raw.stop) if dropped else ():
        if message.number != _METADATA:
            continue
        gone = list(_annotations(wire, message, dropped))
        if gone:
            whole = _cut(wire.data, message.start, message.stop, gone)
            kept += [wire.data[at : message.length_at], varint(len(whole)), whole]
            at = message.stop
    return b"".join((*kept, wire.data[at : raw.stop]))


def _annotations(wire: Wire, metadata: Piece, names: Collection[str]) -> Iterable[tuple[int, int]]:
    """Yield where the annotations with these names begin and end, tags and lengths included."""
    expect(metadata, BYTES)
    begin = metadata.start
    for piece in wire.pieces(metadata.start, metadata.stop):
        if piece.number == _ANNOTATIONS and _entry(wire, piece, Plain.TEXT)[0] in names:
            yield begin, piece.stop
        begin = piece.stop


def _cut(data: bytes, start: int, stop: int, gone: Iterable[tuple[int, int]]) -> bytes:
    kept = []
    for begin, end in gone:
        kept.append(data[start:begin])
        start = end
    return b"".join((*kept, data[start:stop]))


def _read(wire: Wire, message: Piece, fields: Mapping[int, Field], found: dict[str, Any]) -> None:
    """Read the fields of a message into an object that may have some already."""
    for piece in wire.pieces(message.start, message.stop):
        known = fields.get(piece.number)
        if known is None:
            continue
        name, type_, times = known
        if times is Times.MAP:
            assert isinstance(type_, Plain)
            key, value = _entry(wire, piece, type_)
            found.setdefault(name, {})[key] = value
        elif isinstance(type_, str):
            expect(piece, BYTES)
            inner: dict[str, Any] = {} if times is Times.LIST else found.setdefault(name, {})
            _read(wire, piece, MESSAGES[type_], inner)
            if times is Times.LIST:
                found.setdefault(name, []).append(inner)
        elif times is Times.LIST:
            found.setdefault(name, []).append(_value(wire, piece, type_))
        else:
            value = _value(wire, piece, type_)
            if times is Times.POINTED or value != _ZEROS[type_]:
                found[name] = value
            else:
                found.pop(name, None)  # a zero after a value


def _entry(wire: Wire, piece: Piece, type_: Plain) -> tuple[str, Any]:
    """Return key and value of an entry of a map; each may be missing."""
    expect(piece, BYTES)
    key, value = "", _ZEROS[type_]
    for part in wire.pieces(piece.start, piece.stop):
        if part.number == 1:
            key = wire.text(part)
        elif part.number == 2:
            value = _value(wire, part, type_)
    return key, value


def _value(wire: Wire, piece: Piece, type_: Plain) -> Any:
    if type_ is Plain.TEXT:
        return wire.text(piece)
    if type_ is Plain.QUANTITY:
        return _quantity(wire, piece)
    if type_ is Plain.TIME:
        return _time(wire, piece)
    expect(piece, VARINT)
    if type_ is Plain.FLAG:
        return piece.start != 0
    return _signed(piece.start, _BITS[type_])


def _signed(value: int, bits: int) -> int:
    """Return a number as Go does: truncated to its size, and negative where its highest bit is set."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _quantity(wire: Wire, piece: Piece) -> str:
    expect(piece, BYTES)
    text = "0"
    for part in wire.pieces(piece.start, piece.stop):
        if part.number == 1:
            text = wire.text(part)
    return text


def _time(wire: Wire, piece: Piece) -> str | None:
    """Return a time to the second, as Kubernetes keeps it; or None."""
    expect(piece, BYTES)
    seconds = 0
    for part in wire.pieces(piece.start, piece.stop):
        if part.number == 1:
            expect(part, VARINT)
            seconds = _signed(part.start, 64)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise PayloadError("the body has a time that is out of range") from None
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if piece.stop > piece.start else None


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

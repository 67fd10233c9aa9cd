"""Reads an object out of Kubernetes' protobuf: ``k8s\\0``, an envelope that names the kind, and in it the object.

Like Go's reader, this merges a message that comes twice, takes the last of a number or a text, and passes over fields
that it does not know. The depth is bounded by the table, which refers to itself nowhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .charged_fields import KINDS, MESSAGES, Field, Plain, Times
from .payload import PayloadError
from .wire import BYTES, VARINT, Piece, Wire, expect, field, varint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
    """Return what the body says, as its JSON would, as far as it is read.

    ``expected``: apiVersion and kind where the envelope names none. Raises ``PayloadError``.
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
    """Return what the envelope says, and where in it the object lies: the last place counts."""
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
    """Return a number as Go does: cut off at its size, and negative where its highest bit is set."""
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
    """Return a time to the second, as Kubernetes keeps it; None if there is none."""
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

"""Reads the API server's answers: their heads by httptools; bodies are counted, or checked where they are chunked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import httptools

from .messages import HOP_BY_HOP, Headers, tokens, values_of

HEAD_MAX: Final = 256 * 1024
"""The largest head of an answer, in bytes."""
_CONCERNING_US: Final = HOP_BY_HOP | {b"content-length"}


class BrokenAnswerError(Exception):
    """The API server sent something other than HTTP/1.1."""


class Framing(Enum):
    """How the end of an answer's body is found."""

    NONE = 0
    LENGTH = 1
    CHUNKED = 2
    CLOSE = 3
    TUNNEL = 4


@dataclass(slots=True)
class AnswerHead:
    """The head of an answer."""

    status: int = 0
    reason: bytes = b""
    headers: Headers = field(default_factory=list)
    framing: Framing = Framing.NONE
    length: int = 0
    kept: bool = True
    old: bool = False
    concerns_connection: bool = False
    dropped: frozenset[bytes] = frozenset()
    upgrades: list[bytes] = field(default_factory=list)


class AnswerReader:
    """Reads one answer after the other from the connection on which their requests were sent."""

    def __init__(self) -> None:
        self._partial = b""
        self._without_body = False
        self.head: AnswerHead | None = None
        self.whole = False
        """Whether the answer has ended."""

    def expect(self, method: bytes) -> None:
        self._without_body = method == b"HEAD"
        self.head = None
        self.whole = False

    def read_head(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return the raw head and what came behind it, None while it is not whole; then ``head`` has its meaning.

        Raises ``BrokenAnswerError``.
        """
        if self._partial:
            data = self._partial + data
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            if len(data) > HEAD_MAX:
                raise BrokenAnswerError("its head is too long")
            self._partial = data
            return None
        self._partial = b""
        raw = data[:end]
        self._head = AnswerHead()
        self._complete = False
        self._parser = httptools.HttpResponseParser(self)
        try:
            with suppress(httptools.HttpParserUpgrade):  # the caller asked for it: the status says whether it came
                self._parser.feed_data(raw)
        except httptools.HttpParserError as error:
            raise BrokenAnswerError(str(error)) from error
        if self._head.status == 0:
            raise BrokenAnswerError("its head does not end where it should")
        self.head = self._frame(self._head)
        return raw, data[end:]

    def _frame(self, head: AnswerHead) -> AnswerHead:
        for name, value in head.headers:
            low = name.lower()
            if low not in _CONCERNING_US:
                continue
            if low == b"content-length":
                head.framing = Framing.LENGTH
                head.length = int(value)
            elif low == b"transfer-encoding":
                head.framing = Framing.CHUNKED
            else:
                head.concerns_connection = True
                if low == b"connection":
                    head.dropped |= tokens([value])
        if head.dropped & {b"content-length", b"transfer-encoding"}:
            raise BrokenAnswerError("its Connection header names its framing")
        if head.status == 101:
            head.framing = Framing.TUNNEL
            head.upgrades = values_of(head.headers, b"upgrade")
        elif self._without_body or head.status < 200 or head.status in {204, 304}:
            head.framing = Framing.NONE
        elif head.framing is Framing.NONE:
            head.framing = Framing.CLOSE
        self._left = head.length
        self.whole = head.framing is Framing.NONE or (head.framing is Framing.LENGTH and head.length == 0)
        return head

    def read_body(self, data: bytes) -> bytes:
        """Return the part of the data that belongs to the answer; ``whole`` says whether the answer has ended with it.

        Raises ``BrokenAnswerError``; then the data may not be passed on.
        """
        assert self.head is not None
        framing = self.head.framing
        if framing is Framing.LENGTH:
            size = len(data)
            if size < self._left:
                self._left -= size
                return data
            self.whole = True
            if size > self._left:
                self.head.kept = False  # unsolicited bytes
                return data[: self._left]
            return data
        if framing is Framing.CHUNKED:
            if self._complete:
                raise BrokenAnswerError("more came behind its end")
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise BrokenAnswerError(str(error)) from error
            self.whole = self._complete
            return data
        if framing is Framing.NONE:
            self.head.kept = False
            return b""
        return data

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Refuse a second message behind the first."""
        if self._head.status:
            raise BrokenAnswerError("more came behind its end")

    def on_status(self, reason: bytes) -> None:
        self._head.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers pass within the raw bytes."""
        if not self._head.status:
            self._head.headers.append((name, value))

    def on_headers_complete(self) -> None:
        head = self._head
        head.status = self._parser.get_status_code()
        head.old = self._parser.get_http_version() != "1.1"
        head.kept = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self._complete = True


class _Pieces:
    """The parser's callbacks: an object apart from the parser's owner, since a cycle would wait for the collector."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.size += len(piece)


class WholeBody:
    """Removes the framing from a raw answer's body."""

    def __init__(self, raw_head: bytes) -> None:
        self._taken = _Pieces()
        self._parser = httptools.HttpResponseParser(self._taken)
        self._parser.feed_data(raw_head)

    def feed(self, data: bytes) -> None:
        """Take raw bytes that an ``AnswerReader`` has passed."""
        self._parser.feed_data(data)

    @property
    def size(self) -> int:
        return self._taken.size

    @property
    def body(self) -> bytes:
        return b"".join(self._taken.pieces)

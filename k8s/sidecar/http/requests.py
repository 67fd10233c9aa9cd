"""Reads requests: httptools parses strictly; this refuses what it allows but can't be passed on safely."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

import httptools

from .messages import FOR_ALL, HOP_BY_HOP, NOT_IN_TRAILERS, Head, Headers, RefusedError, tokens

HEAD_MAX: Final = 64 * 1024
"""Bytes of a request's head; Go's server takes a megabyte, the official clients send a few kilobytes."""
_CONCERNING_US: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"authorization"}
_UPGRADES_REFUSED: Final = frozenset({b"h2c"})  # it would open a tunnel for any further requests


class Part(Enum):
    """A part of a request."""

    HEAD = 0
    BODY = 1
    END = 2
    BAD = 3


@dataclass(slots=True)
class Asked:
    """A request's head, and what it means for the connections on both sides."""

    head: Head
    length: int = 0
    chunked: bool = False
    closing: bool = False
    old: bool = False
    """HTTP/1.0."""
    expects: bool = False
    te: bool = False
    upgrade: bytes = b""
    dropped: frozenset[bytes] = frozenset()
    has_credentials: bool = False

    @property
    def has_body(self) -> bool:
        return self.chunked or self.length > 0


class RequestReader:
    """Turns the bytes of a connection into parts of requests, in ``parts``: heads, pieces of bodies, ends.

    The first error ends it: its ``RefusedError`` is the last part.
    """

    def __init__(self) -> None:
        self.parts: deque[tuple[Part, Asked | bytes | Headers | RefusedError]] = deque()
        self.rest = b""
        """What came behind the head of a request that asks to leave HTTP."""
        self.stopped = False
        """Whether a request to switch protocols was read: what follows is not HTTP, or has to wait."""
        self.over = False
        """Whether it has stopped reading: after an error, or the last request of a connection."""
        self._start()

    def _start(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: Headers = []
        self._sizes = 0
        self._fed = 0
        self._in_body = False
        self._closing = False

    @property
    def amid_head(self) -> bool:
        """Whether a head has begun, and not ended."""
        return self._fed > 0

    def go_on(self) -> None:
        """Read the next request as HTTP, after one whose request to switch protocols was declined."""
        rest, self.rest, self.stopped = self.rest, b"", False
        self._start()
        if rest:
            self.feed(rest)

    def feed(self, data: bytes) -> None:
        if self.over:
            return
        if self.stopped:
            self.rest += data
            return
        try:
            if not self._in_body:
                self._fed += len(data)
            self._parser.feed_data(data)
            if self._fed > HEAD_MAX and not self._in_body:
                raise RefusedError(431, f"the head of the request is longer than {HEAD_MAX} bytes")  # noqa: TRY301
        except httptools.HttpParserUpgrade as upgrade:
            self.stopped = True
            self.rest = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ if isinstance(error.__context__, RefusedError) else error)
        except (RefusedError, httptools.HttpParserError) as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.over:
            return
        self.over = True
        if not isinstance(error, RefusedError):
            error = RefusedError(400, f"the request is not valid HTTP/1.1: {error}")
        self.parts.append((Part.BAD, error))

    # Called by the parser.

    def on_message_begin(self) -> None:
        self._fed = self._fed or 1
        self._target = b""
        self._headers = []
        self._sizes = 0
        self._in_body = False

    def on_url(self, piece: bytes) -> None:
        self._target += piece
        self._sizes += len(piece)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        self._headers.append((name, value))
        self._sizes += len(name) + len(value) + 4
        if self._sizes > HEAD_MAX:
            raise RefusedError(431, f"the head of the request is longer than {HEAD_MAX} bytes")

    def on_headers_complete(self) -> None:
        """Check the head, and pass it on."""
        parser = self._parser
        version = parser.get_http_version()
        asked = Asked(Head(parser.get_method(), self._target, self._headers))
        if version != "1.1":
            if version != "1.0":
                raise RefusedError(505, "this proxy speaks only HTTP/1.1")
            asked.old = True
        read_head(asked)
        if asked.has_body and parser.should_upgrade():
            raise RefusedError(400, "a request that asks to switch protocols can't have a body")
        if asked.head.method == b"CONNECT":
            raise RefusedError(400, "CONNECT is not supported: send requests to this address itself")
        self._in_body = asked.has_body
        self._fed = 0
        self._headers = []
        self._sizes = 0
        self._closing = asked.closing
        self.parts.append((Part.HEAD, asked))

    def on_body(self, piece: bytes) -> None:
        self.parts.append((Part.BODY, piece))

    def on_message_complete(self) -> None:
        """End the request; what came since its head are trailers."""
        for name, _ in self._headers:
            if name.lower() in NOT_IN_TRAILERS:
                raise RefusedError(400, f"{name.decode('latin-1')} is not allowed as a trailer")
        self._in_body = False
        self._fed = 0
        self.parts.append((Part.END, self._headers))
        self._headers = []
        self.over = self._closing  # bytes behind the last request of a connection are ignored


def read_head(asked: Asked) -> None:
    """Work out framing and connection from the headers. Raises ``RefusedError``."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in asked.head.headers:
        low = name.lower()
        if low in _CONCERNING_US:
            if low in found:
                found[low].append(value)
            else:
                found[low] = [value]
    hosts = len(found.pop(b"host", ()))
    if hosts != 1 and not (asked.old and hosts == 0):
        raise RefusedError(400, "a request needs exactly one Host header")
    asked.has_credentials = found.pop(b"authorization", None) is not None
    if found:
        _read_framing(asked, found)
        _read_connection(asked, found)
    asked.closing = asked.closing or asked.old
    asked.head.target = _target(asked.head.target)


def _read_framing(asked: Asked, found: dict[bytes, list[bytes]]) -> None:
    """Read how the body ends, and whether the caller waits for 100 Continue before it sends it."""
    if b"content-length" in found:
        asked.length = int(found[b"content-length"][0])  # the parser accepted it: digits only, and once
    for coding in found.get(b"transfer-encoding", ()):
        if coding.strip().lower() != b"chunked":
            raise RefusedError(501, "the only supported transfer encoding is chunked")
        if asked.old:
            raise RefusedError(400, "HTTP/1.0 has no chunked encoding")
        asked.chunked = True
    for expected in found.get(b"expect", ()):
        if expected.lower() != b"100-continue":
            raise RefusedError(417, "the only supported value of Expect is 100-continue")
        asked.expects = not asked.old  # HTTP/1.0 has no 100 (RFC 9110, 10.1.1)


def _read_connection(asked: Asked, found: dict[bytes, list[bytes]]) -> None:
    """Read the connection headers: when it ends, which headers it drops, whether it switches protocols."""
    asked.te = b"trailers" in tokens(found.get(b"te", ()))
    options = tokens(found.get(b"connection", ()))
    if not options:
        return
    if options & FOR_ALL or any(each.startswith(b"impersonate-") for each in options):
        raise RefusedError(400, "the Connection header names a header that is not hop-by-hop")
    asked.closing = b"close" in options
    asked.dropped = frozenset(options)
    upgrades = found.get(b"upgrade", [])
    if b"upgrade" in options and len(upgrades) == 1 and not asked.old and not tokens(upgrades) & _UPGRADES_REFUSED:
        asked.upgrade = upgrades[0]


def _target(target: bytes) -> bytes:
    """Return path and query; an absolute target is valid, too (RFC 9112, 3.2.2). Raises ``RefusedError``."""
    if target.startswith(b"/") or target == b"*":
        return target
    try:
        parts = urlsplit(target)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in {b"http", b"https"} or not parts.netloc:
        raise RefusedError(400, "the target of a request must begin with /")
    return (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")

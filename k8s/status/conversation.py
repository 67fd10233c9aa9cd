"""One conversation about the status over HTTP, without I/O: what was asked becomes a typed query, what was found an
answer.

*A request* is method, path, query, headers and body. ``endpoints.find`` looks its path up in the table, ``read`` makes
the typed query of that row. What is wrong with it is a ``ProblemError``, in the same words wherever it was asked.

*What was found* is a document, a page of documents, or an ``Answer`` that is whole already: a text, or a stream.
``answer`` writes it: JSON with an ETag of all that it says but ``as_of``, and 304 to a GET that knows this ETag.
``problem`` writes a ``ProblemError`` (RFC 9457), with the headers that its status needs.

*Adapters* carry bytes, and decide nothing of this. ``aiohttp_web`` serves a gate's endpoints from its own process.
``api/status/routing`` makes routes of FastAPI from the same table. ``OwnGate`` of ``serve`` asks a gate of its own
process without HTTP. An adapter adds the headers that all of its answers have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .asked import ProblemError, read_query
from .endpoints import Endpoint
from .shapes import Page
from .slices import sliced

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
TEXT: Final = "text/plain; charset=utf-8"
EVENTS: Final = "text/event-stream"
PIECE: Final = 1 << 16
"""Bytes of an answer that are sent at a time."""
_NEEDED: Final = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}
"""Headers of problems by status."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came with a request beside its URL. The names of headers are in lower case."""

    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(slots=True)
class Answer:
    """What goes back over HTTP: a body in pieces, or a stream of them that ends when its listener does."""

    body: list[bytes] = field(default_factory=list)
    content_type: str = TEXT
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes] | None = None

    @classmethod
    def showing(cls, document: Any, status: int = 200) -> Answer:
        """Return the answer that shows a document."""
        values = document if isinstance(document, dict) else vars(document)
        rest = as_json({name: value for name, value in values.items() if name != "as_of"})
        etag = hashlib.blake2b(rest.encode(), digest_size=12).hexdigest()
        return cls([as_json(values).encode()], JSON, status, {"ETag": f'"{etag}"'})

    @property
    def whole(self) -> bytes:
        return b"".join(self.body)


def target_of(target: str, host: str | None) -> tuple[str | None, str, str]:
    """Return the host that a request is for, its path and its query: a target may be a whole URL."""
    target = target.partition("#")[0]
    scheme, whole, rest = target.partition("://")
    if whole and scheme.lower() == "http":
        host, slash, rest = rest.partition("/")
        target = slash + rest
    path, _, query = target.partition("?")
    return host, path, query


def read(endpoint: Endpoint, query: str, in_path: str) -> Any:
    """Return the typed query of a request to an endpoint. Raises ``ProblemError``."""
    return read_query(endpoint.query, query, **({endpoint.of_path: in_path} if endpoint.of_path else {}))


def answer(method: str, headers: Mapping[str, str], found: Any) -> Answer:
    """Return the answer for what an endpoint found; the names of headers may be looked up in lower case."""
    made = found if isinstance(found, Answer) else _of_page(found) if isinstance(found, Page) else Answer.showing(found)
    etag = made.headers.get("ETag")
    if etag is not None and method in ("GET", "HEAD") and _matches(headers.get("if-none-match", ""), etag):
        return Answer(content_type="", status=304, headers={"ETag": etag})
    return made


def problem(error: ProblemError) -> Answer:
    """Return the answer that describes a problem. Its text is ASCII: a path that it quotes may be no valid text."""
    found = error.problem
    text = json.dumps(found, default=vars, separators=(",", ":"))
    return Answer([text.encode()], PROBLEM, found.status, {**_NEEDED.get(found.status, {}), **error.headers})


def as_json(found: Any) -> str:
    """Write a document as JSON, without spaces."""
    return json.dumps(found, default=vars, separators=(",", ":"), ensure_ascii=False)


def in_blocks(pieces: Iterable[bytes]) -> list[bytes]:
    """Join small pieces, since each piece is sent separately."""
    blocks, block = [], bytearray()
    for piece in sliced(pieces):
        block += piece
        if len(block) >= PIECE:
            blocks.append(bytes(block))
            block.clear()
    return [*blocks, bytes(block)] if block else blocks


def _matches(asked: str, etag: str) -> bool:
    """Return whether the header ``If-None-Match`` names this ETag."""
    return any(each.strip().removeprefix("W/") == etag for each in asked.split(",")) or asked == "*"


def _of_page(page: Page[Any]) -> Answer:
    """Write a page item by item, in slices of time. Its ETag is that of the items and of what follows."""
    items: list[bytes] = []
    digest = hashlib.blake2b(digest_size=12)
    for item in sliced(page.items):
        text = as_json(item).encode()
        digest.update(text)
        items.append(b"," + text if items else text)
    digest.update(repr(page.next).encode())
    head = f'{{"as_of":{as_json(page.as_of)},"items":['.encode()
    body = [head, *items, f'],"next":{as_json(page.next)}}}'.encode()]
    return Answer(body, JSON, headers={"ETag": f'"{digest.hexdigest()}"'})

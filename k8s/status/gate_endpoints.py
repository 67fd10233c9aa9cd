"""What a gate answers at each URL of ``endpoints``: a method each. They may take long, so no event loop calls them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from .actions import Actions, check_operator
from .asked import Anything, ProblemError, read_cursor, read_query
from .bodies import namespace_of, read_manifest
from .decisions import Told
from .documents import Documents
from .endpoints import (
    Endpoint,
    Nothing,
    OfAction,
    OfCeilings,
    OfExplain,
    OfNamespace,
    OfPage,
    OfRequest,
    find,
)
from .explaining import explained_by
from .metrics import CONTENT_TYPE, Sample, exposition
from .shapes import (
    Acted,
    Ceiling,
    Explained,
    Gate,
    Namespace,
    Overload,
    Page,
    PolicyDocument,
    RequestHistory,
    Waiting,
)
from .slices import sliced
from .streams import Streams
from .token import Token

log = logging.getLogger(__name__)

JSON: Final = "application/json"
FAILURES_MAX: Final = 100
REASONS_MAX: Final = 20
"""Reasons of ``/readyz`` by gate."""
PIECE: Final = 1 << 16
"""Bytes of an answer that are sent at a time."""


@dataclass(frozen=True, slots=True)
class Text:
    """A body other than a JSON document, in pieces."""

    pieces: list[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


@dataclass
class Reply:
    """What goes back over HTTP: a body in pieces, with the ETag of what it says."""

    status: int = 200
    content_type: str = JSON
    body: list[bytes] = field(default_factory=list)
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """What came with a request beside its URL. The names of headers are in lower case."""

    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class GateEndpoints:
    """Answers for the gates of this process. Thread-safe."""

    def __init__(
        self,
        documents: Documents,
        streams: Streams[Told] | None,
        *,
        series_max: int,
        beside: Callable[[], Iterable[Sample]] = lambda: (),
    ) -> None:
        """``series_max`` limits ``/metrics``, and ``beside`` returns those of this process that are not of a gate.

        Set ``token``, which operators need to act, once the port is known.
        """
        self._beside = beside
        self.documents = documents
        self.token: Token | None = None
        self._streams = streams
        self._series_max = series_max
        self._failed: set[str] = set()
        self._actions = Actions(lambda: [source.ledger for source in documents.sources])

    def reply(self, method: str, path: str, query: str = "", sent: Sent | None = None) -> Reply:
        """Return the answer to a request. Raises ``ProblemError``."""
        endpoint, in_path = find(method, path)
        return self.reply_at(endpoint, read(endpoint, query, in_path), sent or Sent())

    def reply_at(self, endpoint: Endpoint, query: Any, sent: Sent) -> Reply:
        """Return the answer of an endpoint other than a stream. Raises ``ProblemError``."""
        found = getattr(self, endpoint.name)(query, sent)
        if isinstance(found, Text):
            return Reply(found.status, found.content_type, found.pieces)
        return _of_page(found) if isinstance(found, Page) else _of_document(found)

    def failed(self, error: Exception) -> None:
        """Log an internal error once, and count it."""
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._failed and len(self._failed) < FAILURES_MAX:
            self._failed.add(kind)
            log.error("internal error in the status API, which continues; please report it", exc_info=error)
        for source in self.documents.sources[:1]:
            source.ledger.counts.failed_open += 1

    # -- one by one ---------

    def ceilings(self, query: OfCeilings, _: Sent) -> Page[Ceiling]:
        where = {"namespace": query.namespace, "quota": query.quota, "resource": query.resource}
        return self.documents.ceilings(where, read_cursor(query.after, "ceilings"), query.limit)

    def waiting(self, query: OfNamespace, _: Sent) -> Page[Waiting]:
        return self.documents.waiting(query.namespace, read_cursor(query.after, "waiting"), query.limit)

    def namespaces(self, query: OfPage, _: Sent) -> Page[Namespace]:
        return self.documents.namespaces(read_cursor(query.after, "namespaces"), query.limit)

    def overload(self, _: Nothing, __: Sent) -> Page[Overload]:
        return self.documents.overload()

    def policy(self, _: Nothing, __: Sent) -> PolicyDocument:
        return self.documents.policy()

    def gates(self, _: Nothing, __: Sent) -> Page[Gate]:
        return self.documents.gates()

    def request(self, query: OfRequest, _: Sent) -> RequestHistory:
        return self.documents.request(query.id)

    def explain(self, query: OfExplain, sent: Sent) -> Explained:
        if query.confirm:
            raise ProblemError(
                403,
                "a gate can't use your rights, and does not lend its own: ask backoff-ctrl serve, or "
                "use backoff-ctrl explain --kubeconfig FILE --confirm",
                "#/query/confirm",
            )
        manifest = read_manifest(sent.body, sent.headers.get("content-type", ""))
        return explained_by(self.documents.sources, manifest, namespace_of(manifest, query.namespace))

    def act(self, query: OfAction, sent: Sent) -> Acted:
        check_operator(sent.headers, self.token)
        done = self._actions.do(query.action, sent.headers, sent.body, "loopback")
        return Acted(self.documents.as_of(), query.action, done)

    def metrics(self, _: Anything, __: Sent) -> Text:
        return Text(exposition(self.documents, self._streams, self._series_max, self._beside()), CONTENT_TYPE)

    def livez(self, _: Anything, __: Sent) -> Text:
        return Text([b"ok\n"])

    def readyz(self, _: Anything, __: Sent) -> Text:
        """Return whether every watch that was healthy still is; without one the gate continues by timers."""
        reasons = [reason for source in self.documents.sources for reason in islice(source.unready(), REASONS_MAX)]
        text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
        return Text([text.encode()], status=503 if reasons else 200)

    def version(self, _: Anything, __: Sent) -> dict[str, str]:
        return {"version": self.documents.version}


def read(endpoint: Endpoint, query: str, in_path: str) -> Any:
    """Read the parameters of a request to an endpoint. Raises ``ProblemError``."""
    return read_query(endpoint.query, query, **({endpoint.of_path: in_path} if endpoint.of_path else {}))


def as_json(document: Any) -> str:
    """Write a document as JSON, without spaces."""
    return json.dumps(document, default=vars, separators=(",", ":"), ensure_ascii=False)


def in_blocks(pieces: Iterable[bytes]) -> list[bytes]:
    """Join small pieces, since each piece is sent separately."""
    blocks, block = [], bytearray()
    for piece in sliced(pieces):
        block += piece
        if len(block) >= PIECE:
            blocks.append(bytes(block))
            block.clear()
    return [*blocks, bytes(block)] if block else blocks


def matches(asked: str, etag: str) -> bool:
    """Return whether the header ``If-None-Match`` names this ETag."""
    return any(each.strip().removeprefix("W/") == etag.removeprefix("W/") for each in asked.split(",")) or asked == "*"


def _of_page(page: Page[Any]) -> Reply:
    """Write a page item by item, in slices of time. The ETag is that of the items: ``as_of`` does not count."""
    items: list[bytes] = []
    digest = hashlib.blake2b(digest_size=12)
    for item in sliced(page.items):
        text = as_json(item).encode()
        digest.update(text)
        items.append(b"," + text if items else text)
    digest.update(repr(page.next).encode())
    head = f'{{"as_of":{as_json(page.as_of)},"items":['.encode()
    body = [head, *items, f'],"next":{as_json(page.next)}}}'.encode()]
    return Reply(body=body, etag=f'"{digest.hexdigest()}"')


def _of_document(document: Any) -> Reply:
    if isinstance(document, dict):
        return Reply(body=[as_json(document).encode()])
    rest = as_json({name: value for name, value in vars(document).items() if name != "as_of"})
    etag = hashlib.blake2b(rest.encode(), digest_size=12).hexdigest()
    return Reply(body=[as_json(document).encode()], etag=f'"{etag}"')

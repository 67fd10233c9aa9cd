"""The URLs of the small server: what each takes, and what it answers."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from backoff_ctrl.k8s.acting.acts import Acts

from .actions import ACTIONS, PREFIX, Actions
from .asked import ProblemError, wanted
from .documents.items import decision
from .explaining.bodies import confirm_wanted, namespace_of, read_manifest
from .explaining.document import explained_by
from .metrics import CONTENT_TYPE, exposition
from .shapes.documents import Page
from .slices import sliced
from .streams import STALLED, Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.k8s.acting.token import Token

    from .asked import Asked
    from .decisions import Ring
    from .documents.pages import Documents

log = logging.getLogger(__name__)

JSON: Final = "application/json"
FAILURES_MAX: Final = 100
PAGING: Final = ("limit", "after")
REASONS_MAX: Final = 20
"""Reasons of ``/readyz`` by gate."""


@dataclass
class Found:
    """An answer: a body in pieces, or a stream (after which decision, what first, which namespace)."""

    status: int = 200
    content_type: str = JSON
    body: list[bytes] = field(default_factory=list)
    etag: str = ""
    stream: tuple[int, bytes, str | None] | None = None


class Routes:
    """Finds the answer to a request for the gates of this process."""

    def __init__(self, documents: Documents, ring: Ring, *, series_max: int, stalled: float = STALLED) -> None:
        """``series_max`` limits ``/metrics``; a listener that takes nothing for ``stalled`` seconds is dropped.

        ``token`` is what operators need to act: set it once the port is known.
        """
        self.documents = documents
        self._series_max = series_max
        self.streams = Streams(ring, lambda told: as_json(decision(told)), stalled=stalled)
        self._failed: set[str] = set()
        self._fixed: dict[str, Callable[[Asked], Found]] = {
            "/v1/ceilings": self._ceilings,
            "/v1/waiting": self._waiting,
            "/v1/namespaces": self._namespaces,
            "/v1/overload": lambda asked: self._plain(asked, self.documents.overload),
            "/v1/policy": lambda asked: self._plain(asked, self.documents.policy),
            "/v1/gates": lambda asked: self._plain(asked, self.documents.gates),
            "/metrics": self._metrics,
            "/livez": lambda _: _text("ok\n"),
            "/readyz": lambda _: self._readyz(),
            "/version": lambda _: Found(body=[as_json({"version": documents.version}).encode()]),
        }

        self.token: Token | None = None
        self._acts = Acts(lambda: [source.ledger for source in documents.sources])
        self._posts: dict[str, Callable[[Asked, Mapping[str, str], bytes], Found]] = {
            "/v1/explain": self._explain,
            **{PREFIX + name: self._act for name in ACTIONS},
        }

    def find(self, asked: Asked, headers: Mapping[str, str]) -> Found:
        """Return the answer. Raises ``ProblemError``."""
        route = self._fixed.get(asked.path)
        if route is not None:
            return route(asked)
        if asked.path == "/v1/decisions":
            return self._decisions(asked, headers)
        if asked.path.startswith("/v1/requests/"):
            asked.allow(())
            return _document(self.documents.request(unquote(asked.path.removeprefix("/v1/requests/"))))
        if asked.path in self._posts:
            raise ProblemError(405, f"POST to {asked.path}: there is nothing to GET")
        known = ", ".join([*self._fixed, *self._posts, "/v1/decisions", "/v1/requests/{id}"])
        raise ProblemError(404, f"nothing is at this path; there are {known}", "#/path")

    def post(self, asked: Asked, headers: Mapping[str, str], body: bytes) -> Found:
        """Return the answer to a POST. Raises ``ProblemError``."""
        route = self._posts.get(asked.path)
        if route is None:
            raise ProblemError(405, f"this path does not accept POST; these do: {', '.join(self._posts)}", "#/path")
        return route(asked, headers, body)

    def methods(self, path: str) -> str:
        """Return the methods that a path takes, as the header ``Allow`` has them."""
        return "POST" if path in self._posts else "GET, HEAD"

    def failed(self, error: Exception) -> None:
        """Log an internal error once, and count it."""
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._failed and len(self._failed) < FAILURES_MAX:
            self._failed.add(kind)
            log.error("internal error in the status API, which goes on; please report it", exc_info=error)
        for source in self.documents.sources[:1]:
            source.ledger.counts.failed_open += 1

    # -- one by one ---------

    def _ceilings(self, asked: Asked) -> Found:
        names = ("namespace", "quota", "resource")
        asked.allow((*names, *PAGING))
        where = {name: wanted(asked.query, name) for name in names}
        return as_found(self.documents.ceilings(where, asked.after("ceilings"), asked.limit()))

    def _waiting(self, asked: Asked) -> Found:
        asked.allow(("namespace", *PAGING))
        namespace = wanted(asked.query, "namespace")
        return as_found(self.documents.waiting(namespace, asked.after("waiting"), asked.limit()))

    def _namespaces(self, asked: Asked) -> Found:
        asked.allow(PAGING)
        return as_found(self.documents.namespaces(asked.after("namespaces"), asked.limit()))

    def _plain(self, asked: Asked, document: Callable[[], Any]) -> Found:
        asked.allow(())
        return _document(document())

    def _decisions(self, asked: Asked, headers: Mapping[str, str]) -> Found:
        asked.allow(("namespace", "after"))
        seq, first = self.streams.place(headers.get("Last-Event-ID") or asked.query.get("after"))
        return Found(stream=(seq, first, wanted(asked.query, "namespace")))

    def _explain(self, asked: Asked, headers: Mapping[str, str], body: bytes) -> Found:
        asked.allow(("namespace", "confirm"))
        if confirm_wanted(asked.query):
            raise ProblemError(
                403,
                "a gate can't use your rights, and does not lend its own: ask backoff-ctrl serve, or "
                "use backoff-ctrl explain --kubeconfig FILE --confirm",
                "#/query/confirm",
            )
        manifest = read_manifest(body, headers.get("Content-Type", ""))
        namespace = namespace_of(manifest, wanted(asked.query, "namespace"))
        return Found(body=[as_json(explained_by(self.documents.sources, manifest, namespace)).encode()])

    def _readyz(self) -> Found:
        """Say whether all that was watched still is; the gate goes on in any case, by timers."""
        reasons = [reason for source in self.documents.sources for reason in islice(source.unready(), REASONS_MAX)]
        return _text("".join(f"{reason}\n" for reason in reasons) or "ok\n", 503 if reasons else 200)

    def _act(self, asked: Asked, headers: Mapping[str, str], body: bytes) -> Found:
        asked.allow(())
        actions = Actions(self._acts, self.token, self.documents.as_of)
        return Found(body=[as_json(actions.do(asked.path, headers, body, "loopback")).encode()])

    def _metrics(self, asked: Asked) -> Found:
        asked.allow(())
        return Found(content_type=CONTENT_TYPE, body=exposition(self.documents, self.streams, self._series_max))


def as_json(document: Any) -> str:
    """Write a document as JSON, without spaces."""
    return json.dumps(document, default=vars, separators=(",", ":"), ensure_ascii=False)


def as_found(page: Page[Any]) -> Found:
    """Write a page item by item, in slices of time. The ETag is that of the items: ``as_of`` does not count."""
    items: list[bytes] = []
    digest = hashlib.blake2b(digest_size=12)
    for item in sliced(page.items):
        text = as_json(item).encode()
        digest.update(text)
        items.append(b"," + text if items else text)
    digest.update(repr(page.next).encode())
    head = f'{{"as_of":{as_json(page.as_of)},"items":['.encode()
    return Found(body=[head, *items, f'],"next":{as_json(page.next)}}}'.encode()], etag=f'"{digest.hexdigest()}"')


def _document(document: Any) -> Found:
    if isinstance(document, Page):
        return as_found(document)
    rest = as_json({name: value for name, value in vars(document).items() if name != "as_of"})
    etag = hashlib.blake2b(rest.encode(), digest_size=12).hexdigest()
    return Found(body=[as_json(document).encode()], etag=f'"{etag}"')


def _text(text: str, status: int = 200) -> Found:
    return Found(status, content_type="text/plain; charset=utf-8", body=[text.encode()])

"""What a gate answers at each URL of ``endpoints``: a document, or what a method here makes.

They may take long, so no event loop calls them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from .actions import Actions, check_operator
from .asked import Anything, ProblemError
from .bodies import namespace_of, read_manifest
from .conversation import EVENTS, Answer, Sent, answer, read
from .decisions import KeptDecision
from .documents import Documents
from .endpoints import Endpoint, OfAction, OfDecisions, OfExplain, find
from .explaining import explained_by
from .metrics import CONTENT_TYPE, Sample, exposition
from .shapes import Acted, Explained
from .streams import Streams
from .token import Token

log = logging.getLogger(__name__)

FAILURES_MAX: Final = 100
REASONS_MAX: Final = 20
"""Reasons of ``/readyz`` by gate."""


class GateEndpoints:
    """Answers for the gates of this process. Thread-safe."""

    def __init__(
        self,
        documents: Documents,
        streams: Streams[KeptDecision] | None,
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

    def reply(self, method: str, path: str, query: str = "", sent: Sent | None = None) -> Answer:
        """Return the answer to a request. Raises ``ProblemError``."""
        endpoint, in_path = find(method, path)
        return self.reply_at(method, endpoint, read(endpoint, query, in_path), sent or Sent())

    def reply_at(self, method: str, endpoint: Endpoint, query: Any, sent: Sent) -> Answer:
        """Return the answer of an endpoint: its document, or what a method here makes. Raises ``ProblemError``."""
        make = getattr(self, endpoint.name, None)
        found = getattr(self.documents, endpoint.name)(query) if make is None else make(query, sent)
        return answer(method, sent.headers, found)

    def failed(self, error: Exception) -> None:
        """Log an internal error once, and count it."""
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._failed and len(self._failed) < FAILURES_MAX:
            self._failed.add(kind)
            log.error("internal error in the status API, which continues; please report it", exc_info=error)
        for source in self.documents.sources[:1]:
            source.ledger.counts.failed_open += 1

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

    def decisions(self, query: OfDecisions, sent: Sent) -> Answer:
        assert self._streams is not None, "nobody listens to the gate of serve itself over HTTP"
        last = sent.headers.get("last-event-id")
        return Answer(content_type=EVENTS, stream=self._streams.begin(query.namespace, last or query.after))

    def metrics(self, _: Anything, __: Sent) -> Answer:
        return Answer(exposition(self.documents, self._streams, self._series_max, self._beside()), CONTENT_TYPE)

    def livez(self, _: Anything, __: Sent) -> Answer:
        return Answer([b"ok\n"])

    def readyz(self, _: Anything, __: Sent) -> Answer:
        """Return whether every watch that was healthy still is; without one the gate continues by timers."""
        reasons = [reason for source in self.documents.sources for reason in islice(source.unready(), REASONS_MAX)]
        text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
        return Answer([text.encode()], status=503 if reasons else 200)

    def version(self, _: Anything, __: Sent) -> dict[str, str]:
        return {"version": self.documents.version}

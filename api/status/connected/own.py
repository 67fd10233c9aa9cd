"""The gate of this process, through which ``serve --store`` creates what its tasks need: asked without HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.documents.items import decision
from backoff_ctrl.k8s.status.gate_endpoints import JSON, GateEndpoints, Sent, as_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from backoff_ctrl.k8s.acting.token import Token
    from backoff_ctrl.k8s.status.decisions import Ring
    from backoff_ctrl.k8s.status.documents.pages import Documents

NEWS_EVERY: Final = 0.25
"""Seconds between two looks whether something was decided."""
IDLE: Final = "it has no line yet: it carries out no tasks, perhaps as another process has the lease of their store"


class OwnGate:
    """Answers as a gate's status server does. It belongs to the event loop of ``serve``, but for ``ask``."""

    def __init__(self, documents: Documents, ring: Ring, url: str, token: Token) -> None:
        """``url`` is where ``serve`` itself is; who acts there has its ``token``."""
        self.documents = documents
        self.url = url
        self.token = token
        self._ring = ring
        self._endpoints = GateEndpoints(documents, None, series_max=0)
        self._endpoints.token = token

    def ask(self, path: str, query: Mapping[str, str] | None, body: Any, authorization: str) -> Any:
        """Return a document: by GET, or by POST of a body. Any thread may ask. Raises ``ProblemError``."""
        if not self.documents.sources:
            raise ProblemError(503, IDLE)
        sent = Sent()
        if body is not None:
            headers = {"content-type": JSON, "authorization": authorization}
            sent = Sent(headers, json.dumps(body).encode())
        found = self._endpoints.reply("GET" if body is None else "POST", path, urlencode(query or {}), sent)
        return json.loads(b"".join(found.body))

    async def decisions(self) -> AsyncIterator[str]:
        """Yield each decision as JSON, from the oldest that is kept on, for ever."""
        seq = 0
        while True:
            for told in self._ring.after(seq).decisions:
                yield as_json(decision(told))
                seq = told.seq
            await asyncio.sleep(NEWS_EVERY)

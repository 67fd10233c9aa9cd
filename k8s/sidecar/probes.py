"""The address for probes: liveness, readiness, and metrics for Prometheus, and no other path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from backoff_ctrl.k8s.kube.answers.printing import metric_head, metric_sample
from backoff_ctrl.k8s.sidecar.http.requests import Asked, Part, RequestReader

from .passing import Shared

CONNECTIONS_MAX: Final = 32
"""Connections at a time. One more replaces the oldest without a request, else the oldest of all."""
PATIENCE: Final = 10.0
"""Seconds that a connection may take for its one request."""
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Probes:
    """Answers ``/livez``, ``/startupz``, ``/readyz`` and ``/metrics``."""

    def __init__(
        self, shared: Shared, more: Callable[[], str] = lambda: "", lacking: Callable[[], Iterable[str]] = lambda: ()
    ) -> None:
        """``more`` returns the metrics of other rooms, as text; ``lacking`` the missing rights, a line each."""
        self.started = False
        """It listens; in TLS mode, its files are written."""
        self.ready = False
        """The API server has answered, too."""
        self.silent: dict[ProbeConnection, None] = {}
        """Connections that have sent no request yet, the oldest first."""
        self.asking: dict[ProbeConnection, None] = {}
        """The others, the oldest first."""
        self._shared = shared
        self._rendering: asyncio.Future[str] | None = None
        self._more = more
        self._lacking = lacking

    async def answer(self, asked: Asked) -> bytes:
        path = asked.head.target.partition(b"?")[0]
        kind = _TEXT
        if asked.head.method not in {b"GET", b"HEAD"}:
            status, text = "405 Method Not Allowed", "this address answers only GET\n"
        elif path == b"/livez":
            status, text = "200 OK", "ok\n"
        elif path in {b"/startupz", b"/readyz"}:
            is_so = self.started if path == b"/startupz" else self.ready
            status, text = ("200 OK", "ok\n") if is_so else ("503 Service Unavailable", "not yet\n")
            if path == b"/readyz":  # ready even without these rights: creates are held for longer
                text += "".join(f"{line}\n" for line in self._lacking())
        elif path == b"/metrics":
            status, text, kind = "200 OK", metrics(self._shared) + await self._rendered(), _METRICS
        else:
            status, text = "404 Not Found", "unknown path: choose from /livez, /startupz, /readyz and /metrics\n"
        body = text.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + (b"" if asked.head.method == b"HEAD" else body)

    async def _rendered(self) -> str:
        """Return the metrics of other rooms; requests at the same time share one text."""
        if self._rendering is None or self._rendering.done():
            self._rendering = asyncio.ensure_future(asyncio.to_thread(self._more))
        return await asyncio.shield(self._rendering)


class ProbeConnection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self._reader = RequestReader()
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one of a stream
        self._transport = transport
        probes = self._probes
        probes.silent[self] = None
        if len(probes.silent) + len(probes.asking) > CONNECTIONS_MAX:
            oldest = next(iter(probes.silent if len(probes.silent) > 1 else probes.asking))
            oldest.leave()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._reader.parts and self._answering is None and not self._transport.is_closing():
            self._probes.silent.pop(self, None)
            self._probes.asking[self] = None
            kind, value = self._reader.parts.popleft()
            if kind is Part.HEAD and isinstance(value, Asked):
                self._answering = asyncio.ensure_future(self._answer(value))
            else:
                self._transport.close()

    async def _answer(self, asked: Asked) -> None:
        try:
            self._transport.write(await self._probes.answer(asked))
        finally:
            self._transport.close()

    def leave(self) -> None:
        """End at once, to make room for another one."""
        self._probes.silent.pop(self, None)
        self._probes.asking.pop(self, None)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is gone, however
        self._probes.silent.pop(self, None)
        self._probes.asking.pop(self, None)
        if self._answering is not None:
            self._answering.cancel()
        if self._timer is not None:
            self._timer.cancel()


def metrics(shared: Shared) -> str:
    """Return the counts of the data path in Prometheus' text format."""
    counts = shared.counts
    requests = {"passed": counts.passed, "held": counts.held, "refused": counts.refused, "failed": counts.failed}
    families: list[tuple[str, str, str, Mapping[str, int] | int]] = [
        ("connections", "gauge", "Open connections of callers.", len(shared.callers)),
        ("upstream_connections", "gauge", "Open connections to the API server.", shared.server.connections),
        ("connections_turned_away_total", "counter", "Connections over the limit.", counts.turned_away),
        ("requests_total", "counter", "Requests that passed, were read whole, were refused, or failed.", requests),
        ("held_bytes", "gauge", "Bytes of the bodies of held creates.", shared.held.total),
    ]
    text = ""
    for short, kind, about, found in families:
        name = f"backoff_ctrl_proxy_{short}"
        text += metric_head(name, kind, about)
        if isinstance(found, int):
            text += metric_sample(name, (), found)
        else:
            text += "".join(metric_sample(name, [("way", way)], count) for way, count in found.items())
    return text

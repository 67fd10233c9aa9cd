"""Serves the status of this process' gates: from the environment variable, or by one call.

A host program does not depend on its status: if the port is in use there is one warning and another port, and any other
error is one warning and no status. After a fork the child counts from 0 and serves on a port of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.gate.runtime.host import LOADING, after_fork
from backoff_ctrl.k8s.gate.settings import gate_name, settings
from backoff_ctrl.k8s.kube.cluster.address import read_address

from .conversation import as_json
from .counters import Counters
from .decisions import Decisions
from .documents import Documents, decision
from .gate_endpoints import GateEndpoints
from .sources import Source
from .streams import Streams
from .token import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.kube.watching.status import WatchRecord

    from .metrics import Sample
    from .server import StatusServer

log = logging.getLogger(__name__)

PORTS_TRIED: Final = 100


class Service:
    """The status of one process: its gates, and the server once it was started. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.ring = Decisions()
        self.sources: list[Source] = []
        self.documents = Documents(self.sources, own_version())
        self.server: StatusServer | None = None
        self.token: Token | None = None
        self._address: tuple[str, int] | None = None
        self._beside: list[Callable[[], Iterable[Sample]]] = []

    def show_beside(self, samples: Callable[[], Iterable[Sample]]) -> Callable[[], None]:
        """Add metrics of this process to those of its gates, and return what ends that. Any thread asks for them."""
        self._beside.append(samples)
        return partial(self._beside.remove, samples)

    def beside(self) -> Iterator[Sample]:
        """Yield the metrics of this process that are not those of a gate."""
        for samples in list(self._beside):
            yield from samples()

    def add(
        self,
        ledger: Ledger,
        server: str | None = None,
        watch: Callable[[], WatchRecord | None] = lambda: None,
        *,
        decides: bool = True,
    ) -> Source:
        """Begin to count what a ledger decides. A second call returns the same source.

        ``decides``: creates pass it. Else it only watches, and is no gate in the metrics.
        """
        with self._lock:
            for source in self.sources:
                if source.ledger is ledger:
                    return source
            name = self._free_name()
            counters = Counters(ledger.now, ledger.explain, gate=name, ring=self.ring)
            source = Source(ledger, counters, name=name, server=server, watch=watch, decides=decides)
            self.sources.append(source)
            source.unsubscribe = ledger.subscribe(counters)
            return source

    def remove(self, ledger: Ledger) -> None:
        """Show a ledger no longer: what it decided for is over."""
        with self._lock:
            for source in [each for each in self.sources if each.ledger is ledger]:
                source.unsubscribe()
                self.sources.remove(source)

    def _free_name(self) -> str:
        """Return the name of one more gate: that of the process, with a number from the second one on."""
        name, taken = gate_name(), {source.name for source in self.sources}
        return next(
            each for each in (name, *(f"{name}/{number}" for number in range(2, len(taken) + 2))) if each not in taken
        )

    def serve(self, listen: str, *, exact: bool = False, shared: bool = False) -> StatusServer:
        """Serve at ``host:port``, or at the next port that is free. A second call returns the running server.

        ``shared``: with ``exact``, other processes of this user may serve there, too. Raises ``ValueError`` for an
        address that is malformed or not loopback, ``OSError`` if no port is free or, with ``exact``, if this one is
        not.
        """
        host, port = read_address(listen)
        with self._lock:
            if self.server is None or self.server.is_closed:  # by whoever got it
                if self.token is not None:
                    self.token.close()
                self._address = host, port
                self._start(host, (port,) if exact else _ports_from(port), shared=shared)
            assert self.server is not None
            return self.server

    def close(self) -> None:
        """End the server; the counters continue."""
        with self._lock:
            server, self.server, self._address = self.server, None, None
        if self.token is not None:
            self.token.close()
        if server is not None:
            server.close()
            atexit.unregister(self.close)

    def renew(self) -> None:
        """Start over in a forked child: count from 0, and serve on a port of its own."""
        self._lock = threading.RLock()
        self.ring.renew()
        name = gate_name()
        for number, source in enumerate(self.sources):
            source.renew(name + (f"/{number + 1}" if number else ""))
        server, self.server = self.server, None
        self.token = None  # the file is the parent's
        if server is not None and not server.is_closed and self._address is not None:
            server.abandon()
            with contextlib.suppress(OSError):  # the child works without it
                host, port = self._address
                self._start(host, _ports_from(server.port + 1 if port else 0), expected=True)

    def _start(self, host: str, ports: tuple[int, ...], *, shared: bool = False, expected: bool = False) -> None:
        """Serve at the first of these ports that is free; ``expected``: that is not the first. Raises ``OSError``."""
        with LOADING:
            from .server import StatusServer  # noqa: PLC0415 - loads aiohttp.web, for those alone who serve a status

        streams = Streams(self.ring, lambda told: as_json(decision(told)))
        endpoints = GateEndpoints(self.documents, streams, series_max=settings().series_max, beside=self.beside)
        *before, last = ports
        for port in before:
            with contextlib.suppress(OSError):
                self.server = server = StatusServer((host, port), endpoints, streams)
                break
        else:
            self.server = server = StatusServer((host, last), endpoints, streams, shared=shared)
        endpoints.token = self.token = Token(server.port)
        server.start()
        atexit.register(self.close)
        if ports[0] not in (0, server.port) and not expected:
            log.warning("port %d is in use: the status of this gate is at %s", ports[0], server.url)
        else:
            log.info("the status of this gate is at %s", server.url)


def _ports_from(port: int) -> tuple[int, ...]:
    """Return the ports to try: this one, those after it, then any."""
    return (*range(port, min(port + PORTS_TRIED, 65_536)), 0) if port else (0,)


def own_version() -> str:
    try:
        return version("backoff-ctrl")
    except PackageNotFoundError:  # a checkout on the path
        return "unknown"


SERVICE: Final = Service()
"""The status of this process."""
after_fork(SERVICE.renew)

"""The life of a proxy: ready once the API server answers; at SIGTERM it answers held creates, and the rest drains.

It wires the data path, the held creates, and the status of the gate together.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from backoff_ctrl.early import listening_early
from backoff_ctrl.ending import at_signals
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.gate.settings import settings as process_settings
from backoff_ctrl.k8s.gate.sharing.process import serve_later, tell_own_pod
from backoff_ctrl.k8s.kube.cluster.rights import ALL, GATEWAY, REVIEW, OwnRights
from backoff_ctrl.k8s.sidecar.holding.holding import OwnAccount, open_holding
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request
from backoff_ctrl.k8s.status.showing import serve_status, shown

from .finding import UpstreamConfig, UpstreamError
from .listening import Address, BindError, Listener, bind, check_given, descriptors_for, handed_over, leave_path, url_of
from .passing import Creates, Limits, Shared
from .probes import ProbeConnection, Probes
from .upstream import IDLE_CONNECTIONS_MAX, ApiServer

EVERY: Final = 60.0
"""Seconds between two rounds of questions: roles change while a proxy runs."""
EVERYWHERE: Final = "*"
_JSON: Final = b"application/json"
_logger = logging.getLogger("backoff_ctrl")


def own_rights(server: ApiServer, namespaces: Iterable[str]) -> OwnRights:
    """Return what to ask about the proxy's own account; ``*`` means all namespaces.

    Without these rights it wakes creates later.
    """

    async def ask(review: Mapping[str, Any]) -> tuple[int, bytes]:
        head = Head(b"POST", REVIEW.encode(), [(b"Accept", _JSON), (b"Content-Type", _JSON)])
        said = await server.ask_as_proxy(Request(head, json.dumps(review).encode()))
        return said.status, said.body

    there = [ALL if each == EVERYWHERE else each for each in namespaces]
    return OwnRights(ask, GATEWAY, there, "the proxy's account")


PATIENCE: Final = 5.0
"""Seconds to wait at the start for an API server that refuses connections: both may start together."""
_RETRY: Final = 0.25
_KEPT_MEMORY: Final = 16 * 2**20


def _ending() -> Iterator[signal.Signals]:
    """Yield the signals for an orderly end: also that of a closed terminal, unless the proxy is to outlive it."""
    yield from (signal.SIGINT, signal.SIGTERM)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        yield signal.SIGHUP


class Certificates(Protocol):
    """The certificates of a listener with TLS: made by the proxy itself, or given."""

    context: ssl.SSLContext

    def keep_fresh(self) -> Coroutine[Any, Any, None]:
        """Replace the certificate in time, until cancelled."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the data path, from the command line."""

    listen: Address
    place: UpstreamConfig
    holds: HoldSettings
    admin: str | None = None
    """Where the status API of the gate is served, ``127.0.0.1:9095``; None: it is not served."""
    use_own: bool = False
    allow_exec: bool = False
    """Lend the proxy's own credentials to exec and attach, too."""
    tls: Certificates | None = None
    probes: Address | None = None
    ready_file: Path | None = None
    drain: float = 10.0
    connections: int = 2000
    listen_first: bool = False
    """Listen before the API server answers, and wait for it without limit."""
    reuse_port: bool = False
    """Let the next process listen on the same port before this one has ended."""
    check_rights: tuple[str, ...] = ()
    """Namespaces, or ``*``, for which ``/readyz`` names the rights that the proxy's own account lacks."""


def run(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. ``say`` gets the line with the address.

    Raises ``BindError`` and ``UpstreamError``, and ``OptionError`` for an environment variable with a wrong value.
    """
    keep_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_Life(settings, say).serve())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, which halves the work per request, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - of the extra `proxy`; absent on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def keep_memory() -> None:
    """Let glibc keep the buffers of large answers: returning and requesting them again costs a third of the time."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            libc = ctypes.CDLL(None)
            for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
                libc.mallopt(option, _KEPT_MEMORY)


class _Life:
    """One run of the proxy, from its sockets to its exit."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._over = asyncio.Event()

    async def serve(self) -> None:
        at_signals(_ending(), self._over.set)
        async with RUNTIME.lent(), AsyncExitStack() as ends:  # in reverse order, also after a failure
            await self._serve(ends)

    async def _serve(self, ends: AsyncExitStack) -> None:
        settings = self._settings
        connections = descriptors_for(settings.connections, IDLE_CONNECTIONS_MAX)
        bound = handed_over("listen")
        if bound is None:
            bound = bind(settings.listen, private=settings.use_own, shared=settings.reuse_port)
            if settings.listen.path is not None:
                ends.callback(leave_path(settings.listen.path))
        else:
            check_given(bound, use_own=settings.use_own, tls=settings.tls is not None)
        ends.callback(bound.close)
        server = ApiServer(settings.place, use_own=settings.use_own)
        ends.callback(server.close)
        creates = self._creates(server)
        own_only = settings.use_own and bound.family != socket.AF_UNIX
        shared = Shared(
            server, creates, Limits(connections=connections), local_hosts_only=own_only, lends_exec=settings.allow_exec
        )
        listener = Listener(shared, bound, None if settings.tls is None else settings.tls.context)
        rights = own_rights(server, settings.check_rights)
        probes = Probes(shared, _metrics, lambda: rights.lacking)
        bound_probes = self._bind_probes(ends)
        served = await ends.enter_async_context(AsyncExitStack())  # probes are answered until all has been drained
        ends.push_async_callback(self._end, shared, listener)
        if settings.tls is not None:
            ends.callback(asyncio.create_task(settings.tls.keep_fresh()).cancel)
        url = url_of(bound, tls=settings.tls is not None)
        if settings.listen_first:
            await self._open(listener, probes)  # before the first probe is answered: "not yet" would be a warning
            self._say(f"listening on {url}")
        await self._serve_probes(probes, bound_probes, served)
        if settings.listen_first:
            self._begin_beside(ends)
        if await self._answers(server):
            if not settings.listen_first:
                await self._open(listener, probes)
            self._note_ready(ends)
            probes.ready = True
            if settings.check_rights:
                ends.callback(asyncio.create_task(rights.keep_asking(EVERY)).cancel)
            gc.freeze()  # what is loaded by now stays: each full collection would look at all of it, for 10 ms or more
            ends.callback(setattr, probes, "ready", False)
            if not settings.listen_first:
                self._say(f"listening on {url}")
                self._begin_beside(ends)
            await self._over.wait()

    def _begin_beside(self, ends: AsyncExitStack) -> None:
        """Begin what only helps, once creators are served: to load it takes as long as the rest of the start."""
        beside = asyncio.create_task(self._beside())
        ends.push_async_callback(asyncio.wait, {beside})
        ends.callback(beside.cancel)

    async def _beside(self) -> None:
        end = await asyncio.to_thread(self._load_beside)
        try:
            await self._over.wait()
        finally:
            end()

    def _load_beside(self) -> Callable[[], object]:
        """Serve the status where the environment says so, and write events about this pod; return what ends these."""
        given, settings = process_settings(), self._settings
        if given.status and settings.admin is None:
            try:
                serve_status(listen=given.status, exact=True, shared=settings.reuse_port)
            except (OSError, ValueError) as error:
                _logger.warning("the status of this gate is not served at %s: %s", given.status, error)
        return tell_own_pod(self._ledger, OwnAccount(settings.place), given)

    def _creates(self, server: ApiServer) -> Creates:
        """Return the room that answers creates, and serve its status. Raises ``BindError`` and ``OptionError``."""
        settings = self._settings
        serve_later()
        holding = open_holding(server, settings.holds)
        self._ledger = holding.ledger
        if settings.admin is None:
            shown()
            return holding
        try:
            serve_status(listen=settings.admin, exact=True, shared=settings.reuse_port)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise BindError(f"--admin: can't listen on {settings.admin} ({why}): choose another") from None
        return holding

    async def _open(self, listener: Listener, probes: Probes) -> None:
        await listener.start()
        probes.started = True

    def _bind_probes(self, ends: AsyncExitStack) -> socket.socket | None:
        address = self._settings.probes
        if address is None:
            return None
        bound = handed_over("probes") or listening_early(address.host, address.port)
        bound = bound or bind(address, "--probe-listen", shared=self._settings.reuse_port)
        ends.callback(bound.close)
        return bound

    async def _serve_probes(self, probes: Probes, bound: socket.socket | None, ends: AsyncExitStack) -> None:
        if bound is not None:
            served = await asyncio.get_running_loop().create_server(partial(ProbeConnection, probes), sock=bound)
            ends.callback(served.close)

    async def _answers(self, server: ApiServer) -> bool:
        """Wait until the API server answers; return whether it did before the proxy ends. Raises ``UpstreamError``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        said = ""
        while not self._over.is_set():
            why = await server.answers()
            if not why:
                return True
            problem = f"the API server at {self._settings.place.url} can't be used: {why}"
            if self._settings.listen_first:
                if problem != said:
                    _logger.warning("%s; retrying", problem)
                said = problem
            elif loop.time() > deadline or not server.may_come:
                raise UpstreamError(f"{problem}; start it, or correct --apiserver or --kubeconfig")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _RETRY)
        return False

    def _note_ready(self, ends: AsyncExitStack) -> None:
        file = self._settings.ready_file
        if file is not None:
            try:
                file.write_text("ready\n", encoding="utf-8")
            except OSError as error:
                raise BindError(f"--ready-file {file} can't be written: {error.strerror}") from None
            ends.callback(leave_path(file))

    async def _end(self, shared: Shared, listener: Listener) -> None:
        """Answer held creates, and those that come now, and let the rest drain, all within the limit."""
        drain = self._settings.drain
        closing = asyncio.ensure_future(shared.creates.close(drain))
        await listener.close(drain)
        await closing


def _metrics() -> str:
    """Return the metrics of the gate as text for Prometheus. It sleeps between its steps: call it in a thread."""
    from backoff_ctrl.k8s.status.metrics import exposition  # noqa: PLC0415 - after the start

    return b"".join(exposition(shown())).decode()

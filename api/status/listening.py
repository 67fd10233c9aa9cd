"""Binds the address and runs the application there, until the process is asked to end."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import click
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backoff_ctrl.api.connections import Clients
from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.early import STALLED, listening_early, open_page
from backoff_ctrl.k8s.kube.cluster.address import PORT
from backoff_ctrl.k8s.kube.cluster.asking import find_place

from .access import Loopback
from .app import Connecting, make_app
from .observing import Cluster

PORT_MAX: Final = 65535
GOODBYE: Final = 2
"""Seconds for answers under way to end: streams never do by themselves."""
CONNECTIONS_MAX: Final = 512
"""Connections at a time, open pages included: fewer than the files that most systems let a process open, 1024."""
RENEWAL_TICKS: Final = 600


def bind(host: str, port: int, stalled: float = STALLED) -> socket.socket:
    """Return a socket that listens there, perhaps since the program began. Raises ``BadInput`` if it can't be had."""
    try:
        return listening_early(host, port) or open_page(host, port, stalled)
    except OSError as error:
        raise BadInput(
            f"--listen: can't listen on {host} port {port} ({error.strerror or error}): {_instead(host, port, error)}"
        ) from None


def _instead(host: str, port: int, error: OSError) -> str:
    """Return what to do when an address can't be used; a gate usually has the default port."""
    if error.errno != errno.EADDRINUSE:
        return "choose another address"
    shown = f"[{host}]" if ":" in host else host
    other = port + 1 if port < PORT_MAX else port - 1
    return (
        f"if a gate is there, type backoff-ctrl serve --listen {shown}:{other} --gate http://{shown}:{port}, "
        "else choose another address"
    )


def url_of(bound: socket.socket, *, tls: bool) -> str:
    """Return where a socket is, as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def serve(app: FastAPI, bound: socket.socket, tls: tuple[Path, Path] | None) -> None:
    """Run the application on a socket until SIGINT or SIGTERM; print its address once it answers."""
    clients = Clients(CONNECTIONS_MAX)
    config = uvicorn.Config(
        _noting(app, clients),
        loop="asyncio",
        log_config=None,  # its lines are the command's, within the bounds of those
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GOODBYE,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    _Server(config, url_of(bound, tls=tls is not None), clients, app.state.end_streams).run(sockets=[bound])


class _Server(uvicorn.Server):
    """Prints its address once it answers, and ends its streams before it waits for answers under way."""

    def __init__(self, config: uvicorn.Config, url: str, clients: Clients, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._url = url
        self._clients = clients
        self._end_streams = end_streams

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - of the signal
        """End in order: the parent class would raise the signal again afterwards. A second one ends at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._clients.close()
        self._end_streams()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; once a minute the certificate is read again, since somebody may renew it."""
        config = self.config
        if counter % RENEWAL_TICKS == 0 and config.ssl is not None and config.ssl_certfile is not None:
            with suppress(OSError, ValueError):  # half replaced: retried a minute later
                config.ssl.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password="")
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections as all ports of ours do: uvicorn itself would let silent ones keep all others out."""
        await super().startup([])
        config = self.config

        def make() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn makes it
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        for bound in sockets or []:
            self._clients.open(bound, make, config.ssl)
        click.echo(f"listening on {self._url}")


def _noting(app: ASGIApp, clients: Clients) -> ASGIApp:
    """Return an application that notes which connections get good answers."""

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400 and scope.get("client"):
                clients.note_good(tuple(scope["client"]))
            await send(message)

        await app(scope, receive, noted)

    return noting


HOST = "127.0.0.1"


@contextmanager
def page_beside(api_server: str, gate: str) -> Iterator[str]:
    """Serve the page of an API server that needs no credentials and of one gate, to this machine; yields its URL."""
    cluster = Cluster(find_place(api_server, None, None, None))
    app = make_app(cluster, Connecting([gate]), Loopback())
    bound = _bound()
    config = uvicorn.Config(app, loop="asyncio", log_level="error", access_log=False, timeout_graceful_shutdown=GOODBYE)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="live page", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{bound.getsockname()[1]}"
    finally:
        app.state.end_streams()
        server.should_exit = True
        thread.join()
        cluster.close()


def _bound() -> socket.socket:
    """Return a socket at the usual port, or at another one if that is in use."""
    try:
        return bind(HOST, PORT)
    except BadInput:
        return bind(HOST, 0)

"""A small HTTP server for the status API on a daemon thread: standard library only, loopback only.

It answers what ``routes`` makes. A browser's page could post to loopback or rebind a name to it, hence only requests
for a loopback host are answered, none that a page of elsewhere sends, and nothing can be changed here.
"""

from __future__ import annotations

import logging
import selectors
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .address import is_loopback, name_of, named_hosts
from .asked import Asked, ProblemError, problem_text
from .explaining.bodies import too_large
from .streams import Listener

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .routes import Found, Routes
    from .shapes.problems import Problem

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
"""Open connections at a time, streams apart; each has a thread."""
PATIENCE: Final = 15.0
"""Seconds that a connection may be silent, in the middle of a request too."""
PROBLEM: Final = "application/problem+json"
_METHODS: Final = ("GET", "HEAD", "POST")


class StatusServer(ThreadingMixIn, TCPServer):
    """Serves from its start until ``close``. ``url`` is where."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], routes: Routes, *, shared: bool = False) -> None:
        """Listen. ``shared``: other processes of this user may listen there, too (SO_REUSEPORT).

        Raises ``OSError`` if the address can't be used.
        """
        self.allow_reuse_port = shared
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.routes = routes
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._open: set[Any] = set()  # connections that threads serve
        self._handed_over: set[socket.socket] = set()
        self.hosts = named_hosts()
        super().__init__(address, _Handler)
        self.socket.setblocking(False)
        self._closing, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="backoff-ctrl-status", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where it is."""
        host = str(self.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """End, and close the streams. A second call does nothing."""
        if self._wake.fileno() >= 0:
            self._wake.close()
            if self._thread.is_alive():
                self._thread.join()
            self.server_close()
            for connection in list(self._open):  # what is being answered is still answered, but nothing after it
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
            self._closing.close()
            self.routes.streams.close()

    def abandon(self) -> None:
        """Let go of the sockets in a forked child, where no thread serves them. The parent's stay open."""
        for each in (self.socket, self._closing, self._wake):
            each.close()
        self.routes.streams.abandon()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._closing, selectors.EVENT_READ)
            while all(key.fileobj is not self._closing for key, _ in selector.select()):
                self._handle_request_noblock()  # type: ignore[attr-defined]  # of the standard library

    # -- called by the standard library ---------

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if there are not too many."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open.add(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._open.discard(request)
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._room.release()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, unless it has become a stream."""
        if request in self._handed_over:
            self._handed_over.discard(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the standard library's
        """Log what went wrong in a connection. A client that hangs up is no error."""
        log.debug("a connection to the status API from %s failed", client_address, exc_info=sys.exc_info())

    def hand_over(self, connection: socket.socket, listener: Listener) -> bool:
        """Let the streams serve this connection from now on. Return False if there are too many."""
        self._handed_over.add(connection)
        if self.routes.streams.add(listener):
            return True
        self._handed_over.discard(connection)
        return False


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "backoff-ctrl"
    sys_version = ""
    timeout = PATIENCE
    server: StatusServer
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Any:
        """Answer every method in one place: the standard library calls ``do_<METHOD>``."""
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log quietly: a poll every second is nobody's news."""
        log.debug(format, *args)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that can't even be read."""
        self.close_connection = True
        self._problem(ProblemError(int(code), explain or message or "the request can't be read").problem)

    def _answer(self) -> None:
        try:
            self._check()
            asked, headers = Asked(self.path), dict(self.headers.items())
            routes = self.server.routes
            found = routes.post(asked, headers, self._body()) if self._posts else routes.find(asked, headers)
        except ProblemError as error:
            self._problem(error.problem)
        except Exception as error:  # noqa: BLE001 - law 18: status only helps
            self.server.routes.failed(error)
            self._problem(ProblemError(500, "an internal error; it is counted, and logged once").problem)
        else:
            self._found(found)

    def _check(self) -> None:
        if self.command != "GET":
            self.close_connection = True  # it may have a body that nobody reads to its end
        if self.command not in _METHODS:
            raise ProblemError(405, f"this server answers GET and POST, not {self.command}")
        host = self.headers.get("Host")
        if host is None or not (is_loopback(host) or name_of(host) in self.server.hosts):
            raise ProblemError(
                403,
                f"this server answers for localhost only, not for {host!r}: reach it through kubectl port-forward",
                "#/headers/Host",
            )
        origin = self.headers.get("Origin")
        if origin is not None and not is_loopback(urlsplit(origin).netloc):
            raise ProblemError(403, f"this server does not answer web pages of {origin!r}", "#/headers/Origin")

    @property
    def _posts(self) -> bool:
        return self.command == "POST"

    def _body(self) -> bytes:
        """Read the body, if it is not too large. Raises ``ProblemError``."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise ProblemError(411, "send the body with its Content-Length", "#/headers/Content-Length")
        too_large(int(length))
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ProblemError(400, "the body ends before its Content-Length", "#/body")
        return body

    def _found(self, found: Found) -> None:
        if found.stream is not None:
            self._stream(found)
        elif found.etag and _matches(self.headers.get("If-None-Match", ""), found.etag):
            self._head(304, [("ETag", found.etag)])
        else:
            length = sum(map(len, found.body))
            more = [("Content-Type", found.content_type), ("Content-Length", str(length))]
            self._head(found.status, more + ([("ETag", found.etag)] if found.etag else []))
            self._write(found.body)

    def _stream(self, found: Found) -> None:
        assert found.stream is not None
        seq, first, namespace = found.stream
        self.close_connection = True
        if self.command == "HEAD":
            self._head(200, [("Content-Type", "text/event-stream")])
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n"
        listener = Listener(self.connection, seq, namespace, head + b"\r\nretry: 2000\n\n" + first)
        if not self.server.hand_over(self.connection, listener):
            self.connection.settimeout(PATIENCE)
            self._problem(ProblemError(503, "too many listen to decisions already; try again later").problem)

    def _problem(self, problem: Problem) -> None:
        text = problem_text(problem)
        more = [("Content-Type", PROBLEM), ("Content-Length", str(len(text)))]
        if problem.status == 405:
            more.append(("Allow", self.server.routes.methods(self.path.partition("?")[0])))
        if problem.status == 401:
            more.append(("WWW-Authenticate", "Bearer"))
        if problem.status == 503:
            more.append(("Retry-After", "5"))
        self._head(problem.status, more)
        self._write([text])

    def _head(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _write(self, body: Iterable[bytes]) -> None:
        if self.command != "HEAD":
            self.wfile.writelines(body)


def _matches(asked: str, etag: str) -> bool:
    return any(each.strip().removeprefix("W/") == etag.removeprefix("W/") for each in asked.split(",")) or asked == "*"

"""An API server whose answers a test scripts, for what the sandbox lacks (credentials, permissions)."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kit.patience import PATIENCE

Reply = tuple[int, Mapping[str, Any] | bytes | Iterator[bytes]]
VERSION = 200, {"gitVersion": "v1.36.0"}
"""What an API server answers at ``/version``."""


@dataclass(frozen=True)
class Seen:
    """A request as it was received. ``port``: that of the caller, which tells connections apart."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    port: int = 0


@dataclass
class Script:
    """The server's URL and the requests it received."""

    url: str
    seen: list[Seen] = field(default_factory=list)

    def of(self, method: str) -> list[Seen]:
        """The requests with this method."""
        return [each for each in self.seen if each.method == method]


@contextmanager
def scripted_server(answer: Callable[[Seen], Reply]) -> Iterator[Script]:
    """Serve ``answer(request) -> (status, object or bytes)`` from background threads.

    An iterator of bytes is a body that is sent piece by piece, and ends with the connection.
    """
    script = Script("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, self.path, headers, json.loads(data) if data else None, self.client_address[1])
            script.seen.append(seen)
            status, body = answer(seen)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 204:
                pieces: Iterator[bytes] = iter(
                    []
                )  # by HTTP without a body: one would be read as the begin of the next answer
            elif isinstance(body, Iterator):
                pieces = body
                self.send_header("Connection", "close")  # http.server sees this header, too, and closes the connection
            else:
                payload = body if isinstance(body, bytes) else json.dumps(body).encode()
                pieces = iter([payload])
                self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=PATIENCE)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up in the middle: some tests interrupt programs."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def failure(code: int, reason: str, message: str) -> Reply:
    """Return a Status to answer with."""
    return code, {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}


def api_server(answer: Callable[[Seen], Reply]) -> AbstractContextManager[Script]:
    """Serve an API server that answers so to all but the question for its version."""
    return scripted_server(lambda seen: VERSION if seen.path == "/version" else answer(seen))

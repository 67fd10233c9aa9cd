"""A proxy as docs/operations.md asks for, with the options of kube-rbac-proxy: the API server says who may ask.

It ends TLS, has the token reviewed for its audience and the path by a SubjectAccessReview, and passes on the paths of
its list alone. ``BACKOFF_TEST_KUBE_RBAC_PROXY`` names the real program, which the tests run then instead of this one.
"""

from __future__ import annotations

import argparse
import fnmatch
import http.client
import os
import ssl
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from backoff_ctrl.k8s.kube.cluster.asking import Reach, find_place
from tests.kit.patience import PATIENCE

PROGRAM: Final = [os.environ.get("BACKOFF_TEST_KUBE_RBAC_PROXY", ""), "--v=2"]
COMMAND: Final = PROGRAM if PROGRAM[0] else [sys.executable, "-m", __name__]


class Passing(BaseHTTPRequestHandler):
    """Passes a request on, or refuses it."""

    protocol_version = "HTTP/1.1"
    reach: Reach
    upstream: str
    paths: Sequence[str]
    audience: str

    def do_GET(self) -> None:
        """Ask whether, then pass it on and the answer back, piece by piece: it may be a stream without an end."""
        path = urlsplit(self.path).path
        status = 404 if not any(fnmatch.fnmatch(path, each) for each in self.paths) else self._reviewed(path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if status != 200:
            self._answer(status, [("Content-Length", "0")])
            return
        connection = http.client.HTTPConnection(self.upstream, timeout=PATIENCE)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in {"authorization", "connection"}:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        own = {"connection", "transfer-encoding", "content-length"}
        self._answer(answer.status, [each for each in answer.getheaders() if each[0].lower() not in own])
        while piece := answer.read1(65_536):
            self.wfile.write(piece)
            self.wfile.flush()
        connection.close()

    do_POST = do_GET  # noqa: N815 - as the library calls it

    def _answer(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in [*headers, ("Connection", "close")]:
            self.send_header(name, value)
        self.end_headers()

    def _reviewed(self, path: str) -> int:
        """Return 200 for whom the API server lets ask, 401 or 403 for others."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        asked: Any = {"spec": {"token": token, "audiences": [self.audience]}}
        told = self.reach.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", asked)[1]["status"]
        if not told.get("authenticated"):
            return 401
        attributes = {"path": path, "verb": {"GET": "get", "POST": "create"}[self.command]}
        who = {"user": told["user"]["username"], "groups": told["user"]["groups"]}
        asked = {"spec": {**who, "nonResourceAttributes": attributes}}
        told = self.reach.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)[1]["status"]
        return 200 if told["allowed"] else 403

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("secure-listen-address", "upstream", "tls-cert-file", "tls-private-key-file", "allow-paths"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--auth-token-audiences", required=True)
    parser.add_argument("--kubeconfig", required=True)
    given = parser.parse_args()
    Passing.reach = Reach(find_place(None, given.kubeconfig, None, None))
    Passing.upstream = urlsplit(given.upstream).netloc
    Passing.paths, Passing.audience = given.allow_paths.split(","), given.auth_token_audiences
    host, _, port = given.secure_listen_address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Passing)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(given.tls_cert_file, given.tls_private_key_file)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

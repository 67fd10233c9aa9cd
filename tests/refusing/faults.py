"""What can be wrong with the server or the kubeconfig that a command is given."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.scripted_server import VERSION, Reply, Seen, scripted_server

Given = tuple[list[str], tuple[str, ...]]
"""The options of a command, and words of the sentence that it ends with."""
NOWHERE: Final = "http://127.0.0.1:1"


@contextmanager
def answering(
    status: int, body: bytes, *, content: str = "application/json", tls: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """Serve one answer to everything; yield ``HOST:PORT``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do_HEAD = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is what is tested
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def powerless() -> Iterator[str]:
    """Serve an API server to an account without rights; yield its URL. A review of its own rights is open to all."""

    def answer(seen: Seen) -> Reply:
        if seen.path == "/version":
            return VERSION
        if "selfsubjectaccessreviews" in seen.path:
            return 201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": False}}
        return 403, FORBIDDEN

    with scripted_server(answer) as script:
        yield script.url


def refusal(status: int, reason: str, message: str) -> bytes:
    return (
        f'{{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": {status}, "reason": "{reason}", '
        f'"message": "{message}"}}'
    ).encode()


UNAUTHORIZED: Final = refusal(401, "Unauthorized", "Unauthorized")
FORBIDDEN: Final = refusal(403, "Forbidden", 'things is forbidden: User \\"bob\\" cannot list things')
Server = tuple[str, Callable[[Path], AbstractContextManager[str]], tuple[str, ...]]


def _tls(folder: Path) -> tuple[Path, Path]:
    from tests.proxying.passing.certificates import make_pair  # noqa: PLC0415 - cryptography

    made = make_pair(folder / "tls")
    return made.certificate, made.key


def _page(status: int, text: bytes = b"<!DOCTYPE html><p>Sign in") -> Callable[[Path], AbstractContextManager[str]]:
    return lambda _: answering(status, text, content="text/html")


def _json(status: int, text: bytes) -> Callable[[Path], AbstractContextManager[str]]:
    return lambda _: answering(status, text)


_GO: Final = b"Client sent an HTTP request to an HTTPS server.\n"
_ADDRESS: Final = "address of an API server"
SERVERS: Final[Mapping[str, Server]] = {
    "a web page": ("http", _page(200), ("a web page", _ADDRESS)),
    "a page that is not found": ("http", _page(404, b"<html>no</html>"), ("404", _ADDRESS)),
    "JSON of another service": ("http", _json(200, b'{"ok": true}'), ("names no version", _ADDRESS)),
    "a list": ("http", _json(200, b"[1]"), (_ADDRESS,)),
    "no words": ("http", _json(204, b""), ("204", _ADDRESS)),
    "a gate's status": ("http", _json(200, b'{"version": "1"}'), ("status API of a gate", "API server's own address")),
    "a login page for 401": ("http", _page(401), ("401", _ADDRESS)),
    "TLS": ("http", lambda folder: answering(200, b"{}", tls=_tls(folder)), ("speaks TLS", "https://")),
    "a Go server's TLS": ("http", _page(400, _GO), ("speaks TLS", "https://")),
    "plain HTTP": ("https", _json(200, b"{}"), ("TLS",)),
    "rejected credentials": ("http", _json(401, UNAUTHORIZED), ("credentials",)),
}
"""Servers that are of no use, by what they are: the scheme of their address, and words of the sentence."""


# -- kubeconfigs ---------


def absent(folder: Path) -> Given:
    return ["--kubeconfig", str(folder / "nope")], (str(folder / "nope"), "choose another file with --kubeconfig")


def nearly(folder: Path) -> Given:
    write_kubeconfig(folder / "cluster.yaml", NOWHERE)
    return ["--kubeconfig", str(folder / "clutser.yaml")], (f"did you mean {folder / 'cluster.yaml'}?",)


def folder_of(folder: Path) -> Given:
    return ["--kubeconfig", str(folder)], (str(folder), "is a folder", "choose another file with --kubeconfig")


def _written(folder: Path, text: str) -> str:
    (folder / "config").write_text(text, encoding="utf-8")
    return str(folder / "config")


def empty(folder: Path) -> Given:
    return ["--kubeconfig", _written(folder, "")], ("is empty", "choose another file with --kubeconfig")


def broken(folder: Path) -> Given:
    return ["--kubeconfig", _written(folder, "a: b\nc: [")], ("is not valid YAML", "line")


def words(folder: Path) -> Given:
    return ["--kubeconfig", _written(folder, "just words")], ("structure of a kubeconfig",)


def without_contexts(folder: Path) -> Given:
    return ["--kubeconfig", _written(folder, "kind: Config\napiVersion: v1\n")], ("has no context",)


def without_current(folder: Path) -> Given:
    text = Path(write_kubeconfig(folder / "k", NOWHERE)).read_text(encoding="utf-8")
    file = _written(folder, text.replace("current-context: here\n", ""))
    return ["--kubeconfig", file], ("names no current context", "--context (here)", "use-context here")


def context_that_is_gone(folder: Path) -> Given:
    text = Path(write_kubeconfig(folder / "k", NOWHERE)).read_text(encoding="utf-8")
    file = _written(folder, text.replace("current-context: here", "current-context: gone"))
    return ["--kubeconfig", file], ("current context 'gone'", "it has here", "--context")


def unknown_context(folder: Path) -> Given:
    file = write_kubeconfig(folder / "config", NOWHERE)
    return ["--kubeconfig", file, "--context", "nope"], ("context 'nope'", "it has here", "--context")


def misspelt_context(folder: Path) -> Given:
    file = write_kubeconfig(folder / "config", NOWHERE)
    return ["--kubeconfig", file, "--context", "hare"], ("context 'hare'", "did you mean here?")


def absent_user(folder: Path) -> Given:
    text = Path(write_kubeconfig(folder / "k", NOWHERE)).read_text(encoding="utf-8")
    return ["--kubeconfig", _written(folder, text.replace("user: u", "user: v"))], (
        "the user of context here is 'v'",
        "did you mean u?",
    )


def login_program(folder: Path) -> Given:
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login", "interactiveMode": "Never",
             "installHint": "brew install\nno-such-login"}  # fmt: skip
    file = write_kubeconfig(folder / "config", NOWHERE, {"exec": login})
    return ["--kubeconfig", file], ("no-such-login, which is not there", "(brew install no-such-login)")


def expired_certificate(folder: Path) -> Given:
    from cryptography import x509  # noqa: PLC0415 - of the extra proxy
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bob")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(7).not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2021, 2, 3, 4, 5, tzinfo=UTC)).sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "bob.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    user = {"client-certificate": "bob.crt", "client-key": "bob.key"}
    return ["--kubeconfig", write_kubeconfig(folder / "config", NOWHERE, user)], ("expired on 2021-02-03 04:05 UTC",)


def unreadable(folder: Path) -> Given:
    """Return a file that this user may not read: of the superuser's memory nobody may."""
    return ["--kubeconfig", "/proc/self/mem"], ("can't be read", "choose another file with --kubeconfig")


KUBECONFIGS: Final = (
    absent, nearly, folder_of, unreadable, empty, broken, words, without_contexts, without_current,
    context_that_is_gone, unknown_context, misspelt_context, absent_user, login_program, expired_certificate,
)  # fmt: skip
OF_LOGIN: Final = (login_program, expired_certificate)
"""Those that ``proxy`` can do without: creators bring their own credentials."""

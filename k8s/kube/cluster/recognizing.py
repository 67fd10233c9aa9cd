"""Is it an API server? What its answer to ``/version`` says, and what a connection that failed says."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from backoff_ctrl.k8s.kube.answers.bounded_json import read_json

PATH: Final = "/version"
REMEDY: Final = "check that this is the address of an API server, not of a web server or a login proxy"
SPEAKS_TLS: Final = "speaks TLS, so write https:// instead of http://"
_PLAIN_TO_TLS: Final = (
    b"HTTP request to an HTTPS server", b"HTTP request was sent to HTTPS port", b"HTTP to an SSL-enabled server port",
)  # fmt: skip
"""What servers in Go, nginx and Apache say in plain HTTP, to a client that should have begun with TLS."""
_HANDSHAKE: Final = 3.0
"""Seconds for finding out whether a server speaks TLS that has closed a plain connection."""
_PLAIN: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
"""The reasons of OpenSSL for bytes that are not TLS."""
_MARKUP: Final = (b"<!doctype", b"<html", b"<head", b"<?xml")


def other_than_api_server(status: int, body: bytes) -> str:
    """Return what answers so to ``/version``, and what to do; empty: an API server does, even if it refuses us."""
    if any(each in body for each in _PLAIN_TO_TLS):
        return f"answered {status}: it {SPEAKS_TLS}"
    found = _json(body)
    if found.get("kind") == "Status" and status != 404:  # of an API server: a credential, a right, or too much to do
        return ""
    if status == 200 and isinstance(found.get("gitVersion"), str):
        return ""
    if status == 429 or status >= 500 or (status == 401 and not _is_page(body)):
        return ""  # what stands in front of one may answer so, as long as that is down
    if is_ours(found):
        return (
            f"answered {status} to {PATH} as the status API of a gate of backoff-ctrl does, not as an API server: "
            "give the API server's own address"
        )
    return f"answered {status} to {PATH}{_with(body, found)}: {REMEDY}"


def is_ours(found: Mapping[str, Any]) -> bool:
    """Return whether an answer is one of our status APIs: its own version, or a problem as they write it."""
    return found.keys() == {"version"} or {"title", "status", "detail", "errors"} <= found.keys()


def speaks_no_tls(errors: Iterable[BaseException]) -> bool:
    """Return whether a TLS handshake failed since the server there speaks plain text."""
    return any(isinstance(each, ssl.SSLError) and each.reason in _PLAIN for each in errors)


def speaks_tls(url: str) -> bool:
    """Return whether a server that has closed a plain connection answers a TLS handshake. It blocks."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        return False
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname, parts.port or 80), _HANDSHAKE) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except OSError:
        return False


def _with(body: bytes, found: Mapping[str, Any]) -> str:
    if _is_page(body):
        return " with a web page"
    if found:
        return " with JSON that names no version of Kubernetes"
    return "" if body.strip() else " without a body"


def _is_page(body: bytes) -> bool:
    return body.lstrip()[:200].lower().startswith(_MARKUP)


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        found = read_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

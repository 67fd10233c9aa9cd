"""What is asked of the status API, checked: sender, query parameters, cursors; and the problems with wrong ones."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints
from urllib.parse import parse_qsl

from backoff_ctrl.k8s.kube.cluster.address import host_of, is_loopback, name_of

from .shapes import Pointed, Problem

Query = TypeVar("Query")

LIMIT: Final = 100
LIMIT_MAX: Final = 1000
"""Items on a page, by default and at most: a thousand waiting creates are about 500 kB."""
VALUE_MAX: Final = 512
CURSORS: Final[dict[str, list[type]]] = {
    "ceilings": [int, str, str, str],
    "waiting": [int, str, float, int],
    "namespaces": [int, str],
    "merged": [int, str],
    "tasks": [int],
}
"""What a cursor of each list holds: the gate's number, then the place of the last item."""
WRONG_CURSOR: Final = "after must be the next of an earlier page of this list, unchanged"
_TITLES: Final = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict",
    411: "Length Required", 413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type",
    422: "Unprocessable Content", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}  # fmt: skip


class ProblemError(Exception):
    """What was asked can't be answered; ``problem`` is the answer instead."""

    def __init__(
        self, status: int, detail: str, pointer: str | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """``pointer`` is a JSON Pointer to the part that is wrong (``Pointed``); ``headers`` go with the answer."""
        super().__init__(detail)
        self.headers = headers or {}
        errors = [] if pointer is None else [Pointed(pointer, detail)]
        self.problem = Problem(_TITLES.get(status, "Error"), status, detail, errors=errors)


@dataclass(frozen=True, slots=True)
class Anything:
    """Parameters that are ignored: a probe or a scraper may add some of its own."""


def parameter(words: str, default: Any = None, *, in_path: bool = False, one_of: tuple[str, ...] = ()) -> Any:
    """Return a field of the dataclass of an endpoint's parameters: what it means, and which values it may have."""
    metadata = {"words": words, "in_path": in_path, "one_of": one_of}
    return field(metadata=metadata) if in_path else field(default=default, metadata=metadata)


def check_sender(host: str | None, origin: str | None, *, hosts: Container[str] | None, acts: bool) -> None:
    """Raise ``ProblemError`` for a request to a server of this machine by another name, and for pages of other sites.

    A web page could post to loopback, or rebind a name to it. ``hosts`` are names of this machine beside loopback;
    None: the server is for other machines, too. A request that ``acts`` may come from pages of this very server alone.
    """
    if hosts is not None and (host is None or not (is_loopback(host) or name_of(host) in hosts)):
        raise ProblemError(
            403,
            f"this server answers for localhost only, not for {(host or '')[:200]!r}: reach it through kubectl "
            "port-forward",
            "#/headers/Host",
        )
    page = host_of(origin or "")
    if origin is not None and ((acts and page != host) or (hosts is not None and not is_loopback(page))):
        raise ProblemError(403, f"this server does not answer web pages of {origin[:200]!r}", "#/headers/Origin")


def read_query(shape: Callable[..., Query], query: str, **in_path: str) -> Query:
    """Read the query of a URL, and the parameters in its path. Raises ``ProblemError`` for what ``shape`` has not."""
    given, types = check_query(shape, query), types_of(shape)
    values: dict[str, Any] = {name: read_value(name, types[name], text) for name, text in given.items()}
    return shape() if shape is Anything else shape(**in_path, **values)


def check_query(shape: Any, query: str) -> dict[str, str]:
    """Return the texts in the query of a URL by name. Raises ``ProblemError`` for a name that ``shape`` has not."""
    if shape is Anything:
        return {}
    given, known = _pairs(query), [each.name for each in fields(shape) if not each.metadata["in_path"]]
    for name in given:
        if name not in known:
            hint = f"choose from {', '.join(known)}" if known else "it takes none"
            raise ProblemError(400, f"unknown parameter {name!r}: {hint}", f"#/query/{_escaped(name)}")
    return given


def read_value(name: str, kind: type, text: str) -> Any:
    """Return the value of a parameter of this kind. Raises ``ProblemError``."""
    pointer = f"#/query/{name}"
    if kind is int:
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= LIMIT_MAX:
            raise ProblemError(400, f"{name} must be a whole number from 1 to {LIMIT_MAX}, not {text!r}", pointer)
        return int(text)
    if kind is bool:
        if text not in ("true", "false", ""):
            raise ProblemError(400, f"{name} must be true or false, not {text!r}", pointer)
        return text == "true"
    return text if name == "after" else text or None  # an empty filter filters nothing


@cache
def types_of(shape: Any) -> dict[str, Any]:
    """Return the type of each parameter."""
    return get_type_hints(shape)


def _pairs(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError as error:
        raise ProblemError(400, f"the query can't be read: {error}", "#/query") from error
    found: dict[str, str] = {}
    for name, value in pairs:
        pointer = f"#/query/{_escaped(name)}"
        if name in found:
            raise ProblemError(400, f"{name} is given more than once", pointer)
        if len(value) > VALUE_MAX:
            raise ProblemError(400, f"{name} is longer than {VALUE_MAX} characters", pointer)
        found[name] = value
    return found


def cursor(kind: str, where: list[Any]) -> str:
    """Write a cursor: opaque to callers, stateless here."""
    text = json.dumps([kind, *where], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str | None, kind: str) -> list[Any] | None:
    """Read a cursor of a list of that kind; None: from the beginning. Raises ``ProblemError``."""
    if text is None:
        return None
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        types = [type(part) for part in found[1:]] if isinstance(found, list) and found and found[0] == kind else None
        if types != CURSORS[kind]:
            raise ValueError  # noqa: TRY301 - every way of being wrong has one answer
    except (ValueError, binascii.Error, RecursionError):
        raise ProblemError(400, WRONG_CURSOR, "#/query/after") from None
    where: list[Any] = found[1:]
    return where


def _escaped(name: str) -> str:
    return name[:64].replace("~", "~0").replace("/", "~1")

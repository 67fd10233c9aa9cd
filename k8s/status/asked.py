"""What is asked of the status API, checked: query parameters, cursors; and the problems that wrong ones lead to."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from .shapes.problems import Pointed, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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

    def __init__(self, status: int, detail: str, pointer: str | None = None) -> None:
        """``pointer`` is a JSON Pointer to the part that is wrong (``Pointed``)."""
        super().__init__(detail)
        errors = [] if pointer is None else [Pointed(pointer, detail)]
        self.problem = Problem(_TITLES.get(status, "Error"), status, detail, errors=errors)


class Asked:
    """The path and the checked query of one request."""

    def __init__(self, target: str) -> None:
        """Take the target of a request line apart. Raises ``ProblemError``."""
        parts = urlsplit(target)
        self.path = parts.path
        self.query: dict[str, str] = {}
        try:
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict")
        except ValueError as error:
            raise ProblemError(400, f"the query can't be read: {error}", "#/query") from error
        for name, value in pairs:
            pointer = f"#/query/{_escaped(name)}"
            if name in self.query:
                raise ProblemError(400, f"{name} is given more than once", pointer)
            if len(value) > VALUE_MAX:
                raise ProblemError(400, f"{name} is longer than {VALUE_MAX} characters", pointer)
            self.query[name] = value

    def allow(self, names: Collection[str]) -> None:
        """Raise ``ProblemError`` for a parameter that is not one of these."""
        for name in self.query:
            if name not in names:
                known = ", ".join(names) or "none"
                raise ProblemError(400, f"unknown parameter {name!r}; here are: {known}", f"#/query/{_escaped(name)}")

    def limit(self) -> int:
        """Return how many items are wanted. Raises ``ProblemError``."""
        text = self.query.get("limit")
        if text is None:
            return LIMIT
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= LIMIT_MAX:
            raise ProblemError(
                400, f"limit must be a whole number from 1 to {LIMIT_MAX}, not {text!r}", "#/query/limit"
            )
        return int(text)

    def after(self, kind: str) -> list[Any] | None:
        """Return what the cursor of a list of that kind holds; None: from the beginning. Raises ``ProblemError``."""
        text = self.query.get("after")
        return None if text is None else read_cursor(text, kind)


def cursor(kind: str, where: list[Any]) -> str:
    """Write a cursor: opaque to callers, stateless here."""
    text = json.dumps([kind, *where], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str, kind: str) -> list[Any]:
    """Read a cursor of a list of that kind. Raises ``ProblemError``."""
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        types = [type(part) for part in found[1:]] if isinstance(found, list) and found and found[0] == kind else None
        if types != CURSORS[kind]:
            raise ValueError  # noqa: TRY301 - every way of being wrong has one answer
    except (ValueError, binascii.Error, RecursionError):
        raise ProblemError(
            400, "after must be the next of an earlier page of this list, unchanged", "#/query/after"
        ) from None
    where: list[Any] = found[1:]
    return where


def problem_text(problem: Problem) -> bytes:
    """Write a problem as JSON."""
    return json.dumps(problem, default=vars).encode()


def wanted(query: Mapping[str, str], name: str) -> str | None:
    """Return a filter; None: it is not given, or empty."""
    return query.get(name) or None


def _escaped(name: str) -> str:
    return name[:64].replace("~", "~0").replace("/", "~1")

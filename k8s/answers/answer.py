"""An API server's answer as a value, and the few answers that the gate words itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, read to its end. ``made_here`` says that the gate worded it: the server was not asked."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    made_here: bool = field(default=False, compare=False)
    read: list[dict[str, Any] | None] = field(default_factory=list, init=False, repr=False, compare=False)
    """What ``json`` has found, once somebody asked."""

    @property
    def ok(self) -> bool:
        """Whether it is a 2xx."""
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any] | None:
        """Return the body as an object, or nothing if it is not one: the same object each time."""
        if not self.read:
            try:
                value = json.loads(self.body)
            except ValueError:
                value = None
            self.read.append(value if isinstance(value, dict) else None)
        return self.read[0]


class NotSent(Exception):  # noqa: N818 - the engine's word for it
    """The connection was never made: the server has not seen the request. ``__cause__`` is the transport's error."""


class OutcomeUnknown(Exception):  # noqa: N818 - the engine's word for it
    """The request left and no answer came: it may have been stored. ``__cause__`` is the transport's error."""


class WaitedTooLong(TimeoutError):  # noqa: N818 - the engine's word for it
    """The waiting time is over. ``answer`` is the server's last word, if it was asked at all."""

    def __init__(self, detail: str, answer: Answer | None = None) -> None:
        """Keep the last answer for those who must raise it."""
        super().__init__(detail)
        self.answer = answer


class GateClosed(Exception):  # noqa: N818 - a state, not a mistake
    """The gate, or the client in front of it, was closed while this create was waiting: it was not sent."""


def status_answer(status: int, reason: str, message: str, details: Mapping[str, Any]) -> Answer:
    """Word a Status as the API server does (apimachinery ``api/errors``)."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": dict(details),
        "code": status,
    }
    headers = {"Content-Type": "application/json"}
    if "retryAfterSeconds" in details:
        headers["Retry-After"] = str(details["retryAfterSeconds"])
    return Answer(status, headers, json.dumps(body).encode(), made_here=True)


def already_exists(resource: str, name: str) -> Answer:
    """Word the 409 that a full quota hides: quota admission answers before storage finds the name taken."""
    kind, _, group = resource.partition(".")
    message = f'{resource} "{name}" already exists'
    return status_answer(409, "AlreadyExists", message, _details(kind, group, name))


def refused_here(resource: str, name: str, detail: str, *, retry_after: int | None = None) -> Answer:
    """Word the engine's own refusal: 403 where it never fits, 429 where too many wait already."""
    kind, _, group = resource.partition(".")
    details = _details(kind, group, name)
    if retry_after is None:
        return status_answer(403, "Forbidden", f'{resource} "{name}" is forbidden: {detail}', details)
    message = f'{resource} "{name}" was not let in line: {detail}'
    return status_answer(429, "TooManyRequests", message, {**details, "retryAfterSeconds": retry_after})


def found_as_created(found: Answer) -> Answer:
    """Give the looked-up object as the create's own success."""
    return Answer(201, found.headers, found.body, made_here=True)


def assumed_created(body: Mapping[str, Any]) -> Answer:
    """Success by a 409 on our own minted name where looking is forbidden: all we have is what we sent."""
    return Answer(201, {"Content-Type": "application/json"}, json.dumps(body).encode(), made_here=True)


def _details(kind: str, group: str, name: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, **({"group": group} if group else {})}

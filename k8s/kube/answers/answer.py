"""An API server's answer as a value, and the few answers that the gate writes itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.facts.quantities import quantity

from .bounded_json import read_json

SERVER_LIMIT: Final = 40.0
"""Seconds after which the API server has finished with a create: it ends each at 34 s, and this adds a margin."""

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Reader = Callable[[bytes], dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete HTTP answer. ``made_here``: the gate wrote it, it did not come from the server.

    ``reader`` reads the object in a body that is not JSON.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    made_here: bool = field(default=False, compare=False)
    reader: Reader | None = field(default=None, repr=False, compare=False)
    read: list[dict[str, Any] | None] = field(default_factory=list, init=False, repr=False, compare=False)
    """The cached result of ``json``: empty until its first call."""

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> dict[str, Any] | None:
        """Return the object in the body, or None. Parsed once: every call returns the same object."""
        if not self.read:
            self.read.append((self.reader or _read_json)(self.body))
        return self.read[0]

    def said(self) -> bytes:
        """Return the body as ``read_rejection`` takes it: as it is, or a Status in another form as JSON."""
        if self.reader is None:
            return self.body
        status = self.json()
        return self.body if status is None else json.dumps(status).encode()


def _read_json(body: bytes) -> dict[str, Any] | None:
    try:
        value = read_json(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class NotSent(Exception):  # noqa: N818 - the engine's word for it
    """No connection was made, so the server never saw the request. ``__cause__`` is the transport's error."""


class OutcomeUnknown(Exception):  # noqa: N818 - the engine's word for it
    """The request was sent but no answer came: the object may exist. ``__cause__`` is the transport's error."""


class WaitedTooLong(TimeoutError):  # noqa: N818 - the engine's word for it
    """The create reached its waiting limit.

    ``answer`` is the last quota refusal; else, where a quota is what it waited for, the refusal that the server would
    give; else the last answer, or None. ``wait`` is the ``Wait`` that says what it waited for, or None.
    """

    def __init__(self, detail: str, answer: Answer | None = None, wait: Any = None) -> None:
        """Keep the last answer, so that a gated client can raise it as its own ``ApiException``."""
        super().__init__(detail)
        self.answer = answer
        self.wait = wait


class GateClosed(Exception):  # noqa: N818 - a state, not a mistake
    """The gate, or the client that uses it, was closed while this create was waiting. It was not sent.

    ``wait`` is the ``Wait`` that says what it waited for, where that is known.
    """

    wait: Any = None


class CallerAway(GateClosed):
    """A create ended while its caller was away and will not come back: no caller receives this error."""


def status_answer(status: int, reason: str, message: str, details: Mapping[str, Any]) -> Answer:
    """Return a ``Status`` answer in the API server's form (apimachinery ``api/errors``), byte for byte."""
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
    headers = {"Cache-Control": "no-cache, private", "Content-Type": "application/json"}
    if "retryAfterSeconds" in details:
        headers["Retry-After"] = str(details["retryAfterSeconds"])
    return Answer(status, headers, _as_go_writes(body), made_here=True)


def _as_go_writes(status: Mapping[str, Any]) -> bytes:
    text = json.dumps(status, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text.encode(errors="replace") + b"\n"


def already_exists(resource: str, name: str) -> Answer:
    """Return the 409 that a full quota hides: quota admission rejects before storage can see that the name is taken."""
    kind, _, group = resource.partition(".")
    message = f'{resource} "{name}" already exists'
    return status_answer(409, "AlreadyExists", message, _details(kind, group, name))


def refused_here(resource: str, name: str, detail: str, *, retry_after: int | None = None) -> Answer:
    """Return the engine's own refusal: 403 if it can never fit, 429 (``retry_after``, seconds) if the line is full."""
    kind, _, group = resource.partition(".")
    details = _details(kind, group, name)
    if retry_after is None:
        return status_answer(403, "Forbidden", f'{resource} "{name}" is forbidden: {detail}', details)
    message = f'{resource} "{name}" cannot join the waiting line: {detail}'
    return status_answer(429, "TooManyRequests", message, {**details, "retryAfterSeconds": retry_after})


def exceeded_quota(
    resource: str, name: str, quota: str, amounts: Mapping[str, Sequence[int]], hint: str = ""
) -> Answer:
    """Return the 403 that the server would give, so that existing code can parse it.

    ``amounts``: what is requested, used and limited of each resource, in nano-units. ``hint`` ends the sentence.
    """
    kind, _, group = resource.partition(".")
    sentence = f'{resource} "{name}" is forbidden: exceeded quota: {quota}'
    for place, word in enumerate(("requested", "used", "limited")):
        sentence += f", {word}: " + ",".join(_amount(each, three[place]) for each, three in amounts.items())
    return status_answer(403, "Forbidden", sentence + hint, _details(kind, group, name))


def _amount(resource: str, amount: int) -> str:
    return f"{resource}={quantity(max(0, amount), resource)}"


def found_as_created(found: Answer) -> Answer:
    """Return the object that a lookup found as the 201 of its create."""
    return replace(found, status=201, made_here=True)


def assumed_created(body: Mapping[str, Any]) -> Answer:
    """Return a 201 for a 409 on a name that the gate drew, where ``get`` is forbidden.

    The name is ours, so the object is, too. The sent manifest stands in for the stored object, which cannot be read.
    """
    return Answer(201, {"Content-Type": "application/json"}, json.dumps(body).encode(), made_here=True)


def _details(kind: str, group: str, name: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, **({"group": group} if group else {})}

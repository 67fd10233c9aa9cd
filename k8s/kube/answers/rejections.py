"""Read an answer that is not a success: its lane, and for a full quota the amounts.

Pure: ``(status, headers, body)`` in, a ``Rejection`` out. It never raises, for any bytes. It takes three steps, in
the order of this module: what the answer says (a Status as JSON, a text, a line of a log), its lane, what that means.

The text is matched before the status: only the text distinguishes the 403 of a full quota from that of missing rights.
Sources: ``k8s.io/apiserver`` admission plugins ``resourcequota``, ``webhook`` and ``lifecycle``,
``k8s.io/kubernetes`` ``plugin/pkg/admission``, and the public issues beside the texts in ``tests/data``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any, Final, NamedTuple

from .answer import Answer
from .fields import mapping, mappings, text
from .gutters import unwrapped
from .quota_sentence import exceeds, read_plain_quota_text, read_quota_text, read_told_quota_text, read_unspecified

# -- what the answer says ---------

LONGEST_BODY: Final = 65_536  # bytes or characters of an answer that are read; a Status is below 2 KiB

_STATUS_OBJECT: Final = re.compile(r'\{\s{0,99}"kind"\s{0,9}:\s{0,9}"Status"')
_DECODER: Final = json.JSONDecoder()

# How clients and kubectl write the status code of an answer into a line of text.
_CODE_TEXT: Final = re.compile(
    r"""(?:\b[Cc]ode["']?\s?[:=]\s?|HTTP/[12](?:\.\d)? |HTTP (?:status )?(?:code )?|\A\(|: \(|xception \()"""
    r"([1-5]\d\d)\b"
)
_REASON_TEXT: Final = re.compile(r'(?:rror from server \(|Reason: |reason=|"reason"\s{0,9}:\s{0,9}")([A-Za-z ]{4,40})')
_REASON_CODES: Final = {
    "AlreadyExists": 409,
    "BadRequest": 400,
    "Bad Request": 400,
    "Conflict": 409,
    "Forbidden": 403,
    "Gateway Timeout": 504,
    "InternalError": 500,
    "Internal Server Error": 500,
    "Invalid": 422,
    "NotFound": 404,
    "Not Found": 404,
    "RequestEntityTooLarge": 413,
    "ServiceUnavailable": 503,
    "Service Unavailable": 503,
    "Timeout": 504,
    "Too Many Requests": 429,
    "TooManyRequests": 429,
    "Unauthorized": 401,
    "Unprocessable Entity": 422,
}


class Said(NamedTuple):
    """The parts of an answer that decide its meaning."""

    message: str
    code: int = 0  # 0: the text has no code
    reason: str = ""
    kind: str = ""  # of the object that the answer is about, if given
    name: str = ""
    causes: tuple[str, ...] = ()
    retry_after: float | None = None

    @property
    def line(self) -> str:
        """The message on one line: logs, events and YAML wrap it or pad it into columns."""
        return one_line(self.message)


def one_line(message: str) -> str:
    return " ".join(message.split()).replace(" =", "=")


def open_answer(body: bytes | str, *, wrapped: bool = False) -> Said:
    """Return the message and details of an answer. Never raises. ``wrapped``: another program may have wrapped it."""
    text = body[:LONGEST_BODY]
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    text = (unwrapped(text) if wrapped else text).strip()
    status = _status_in(text)
    if status is not None:
        said = _said(status)
        if said.message or said.reason:
            return said
    plain = text.replace("\\n", " ").replace("\\", "")
    return Said(plain, _code_in(plain))


def _status_in(text: str) -> dict[str, Any] | None:
    """Return the Status object that is the text, or the first one inside it."""
    found = _STATUS_OBJECT.search(text)
    if found is None and not text.startswith("{"):
        return None
    try:
        value, _ = _DECODER.raw_decode(text, found.start() if found else 0)
    except (ValueError, RecursionError):  # truncated, escaped twice, or hostile: read it as plain text
        return None
    return value if isinstance(value, dict) and value.get("kind") == "Status" else None


def _said(status: dict[str, Any]) -> Said:
    """Read the fields of a Status. Each may be missing or of the wrong type."""
    details = mapping(status.get("details"))
    code, wait = status.get("code"), details.get("retryAfterSeconds")
    return Said(
        message=text(status.get("message")),
        code=code if isinstance(code, int) else 0,
        reason=text(status.get("reason")),
        kind=text(details.get("kind")),
        name=text(details.get("name")),
        causes=tuple(text(cause.get("reason")) for cause in mappings(details.get("causes"))),
        retry_after=float(wait) if isinstance(wait, int) and 0 < wait < 2**31 else None,
    )


def _code_in(text: str) -> int:
    """Infer the status code from a line that reports an answer; 0 if the line does not say."""
    if found := _CODE_TEXT.search(text):
        return int(found.group(1))
    for reason in _REASON_TEXT.finditer(text):
        words = reason.group(1).split(" HTTP")[0].strip()
        if words in _REASON_CODES:
            return _REASON_CODES[words]
    return 0


# -- its lane ---------


class Lane(StrEnum):
    """The class of an answer. Each lane is treated in its own way."""

    QUOTA = "quota"  # the quota is full: learn its amounts, wait
    MUST_SPECIFY = "must-specify"  # the quota requires fields that the object lacks
    QUOTA_NOT_READY = "quota-not-ready"  # the quota has no status yet: try again shortly
    NO_COVERING_QUOTA = "no-covering-quota"  # rejected until some quota covers the object
    QUOTA_CONFLICT = "quota-conflict"  # creates raced to update the quota: try again shortly
    QUOTA_TIMEOUT = "quota-timeout"  # the server did not evaluate the quota in time: back off
    OVERLOAD = "overload"  # not stored: allow fewer creates in flight
    UNKNOWN_OUTCOME = "unknown-outcome"  # the object may exist: look it up
    NOT_SENT = "not-sent"  # no connection was made: send again
    WEBHOOK_FAILED = "webhook-failed"  # not stored; a webhook of this namespace is broken
    NOT_READY = "not-ready"  # a new namespace, or a server that is starting: try again shortly
    POLICY = "policy"
    RBAC = "rbac"
    LIMIT_RANGE = "limit-range"
    NAMESPACE_TERMINATING = "namespace-terminating"
    WEBHOOK = "webhook"  # a webhook denied the object for a reason other than a quota
    EXISTS = "exists"
    INVALID = "invalid"
    CREDENTIALS = "credentials"
    OTHER = "other"


RETRYABLE: Final = frozenset(
    {
        Lane.QUOTA,
        Lane.QUOTA_NOT_READY,
        Lane.QUOTA_CONFLICT,
        Lane.QUOTA_TIMEOUT,
        Lane.OVERLOAD,
        Lane.UNKNOWN_OUTCOME,
        Lane.NOT_SENT,
        Lane.WEBHOOK_FAILED,
        Lane.NOT_READY,
    }
)


def _texts(*texts: str) -> re.Pattern[str]:
    """Compile a pattern that matches any of these texts, ignoring case."""
    return re.compile("|".join(re.escape(text) for text in texts), re.IGNORECASE)


_ANY_STATUS: Final[frozenset[int]] = frozenset()
_REJECTED: Final = frozenset({0, 400, 403, 422})

TOO_LARGE: Final = _texts("etcdserver: request is too large", "trying to send message larger than max")
"""What the API server says, with status 500, about an object that its store rejects."""

# Texts that decide the lane, tried in order. Kubernetes' own admission answers come first, because other programs
# wrap them in sentences of their own ("Forbidden!Configured service account doesn't have access. ..."). The second
# element is the set of statuses that the text may come with: 0 is an unknown status, the empty set is any status.
_BY_TEXT: Final = (
    (Lane.MUST_SPECIFY, _ANY_STATUS, re.compile(r"[Ff]ailed quota: (?P<quota>[^\s:]{1,253}): must specify ")),
    (Lane.QUOTA_NOT_READY, _ANY_STATUS, re.compile(r"status unknown for quota: (?P<quota>[^\s,\"']{1,253})")),
    (Lane.NO_COVERING_QUOTA, _ANY_STATUS, re.compile(r"insufficient quota to (?:consume|match these scopes): ")),
    (
        Lane.QUOTA_CONFLICT,
        frozenset({0, 409, 500}),
        re.compile(
            r"cannot be fulfilled on (?:applied)?(?:cluster)?resourcequotas[a-z.]{0,99} \"(?P<quota>[^\"]{1,253})"
            r"|\bresourcequotas \"(?P<old>[^\"]{1,253})\" cannot be updated: the object has been modified"
        ),
    ),
    (
        Lane.QUOTA_TIMEOUT,
        _ANY_STATUS,
        _texts("resource quota evaluation timed out", "resource quota evaluates timeout", "error resolving quota"),
    ),
    (Lane.WEBHOOK_FAILED, _ANY_STATUS, _texts("failed calling webhook", "failed calling admission webhook")),
    (Lane.WEBHOOK, _ANY_STATUS, re.compile(r"admission webhook \"?[^\s\"]{1,253}\"? denied the request")),
    (
        Lane.NAMESPACE_TERMINATING,
        _ANY_STATUS,
        re.compile(r"in namespace \S{1,253} because it is being terminated"),
    ),
    (
        Lane.NOT_READY,
        frozenset({0, 403}),
        re.compile(
            r"not yet ready to handle request|error looking up service account "
            r"|was not found, retry after the service account is created"
            r"|retry after the token is automatically created"
        ),
    ),
    (
        Lane.LIMIT_RANGE,
        _REJECTED,
        re.compile(r"[Mm](?:in|ax)imum \S{1,253} usage per [A-Za-z]|max limit to request ratio per "),
    ),
    (
        Lane.POLICY,
        _REJECTED,
        _texts(
            "no PriorityClass with name ",
            "priorityClass is not permitted in ",
            "pod rejected: RuntimeClass",
            "violates PodSecurity",
            "ValidatingAdmissionPolicy",
            "unable to validate against any security context constraint",
            "unable to validate against any pod security policy",
            # of ``podresize``: no other node can be chosen for a pod that has one
            "node didn't have enough allocatable resources: ",
            "pod resize is only supported on linux nodes",
        ),
    ),
    (
        Lane.RBAC,
        frozenset({0, 403}),
        re.compile(
            r"[Uu]ser \"[^\"]{0,512}\" cannot |\bcannot \w{1,40} (?:resource|path) \""
            r"|attempting to grant RBAC permissions|cannot set blockOwnerDeletion"
        ),
    ),
    (Lane.EXISTS, frozenset({0, 409}), _texts("already exists")),
    # A 500 that no retry helps: the API server accepts the object, but it is larger than etcd stores.
    (Lane.INVALID, _ANY_STATUS, TOO_LARGE),
)

# For texts of unknown status without a match above.
_BY_TEXT_ALONE: Final = (
    (
        Lane.OVERLOAD,
        _texts(
            "too many requests",
            "apiserver is shutting down",
            "storage is (re)initializing",
            "the server is currently unable to handle the request",
            "service unavailable",
        ),
    ),
    (
        Lane.NOT_SENT,
        _texts(
            "connection refused",
            "no such host",
            "name or service not known",
            "temporary failure in name resolution",
            "failed to establish a new connection",
            "no route to host",
            "network is unreachable",
            "tls handshake",
            "certificate verify failed",
            "x509: ",
        ),
    ),
    (
        Lane.UNKNOWN_OUTCOME,
        _texts(
            "request did not complete within",
            "context deadline exceeded",
            "connection reset",
            "connection aborted",
            "remote end closed connection",
            "server disconnected",
            "unexpected eof",
            "read timed out",
            "i/o timeout",
            "timeout awaiting response headers",
            "could not be completed at this time, please try again",
            "etcdserver: ",
            "internal error occurred",
            "bad gateway",
            "gateway timeout",
        ),
    ),
    (Lane.CREDENTIALS, _texts("unauthorized", "you must be logged in to the server")),
    (
        Lane.INVALID,
        re.compile(
            r" is invalid: |\bBadRequest\b|strict decoding error|error validating data"
            r"|could not find the requested resource|[a-z] \"[^\"]{1,253}\" not found|[Ee]ntity too large"
        ),
    ),
)

_BY_STATUS: Final = {
    400: Lane.INVALID,
    401: Lane.CREDENTIALS,
    404: Lane.INVALID,
    405: Lane.INVALID,
    406: Lane.INVALID,
    408: Lane.UNKNOWN_OUTCOME,
    413: Lane.INVALID,
    415: Lane.INVALID,
    422: Lane.INVALID,
    429: Lane.OVERLOAD,
    503: Lane.OVERLOAD,
}


def lane_of(code: int, said: Said, line: str) -> tuple[Lane, str]:
    """Return the lane, and the name of the quota in the answer (or an empty name)."""
    for lane, codes, pattern in _BY_TEXT:
        if (not codes or code in codes) and (found := pattern.search(line)):
            return lane, next((name for name in found.groupdict().values() if name), "")
    return _lane_without_text(code, said, line), ""


def _lane_without_text(code: int, said: Said, line: str) -> Lane:
    """Choose by the Status details and the code; if the code is unknown, by looser texts."""
    if "NamespaceTerminating" in said.causes:
        return Lane.NAMESPACE_TERMINATING
    if code == 409:
        if said.reason == "AlreadyExists":
            return Lane.EXISTS
        about_quota = said.kind.startswith(("resourcequotas", "clusterresourcequotas", "appliedclusterresourcequotas"))
        return Lane.QUOTA_CONFLICT if about_quota else Lane.OTHER
    if code == 0:
        return next((lane for lane, pattern in _BY_TEXT_ALONE if pattern.search(line)), Lane.OTHER)
    return _BY_STATUS.get(code, Lane.UNKNOWN_OUTCOME if 500 <= code < 600 else Lane.OTHER)


# -- what it means ---------

LONGEST_RETRY_AFTER: Final = 3_600.0  # seconds; a longer Retry-After is cut to this
LEVEL: Final = "x-kubernetes-pf-prioritylevel-uid"


_NOTHING: Final[Mapping[str, int]] = {}


class Rejection(NamedTuple):
    """The meaning of one answer. Amounts are in nano-units and only present in the lane ``quota``.

    ``retryable``: the same create may succeed later without any change. ``retry_after``: the seconds that the server
    asks to wait, None if it does not. ``quota``: the quota that the answer names, else empty.
    """

    lane: Lane
    message: str
    retryable: bool
    retry_after: float | None = None
    quota: str = ""
    requested: Mapping[str, int] = _NOTHING
    used: Mapping[str, int] = _NOTHING
    limited: Mapping[str, int] = _NOTHING

    def __reduce__(self) -> tuple[type[Rejection], tuple[object, ...]]:  # a mapping that is read-only can't be pickled
        return Rejection, tuple(dict(each) if isinstance(each, Mapping) else each for each in self)

    @property
    def headroom(self) -> Mapping[str, int]:
        """What was left of each resource that the answer names. Negative where ``used`` already exceeds the limit."""
        return {name: limit - self.used[name] for name, limit in self.limited.items() if name in self.used}

    @property
    def unspecified(self) -> Mapping[str, Sequence[str]]:
        """The resources that the object must specify, each with its containers that lack it, as far as they are named.

        Empty in any lane but ``must-specify``. Servers before v1.27 name no containers.
        """
        return read_unspecified(one_line(self.message)) if self.lane is Lane.MUST_SPECIFY else {}

    @property
    def never_fits(self) -> bool:
        """True if this create requests more than the whole quota. A limit of zero means paused, not never."""
        return exceeds(self.requested, self.limited)


def read_rejection(status: int, headers: Mapping[str, str], body: bytes | str) -> Rejection:
    """Read one answer of an API server, or of a proxy in front of it. Never raises.

    ``status`` 0 means unknown (a line of a log): it is inferred from the text, which is unwrapped before, and a quota's
    refusal counts anywhere in the text. In an answer, which the gate learns from, it counts only in its own place in
    the message. Header names may be in any case. ``Retry-After`` is used, and the priority level's uid, which shows
    that a server is still starting.
    """
    if status == 403 and type(body) is bytes and len(body) < 8_192:
        plain = _read_plain(headers, body)
        if plain is not None:
            return plain
    said = open_answer(body, wrapped=not status)
    code = status or said.code
    retry_after = _retry_after(headers, said.retry_after)
    if 100 <= code < 400:
        return Rejection(Lane.OTHER, said.message, retryable=False, retry_after=retry_after)
    line = said.line
    if refusal := read_told_quota_text(line) if status else read_quota_text(line):
        retryable = not exceeds(refusal.requested, refusal.limited)
        return Rejection(Lane.QUOTA, said.message, retryable, retry_after, *refusal)
    lane, quota = lane_of(code, said, line)
    if lane is Lane.RBAC and _is_starting(headers):
        lane = Lane.NOT_READY
    return Rejection(lane, said.message or said.reason, lane in RETRYABLE, retry_after, quota)


def rejection_of(answer: Answer) -> Rejection:
    """Read an answer that may be in another form than JSON."""
    return read_rejection(answer.status, answer.headers, answer.said())


def _read_plain(headers: Mapping[str, str], body: bytes) -> Rejection | None:
    """Read the 403 of a full quota without parsing its JSON: these come in thousands."""
    if not body.startswith(b'{"kind":"Status"'):
        return None
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        return None
    read = read_plain_quota_text(text)
    if read is None:
        return None
    start, end, retryable, quota, requested, used, limited = read
    message = text[start:end].replace('\\"', '"')
    retry_after = _retry_after(headers, None) if "Retry-After" in headers else None
    fields = (Lane.QUOTA, message, retryable, retry_after, quota, requested, used, limited)
    return tuple.__new__(Rejection, fields)  # takes a third of the constructor's time


def _is_starting(headers: Mapping[str, str]) -> bool:
    """Whether the server is still starting: it has not loaded its roles yet, so it denies what it will soon allow.

    Seen on 1.36 for a moment after the start, before the server reports ready: the priority level in the answer has no
    uid yet. Where priority and fairness is off, this header is missing.
    """
    return any(name.lower() == LEVEL and not value for name, value in headers.items())


def _retry_after(headers: Mapping[str, str], fallback: float | None) -> float | None:
    """Read ``Retry-After`` in seconds. A date, or any other text that is not a number, is ignored."""
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                seconds = float(value)
            except (TypeError, ValueError):
                continue
            if isfinite(seconds) and seconds >= 0:
                return min(seconds, LONGEST_RETRY_AFTER)
    return fallback if fallback is None else min(fallback, LONGEST_RETRY_AFTER)

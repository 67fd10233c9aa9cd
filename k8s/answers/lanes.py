"""The lanes: the kinds of answers, and the texts and status codes that identify each.

The text is matched before the status: only the text tells the 403 of a full quota from the 403 of missing rights.
Sources: ``k8s.io/apiserver`` admission plugins ``resourcequota``, ``webhook`` and ``lifecycle``,
``k8s.io/kubernetes`` ``plugin/pkg/admission``, and the public issues beside the texts in ``tests/data``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .status import Said


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
    WEBHOOK = "webhook"  # a webhook denied the object, and not because of a quota
    EXISTS = "exists"
    INVALID = "invalid"
    CREDENTIALS = "credentials"
    OTHER = "other"  # none of these


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
"""What the API server says, with status 500, of an object that its store does not take."""

# Texts that decide the lane, tried in order. Kubernetes' own admission answers come first, because other programs
# wrap them in sentences of their own ("Forbidden!Configured service account doesn't have access. ..."). The second
# element is the set of statuses that the text may come with: 0 is an unknown status, the empty set is any status.
_BY_TEXT: Final = (
    (Lane.MUST_SPECIFY, _ANY_STATUS, re.compile(r"[Ff]ailed quota: (?P<quota>[^\s:]{1,253}): must specify ")),
    (Lane.QUOTA_NOT_READY, _ANY_STATUS, re.compile(r"status unknown for quota: (?P<quota>[^\s,\"']{1,253})")),
    (Lane.NO_COVERING_QUOTA, _ANY_STATUS, re.compile(r"insufficient quota to (?:consume|match these scopes): ")),
    (
        Lane.QUOTA_CONFLICT,
        frozenset({0, 409}),
        re.compile(
            r"cannot be fulfilled on (?:applied)?(?:cluster)?resourcequotas[a-z.]{0,99} \"(?P<quota>[^\"]{1,253})"
            r"|\bresourcequotas \"(?P<old>[^\"]{1,253})\" cannot be updated: the object has been modified"
        ),
    ),
    (
        Lane.QUOTA_TIMEOUT,
        _ANY_STATUS,
        _texts("resource quota evaluation timed out", "resource quota evaluates timeout"),
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
    # A 500 that no retry helps: the object is larger than etcd stores, though the API server took it.
    (Lane.INVALID, _ANY_STATUS, TOO_LARGE),
)

# For texts of unknown status that match nothing above.
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
    """Return the lane, and the name of the quota in the answer (empty if it names none)."""
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

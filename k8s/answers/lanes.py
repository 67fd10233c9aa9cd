"""The lanes: what kinds of answers there are, and by which words and statuses each is known.

Texts decide before statuses do: the 403 of a full quota and the 403 of missing rights differ in nothing else.
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
    """What kind of answer it is; each lane has its own treatment."""

    QUOTA = "quota"  # full: learn, wait
    MUST_SPECIFY = "must-specify"  # the quota demands fields that the object lacks
    QUOTA_NOT_READY = "quota-not-ready"  # the quota has no status yet: try again shortly
    NO_COVERING_QUOTA = "no-covering-quota"  # nothing may go until a quota covers it
    QUOTA_CONFLICT = "quota-conflict"  # creates raced for the quota's object: try again shortly
    QUOTA_TIMEOUT = "quota-timeout"  # the server did not get round to it: back off
    OVERLOAD = "overload"  # not stored: fewer creates in flight
    UNKNOWN_OUTCOME = "unknown-outcome"  # the object may exist: look it up
    NOT_SENT = "not-sent"  # no connection was made: send it again
    WEBHOOK_FAILED = "webhook-failed"  # not stored; a webhook of this namespace is broken
    NOT_READY = "not-ready"  # a fresh namespace, or a server that just begins: try again shortly
    POLICY = "policy"
    RBAC = "rbac"
    LIMIT_RANGE = "limit-range"
    NAMESPACE_TERMINATING = "namespace-terminating"
    WEBHOOK = "webhook"  # a webhook said no, and not because of a quota
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
    """Any of these texts, in any case."""
    return re.compile("|".join(re.escape(text) for text in texts), re.IGNORECASE)


_EVERY: Final[frozenset[int]] = frozenset()
_REFUSED: Final = frozenset({0, 400, 403, 422})

# Texts that decide, in order: the answers of Kubernetes' own admission first, since other programs wrap
# them in sentences of their own ("Forbidden!Configured service account doesn't have access. ..."). The second
# part is the statuses that a text may come with; 0 is a status that is not known, none means every error.
_BY_TEXT: Final = (
    (Lane.MUST_SPECIFY, _EVERY, re.compile(r"[Ff]ailed quota: (?P<quota>[^\s:]{1,253}): must specify ")),
    (Lane.QUOTA_NOT_READY, _EVERY, re.compile(r"status unknown for quota: (?P<quota>[^\s,\"']{1,253})")),
    (Lane.NO_COVERING_QUOTA, _EVERY, re.compile(r"insufficient quota to (?:consume|match these scopes): ")),
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
        _EVERY,
        _texts("resource quota evaluation timed out", "resource quota evaluates timeout"),
    ),
    (Lane.WEBHOOK_FAILED, _EVERY, _texts("failed calling webhook", "failed calling admission webhook")),
    (Lane.WEBHOOK, _EVERY, re.compile(r"admission webhook \"?[^\s\"]{1,253}\"? denied the request")),
    (
        Lane.NAMESPACE_TERMINATING,
        _EVERY,
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
        _REFUSED,
        re.compile(r"[Mm](?:in|ax)imum \S{1,253} usage per [A-Za-z]|max limit to request ratio per "),
    ),
    (
        Lane.POLICY,
        _REFUSED,
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
)

# For a text of unknown status, when no text above has decided.
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
    """Decide the lane, and the quota that the answer names."""
    for lane, codes, pattern in _BY_TEXT:
        if (not codes or code in codes) and (found := pattern.search(line)):
            return lane, next((name for name in found.groupdict().values() if name), "")
    return _lane_without_words(code, said, line), ""


def _lane_without_words(code: int, said: Said, line: str) -> Lane:
    """Decide by the details and the status, and by looser words where the status is not known."""
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

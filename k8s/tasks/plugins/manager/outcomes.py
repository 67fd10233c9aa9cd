"""What the end of a create means for its task: the table of outcomes. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.rejections import TOO_LARGE as LARGER_THAN_STORED
from backoff_ctrl.k8s.kube.answers.rejections import Lane, rejection_of
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, failed

DELETED: Final = "ResourceDeletedExternally"
UNEXPECTED_DELETION: Final = "UnexpectedObjectDeletion"
NOT_BUILT: Final = "FailedToBuildResource"
NEVER_FITS: Final = "ResourceRequestsExceedLimits"
TAKEN: Final = "ObjectNameTaken"
UNREADABLE: Final = "QuotasUnreadable"
TOO_LARGE: Final = "EntityTooLarge"
CREATE_FAILED: Final = "CreateFailed"
NO_KIND: Final = "KindNotServed"
NO_NAMESPACE: Final = "NamespaceNotFound"


class Meaning(NamedTuple):
    """A failure's code, its kind, whether another attempt may help, and what to do about it."""

    code: str
    kind: ErrorKind = ErrorKind.USER
    retryable: bool = False
    advice: str = ""


_UNKNOWN_FIELDS: Final = "strict decoding error"
"""How the API server begins to list the fields that it does not know."""
UNKNOWN_FIELD: Final = Meaning("BadTaskFormat", advice="correct that field, or leave it out")
_BY_LANE: Final = {
    Lane.QUOTA: Meaning(NEVER_FITS, advice="request less, or have the quota raised"),
    Lane.MUST_SPECIFY: Meaning("QuotaRequiresResources", advice="give the resources that the quota names"),
    Lane.NO_COVERING_QUOTA: Meaning(
        "NoQuotaCovers", advice="use a priority class that a quota of the namespace covers"
    ),
    Lane.RBAC: Meaning("RuntimeFailure", ErrorKind.SYSTEM, True, "allow it to the manager's account"),
    Lane.LIMIT_RANGE: Meaning("LimitRangeExceeded", advice="stay within the namespace's LimitRange"),
    Lane.POLICY: Meaning("PolicyViolated"),
    Lane.WEBHOOK: Meaning("DeniedByWebhook"),
    Lane.NAMESPACE_TERMINATING: Meaning("NamespaceTerminating", ErrorKind.SYSTEM),
    Lane.EXISTS: Meaning(TAKEN, advice="delete that object, or give the task another name"),
    Lane.INVALID: Meaning("BadTaskFormat"),
    Lane.OTHER: Meaning("RuntimeFailure", ErrorKind.SYSTEM, True),
}
"""The meaning of answers that end a create. Other lanes are temporary: the create is sent again."""


def meaning_of(answer: Answer) -> Meaning | None:
    """Return the meaning of an answer other than success; None: send the create again later."""
    rejection = rejection_of(answer)
    if rejection.lane is Lane.INVALID:
        if answer.status == 413 or LARGER_THAN_STORED.search(rejection.message):
            return Meaning(TOO_LARGE, advice="make it smaller")
        if _UNKNOWN_FIELDS in rejection.message:
            return UNKNOWN_FIELD
        if answer.status == 404:
            return _missing(rejection.message)
    return _BY_LANE.get(rejection.lane)


def failure_of(answer: Answer, label: str) -> PhaseInfo | None:
    """Return the failure that an answer to a create means; None: send the create again later.

    If a webhook denies it with 400 or 422, the manifest is wrong.
    """
    meaning = meaning_of(answer)
    if meaning is None:
        return None
    if meaning.code == "DeniedByWebhook" and answer.status in (400, 422):
        meaning = _BY_LANE[Lane.INVALID]
    said = rejection_of(answer).message or f"status {answer.status}"
    return failure(meaning, f"{label} was refused: {said}")


def failure(meaning: Meaning, said: str) -> PhaseInfo:
    text = f"{said} ({meaning.advice})" if meaning.advice and meaning.advice not in said else said
    return failed(meaning.code, text, kind=meaning.kind, retryable=meaning.retryable)


def never_answered(label: str, limit: str, said: str) -> PhaseInfo:
    """Return the failure of a create that the API server has answered with errors for as long as it may."""
    meaning = Meaning(CREATE_FAILED, ErrorKind.SYSTEM, True, "look at its webhooks and at its own log")
    return failure(meaning, f"{label}: the API server has answered with errors for {limit}, at last: {said}")


def taken(label: str) -> PhaseInfo:
    return failure(_BY_LANE[Lane.EXISTS], f"{label} exists already, and is not of this attempt at the task")


def _missing(said: str) -> Meaning:
    if said.startswith("namespaces ") and said.endswith("not found"):
        return Meaning(NO_NAMESPACE, advice="create the namespace, or name another one")
    return Meaning(NO_KIND, ErrorKind.SYSTEM, advice="install the operator with its custom resource definitions")

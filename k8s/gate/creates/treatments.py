"""What an answer means: one table of what to do about each lane, and the outcomes for the engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from backoff_ctrl.engine.facts.outcomes import Created, Overloaded, Rejected, Scope
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.fields import FieldError, mapping, metadata_of, text
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection
from backoff_ctrl.k8s.kube.charges.footprint import charge
from backoff_ctrl.k8s.kube.charges.live import ENDED
from backoff_ctrl.k8s.kube.charges.resources import PODS


class Reaction(Enum):
    """What a create does after an answer that is not a success."""

    LEARN = auto()  # a quota refused it: give the amounts to the engine, rejoin the line
    AGAIN = auto()  # not stored, and the cause passes by itself: rejoin the line, a limited number of times
    LOOK_UP = auto()  # it may have been stored: look before anything else
    EXISTS = auto()  # the name is taken: look whose object it is
    COUNTED_SOON = auto()  # a quota has not counted this kind yet: send it again, and let all others continue
    REFRESH = auto()  # fetch new credentials, once
    DENIED = auto()  # rights are missing, or the server has not loaded them yet
    GIVE_BACK = auto()  # trying again would not help: return the answer to the caller


@dataclass(frozen=True, slots=True)
class Treatment:
    """A row of the table. After ``tries`` such answers in a row the caller gets the last one."""

    reaction: Reaction
    scope: Scope = "flow"
    tries: int | None = None


# A lane without a limit ends by itself or by the time limit. One with a limit may be broken for good, where a plain
# client would have failed at once: after that many tries the caller gets the answer.
TREATMENTS: Final[dict[Lane, Treatment]] = {
    Lane.QUOTA: Treatment(Reaction.LEARN),
    Lane.MUST_SPECIFY: Treatment(Reaction.GIVE_BACK),
    Lane.QUOTA_NOT_READY: Treatment(Reaction.COUNTED_SOON),
    Lane.NO_COVERING_QUOTA: Treatment(Reaction.GIVE_BACK),
    Lane.QUOTA_CONFLICT: Treatment(Reaction.AGAIN, "quota"),
    Lane.QUOTA_TIMEOUT: Treatment(Reaction.AGAIN, "namespace"),
    Lane.OVERLOAD: Treatment(Reaction.AGAIN, "flow"),
    Lane.UNKNOWN_OUTCOME: Treatment(Reaction.LOOK_UP, tries=5),
    Lane.NOT_SENT: Treatment(Reaction.AGAIN, "flow", tries=6),
    Lane.WEBHOOK_FAILED: Treatment(Reaction.AGAIN, "namespace", tries=10),
    Lane.NOT_READY: Treatment(Reaction.AGAIN, "namespace", tries=10),
    Lane.POLICY: Treatment(Reaction.GIVE_BACK),
    Lane.RBAC: Treatment(Reaction.DENIED, "namespace"),
    Lane.LIMIT_RANGE: Treatment(Reaction.GIVE_BACK),
    Lane.NAMESPACE_TERMINATING: Treatment(Reaction.GIVE_BACK),
    Lane.WEBHOOK: Treatment(Reaction.GIVE_BACK),
    Lane.EXISTS: Treatment(Reaction.EXISTS, tries=20),
    Lane.INVALID: Treatment(Reaction.GIVE_BACK),
    Lane.CREDENTIALS: Treatment(Reaction.REFRESH, tries=1),
    Lane.OTHER: Treatment(Reaction.GIVE_BACK),
}


def rejected(rejection: Rejection, sent: float | None) -> Rejected:
    return Rejected(rejection.quota, rejection.requested, rejection.used, rejection.limited, sent)


def overloaded(rejection: Rejection | None, treatment: Treatment) -> Overloaded:
    """Turn an answer that asks for patience (None: no connection was made) into the engine's outcome."""
    return Overloaded(None if rejection is None else rejection.retry_after, treatment.scope)


def created_as(answer: Answer, sent: Mapping[str, Any], resource: str) -> Created:
    """Turn a success into the engine's outcome. After defaults and webhooks the charge may not be that of ``sent``.

    A living pod is named by its uid, by which the watch will report its end.
    """
    stored = answer.json()
    if stored is None or stored.get("kind") != sent.get("kind"):
        return Created()  # a table, or not an object at all
    uid = ""
    if resource == PODS:
        ended = mapping(stored.get("status")).get("phase") in ENDED
        uid = "" if ended else text(metadata_of(stored).get("uid"))
    try:
        return Created(charge(stored, resource), uid)
    except FieldError:
        return Created(None, uid)  # stored all the same; the engine keeps its estimate


WAITED_OUT: Final = 30.0
"""Seconds in which all answers are denials, after which they count.

(A new kube-apiserver denies for about a second.)
"""
SUBJECTS_MAX: Final = 4096
"""Subjects remembered; beyond that the oldest is forgotten, and its next denial counts at once."""


class Denials:
    """When a 403 counts: an API server that has just started denies everything until its RBAC is loaded.

    A subject is a caller, a kind and a namespace. If it was served before, its create waits out a denial, and so does a
    create that waited in line: it may be the first that is sent. Denials count once the subject has got no other answer
    for half a minute; where no request was ever served, each one counts at once. All creates of a ledger share this;
    each step is a single dictionary operation, so no lock is needed.
    """

    def __init__(self) -> None:
        self._denied_since: dict[tuple[str, ...], float | None] = {}  # of those served; None: not denied since

    def served(self, subject: tuple[str, ...]) -> None:
        if self._denied_since.get(subject, 0.0) is not None:
            self._note(subject, None)

    def counts(self, subject: tuple[str, ...], now: float, *, waited: bool = False) -> bool:
        """Note a denial; return whether it counts. If not, ask again soon. ``waited``: the create stood in line."""
        if subject not in self._denied_since and not waited:
            return True
        since = self._denied_since.get(subject)
        if since is None:
            self._note(subject, now)
        elif now - since >= WAITED_OUT:
            self._denied_since.pop(subject, None)
            return True
        return False

    def _note(self, subject: tuple[str, ...], since: float | None) -> None:
        self._denied_since[subject] = since
        if len(self._denied_since) > SUBJECTS_MAX:
            self._denied_since.pop(next(iter(self._denied_since)), None)

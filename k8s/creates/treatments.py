"""What to do about each kind of answer: one table, from the lane of an answer to the outcome the engine is given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from backoff_ctrl.engine.outcomes import Overloaded, Rejected, Scope
from backoff_ctrl.k8s.answers.rejections import Lane, Rejection

SERVER_LIMIT: Final = 40.0
"""Seconds after which the API server has finished with a create: it ends each at 34 s, and this adds a margin."""


class Reaction(Enum):
    """What a create does after an answer that is not a success."""

    LEARN = auto()  # a quota refused it: give the amounts to the engine, rejoin the line
    AGAIN = auto()  # not stored, and the cause passes by itself: rejoin the line, a limited number of times
    LOOK_UP = auto()  # it may have been stored: look before anything else
    EXISTS = auto()  # the name is taken: look whose object it is
    COUNTED_SOON = auto()  # a quota has not counted this kind yet: send it again, and let all others go on
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
    """Turn a quota refusal into the engine's outcome; ``sent`` is when the request was sent."""
    return Rejected(rejection.quota, rejection.requested, rejection.used, rejection.limited, sent)


def overloaded(rejection: Rejection | None, treatment: Treatment) -> Overloaded:
    """Turn an answer that asks for patience (None: no connection was made) into the engine's outcome."""
    return Overloaded(None if rejection is None else rejection.retry_after, treatment.scope)

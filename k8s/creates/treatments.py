"""What to do about each lane of answers: one table, from the API server's word to the engine's outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.outcomes import Overloaded, Rejected
from backoff_ctrl.k8s.answers.rejections import Lane

if TYPE_CHECKING:
    from backoff_ctrl.engine.outcomes import Scope
    from backoff_ctrl.k8s.answers.rejections import Rejection


class Step(Enum):
    """The next step of a create after an answer that is not a success."""

    LEARN = auto()  # a quota said no: tell the engine, go back in line
    AGAIN = auto()  # not stored, passes by itself: back in line, with patience
    LOOK_UP = auto()  # may have been stored: look before doing anything else
    EXISTS = auto()  # the name is taken: look by whom
    REFRESH = auto()  # new credentials, once
    GIVE_BACK = auto()  # the caller's: asking again would not help


@dataclass(frozen=True, slots=True)
class Treatment:
    """A row of the table. After ``tries`` such answers in a row the last one is given back to the caller."""

    step: Step
    scope: Scope = "flow"
    tries: int | None = None


# A lane without a limit ends by itself or by the waiting time; one with a limit may be broken for good, and an
# unmodified client would have failed at once: the caller hears of it after some patience.
TREATMENTS: Final[dict[Lane, Treatment]] = {
    Lane.QUOTA: Treatment(Step.LEARN),
    Lane.MUST_SPECIFY: Treatment(Step.GIVE_BACK),
    Lane.QUOTA_NOT_READY: Treatment(Step.AGAIN, "namespace"),
    Lane.NO_COVERING_QUOTA: Treatment(Step.GIVE_BACK),
    Lane.QUOTA_CONFLICT: Treatment(Step.AGAIN, "quota"),
    Lane.QUOTA_TIMEOUT: Treatment(Step.AGAIN, "namespace"),
    Lane.OVERLOAD: Treatment(Step.AGAIN, "flow"),
    Lane.UNKNOWN_OUTCOME: Treatment(Step.LOOK_UP, tries=5),
    Lane.NOT_SENT: Treatment(Step.AGAIN, "flow", tries=6),
    Lane.WEBHOOK_FAILED: Treatment(Step.AGAIN, "namespace", tries=10),
    Lane.NOT_READY: Treatment(Step.AGAIN, "namespace", tries=10),
    Lane.POLICY: Treatment(Step.GIVE_BACK),
    Lane.RBAC: Treatment(Step.GIVE_BACK),
    Lane.LIMIT_RANGE: Treatment(Step.GIVE_BACK),
    Lane.NAMESPACE_TERMINATING: Treatment(Step.GIVE_BACK),
    Lane.WEBHOOK: Treatment(Step.GIVE_BACK),
    Lane.EXISTS: Treatment(Step.EXISTS, tries=20),
    Lane.INVALID: Treatment(Step.GIVE_BACK),
    Lane.CREDENTIALS: Treatment(Step.REFRESH, tries=1),
    Lane.OTHER: Treatment(Step.GIVE_BACK),
}


def rejected(rejection: Rejection, sent: float | None) -> Rejected:
    """Turn a quota refusal into the engine's outcome; ``sent`` is when the request left."""
    return Rejected(rejection.quota, rejection.requested, rejection.used, rejection.limited, sent)


def overloaded(rejection: Rejection | None, treatment: Treatment) -> Overloaded:
    """Turn an answer that asks for patience (or a connection never made) into the engine's outcome."""
    return Overloaded(None if rejection is None else rejection.retry_after, treatment.scope)

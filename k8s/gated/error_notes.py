"""What the gate knows of a create that failed, put on the error that the client raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.answers.rejections import Lane, Rejection

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.driver import Errand


@dataclass(frozen=True, slots=True)
class Account:
    """How a create went: sends, seconds, and the last refusal."""

    sends: int
    seconds: float
    rejection: Rejection | None

    @classmethod
    def of(cls, errand: Errand) -> Account:
        """Take it from the errand, once that is over."""
        return cls(errand.machine.sends, errand.seconds, errand.machine.rejection)

    def annotate(self, error: Exception) -> None:
        """Add a note, and ``quota_rejection`` (a Rejection, or None where no quota refused it). Once."""
        if hasattr(error, "quota_rejection"):
            return
        rejection = self.rejection
        error.quota_rejection = rejection if rejection and rejection.lane is Lane.QUOTA else None  # type: ignore[attr-defined]
        lane = rejection.lane if rejection else "no answer"
        error.add_note(f"backoff-ctrl: {lane}, after {self.sends} sends in {self.seconds:.1f} s")


def unwrapped(error: BaseException) -> BaseException:
    """Return the transport's own error where ours only names its kind: callers catch what they always caught."""
    if isinstance(error, NotSent | OutcomeUnknown) and error.__cause__ is not None:
        return error.__cause__
    return error

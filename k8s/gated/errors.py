"""The errors that callers of a gated client see: the client's own, with a note of what the gate knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes.client import ApiException

from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.answers.rejections import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.gate.driver import Driver


class LastAnswerShown:
    """Makes an ``ApiException`` of a time-out: its status, headers and body are those of the last answer."""

    def __init__(self, cause: WaitedTooLong) -> None:
        """Show the last answer as the client would; status 0: there was none."""
        answer = cause.answer
        super().__init__(status=0 if answer is None else answer.status, reason=str(cause))  # type: ignore[call-arg]
        if answer is not None:
            vars(self).update(headers=answer.headers, body=answer.body.decode("utf-8", "replace"))


class WaitTimeout(LastAnswerShown, ApiException, TimeoutError):  # noqa: N818 - the engine's word
    """The time limit has passed: an ``ApiException`` with the last answer (status 0: none), and a ``TimeoutError``."""


def callers_error(driver: Driver, wait_timeout: Callable[[WaitedTooLong], Exception]) -> BaseException:
    """Return the error to raise for a create that ended without an answer.

    A time-out becomes the client's own exception, which carries the last quota rejection if there was one. Where our
    error only names the kind of a transport's error, that one is returned: callers catch what they always caught.
    """
    error = driver.error
    if isinstance(error, WaitedTooLong):
        timed_out = wait_timeout(error)
        annotate(timed_out, driver)
        return timed_out
    if isinstance(error, NotSent | OutcomeUnknown) and error.__cause__ is not None:
        return error.__cause__
    return error or RuntimeError(f"{driver.label} ended without an answer")


def annotate(error: Exception, driver: Driver | None) -> None:
    """Add a note to the client's error of a gated create (``driver``), and ``quota_rejection`` as data. Only once.

    ``quota_rejection`` is a Rejection, or None if no quota refused the create.
    """
    if driver is None or hasattr(error, "quota_rejection"):
        return
    rejection, sends = driver.machine.rejection, driver.machine.sends
    error.quota_rejection = rejection if rejection and rejection.lane is Lane.QUOTA else None  # type: ignore[attr-defined]
    lane = rejection.lane if rejection else "no answer"
    error.add_note(f"backoff-ctrl: {lane}, after {sends} {'send' if sends == 1 else 'sends'} in {driver.seconds:.1f} s")

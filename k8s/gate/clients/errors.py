"""The errors that callers of a gated client see: the client's own, with a note of what the gate knows.

Each package has an ``ApiException`` of its own. For threads ours are plain classes; for asyncio the package is known
once a client is made, so such classes are made then, and cross into another process under a name that it can load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.kube.answers.answer import GateClosed, NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.kube.answers.rejections import Lane

_AnApiException: Any = Exception


class LastAnswerShown(WaitedTooLong):
    """Makes an ``ApiException`` of a time-out: its status, headers and body are those of the last answer."""

    def __init__(self, cause: WaitedTooLong) -> None:
        """Show the last answer as the client would; status 0: no answer came."""
        answer = cause.answer
        status = 0 if answer is None else answer.status
        super(WaitedTooLong, self).__init__(status=status, reason=str(cause))  # type: ignore[call-arg]  # ApiException
        self.answer, self.wait = answer, cause.wait
        if answer is not None:
            vars(self).update(headers=answer.headers, body=answer.body.decode("utf-8", "replace"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it cross into another process."""
        state = {name: _plain(value) for name, value in vars(self).items()}
        ours = next(each for each in type(self).__mro__ if not each.__dict__.get("_made_for_a_package"))
        return _again, (ours, _api_exception_of(type(self)) if ours is not type(self) else None, state)


class AsyncWaitTimeout(LastAnswerShown, _AnApiException):  # type: ignore[misc]
    """The time limit has passed: a ``TimeoutError``, and the ``ApiException`` of the client for asyncio that is used.

    It carries the last answer (status 0: no answer came).
    """


@cache
def async_wait_timeout(api_exception: type[Exception]) -> type[AsyncWaitTimeout]:
    """Return ``AsyncWaitTimeout`` as an ``ApiException`` of that client."""
    names = {"__module__": __name__, "_made_for_a_package": True}
    return type("AsyncWaitTimeout", (AsyncWaitTimeout, api_exception, TimeoutError), names)


def _again(ours: type[AsyncWaitTimeout], api_exception: type[Exception] | None, state: dict[str, Any]) -> BaseException:
    kind = ours if api_exception is None else async_wait_timeout(api_exception)  # type: ignore[arg-type]  # types are hashable
    error = kind.__new__(kind)
    error.__dict__.update(state)
    return error


def _plain(value: Any) -> Any:
    """Return what can be pickled: a rejection's amounts and an answer's headers are kinds of mappings that can't."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.init}
        return replace(value, **changed)
    return value


class _Closed(GateClosed):
    """Makes an ``ApiException`` of the end of a wait: status 0, no headers and no body."""

    def __init__(self, reason: str) -> None:
        super(GateClosed, self).__init__(status=0, reason=reason)  # type: ignore[call-arg]  # ApiException

    def __str__(self) -> str:
        return str(vars(self)["reason"])

    def __reduce__(self) -> tuple[type[GateClosed], tuple[str]]:
        return GateClosed, (str(self),)


@cache
def _closed(api_exception: type[Exception]) -> Callable[[str], GateClosed]:
    """Return ``GateClosed`` as an ``ApiException`` of that client."""
    return type("GateClosed", (_Closed, api_exception), {"__module__": __name__, "__doc__": GateClosed.__doc__})


def _api_exception_of(kind: type[BaseException]) -> Any:
    return next((each for each in kind.__mro__ if each.__name__ == "ApiException"), None)


def callers_error(create: Create, wait_timeout: type[Exception]) -> BaseException:
    """Return the error to raise for a create that ended without an answer.

    A time-out and the end of a wait become the client's own exception, which carries the last quota rejection if
    there was one. Where our error only names the kind of a transport's error, that one is returned: callers catch
    what they always caught.
    """
    error = create.error
    if isinstance(error, WaitedTooLong | GateClosed):
        late = isinstance(error, WaitedTooLong)
        shown = wait_timeout(error) if late else _closed(_api_exception_of(wait_timeout))(str(error))
        annotate(shown, create)
        return shown
    if isinstance(error, NotSent | OutcomeUnknown) and error.__cause__ is not None:
        return error.__cause__
    return error or RuntimeError(f"{create.label} ended without an answer")


def with_bytes(error: BaseException) -> BaseException:
    """Give an ``ApiException`` the undecoded body that some clients expect from below, and decode."""
    body = getattr(error, "body", b"")
    if body is None or isinstance(body, str):
        error.body = (body or "").encode()  # type: ignore[attr-defined]
    return error


def annotate(error: Exception, create: Create | None) -> None:
    """Add a note to the client's error of a gated create, and ``quota_rejection`` as data. Only once.

    ``quota_rejection`` is a Rejection, or None if no quota refused the create.
    """
    if create is None or hasattr(error, "quota_rejection"):
        return
    rejection, sends = create.rejection, create.sends
    error.quota_rejection = rejection if rejection and rejection.lane is Lane.QUOTA else None  # type: ignore[attr-defined]
    lane = rejection.lane if rejection else "no answer"
    error.add_note(f"backoff-ctrl: {lane}, after {sends} {'send' if sends == 1 else 'sends'} in {create.seconds:.1f} s")

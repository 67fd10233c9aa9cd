"""The answers to creates that are not sent, in the API server's form, with the reason why each waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.kube.answers.answer import Answer, status_answer
from backoff_ctrl.k8s.sidecar.http.writing import REASONS

from .settings import RETRY_AFTER


def not_yet(label: tuple[str, str], wait: Wait | None, held: float, *, again: bool) -> Answer:
    """Return a 429 that says what a create waits for. ``label`` is its resource and name.

    ``again``: with ``Retry-After``, so that client-go sends it again by itself.
    """
    why = "it waits for its turn" if wait is None else wait.why
    estimate = "" if wait is None or wait.estimate is None else f", about {wait.estimate:.0f} s"
    message = f'{label[0]} "{label[1]}" was held for {held:.0f} s and is not created: {why}{estimate}; send it again'
    return _too_many(label, message, [] if wait is None else _causes(wait), again=again)


def come_again(label: tuple[str, str], why: str, *, again: bool, after: int = RETRY_AFTER) -> Answer:
    """Return a 429 for a create that was not sent, and that the caller may send again ``after`` so many seconds.

    ``again`` as in ``not_yet``.
    """
    message = f'{label[0]} "{label[1]}" was not sent: {why}; send it again'
    return _too_many(label, message, [], again=again, after=after)


def cancelled(label: tuple[str, str], why: str) -> Answer:
    """Return a 429 for a create that an operator has cancelled: clients should not resend it by themselves."""
    return _too_many(label, f'{label[0]} "{label[1]}" was not sent: {why}', [], again=False)


def failed(status: int, label: tuple[str, str], why: str) -> Answer:
    """Return the proxy's own answer to a create that the server did not answer."""
    details = _details(label)
    if status == 503:  # the create was not sent: client-go may send it again
        details["retryAfterSeconds"] = RETRY_AFTER
    return status_answer(status, REASONS[status], f'{label[0]} "{label[1]}": {why}', details)


def _too_many(
    label: tuple[str, str], message: str, causes: list[dict[str, str]], *, again: bool, after: int = RETRY_AFTER
) -> Answer:
    details = {**_details(label), "causes": causes, "retryAfterSeconds": after}
    answer = status_answer(429, REASONS[429], message, details)
    return answer if again else without_retry_after(answer)


def without_retry_after(answer: Answer) -> Answer:
    """Return an answer that client-go does not retry by itself: how long to wait is only in its details."""
    return replace(answer, headers={name: value for name, value in answer.headers.items() if name != "Retry-After"})


def _causes(wait: Wait) -> list[dict[str, str]]:
    said = {
        "quota": wait.quota,
        "resource": wait.resource,
        "asked": wait.asked if wait.quota else "",
        "left": wait.left if wait.quota else "",
        "place": str(wait.place),
        "estimate": "" if wait.estimate is None else f"{wait.estimate:.0f}s",
    }
    return [{"reason": wait.reason, "message": text, "field": field} for field, text in said.items() if text]


def _details(label: tuple[str, str]) -> dict[str, Any]:
    kind, _, group = label[0].partition(".")
    return {"name": label[1], "kind": kind, **({"group": group} if group else {})}

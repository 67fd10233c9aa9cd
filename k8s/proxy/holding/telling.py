"""What callers are told whose creates are not sent: as the API server would say it, and why each waits."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from backoff_ctrl.k8s.answers.answer import Answer, status_answer
from backoff_ctrl.k8s.creates.wait import Wait
from backoff_ctrl.k8s.proxy.http.messages import Head, Response
from backoff_ctrl.k8s.proxy.http.protobuf import status_message

from .sending import PROTOBUF, Received
from .settings import RETRY_AFTER

REASONS: Final = {429: "TooManyRequests", 503: "ServiceUnavailable", 504: "Timeout", 502: "InternalError"}
_PHRASES: Final = {each.value: each.phrase.encode() for each in HTTPStatus}


def response_of(answer: Answer, head: Head) -> Response:
    """Return an answer as its caller gets it: as the server sent it, or our own in a form that the caller accepts."""
    if isinstance(answer.headers, Received):
        came = answer.headers.response
        if came.status == answer.status:
            return came
        return Response(answer.status, _phrase(answer.status), came.headers, answer.body)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    body = answer.body
    form = _form(head.get(b"accept"))
    status = answer.json() if form else None
    if form and status is not None and status.get("kind") == "Status":
        headers = [header for header in headers if header[0].lower() != b"content-type"]
        headers.append((b"Content-Type", form))
        body = status_message(status) if form == PROTOBUF else body
    return Response(answer.status, _phrase(answer.status), headers, body)


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
    """Return a 429 for a create that an operator has cancelled: a client should not send it again by itself."""
    return _too_many(label, f'{label[0]} "{label[1]}" was not sent: {why}', [], again=False)


def failed(status: int, label: tuple[str, str], why: str) -> Answer:
    """Return the answer to a create that the server has not answered."""
    details = _details(label)
    if status == 503:  # nothing was sent: client-go may send it again
        details["retryAfterSeconds"] = RETRY_AFTER
    return status_answer(status, REASONS[status], f'{label[0]} "{label[1]}": {why}', details)


def _too_many(
    label: tuple[str, str], message: str, causes: list[dict[str, str]], *, again: bool, after: int = RETRY_AFTER
) -> Answer:
    details = {**_details(label), "causes": causes, "retryAfterSeconds": after}
    answer = status_answer(429, REASONS[429], message, details)
    return answer if again else without_retry_after(answer)


def without_retry_after(answer: Answer) -> Answer:
    """Return an answer that client-go does not act upon by itself: how long to wait is in its details alone."""
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


def _form(accept: bytes | None) -> bytes:
    """Return the form that a caller wants who does not take JSON; empty: it does, or we have none that it wants."""
    wanted = [each.partition(b";")[0].strip().lower() for each in (accept or b"*/*").split(b",")]
    if any(each in (b"application/json", b"application/*", b"*/*") for each in wanted):
        return b""
    forms = (PROTOBUF, b"application/yaml")  # JSON is YAML
    return next((each for each in wanted if each in forms), b"")


def _phrase(status: int) -> bytes:
    return _PHRASES.get(status, b"")

"""``backoff-ctrl classify``: what an answer of the API server means, and whether to wait."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.rejections import Lane, read_rejection

from .amounts import aligned, quantity_text, quantity_texts

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.rejections import Rejection

LONGEST_INPUT: Final = 1_048_576

# What to do about each lane, for someone who has just been woken.
ADVICE: Final = {
    Lane.QUOTA: "The quota is full. Wait for room, or free some.",
    Lane.MUST_SPECIFY: "The quota wants every container to state these requests or limits. Add them.",
    Lane.QUOTA_NOT_READY: "The quota is new and not counted yet. Try again in a moment.",
    Lane.NO_COVERING_QUOTA: "No quota of this namespace covers the object. An administrator must make one.",
    Lane.QUOTA_CONFLICT: "Creates raced for the quota. Try again in a moment, fewer at once.",
    Lane.QUOTA_TIMEOUT: "The server did not get round to the quota. Back off, then try again.",
    Lane.OVERLOAD: "The server sheds load. Wait as long as it asks, then send fewer at once.",
    Lane.UNKNOWN_OUTCOME: "The object may exist. Look it up by name before sending it again.",
    Lane.NOT_SENT: "No connection was made. Send it again with back-off.",
    Lane.WEBHOOK_FAILED: "A webhook of the cluster does not answer. Nothing was stored; try again later.",
    Lane.NOT_READY: "The namespace is new. Try again in a moment.",
    Lane.POLICY: "A policy of the cluster forbids the object. Change the object.",
    Lane.RBAC: "The account lacks the right. Ask for a role binding; waiting does not help.",
    Lane.LIMIT_RANGE: "The object is outside the namespace's LimitRange. Change its requests or limits.",
    Lane.NAMESPACE_TERMINATING: "The namespace is being deleted. Nothing new fits into it.",
    Lane.WEBHOOK: "A webhook denied the object. Its text says why.",
    Lane.EXISTS: "The name is taken. Look whether the object is yours.",
    Lane.INVALID: "The request is malformed or its target is missing. Correct it.",
    Lane.CREDENTIALS: "The credentials are missing or expired. Renew them.",
    Lane.OTHER: "This is none of the answers that are known here.",
}


@click.command("classify")
@click.option("--status", type=click.IntRange(100, 599), help="The HTTP status, where you know it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(status: int | None, as_json: bool) -> None:
    """Read an API answer on stdin and say what it means.

    The input is a Status as JSON, or any text that holds one: a line of a log, an event, the output of
    kubectl. For a full quota: its name, what was requested, used and limited, and what is left.

    \b
    kubectl create -f pod.yaml 2>&1 | backoff-ctrl classify
    """
    body = sys.stdin.buffer.read(LONGEST_INPUT) if sys.stdin else b""  # it may be closed
    if not body.strip() and status is None:
        raise BadInput("stdin is empty: pipe an answer of the API server or a line of a log into it")
    rejection = read_rejection(status or 0, {}, body)
    click.echo(json.dumps(_document(rejection), indent=2) if as_json else _page(rejection))


def _document(rejection: Rejection) -> dict[str, Any]:
    """Return what scripts read."""
    return {
        "lane": rejection.lane.value,
        "retryable": rejection.retryable,
        "retry_after_s": rejection.retry_after,
        "quota": rejection.quota or None,
        "requested": quantity_texts(rejection.requested),
        "used": quantity_texts(rejection.used),
        "limited": quantity_texts(rejection.limited),
        "headroom": quantity_texts(rejection.headroom),
        "never_fits": rejection.never_fits,
        "message": rejection.message,
    }


def _page(rejection: Rejection) -> str:
    """Return what people read."""
    lines = [["lane", rejection.lane.value], ["try again", "yes" if rejection.retryable else "no"]]
    if rejection.retry_after is not None:
        lines.append(["not before", f"{rejection.retry_after:g} s"])
    if rejection.quota:
        lines.append(["quota", rejection.quota])
    page = [f"{name:<11}{text}" for name, text in lines]
    page.append(_advice(rejection))
    if rejection.limited:
        page += ["", aligned([["resource", "requested", "used", "limited", "left"], *_rows(rejection)])]
    return "\n".join(page)


def _advice(rejection: Rejection) -> str:
    """Return one sentence on what to do."""
    if rejection.never_fits:
        return "It asks for more than the whole quota: it never fits unless the quota grows or it shrinks."
    if rejection.lane is Lane.QUOTA and 0 in rejection.limited.values():
        return "The quota is set to zero: it is paused. Wait until somebody raises it."
    return ADVICE[rejection.lane]


def _rows(rejection: Rejection) -> list[list[str]]:
    """Return a row for each resource that the answer names."""
    columns = (rejection.requested, rejection.used, rejection.limited, rejection.headroom)
    return [
        [name, *(quantity_text(name, column[name]) if name in column else "?" for column in columns)]
        for name in rejection.limited
    ]

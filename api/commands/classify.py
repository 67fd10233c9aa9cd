"""``backoff-ctrl classify``: explain an answer of the API server, and whether to retry."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.gutters import unwrapped
from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection
from backoff_ctrl.k8s.status.amounts import aligned, quantity_text, quantity_texts

from .output import DOCUMENT, output_options, written

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.answers.rejections import Rejection

LONGEST_INPUT: Final = 1_048_576

# What to do in each lane, for an on-call engineer.
ADVICE: Final = {
    Lane.QUOTA: "The quota is full. Wait for room, or free some (backoff-ctrl holders shows who uses it).",
    Lane.MUST_SPECIFY: "The quota requires every container to set these requests or limits. Add them.",
    Lane.QUOTA_NOT_READY: "The quota is new, and its usage is not counted yet. Retry in a moment.",
    Lane.NO_COVERING_QUOTA: "No quota of this namespace covers the object, but one must. Ask an administrator for one.",
    Lane.QUOTA_CONFLICT: "Several creates updated the quota at the same time. Retry in a moment, with fewer at once.",
    Lane.QUOTA_TIMEOUT: "The server did not evaluate the quota in time. Back off, then retry.",
    Lane.OVERLOAD: "The server is overloaded. Wait as long as it asks, then send fewer requests at once.",
    Lane.UNKNOWN_OUTCOME: "The object may or may not exist. Look it up by name before you retry.",
    Lane.NOT_SENT: "No connection was made, so no object was created. Check address and network; retry with back-off.",
    Lane.WEBHOOK_FAILED: "An admission webhook failed, so no object was created. Retry later, or get it repaired.",
    Lane.NOT_READY: "The namespace is new, or the server is starting. Retry in a moment.",
    Lane.POLICY: "A cluster policy forbids this object. Change the object as the message says.",
    Lane.RBAC: "This account lacks the right. Ask for a role binding; retrying does not help.",
    Lane.LIMIT_RANGE: "The object violates the namespace's LimitRange. Change its requests or limits.",
    Lane.NAMESPACE_TERMINATING: "The namespace is being deleted. Use another one, or create it again once it is gone.",
    Lane.WEBHOOK: "An admission webhook denied the object. Its message says why.",
    Lane.EXISTS: "The name is taken. Check whether the existing object is yours.",
    Lane.INVALID: "The request is malformed, or its namespace or kind does not exist. Correct it.",
    Lane.CREDENTIALS: "The credentials are missing or expired. Renew them.",
    Lane.OTHER: "This answer is not known here. Read its message.",
}

# Marks a line of a log that is a refusal by itself. An error of several lines has this at most once.
_REFUSAL_LINE: Final = re.compile(rb"is forbidden: |rror from server|cannot be fulfilled on ")
SUCCESS: Final = "This is a success, not a refusal: the server did what was asked. No retry is needed."


@click.command("classify")
@click.option("--status", type=click.IntRange(100, 599), help="The HTTP status of the answer, if you know it.")
@output_options(*DOCUMENT)
def command(status: int | None, output: str | None) -> None:
    """Read an API server's response from stdin and explain it.

    The input is a Status as JSON, or a text that contains the error: a line of a log, an event, the output of
    kubectl. It may be wrapped, in a box or behind the time on each line. For a full quota, this shows its name, what
    was requested, used and limited, and what is left. In a log with several refusals each is explained; --json has the
    first at the top, and the others under "more".

    \b
    kubectl create -f pod.yaml 2>&1 | backoff-ctrl classify
    """
    body = sys.stdin.buffer.read(LONGEST_INPUT) if sys.stdin else b""  # stdin may be closed
    if not body.strip() and status is None:
        raise BadInput("stdin is empty: pipe an answer of the API server or a line of a log into this command")
    body = unwrapped(body.decode("utf-8", errors="replace")).encode() if status else body
    succeeded = _is_success(status or 0, body)
    code = 200 if succeeded else status or 0
    found = [] if code else _each_refusal(body)
    found = found or [read_rejection(code, {}, body)]
    if output:
        document, *others = map(_document, found)
        click.echo(written({**document, "more": others} if others else document, output))
    else:
        click.echo("\n\n".join(_page(each, SUCCESS if succeeded else _advice(each)) for each in found))


def _each_refusal(body: bytes) -> list[Rejection]:
    """The refusals in a log with several, one on each line; empty for any other text."""
    lines = [line for line in body.splitlines() if _REFUSAL_LINE.search(line)]
    found = [each for each in (read_rejection(0, {}, line) for line in lines) if each.lane is not Lane.OTHER]
    return found if len(found) > 1 else []


def _is_success(status: int, body: bytes) -> bool:
    """Whether the answer is a success: a 2xx, a Status with Success, or the object that the server returned."""
    if status:
        return 200 <= status < 300
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(answer, dict) or not answer.get("kind"):
        return False
    return answer.get("status") == "Success" if answer["kind"] == "Status" else "metadata" in answer


def _document(rejection: Rejection) -> dict[str, Any]:
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
        **({"must_specify": unspecified} if (unspecified := rejection.unspecified) else {}),
    }


def _page(rejection: Rejection, advice: str) -> str:
    lines = [["lane", rejection.lane.value], ["retryable", "yes" if rejection.retryable else "no"]]
    if rejection.retry_after is not None:
        lines.append(["retry in", f"{rejection.retry_after:g} s"])
    if rejection.quota:
        lines.append(["quota", rejection.quota])
    page = [f"{name:<11}{text}" for name, text in lines]
    page.append(advice)
    if rejection.limited:
        page += ["", aligned([["resource", "requested", "used", "limited", "left"], *_rows(rejection)])]
    if unspecified := rejection.unspecified:
        page += [
            "",
            aligned(
                [["resource", "containers"], *([name, ", ".join(each) or "?"] for name, each in unspecified.items())],
                (),
            ),
        ]
    return "\n".join(page)


def _advice(rejection: Rejection) -> str:
    if rejection.never_fits:
        return "It requests more than the whole quota, so it can never fit. Reduce it, or ask for a larger quota."
    if "enough allocatable resources: " in rejection.message:
        return "The pod would request more than its node can give. Request less, or create it anew on a larger node."
    if paused := [name for name, asked in rejection.requested.items() if asked and rejection.limited.get(name) == 0]:
        return f"The quota is paused: its limit of {', '.join(paused)} is 0. Wait until an administrator raises it."
    return ADVICE[rejection.lane]


def _rows(rejection: Rejection) -> list[list[str]]:
    """Return a table row for each resource that the answer limits."""
    columns = (rejection.requested, rejection.used, rejection.limited, rejection.headroom)
    return [
        [name, *(quantity_text(name, column[name]) if name in column else "?" for column in columns)]
        for name in rejection.limited
    ]

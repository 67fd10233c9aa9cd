"""Asks the API server itself what it would answer to a create, by a dry run, and compares that with an explanation.

Quota admission evaluates a dry run as it would a create, and charges nothing. Whose rights it is sent with is the
business of ``ask``; here is only what is asked, and what the answer means. Pure.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from backoff_ctrl.k8s.answers.rejections import Lane, Rejection, read_rejection
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.documents.items import quantity
from backoff_ctrl.k8s.status.shapes.documents import Blocker
from backoff_ctrl.k8s.status.shapes.explained import Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.k8s.status.shapes.explained import Explained, Verdict

    Answer = tuple[int, dict[str, Any]]
    Ask = Callable[[str, str, Mapping[str, Any] | None], Answer]

DRY_RUN: Final = "dryRun=All"
RACES: Final = (
    "a dry run reserves and charges nothing: others may take the room before the create is sent, and two that fit one "
    "by one may not fit together"
)
WEBHOOKS: Final = (
    "webhooks that do not declare to be free of side effects are not called in a dry run: the server refuses it instead"
)
MADE: Final = "only the create itself was tried, not what its controller makes of it"
GATES: Final = "the server knows nothing of room that a gate holds, or keeps for a create that waits longer"
_VERSION: Final = re.compile(r"(?:([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)/)?([a-z0-9][-a-z0-9]*)")
_REFUSED: Final = frozenset(
    {
        Lane.MUST_SPECIFY, Lane.NO_COVERING_QUOTA, Lane.POLICY, Lane.LIMIT_RANGE, Lane.NAMESPACE_TERMINATING,
        Lane.WEBHOOK, Lane.INVALID, Lane.RBAC, Lane.EXISTS,
    }
)  # fmt: skip
"""What stays refused whatever room there is."""
_NEVER_KNOWN: Final = frozenset({Lane.RBAC, Lane.WEBHOOK, Lane.POLICY, Lane.EXISTS, Lane.NAMESPACE_TERMINATING})
"""What an explanation does not look at, so that it can't be wrong about it."""
_NO_DRY_RUN: Final = "does not support dry run"  # k8s.io/apiserver pkg/admission/plugin/webhook/errors
_STRANGER: Final = "system:anonymous"


def confirm(manifest: Mapping[str, Any], namespace: str, found: Explained, ask: Ask) -> Confirmation:
    """Return what the server answers to a dry run of this create, beside what was found.

    ``ask`` takes a method, a path with its query, and a body. Raises ``ProblemError`` if it does not know who asks.
    """
    path = _path_of(manifest, namespace, ask)
    untold = [RACES, WEBHOOKS, GATES, *([MADE] if found.footprint.parts else [])]
    if path is None:
        why = f"the server has no {manifest.get('kind')} in {manifest.get('apiVersion')}"
        return Confirmation("refused", None, 404, Lane.INVALID, why, [], untold)
    status, answer = _known(*ask("POST", f"{path}?{DRY_RUN}", manifest))
    if status in (200, 201):
        return Confirmation("now", _compared(found.verdict, "now"), status, None, "", [], untold)
    rejection = read_rejection(status, {}, json.dumps(answer))
    if _NO_DRY_RUN in rejection.message:
        return Confirmation("unknown", None, status, rejection.lane, rejection.message, [], untold)
    verdict = _verdict(rejection)
    agrees = None if rejection.lane in _NEVER_KNOWN else _compared(found.verdict, verdict)
    return Confirmation(verdict, agrees, status, rejection.lane, rejection.message, _blockers(rejection), untold)


def _path_of(manifest: Mapping[str, Any], namespace: str, ask: Ask) -> str | None:
    """Return where a kind is created, as the server's discovery says it; None: it has no such kind."""
    match = _VERSION.fullmatch(str(manifest.get("apiVersion")))
    if match is None:
        return None
    base = f"/apis/{match[1]}/{match[2]}" if match[1] else f"/api/{match[2]}"
    status, listed = _known(*ask("GET", base, None))
    if status == 404:
        return None
    if status != 200:
        raise ProblemError(503, f"the API server does not say which kinds it has: it answers {status} to {base}")
    for each in _resources(listed):
        if each.get("kind") == manifest.get("kind") and "/" not in (name := str(each.get("name"))):
            where = f"/namespaces/{quote(namespace, safe='')}" if each.get("namespaced") is True else ""
            return f"{base}{where}/{quote(name, safe='')}"
    return None


def _resources(listed: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = listed.get("resources")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _known(status: int, answer: dict[str, Any]) -> Answer:
    """Return the answer. Raises ``ProblemError`` if it says that the server does not know who asks."""
    if status == 401 or (status == 403 and _STRANGER in str(answer.get("message"))):
        raise ProblemError(
            401,
            "the API server is asked with your own rights, and does not know you: send a Kubernetes token "
            "(Authorization: Bearer TOKEN), such as one from kubectl create token",
            "#/headers/Authorization",
        )
    return status, answer


def _verdict(rejection: Rejection) -> Verdict:
    if rejection.lane is Lane.QUOTA:
        return "never" if rejection.never_fits else "wait"
    return "refused" if rejection.lane in _REFUSED else "unknown"


def _compared(found: Verdict, server: Verdict) -> bool | None:
    return None if "unknown" in (found, server) else found == server


def _blockers(rejection: Rejection) -> list[Blocker]:
    left = rejection.headroom
    return [
        Blocker(
            rejection.quota,
            name,
            quantity(asked, name),
            quantity(max(0, left.get(name, 0)), name),
            quantity(rejection.limited.get(name, 0), name),
        )
        for name, asked in rejection.requested.items()
    ]

"""``POST /v1/actions/...``: an operator forgets a quota, pauses or resumes a namespace, moves or cancels a create.

Nothing of it outlives the process. Each action, done or not, is one line of the logger ``backoff_ctrl.audit``: a
WARNING, which Python shows even where logging is not set up.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.creation import PRIORITY_MAX
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from backoff_ctrl.k8s.kube.answers.printing import printable

from .asked import ProblemError, check_sender
from .token import Token

audit = logging.getLogger("backoff_ctrl.audit")

ACTIONS: Final[dict[str, dict[str, type]]] = {
    "forget": {"namespace": str, "quota": str},
    "pause": {"namespace": str},
    "resume": {"namespace": str},
    "prioritize": {"id": str, "priority": int},
    "cancel": {"id": str},
}
"""What each action needs in its body; ``by`` and ``why`` are optional."""
TEXT_MAX: Final = 512
_KINDS: Final = {str: "a text that is not empty", int: "a whole number"}
_AUDITED: Final = {
    "forget": "forget quota {namespace}/{quota}",
    "pause": "pause namespace {namespace}",
    "resume": "resume namespace {namespace}",
    "prioritize": "set the priority of create {id} to {priority}",
    "cancel": "cancel create {id}",
}


@dataclass(frozen=True, slots=True)
class Operator:
    """Who acts, as the request says, and why; for the audit line and for the caller of a cancelled create."""

    by: str
    why: str

    @property
    def words(self) -> str:
        """Both as the end of a sentence."""
        by = f" by {self.by}" if self.by else " by an operator"
        return printable(by + (f": {self.why}" if self.why else ""))


class Actions:
    """The actions on all gates of a process: each returns what was done, as a sentence, or raises ``ProblemError``."""

    def __init__(self, ledgers: Callable[[], Sequence[Ledger]]) -> None:
        """``ledgers`` returns those of this process now."""
        self._ledgers = ledgers

    def do(self, name: str, headers: Mapping[str, str], body: bytes, place: str) -> str:
        """Do what an operator at ``place`` wants; the names of headers are in lower case. Raises ``ProblemError``."""
        asked = read_action(headers.get("content-type", ""), body, ACTIONS[name])
        operator = Operator(asked.pop("by", ""), asked.pop("why", ""))
        line = f"{printable(_AUDITED[name].format(**asked))}{operator.words} (from {place})"
        try:
            done: str = getattr(self, f"_{name}")(operator, **asked)
        except ProblemError as error:
            audit.warning("not done: %s; %s", line, printable(str(error)))
            raise
        audit.warning("%s; %s", line, printable(done))
        return done

    def _forget(self, _: Operator, namespace: str, quota: str) -> str:
        """Forget what was learned of a quota, so that it is learned again. What a watch reports can't be forgotten."""
        knowing = [each for each in self._ledgers() if _knows(each, namespace, quota)]
        learned = next((each for each in knowing if not each.is_watched(namespace)), None)
        if learned is not None:
            learned.forget_quota(namespace, quota)
            again = "the gate learns it again from the server's next answer"
            return f"quota {quota} of namespace {namespace} is forgotten: {again}"
        if knowing:
            why = f"quota {quota} of namespace {namespace} is watched: what is known of it comes from the API server"
            raise ProblemError(409, why, "#/body/quota")
        raise ProblemError(404, f"no gate knows a quota {quota} in namespace {namespace}", "#/body/quota")

    def _pause(self, _: Operator, namespace: str) -> str:
        """Send no create of a namespace until it is resumed: they wait, up to their limits. Sent ones continue."""
        enforcing = [each for each in self._ledgers() if each.mode(namespace) == "enforce"]
        if not enforcing:
            why = f"namespace {namespace} is not in the mode enforce: its creates are sent whatever the gate decides"
            raise ProblemError(409, why, "#/body/namespace")
        for ledger in enforcing:
            ledger.halt(namespace, halted=True)
        return f"creates in namespace {namespace} wait until you resume it"

    def _resume(self, _: Operator, namespace: str) -> str:
        paused = [each for each in self._ledgers() if each.is_halted(namespace)]
        if not paused:
            raise ProblemError(409, f"namespace {namespace} is not paused", "#/body/namespace")
        for ledger in paused:
            ledger.halt(namespace, halted=False)
        return f"creates in namespace {namespace} continue"

    def _prioritize(self, _: Operator, id: str, priority: int) -> str:  # noqa: A002 - as the body calls it
        """Give a waiting create another priority, as if it had joined the line with it."""
        ledger, found = self._waiting(id)
        request = found.request
        if request is None or not ledger.prioritize(request, priority):
            raise ProblemError(409, f"{found.label} does not wait in line any more", "#/body/id")
        found.creation.priority = priority
        return f"{found.label} has priority {priority} now, and place {found.wait().place} in line"

    def _cancel(self, operator: Operator, id: str) -> str:  # noqa: A002 - likewise
        """End a create that waits; its caller gets ``GateClosed``. One that is being sent is answered first."""
        _, found = self._waiting(id)
        found.cancel(GateClosed(f"{found.label} was cancelled{operator.words}"))
        return f"{found.label} is cancelled, and its caller was notified"

    def _waiting(self, create: str) -> tuple[Ledger, Unfinished]:
        for ledger in self._ledgers():
            for each in ledger.under_way():
                if create and each.create_id == create:
                    if not each.waits:
                        raise ProblemError(409, f"{each.label} does not wait: it is being sent", "#/body/id")
                    return ledger, each
        why = f"no create with the id {create!r} is under way here: /v1/waiting has all, and backoff-ctrl waiting"
        raise ProblemError(404, why, "#/body/id")


def _knows(ledger: Ledger, namespace: str, quota: str) -> bool:
    found = ledger.look(lambda engine, now: engine.namespace(namespace, now))
    return found is not None and quota in found.quotas


def check_operator(headers: Mapping[str, str], token: Token | None) -> None:
    """Refuse web pages, and requests without the token; without a ``token`` nobody may act. Raises ``ProblemError``."""
    check_sender(headers.get("host"), headers.get("origin"), hosts=None, acts=True)
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise ProblemError(403, "web pages of other sites can't act here", "#/headers/Sec-Fetch-Site")
    if token is None:
        raise ProblemError(403, "actions are disabled here: there is no token", "#/headers/Authorization")
    token.check(headers.get("authorization", ""))


def read_action(content_type: str, body: bytes, needed: Mapping[str, type]) -> dict[str, Any]:
    """Return the checked body of an action that needs these. Raises ``ProblemError``."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ProblemError(415, "send the body as application/json", "#/headers/Content-Type")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, f"the body is not JSON: {error}", "#/body") from None
    if not isinstance(found, dict):
        raise ProblemError(400, f"the body must be an object with {', '.join(needed)}", "#/body")
    for name, kind in needed.items():
        value = found.get(name)
        if type(value) is not kind or value == "":
            raise ProblemError(400, f"{name} must be {_KINDS[kind]}", f"#/body/{name}")
    for name, value in found.items():
        if name not in (*needed, "by", "why"):
            raise ProblemError(400, f"unknown key {name[:64]!r}: choose from {', '.join(needed)}, by, why", "#/body")
        if name not in needed and not isinstance(value, str):
            raise ProblemError(400, f"{name} must be a text", f"#/body/{name}")
        if isinstance(value, str) and len(value) > TEXT_MAX:
            raise ProblemError(400, f"{name} is longer than {TEXT_MAX} characters", f"#/body/{name}")
    if abs(found.get("priority", 0)) > PRIORITY_MAX:
        raise ProblemError(400, "priority must be between -2^31 and 2^31", "#/body/priority")
    return found

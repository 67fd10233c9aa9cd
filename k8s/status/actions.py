"""``POST /v1/actions/...``: reads what an operator wants, checks the token, and says what was done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.creates.creation import PRIORITY_MAX

from .acts import Acts, NotDoneError, Operator
from .asked import ProblemError
from .shapes import Acted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.k8s.status.token import Token

ACTIONS: Final[dict[str, dict[str, type]]] = {
    "forget": {"namespace": str, "quota": str},
    "pause": {"namespace": str},
    "resume": {"namespace": str},
    "prioritize": {"id": str, "priority": int},
    "cancel": {"id": str},
}
"""What each action needs in its body; ``by`` and ``why`` are optional."""
TEXT_MAX: Final = 512
_WORDS: Final = {str: "a text that is not empty", int: "a whole number"}


class Actions:
    """The actions over HTTP."""

    def __init__(self, acts: Acts, token: Token | None, as_of: Callable[[], str]) -> None:
        """Without a ``token`` nobody may act."""
        self._acts = acts
        self._token = token
        self._as_of = as_of

    def do(self, name: str, headers: Mapping[str, str], body: bytes, place: str) -> Acted:
        """Do what an operator wants; the names of headers are in lower case. Raises ``ProblemError``."""
        self._check(headers)
        asked = read_action(headers.get("content-type", ""), body, ACTIONS[name])
        operator = Operator(asked.pop("by", ""), asked.pop("why", ""), place)
        try:
            done = getattr(self._acts, name)(operator, *(asked[key] for key in ACTIONS[name]))
        except NotDoneError as error:
            raise ProblemError(409 if error.known else 404, str(error), f"#/body/{error.about}") from None
        return Acted(self._as_of(), name, done)

    def _check(self, headers: Mapping[str, str]) -> None:
        """Refuse web pages, and requests without the token."""
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{headers.get('host')}", f"https://{headers.get('host')}"):
            raise ProblemError(403, f"web pages of {origin!r} can't act here", "#/headers/Origin")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ProblemError(403, "web pages of other sites can't act here", "#/headers/Sec-Fetch-Site")
        if self._token is None:
            raise ProblemError(403, "actions are disabled here: there is no token", "#/headers/Authorization")
        if not self._token.allows(headers.get("authorization", "")):
            raise ProblemError(
                401, f"actions need the header Authorization: Bearer TOKEN; it is in {self._token.where}",
                "#/headers/Authorization",
            )  # fmt: skip


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
            raise ProblemError(400, f"{name} must be {_WORDS[kind]}", f"#/body/{name}")
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

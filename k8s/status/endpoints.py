"""The URLs of the status API: what each takes, and what it answers. Both servers are made from this one table.

A gate serves it from its own process (``server``), and ``backoff-ctrl serve`` for a cluster and all its gates
(``api/status``). Each has an object with a method for each name here, which gets the typed query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote

from . import shapes
from .actions import ACTIONS
from .asked import LIMIT, Anything, ProblemError, parameter

_AFTER: Final = "The `next` of the page before."
_LIMIT: Final = "Items on the page: 1 to 1000, by default 100."
_NAMESPACE: Final = "Only this namespace."
_QUOTA: Final = "Only the quotas of this name."


@dataclass(frozen=True, slots=True)
class Nothing:
    """No parameters."""


@dataclass(frozen=True, slots=True)
class OfPage:
    limit: int = parameter(_LIMIT, LIMIT)
    after: str | None = parameter(_AFTER)


@dataclass(frozen=True, slots=True)
class OfCeilings:
    namespace: str | None = parameter(_NAMESPACE)
    quota: str | None = parameter(_QUOTA)
    resource: str | None = parameter("Only this resource, such as requests.cpu.")
    limit: int = parameter(_LIMIT, LIMIT)
    after: str | None = parameter(_AFTER)

    def takes(self, quota: str, resource: str) -> bool:
        """Return whether the filters let this one pass."""
        return self.quota in (None, quota) and self.resource in (None, resource)


@dataclass(frozen=True, slots=True)
class OfNamespace:
    namespace: str | None = parameter(_NAMESPACE)
    limit: int = parameter(_LIMIT, LIMIT)
    after: str | None = parameter(_AFTER)


@dataclass(frozen=True, slots=True)
class OfHolders:
    namespace: str | None = parameter(_NAMESPACE)
    quota: str | None = parameter(_QUOTA)


@dataclass(frozen=True, slots=True)
class OfRequest:
    id: str = parameter("The create's id: the annotation `backoff-ctrl.dev/create-id` of its object.", in_path=True)


@dataclass(frozen=True, slots=True)
class OfDecisions:
    namespace: str | None = parameter(_NAMESPACE)
    after: str | None = parameter(_AFTER)


@dataclass(frozen=True, slots=True)
class OfExplain:
    namespace: str | None = parameter(_NAMESPACE)
    confirm: bool = parameter("Ask the API server, too: a dry run with the rights of your token.", False)


@dataclass(frozen=True, slots=True)
class OfAction:
    action: str = parameter(
        "What to do: pause, resume, forget, prioritize or cancel.", in_path=True, one_of=tuple(ACTIONS)
    )


Answers = Literal["page", "document", "stream", "text"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL. ``shape``: of the document, of an item of the page, or of the data of an event in the stream."""

    path: str
    name: str
    query: type[Any]
    answers: Answers
    shape: Any = str
    method: Literal["GET", "POST", "DELETE"] = "GET"

    @property
    def beginning(self) -> str:
        """The path up to its parameter."""
        return self.path.partition("{")[0]

    @property
    def of_path(self) -> str:
        """The name of the parameter in the path; empty: it has none."""
        return self.path.partition("{")[2].rstrip("}")


ENDPOINTS: Final = (
    Endpoint("/v1/ceilings", "ceilings", OfCeilings, "page", shapes.Ceiling),
    Endpoint("/v1/waiting", "waiting", OfNamespace, "page", shapes.Waiting),
    Endpoint("/v1/namespaces", "namespaces", OfPage, "page", shapes.Namespace),
    Endpoint("/v1/overload", "overload", Nothing, "page", shapes.Overload),
    Endpoint("/v1/policy", "policy", Nothing, "document", shapes.PolicyDocument),
    Endpoint("/v1/gates", "gates", Nothing, "page", shapes.Gate),
    Endpoint("/v1/requests/{id}", "request", OfRequest, "document", shapes.RequestHistory),
    Endpoint("/v1/decisions", "decisions", OfDecisions, "stream", shapes.Decision),
    Endpoint("/v1/explain", "explain", OfExplain, "document", shapes.Explained, "POST"),
    Endpoint("/v1/actions/{action}", "act", OfAction, "document", shapes.Acted, "POST"),
    Endpoint("/metrics", "metrics", Anything, "text"),
    Endpoint("/livez", "livez", Anything, "text"),
    Endpoint("/readyz", "readyz", Anything, "text"),
    Endpoint("/version", "version", Anything, "document", dict[str, str]),
)
URLS: Final = {each.path: each.shape for each in ENDPOINTS if each.path.startswith("/v1/")}
"""The shape at each URL of a gate: see ``Endpoint``."""


_BY_PATH: Final = {each.path: each for each in ENDPOINTS}
_BY_BEGINNING: Final = {each.beginning: each for each in ENDPOINTS if each.of_path}
METHODS: Final = ("GET", "HEAD", "POST")


def find(method: str, path: str) -> tuple[Endpoint, str]:
    """Return what is at a path, and the parameter in the path. Raises ``ProblemError`` with 404 or 405."""
    if method not in METHODS:
        raise other_method(method, path)
    found = _at(path)
    given = "" if found is None or not found.of_path else unquote(path.removeprefix(found.beginning))
    if found is None or (found.of_path and not given) or (found.name == "act" and given not in ACTIONS):
        raise ProblemError(404, f"unknown path; choose one of {', '.join(_BY_PATH)}", "#/path")
    if found.method != ("GET" if method == "HEAD" else method):
        raise ProblemError(405, f"{path} takes {found.method}, not {method}", "#/path", headers=_allowed(path))
    return found, given


def other_method(method: str, path: str) -> ProblemError:
    """Return the problem with a method that no path takes."""
    return ProblemError(405, f"this server answers GET and POST, not {method}", headers=_allowed(path))


def _at(path: str) -> Endpoint | None:
    return _BY_PATH.get(path) or next((each for start, each in _BY_BEGINNING.items() if path.startswith(start)), None)


def _allowed(path: str) -> dict[str, str]:
    found = _at(path)
    return {"Allow": "POST" if found is not None and found.method == "POST" else "GET, HEAD"}

"""One create's way to the server through an official client: the part that all clients have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from backoff_ctrl.k8s.creates.calls import quotas_url
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from backoff_ctrl.k8s.gate.first_list import READ_PATIENCE

from .tokens import FRESH, ConfiguredToken

if TYPE_CHECKING:
    from collections.abc import Mapping

R = TypeVar("R")

JSON: Final = "application/json"


class ClientTransport(ABC, Generic[R]):
    """The gate's transport. ``R`` is what a call gives: an ``Answer``, or an awaitable of one.

    An adapter says how a call is made and how new credentials are fetched (``refresh``).
    """

    __slots__ = ("_fresh_until", "_headers", "_host", "_limit", "_namespace", "_url")

    server_limit: ClassVar[Any] = SERVER_LIMIT
    """When the server has ended a create, in the client's terms of a time limit."""
    list_limit: ClassVar[Any] = READ_PATIENCE
    """How long a list of quotas may take."""

    def __init__(self, host: str, namespace: str, url: str, headers: dict[str, Any] | None, limit: Any) -> None:
        """Take a gated call apart. ``limit`` is the caller's time limit for one request, in the client's terms."""
        self._host = host
        self._namespace = namespace
        self._url = url
        self._headers = headers or {}
        self._limit = limit or self.server_limit
        self._fresh_until = time.monotonic() + FRESH  # the client asked for the credentials a moment ago

    def send(self, body: dict[str, Any]) -> R:
        """POST the body."""
        return self.call("POST", self._url, body, self._limit)

    def look_up(self, name: str) -> R:
        """GET the object of that name."""
        return self.call("GET", f"{self._url.partition('?')[0]}/{name}", None, self._limit)

    def list_quotas(self) -> R:
        """GET the quotas of the namespace, within 2 s."""
        return self.call("GET", quotas_url(self._host, self._namespace), None, self.list_limit)

    @abstractmethod
    def call(self, method: str, url: str, body: Any, limit: Any) -> R:
        """Call the server with credentials of this moment. Raises ``NotSent`` and ``OutcomeUnknown``."""

    def token_is_old(self) -> bool:
        """Say whether the configuration must be asked for its token again before the next call."""
        return time.monotonic() > self._fresh_until and isinstance(self._headers.get("authorization"), ConfiguredToken)

    def token_was_refreshed(self) -> None:
        """Ask the configuration for its token before each call from now on."""
        self._fresh_until = float("-inf")

    def headers_with(self, settings: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the call's headers, with the token of the configuration's ``auth_settings()`` where it is given."""
        headers = asking_for_json(self._headers)
        token = None if settings is None else settings.get("BearerToken")
        if token is not None:
            headers["authorization"] = token["value"]
        return headers


def asking_for_json(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return headers that accept JSON only: whether an object is ours is read from the answer, and so is its charge.

    Forms of the object in JSON (``as=PartialObjectMetadata``) stay, but a Table shows no annotations.
    """
    return {name: _json_of(str(value)) if name.lower() == "accept" else value for name, value in headers.items()}


def _json_of(accept: str) -> str:
    kept = [each.strip() for each in accept.split(",")]
    return ", ".join(each for each in kept if each.startswith((JSON, "*/*")) and "as=Table" not in each) or JSON

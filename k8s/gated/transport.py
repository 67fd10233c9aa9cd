"""One create's way to the server through an official client: what all clients have in common, and bearer tokens."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from backoff_ctrl.k8s.creates.calls import quotas_url
from backoff_ctrl.k8s.creates.treatments import SERVER_LIMIT
from backoff_ctrl.k8s.gate.together import READ_PATIENCE

R = TypeVar("R")

JSON: Final = "application/json"
FRESH: Final = 0.05
"""Seconds for which a token counts as current, so that a create that does not wait asks for it only once."""
ASKED_EVERY: Final = 1.0
"""Seconds for which the token of a configuration is reused: it is renewed minutes before it expires."""


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


# -- bearer tokens: from the configuration, or from one request ---------


class ConfiguredToken(str):
    """An authorization header that came from the configuration, which is asked for it again before each send."""

    __slots__ = ()


def mark_configured(headers: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    """Mark the header that ``update_params_for_auth`` has set, unless its caller brought credentials of its own."""
    if arguments.get("request_auth") is None and "authorization" in headers:
        headers["authorization"] = ConfiguredToken(headers["authorization"])


class LastToken:
    """The authorization header that a configuration returned last.

    A kubeconfig's hook rewrites all settings each time it is asked for the token, which is a tenth of the client's
    cost of a create.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds. No header is known yet."""
        self._clock = clock
        self._given: tuple[float, object, object, ConfiguredToken] | None = (
            None  # replaced as a whole, so that threads need no lock
        )

    def of(self, configuration: Any) -> ConfiguredToken | None:
        """Return it, if it is recent and the configuration still has the token and prefix of then."""
        given = self._given
        if given is None:
            return None
        at, token, prefix, header = given
        now_token, now_prefix = _token(configuration)
        fresh = token is now_token and prefix is now_prefix and self._clock() <= at + ASKED_EVERY
        return header if fresh else None

    def note(self, configuration: Any, header: ConfiguredToken) -> None:
        """Remember it, if it is the configuration's token: that may have changed, or a subclass made the header."""
        token, prefix = _token(configuration)
        explained = token is not None and header == (f"{prefix} {token}" if prefix else token)
        self._given = (self._clock(), token, prefix, header) if explained else None

    def forget(self) -> None:
        """Ask the configuration next time: the server has refused this header."""
        self._given = None


def _token(configuration: Any) -> tuple[object, object]:
    """Return the objects that a caller replaces to set another token: the token and its prefix."""
    keys, prefixes = configuration.api_key, configuration.api_key_prefix
    return (
        keys.get("BearerToken", keys.get("authorization")),
        prefixes.get("BearerToken", prefixes.get("authorization")),
    )

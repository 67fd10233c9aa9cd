"""One create's way to the server through an official client: what all clients have in common, and bearer tokens.

The client puts its token into the header before the create waits, so it may be old when the create is sent. A header
that came from the configuration is marked (``ConfiguredToken``), and the configuration is asked again before each send;
a header of the caller's own stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from backoff_ctrl.k8s.gate.creates.calls import quotas_url
from backoff_ctrl.k8s.gate.together import READ_PATIENCE
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT

JSON: Final = "application/json"
FRESH: Final = 0.05
"""Seconds for which a token counts as current, so that a create that does not wait asks for it only once."""
FOR_EVER: Final = float("inf")
ASKED_EVERY: Final = 1.0
"""Seconds for which the token of a configuration is reused: it is renewed minutes before it expires."""


class ClientTransport:
    """The gate's transport. An heir says how a call is made, and how new credentials are fetched (``refresh``).

    What a call gives is an ``Answer``, or an awaitable of one; it raises ``NotSent`` and ``OutcomeUnknown``.
    """

    __slots__ = ("_fresh_until", "_headers", "_limit", "_namespace", "_sender", "_url")

    server_limit: ClassVar[Any] = SERVER_LIMIT
    """When the server has ended a create, in the client's terms of a time limit."""
    list_limit: ClassVar[Any] = READ_PATIENCE
    call: Callable[[str, str, Any, Any], Any]
    """Calls the server with credentials of this moment: method, URL, body and time limit."""

    def __init__(self, sender: Any, namespace: str, url: str, headers: dict[str, Any] | None, limit: Any) -> None:
        """``sender`` is the client, ``limit`` the caller's time limit for one request, in the client's terms."""
        self._sender = sender
        self._namespace = namespace
        self._url = url
        self._headers = headers = headers or {}
        self._limit = limit or self.server_limit
        configured = isinstance(headers.get("authorization"), ConfiguredToken)
        self._fresh_until = time.monotonic() + FRESH if configured else FOR_EVER
        """When the configuration must be asked for its token again. The client asked for it a moment ago."""

    def send(self, body: dict[str, Any]) -> Any:
        return self.call("POST", self._url, body, self._limit)

    def look_up(self, name: str) -> Any:
        return self.call("GET", f"{self._url.partition('?')[0]}/{name}", None, self._limit)

    def list_quotas(self) -> Any:
        return self.call("GET", quotas_url(self._sender.configuration.host, self._namespace), None, self.list_limit)

    def token_was_refreshed(self) -> None:
        """Ask the configuration for its token before each call from now on."""
        self._fresh_until = FOR_EVER if self._fresh_until == FOR_EVER else -FOR_EVER


def headers_to_send(headers: Mapping[str, Any], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return headers that accept JSON only, with the token of a configuration's ``auth_settings()``, if given.

    Whether an object is ours is read from the answer, and so is its charge. Forms of the object in JSON
    (``as=PartialObjectMetadata``) stay, but a Table shows no annotations.
    """
    sent = dict(headers)
    for name, value in headers.items():
        if name.lower() == "accept" and value != JSON:
            kept = [each.strip() for each in str(value).split(",")]
            read = [each for each in kept if each.startswith((JSON, "*/*")) and "as=Table" not in each]
            sent[name] = ", ".join(read) or JSON
    if settings is not None and "BearerToken" in settings:
        sent["authorization"] = settings["BearerToken"]["value"]
    return sent


# -- bearer tokens ---------


class ConfiguredToken(str):
    """An authorization header that came from the configuration, which is asked for it again before each send."""

    __slots__ = ()


def mark_configured(headers: dict[str, Any]) -> None:
    """Mark the header that came from the configuration, if there is one."""
    if "authorization" in headers:
        headers["authorization"] = ConfiguredToken(headers["authorization"])


class LastToken:
    """The authorization header that a configuration returned last.

    A kubeconfig's hook rewrites all settings each time it is asked for the token, which is a tenth of the client's
    cost of a create.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Until when, the token and the prefix of then, the header: replaced as a whole, so that threads need no lock.
        self._given: tuple[float, object, object, ConfiguredToken] | None = None

    def of(self, configuration: Any) -> ConfiguredToken | None:
        """Return it, if it is recent and the configuration still has the token and prefix of then."""
        given = self._given
        if given is None:
            return None
        until, token, prefix, header = given
        keys, prefixes = configuration.api_key, configuration.api_key_prefix  # a caller replaces their objects
        same = token is keys.get("BearerToken", keys.get("authorization"))
        same = same and prefix is prefixes.get("BearerToken", prefixes.get("authorization"))
        return header if same and self._clock() <= until else None

    def note(self, configuration: Any, header: ConfiguredToken) -> None:
        """Remember it, if it is the configuration's token: that may have changed, or a subclass made the header."""
        keys, prefixes = configuration.api_key, configuration.api_key_prefix
        token = keys.get("BearerToken", keys.get("authorization"))
        prefix = prefixes.get("BearerToken", prefixes.get("authorization"))
        explained = token is not None and header == (f"{prefix} {token}" if prefix else token)
        self._given = (self._clock() + ASKED_EVERY, token, prefix, header) if explained else None

    def forget(self) -> None:
        """Ask the configuration next time: the server has refused this header."""
        self._given = None

"""Bearer tokens: whether one came from the configuration or from one request, and for how long it is used."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubernetes.client import Configuration

FRESH: Final = 0.05
"""Seconds for which a token counts as current, so that a create that does not wait asks for it only once."""

ASKED_EVERY: Final = 1.0
"""Seconds for which the token of a configuration is reused: it is renewed minutes before it expires."""


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

    def of(self, configuration: Configuration) -> ConfiguredToken | None:
        """Return it, if it is recent and the configuration still has the token and prefix of then."""
        given = self._given
        if given is None:
            return None
        at, token, prefix, header = given
        now_token, now_prefix = _token(configuration)
        fresh = token is now_token and prefix is now_prefix and self._clock() <= at + ASKED_EVERY
        return header if fresh else None

    def note(self, configuration: Configuration, header: ConfiguredToken) -> None:
        """Remember it, if it is the configuration's token: that may have changed, or a subclass made the header."""
        token, prefix = _token(configuration)
        explained = token is not None and header == (f"{prefix} {token}" if prefix else token)
        self._given = (self._clock(), token, prefix, header) if explained else None

    def forget(self) -> None:
        """Ask the configuration next time: the server has refused this header."""
        self._given = None


def _token(configuration: Configuration) -> tuple[object, object]:
    """Return the objects that a caller replaces to set another token: the token and its prefix."""
    keys, prefixes = configuration.api_key, configuration.api_key_prefix
    return (
        keys.get("BearerToken", keys.get("authorization")),
        prefixes.get("BearerToken", prefixes.get("authorization")),
    )

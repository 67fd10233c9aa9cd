"""Credentials: whether they are the configuration's or one request's own, and for how long they are good."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.client import Configuration

FRESH: Final = 0.05
"""Seconds for which a token that was asked for is that of this moment: a create that did not wait asks only once."""

ASKED_EVERY: Final = 1.0
"""Seconds for which the token of a configuration is taken to be good: its owner renews it minutes before it expires."""


class ConfiguredToken(str):
    """An authorization header that came from the configuration: taken anew before each send."""

    __slots__ = ()


class LastToken:
    """The authorization header that a configuration gave last.

    A kubeconfig's hook writes all its settings again each time that it is asked for the token: a tenth of what a
    create costs the client.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Remember none."""
        self._clock = clock
        self._given: tuple[float, object, object, ConfiguredToken] | None = None  # replaced whole: threads come and go

    def of(self, configuration: Configuration) -> ConfiguredToken | None:
        """Return it, if it was given a moment ago and the configuration has the same token and prefix as then."""
        given = self._given
        if given is None:
            return None
        at, token, prefix, header = given
        now_token, now_prefix = _token(configuration)
        fresh = token is now_token and prefix is now_prefix and self._clock() <= at + ASKED_EVERY
        return header if fresh else None

    def note(self, configuration: Configuration, header: ConfiguredToken) -> None:
        """Remember it, if the configuration's token explains it: that may be another already, or a subclass's own."""
        token, prefix = _token(configuration)
        explained = token is not None and header == (f"{prefix} {token}" if prefix else token)
        self._given = (self._clock(), token, prefix, header) if explained else None

    def forget(self) -> None:
        """Have the configuration asked for the next one: the server refused this."""
        self._given = None


def _token(configuration: Configuration) -> tuple[object, object]:
    """Return what a caller who sets another token replaces: itself, and the word before it."""
    keys, prefixes = configuration.api_key, configuration.api_key_prefix
    return (
        keys.get("BearerToken", keys.get("authorization")),
        prefixes.get("BearerToken", prefixes.get("authorization")),
    )

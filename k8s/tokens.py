"""A mark on credentials: whether they came from the client's configuration or from the caller of one request."""

from __future__ import annotations

from typing import Final

FRESH: Final = 0.05
"""Seconds for which a token that was asked for is that of this moment: a create that did not wait asks only once."""


class ConfiguredToken(str):
    """An authorization header that came from the configuration: taken anew before each send."""

    __slots__ = ()

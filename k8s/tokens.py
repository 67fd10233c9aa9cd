"""A mark on credentials: whether they came from the client's configuration or from the caller of one request."""


class ConfiguredToken(str):
    """An authorization header that came from the configuration: taken anew before each send."""

    __slots__ = ()

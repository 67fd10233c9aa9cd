"""Fixtures: the crowd of the tests of the status API, for the plugin of kubectl."""

from tests.status.conftest import crowd

__all__ = ["crowd"]

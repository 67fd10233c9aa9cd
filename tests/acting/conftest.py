"""Fixtures: the crowd of the tests of the status API."""

from tests.status.conftest import crowd

__all__ = ["crowd"]

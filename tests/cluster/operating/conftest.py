"""Fixtures: the Jobs of the tests of what is let in, for those of the operator."""

from tests.cluster.admitting.conftest import jobs

__all__ = ["jobs"]

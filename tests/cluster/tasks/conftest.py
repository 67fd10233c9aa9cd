"""A plugin manager in a namespace of the test's own, on the sandbox and on a real Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.faults.storm import hung_up
from tests.tasks.bench import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.control_plane.servers import Server


@pytest.fixture
def user() -> str:
    """Whose account the manager has."""
    return "tester"


@pytest.fixture
async def bench(server: Server, user: str) -> AsyncIterator[Bench]:
    """A manager with the ledger that this process shares for the server, so that quotas are watched."""
    authority = str(server.certificate) if server.certificate else None
    async with Bench(server.url, shared=True, token=server.token(user), tls=server.ssl(), authority=authority) as bench:
        yield bench
    await hung_up()

"""A plugin manager in a namespace of the test's own, on the sandbox and on a real Kubernetes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.faults.storm import hung_up
from tests.tasks.bench import Bench


@pytest.fixture
def user() -> str:
    return "tester"


@pytest.fixture
async def bench(server: Server, user: str) -> AsyncIterator[Bench]:
    """A manager with the ledger that this process shares for the server, so that quotas are watched."""
    authority = str(server.certificate) if server.certificate else None
    async with Bench(server.url, shared=True, token=server.token(user), tls=server.ssl(), authority=authority) as bench:
        yield bench
    await hung_up()

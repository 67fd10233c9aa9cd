"""The gated clients do the same on the oldest and the newest official clients. ``make test-clients`` runs all others.

The newest ``kubernetes``, and ``kubernetes.aio`` of it, are what every other test runs on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.generations.overlays import NEWEST_ASYNCIO, OLDEST

if TYPE_CHECKING:
    from tests.generations.overlays import Clients

pytestmark = [
    pytest.mark.long,
    pytest.mark.scheduled,
    pytest.mark.timeout(900),
]  # the first run on a machine installs them


@pytest.mark.parametrize("clients", [OLDEST, NEWEST_ASYNCIO], ids=lambda each: each.title)
def test_the_tests_of_gated_clients_pass(clients: Clients) -> None:
    """All of them but those that say for which generation they are."""
    done = clients.run_tests("tests/gating/clients")

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 60

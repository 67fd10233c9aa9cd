"""JobSet's controller manager for the tests that run it."""

from __future__ import annotations

import pytest

from tests.cluster.admitting.jobset.programs import JOBSET
from tests.cluster.control_plane.go_programs import GoPrograms


@pytest.fixture(scope="session")
def jobset_programs() -> GoPrograms:
    return JOBSET

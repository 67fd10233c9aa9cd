"""The controller managers of other projects for the tests that run them, and Jobs in a namespace of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from tests.cluster.admitting.jobs_at_work import Jobs
from tests.cluster.admitting.programs import JOBSET, KUBEFLOW, KUBERAY, SPARK, TRAINER
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.objects import made
from tests.cluster.talking import Api


@pytest.fixture(scope="session")
def jobset_programs() -> GoPrograms:
    return JOBSET


@pytest.fixture(scope="session")
def kubeflow_programs() -> GoPrograms:
    return KUBEFLOW


@pytest.fixture(scope="session")
def kuberay_programs() -> GoPrograms:
    return KUBERAY


@pytest.fixture(scope="session")
def spark_programs() -> GoPrograms:
    return SPARK


@pytest.fixture(scope="session")
def trainer_programs() -> GoPrograms:
    return TRAINER


@pytest.fixture
async def jobs(bed: Bed) -> AsyncIterator[Jobs]:
    """The Jobs of a namespace of the test's own, on the module's control plane."""
    async with Api(bed.server) as api:
        name = f"test-{secrets.token_hex(5)}"
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        yield Jobs(api, name)

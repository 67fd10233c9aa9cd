"""The controller managers of other projects for the tests that run them."""

from __future__ import annotations

import pytest

from tests.cluster.admitting.programs import JOBSET, KUBEFLOW, KUBERAY, SPARK, TRAINER
from tests.cluster.control_plane.go_programs import GoPrograms


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

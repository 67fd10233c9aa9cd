"""Suspended SparkApplications under a quota, with the Spark operator's own controller; ``spark-submit`` is played."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, KINDS, WAIT, WAITS_FOR
from tests.cluster.admitting.jobs_at_work import Jobs, admitting
from tests.cluster.admitting.managers import reconciling
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.objects import made
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
SPARK = next(kind for kind in KINDS if kind.kind == "SparkApplication")
NAME_LABEL = "sparkoperator.k8s.io/app-name"
KINDS_OF_SPARK = ("sparkapplications", "scheduledsparkapplications")
CONNECTS = "sparkconnects"
"""Of another version."""
EXECUTORS = 2
PLAYED = Path(__file__).parent / "spark" / "spark_submit.py"


@pytest.fixture
async def sparks(bed: Bed, spark_programs: GoPrograms, tmp_path: Path) -> AsyncIterator[Jobs]:
    """The SparkApplications of a namespace; their operator works."""
    name = f"test-{secrets.token_hex(5)}"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f'#!/bin/sh\nexec {sys.executable} {PLAYED} "$@"\n')
    submit.chmod(0o755)
    environment = {
        "SPARK_HOME": str(tmp_path),
        "KUBECONFIG": str(bed.server.kubeconfig("admin")),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",  # of which it makes an argument of spark-submit
        "KUBERNETES_SERVICE_PORT": "443",
    }
    async with Api(bed.server) as api:
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        await define_operators_kind(api, CONNECTS, f"/apis/{SPARK.group}/v1alpha1/{CONNECTS}")
        options = (f"--namespaces={name}",)
        async with reconciling(
            api, spark_programs, tmp_path, SPARK.api_version, KINDS_OF_SPARK, *options, environment=environment
        ):
            yield Jobs(api, name, SPARK, NAME_LABEL)


def application(name: str) -> JSON:
    """A driver and two executors: three pods of 1 CPU."""
    each = {"cores": 1, "memory": "512m"}
    spec = {
        "type": "Scala",
        "mode": "cluster",
        "image": "spark:4.0.0",
        "mainClass": "Main",
        "mainApplicationFile": "local:///main.jar",
        "sparkVersion": "4.0.0",
        "restartPolicy": {"type": "Never"},
        "suspend": True,
        "driver": each,
        "executor": {**each, "instances": EXECUTORS},
    }
    metadata = {"name": name, "labels": {WAIT: "true"}}
    return {"apiVersion": SPARK.api_version, "kind": "SparkApplication", "metadata": metadata, "spec": spec}


async def test_spark_applications_are_let_in_as_wholes_one_after_another(bed: Bed, sparks: Jobs) -> None:
    """Nothing is submitted while one is suspended; its driver and its executors draw from its room."""
    await sparks.limit(1 + EXECUTORS + 1)
    async with admitting(bed.server, namespaces=(sparks.namespace,)) as found:
        await sparks.create(application("first"))
        pods = await sparks.pods_of("first", 1 + EXECUTORS)
        await sparks.create(application("second"))
        await sparks.until("second", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        seen = await sparks.until("second", lambda seen: state(seen) == "SUSPENDED")
        assert ADMITTED not in seen["metadata"]["annotations"]
        assert await sparks.pods("second") == []
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["labels"]["spark-role"]), reverse=True):
            await sparks.end(pod)  # the driver's last
        await sparks.ended("first")
        await sparks.pods_of("second", 1 + EXECUTORS)
        assert found.counts.admitted == {SPARK.resource: 2}
    assert await sparks.refusals() == []


def state(seen: JSON) -> str:
    found: str = seen.get("status", {}).get("applicationState", {}).get("state", "")
    return found

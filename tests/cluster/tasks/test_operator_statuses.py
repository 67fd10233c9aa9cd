"""Objects of operators in a real API server, under the operators' own definitions: what is stored has the phase told.

The schemas are part of what is proved: a field that an operator doesn't have would be dropped, or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.cluster.kinds import Kind
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.job import JOB
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext, RelatedPods, TaskContext, TaskMetadata
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.tasks.phases.operator_cases import CASES, NOW, Case, manifest

JSON = dict[str, Any]
PLUGINS = registry()
TEMPLATES = {"spark": 2, "ray": 2, "dask": 3, "job": 1, "jobset": 1}
TEMPLATES |= dict.fromkeys(("pytorch", "tensorflow", "mpi", "mpi-v2beta1"), 2)
BY_TYPE = {task_type: list(cases) for task_type, cases in groupby(CASES, key=lambda case: case.type)}

pytestmark = [pytest.mark.long]


async def define(api: Api, kind: Kind, namespace: str) -> None:
    if kind.plural != "jobs":
        await define_operators_kind(api, kind.plural, path_of(kind, namespace))


def path_of(kind: Kind, namespace: str, *rest: str) -> str:
    return "/".join((kind.path, "namespaces", namespace, kind.plural, *rest))


@pytest.mark.parametrize("task_type", BY_TYPE)
async def test_what_an_operator_writes_is_stored_as_it_is_and_has_its_phase(
    real_api: Api, real_namespace: str, task_type: str
) -> None:
    """Each row's object is created and its status written; read back, nothing of it is missing."""
    entry = of_objects(PLUGINS.resolve(task_type))
    kind = entry.resource_to_watch
    await define(real_api, kind, real_namespace)
    for case in BY_TYPE[task_type]:
        stored = await store(real_api, kind, real_namespace, case)
        info = entry.plugin.get_task_phase(PluginContext(K8sPluginConfig(), NOW), stored)
        error = info.error
        told = (info.phase.title, error.code if error else "", error.kind.value if error else "")
        assert told == (case.phase, case.code, case.kind), case.name
        assert case.says in info.reason


async def store(api: Api, kind: Kind, namespace: str, case: Case) -> JSON:
    """Create the object of a row, write its status, and return what the server then has."""
    body = case.resource
    name = re.sub("[^a-z0-9]+", "-", f"{case.type} {case.name}".lower())[:60].strip("-")
    body["metadata"] = {"name": name}
    status = body.pop("status", None)
    if kind.plural == "jobs":
        body["spec"]["managedBy"] = "example.com/us"  # else the controller writes its own status
    first = made(await api.post(path_of(kind, namespace), body, params={"fieldValidation": "Strict"}))
    if status is None:
        return first
    written = await api.put(
        path_of(kind, namespace, name, "status"), {**first, "status": status}, params={"fieldValidation": "Strict"}
    )
    assert written.status == 200, f"{case.name}: {written.text}"
    stored = (await api.get(path_of(kind, namespace, name))).json
    missing = {key: value for key, value in status.items() if stored["status"].get(key) != value}
    assert missing == {}, case.name
    return stored


@pytest.mark.parametrize("task_type", BY_TYPE)
async def test_what_a_plugin_builds_is_accepted(real_api: Api, real_namespace: str, task_type: str) -> None:
    """With every default of the platform in its pod templates, under strict validation."""
    entry = of_objects(PLUGINS.resolve(task_type))
    kind = entry.resource_to_watch
    await define(real_api, kind, real_namespace)
    metadata = TaskMetadata(real_namespace, "train", "u-1", 0, "train", interruptible=True, service_account="robot")
    config = K8sPluginConfig(
        default_tolerations=[{"key": "team", "operator": "Exists"}],
        default_node_selector={"pool": "batch"},
        default_env_vars={"A": "b"},
        default_pod_security_context={"runAsNonRoot": True},
        scheduler_name="batch",
        interruptible_tolerations=[{"key": "spot", "operator": "Exists"}],
    )
    task = TaskContext(metadata, task_type, {"template": manifest(task_type)}, config)
    built = entry.plugin.build_resource(task)
    identity = entry.plugin.build_identity_resource(replace(metadata))
    assert {key: built[key] for key in identity} == identity
    built["metadata"]["name"] = "train"
    stored = made(await real_api.post(path_of(kind, real_namespace), built, params={"fieldValidation": "Strict"}))
    selected = json.dumps(stored["spec"]).count('"nodeSelector": {"pool": "batch"}')
    assert selected == TEMPLATES[task_type]


async def test_a_job_of_the_real_controller_goes_through_its_phases(real_api: Api, real_namespace: str) -> None:
    """From no status to a failure; the plugin's labels find the pod that the controller made, and it explains why."""
    plugin = of_objects(PLUGINS.resolve("job")).plugin
    assert isinstance(plugin, RelatedPods)
    jobs, pods = path_of(JOB, real_namespace), f"/api/v1/namespaces/{real_namespace}/pods"
    body = manifest("job")
    body["spec"]["backoffLimit"] = 0
    made(await real_api.post(jobs, body))

    async def told(path: str, holds: Callable[[JSON], Any]) -> tuple[JSON, list[JSON]]:
        await real_api.until(path, holds)
        job = (await real_api.get(f"{jobs}/train")).json
        labels = ",".join(f"{name}={value}" for name, value in plugin.pod_labels(job).items())
        listed = (await real_api.get(pods, params={"labelSelector": labels})).json["items"]
        info = plugin.get_task_phase(PluginContext(K8sPluginConfig(), datetime.now(UTC), tuple(listed)), job)
        error = info.error
        return {"phase": info.phase.title, "code": error and error.code, "reason": info.reason}, listed

    starting, (pod,) = await told(f"{jobs}/train", lambda job: job["status"].get("active"))
    assert starting["phase"] == "Initializing"
    of_pod = f"{pods}/{pod['metadata']['name']}"

    async def ends(status: JSON) -> None:
        assert (await real_api.patch(f"{of_pod}/status", {"status": status}, MERGE)).status == 200

    await ends({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    running, _ = await told(f"{jobs}/train", lambda job: job["status"].get("ready"))
    assert running["phase"] == "Running"
    how = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-05-04T12:00:00Z"}
    container = {"name": "main", "image": "busybox:1", "imageID": "", "ready": False, "restartCount": 0}
    await ends({"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": how}}]})
    failed, _ = await told(f"{jobs}/train", plugin.is_terminal)
    assert (failed["phase"], failed["code"]) == ("RetryableFailure", "OOMKilled")
    assert "BackoffLimitExceeded" in failed["reason"]

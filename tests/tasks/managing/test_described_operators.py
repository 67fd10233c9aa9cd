"""A custom resource that nobody knows, run by the generic plugin from a config: its pods are admitted with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.generic import entry_of
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

CONFIG: JSON = {
    "id": "thing",
    "task-types": ["thing"],
    "resource": {"api-version": "example.com/v1", "kind": "Thing", "plural": "things"},
    "state": {"path": "$.status.state"},
    "states": {"": {"phase": "Queued"}, "Done": {"phase": "Success"}},
    "pods-made": [{"section": "$.spec.groups[*]", "replicas": "$.size", "defaults": False}],
    "pods": {
        "labels": {"example.com/thing": "$.metadata.name"},
        "main": {"names": ["{$.metadata.name}-main"], "states": ["Works"], "code": "ThingLost"},
    },
}
THINGS = "/apis/example.com/v1/namespaces/team/things"
ANYTHING: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: JSON = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": ANYTHING}}],
    },
}  # fmt: skip


@pytest.fixture
async def bench(sandbox: BackgroundSandbox) -> AsyncIterator[Bench]:
    """A manager that knows the operator by its config, whose ledger watches a quota of 4 cores."""
    sandbox.create_quota("team", "cpus", {"requests.cpu": "4"})
    async with Bench(sandbox.url, entry_of(OPERATORS.read(CONFIG, "here")), shared=True) as bench:
        assert (await bench.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION))[
            "http"
        ] == 201
        yield bench


def thing(name: str, pods: int) -> TaskContext:
    """A task that is a Thing, whose operator makes so many pods of a core each."""
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
    groups = [{"size": pods, "template": {"spec": {"containers": [container]}}}]
    template: Any = {"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"groups": groups}}
    return task(name, type="thing", spec={"template": template})


async def test_it_is_created_once_all_of_its_pods_fit_and_ends_by_its_state(bench: Bench) -> None:
    """The room of its pods is reserved where the config says that they are: a second one waits for it."""
    one, two = thing("one", 3), thing("two", 2)
    await bench.until(one, Phase.QUEUED)
    stored = await bench.call("GET", f"{THINGS}/one-0")
    assert stored["spec"]["groups"][0]["template"]["metadata"]["labels"][GANG_LABEL]
    waits = await bench.until(two, Phase.WAITING_FOR_RESOURCES, holds=lambda info: info.wait and info.wait.quota)
    assert waits.wait is not None
    assert (waits.wait.resource, waits.wait.asked, waits.wait.left) == ("requests.cpu", "2", "1")
    path, kind = f"{THINGS}/one-0/status", "application/merge-patch+json"
    assert (await bench.call("PATCH", path, {"status": {"state": "Works"}}, kind))["http"] == 200
    assert (await bench.until(one, Phase.RUNNING)).reason == "in state Works"
    await bench.call("PATCH", path, {"status": {"state": "Done"}}, kind)
    await bench.until(one, Phase.SUCCESS)


@pytest.mark.long
async def test_one_that_never_fits_is_refused_before_it_is_created(bench: Bench) -> None:
    """Its pods would be refused one by one, by a quota that nobody could raise in time."""
    info = await bench.until(thing("one", 5), Phase.PERMANENT_FAILURE)
    assert (info.error and info.error.code) == "ResourceRequestsExceedLimits"
    assert (await bench.call("GET", f"{THINGS}/one-0"))["http"] == 404


async def test_a_main_pod_without_labels_is_found_by_its_name_and_ends_the_attempt(bench: Bench) -> None:
    """Once it has failed, while the object still says that it works: its operator may be gone."""
    one = thing("one", 1)
    await bench.until(one, Phase.QUEUED)
    kind = "application/merge-patch+json"
    assert (await bench.call("PATCH", f"{THINGS}/one-0/status", {"status": {"state": "Works"}}, kind))["http"] == 200
    amounts = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    container = {"name": "main", "image": "busybox:1", "resources": amounts}
    pod = {"metadata": {"name": "one-0-main"}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    assert (await bench.call("POST", "/api/v1/namespaces/team/pods", pod))["http"] == 201
    await bench.until(one, Phase.RUNNING)
    await bench.set_phase("one-0-main", "Failed")
    info = await bench.step(one)
    assert (info.phase, info.error and info.error.code) == (Phase.RETRYABLE_FAILURE, "Interrupted")
    assert "pod one-0-main" in info.reason
    assert info.cleanup_on_failure

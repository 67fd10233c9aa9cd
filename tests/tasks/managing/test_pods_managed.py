"""Pods of tasks through the manager: what they are built on, and a node that does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskMetadata
from tests.tasks.bench import Bench


@pytest.fixture
async def bench(sandbox: BackgroundSandbox, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A manager of container tasks that runs in the namespace ``home``, as its pod's environment says."""
    sandbox.create_namespace("home")
    monkeypatch.setenv("POD_NAMESPACE", "home")
    async with Bench(sandbox.url, container) as bench:
        yield bench


async def template(bench: Bench, namespace: str, hostname: str, verb: str = "POST") -> None:
    """Create the template of a namespace, or replace it."""
    path = f"/api/v1/namespaces/{namespace}/podtemplates" + ("/base" if verb == "PUT" else "")
    spec = {"hostname": hostname, "containers": [{"name": "default", "image": "unused", "tty": True}]}
    made = await bench.call(verb, path, {"metadata": {"name": "base"}, "template": {"spec": spec}})
    assert made["http"] in (200, 201), made


async def built(bench: Bench, name: str, resync: timedelta = timedelta(0)) -> dict[str, Any]:
    """Run a task, and return its pod's spec."""
    config = K8sPluginConfig(default_pod_template_name="base", default_pod_template_resync=resync)
    metadata = TaskMetadata("team", name, f"uid-{name}", 0, name, store="s1")
    await bench.until(TaskContext(metadata, "container", {"container": {"image": "i"}}, config), Phase.QUEUED)
    spec: dict[str, Any] = (await bench.pod(name))["spec"]
    return spec


async def test_the_template_of_the_namespace_else_of_the_managers_own(bench: Bench) -> None:
    """Without either, a pod is built without one."""
    assert "hostname" not in await built(bench, "a")
    await template(bench, "home", "from-home")
    assert (await built(bench, "b"))["hostname"] == "from-home"
    await template(bench, "team", "from-team")
    spec = await built(bench, "c")
    assert (spec["hostname"], spec["containers"][0]["image"], spec["containers"][0]["tty"]) == ("from-team", "i", True)


async def test_a_template_is_believed_for_a_while(bench: Bench) -> None:
    """It is read once for many tasks, and anew after ``default-pod-template-resync``."""
    await template(bench, "team", "old")
    assert (await built(bench, "a", timedelta(hours=1)))["hostname"] == "old"
    await template(bench, "team", "new", "PUT")
    assert (await built(bench, "b", timedelta(hours=1)))["hostname"] == "old"
    assert (await built(bench, "c"))["hostname"] == "new"


async def test_a_pod_whose_node_does_not_answer_stays_in_its_phase(bench: Bench) -> None:
    """Nobody knows; when the node answers again, or the pod is given up, there is news."""
    config = K8sPluginConfig()
    metadata = TaskMetadata("team", "a", "uid-a", 0, "a", store="s1")
    one = TaskContext(metadata, "container", {"container": {"image": "i"}}, config)
    await bench.until(one, Phase.QUEUED)
    await bench.set_phase("a", "Running")
    await bench.until(one, Phase.RUNNING)
    path = "/api/v1/namespaces/team/pods/a/status"
    lost = {"status": {"phase": "Unknown", "message": "Node n1 which was running pod a is unresponsive"}}
    await bench.call("PATCH", path, lost, "application/merge-patch+json")
    info = await bench.until(one, Phase.RUNNING, holds=lambda info: info.reason)
    assert info.reason == "Node n1 which was running pod a is unresponsive"
    await bench.set_phase("a", "Succeeded")
    await bench.until(one, Phase.SUCCESS)

"""The plugin of docs/how-to/write-a-plugin.md under a quota that counts requests: its pods have the platform's defaults."""

from __future__ import annotations

import re
import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, TaskContext
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "how-to" / "write-a-plugin.md").read_text(encoding="utf-8")
ENTRY = runpy.run_path(str(DOCS / "examples" / "rollout-plugin" / "backoff_ctrl_rollout" / "__init__.py"))["entry"]
(TASK,) = (yaml.safe_load(text) for text in re.findall(r"as `task\.yaml`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL))
DEPLOYMENT = "/apis/apps/v1/namespaces/team/deployments/web-0"


@pytest.fixture
async def bench(sandbox: BackgroundSandbox) -> AsyncIterator[Bench]:
    """A manager of the page's plugin, in a namespace whose quotas count requests and limits."""
    amounts = {"requests.cpu": "8", "requests.memory": "16Gi", "limits.cpu": "8", "limits.memory": "16Gi"}
    sandbox.create_quota("team", "compute", amounts)
    async with Bench(sandbox.url, ENTRY, shared=True) as bench:
        yield bench


def rollout(**change: Any) -> TaskContext:
    """The task of the page, on a platform with a toleration and a limit of its own."""
    tolerations = [{"key": "batch", "operator": "Exists"}]
    limits = {"limits": {"cpu": "2"}}
    config = K8sPluginConfig.model_validate({"default-tolerations": tolerations, "task-resources": limits})
    return task("web", type="rollout", spec={**TASK["spec"], **change}, config=config)


async def test_its_pods_are_let_in_where_requests_are_counted(bench: Bench) -> None:
    """They ask for the platform's defaults; the run's words and the platform's limits hold for them as well."""
    assert isinstance(ENTRY, PluginEntry)
    one = rollout(env=[{"name": "RUN", "value": "1"}], resources={"requests": {"cpu": "500m"}, "limits": {"cpu": "9"}})
    await bench.until(one, Phase.QUEUED)
    made = await bench.call("GET", DEPLOYMENT)
    assert (made["spec"]["replicas"], made["spec"]["progressDeadlineSeconds"]) == (3, 120)
    template = made["spec"]["template"]
    assert template["metadata"]["labels"]["app"] == "web"
    (container,) = template["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert container["env"] == [{"name": "RUN", "value": "1"}]
    assert {"key": "batch", "operator": "Exists"} in template["spec"]["tolerations"]

    replica = {"metadata": {"name": "web-0-0", **template["metadata"]}, "spec": template["spec"]}
    path = "/api/v1/namespaces/team/pods"
    assert (await bench.call("POST", path, replica))["http"] == 201
    bare = TASK["spec"]["template"]["spec"]["template"]  # as its user wrote it
    refused = await bench.call("POST", path, {"metadata": {"name": "web-0-1"}, "spec": bare["spec"]})
    assert refused["http"] == 403
    assert "must specify" in refused["message"]

    status = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
    kind = "application/merge-patch+json"
    assert (await bench.call("PATCH", f"{DEPLOYMENT}/status", {"status": status}, kind))["http"] == 200
    await bench.until(one, Phase.SUCCESS)


@pytest.mark.parametrize(
    ("custom", "said"),
    [
        ({"patience": 1}, "spec.custom: a rollout has one parameter"),
        ("soon", "spec.custom: "),
        ({"patienceSeconds": "9"}, "spec.custom.patienceSeconds: must be a whole number"),
        ({"patienceSeconds": 0}, "spec.custom.patienceSeconds: "),
    ],
)
async def test_its_own_parameter_is_checked_by_the_plugin(bench: Bench, custom: Any, said: str) -> None:
    """The error names the field."""
    info = await bench.step(rollout(custom=custom))
    assert (info.phase, info.error and info.error.code) == (Phase.PERMANENT_FAILURE, "FailedToBuildResource")
    assert said in info.reason

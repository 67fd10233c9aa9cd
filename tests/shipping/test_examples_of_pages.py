"""The code on the pages runs unchanged, so that readers can copy it.

README.md, ARCHITECTURE.md, docs/clients.md, docs/gangs.md, docs/metrics.md.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import Configuration
from prometheus_client import REGISTRY, generate_latest

from backoff_ctrl import GatedApiClient
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.official import AIO, aio_config
from tests.kit.pages import blocks


async def run_program(page: str, word: str, **given: Any) -> dict[str, Any]:
    """Run the one Python block of a page that contains this word, with these names; return all names that it leaves."""
    (block,) = (each for each in blocks(page, "python") if word in each.text)
    text = block.text.replace("kubernetes_asyncio", AIO)
    code = compile(text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    ended = eval(code, given)
    if inspect.isawaitable(ended):
        await ended
    return given


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundSandbox]:
    """A sandbox with the pages' namespaces, as the cluster of the default kubeconfig."""
    with running_sandbox() as sandbox:
        path = write_kubeconfig(tmp_path / "config", sandbox.url)
        for each in (config, aio_config):
            monkeypatch.setattr(each.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", path)
        sandbox.create_namespace("team-a")
        sandbox.create_quota("team-a", "pods", {"requests.cpu": "2"})
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "pods", {"pods": "12"})
        yield sandbox
        Configuration.set_default(None)


async def test_the_engine_example_runs_as_it_stands() -> None:
    """Its own assertion holds, and the probe belongs to the rejected request."""
    names = await run_program("ARCHITECTURE.md", "Rejected")
    assert names["ticket"].request is names["probe"].request
    assert names["probe"].probe is True


async def test_the_gated_client_example_creates_its_pod(cluster: BackgroundSandbox) -> None:
    """As pasted, with the default kubeconfig and a key: run twice, it still creates one pod."""
    names: dict[str, Any] = {}
    for _ in range(2):
        names = await run_program("README.md", "GatedApiClient")
    assert len(names["core"].list_namespaced_pod("team-a").items) == 1


async def test_the_client_for_asyncio_is_that_of_its_configuration(cluster: BackgroundSandbox) -> None:
    """The first example of clients.md; the others are run beside their clients (`make test-programs`)."""
    names = await run_program("docs/clients.md", "AsyncGatedApiClient")
    async with names["api"] as api:
        listed = await names["client"].CoreV1Api(api).list_namespaced_pod("team-a")
    assert listed.items == []


async def test_a_gang_is_created_and_draws_from_its_reservation(cluster: BackgroundSandbox) -> None:
    """The three examples of gangs.md, one after the other."""
    config.load_kube_config()
    container = {"name": "main", "image": "busybox"}
    pods = [{"metadata": {"name": f"worker-{each}"}, "spec": {"containers": [container]}} for each in range(2)]
    names = await run_program("docs/gangs.md", "all of them, or none", pods=pods)
    assert [each.metadata.name for each in names["created"]] == ["worker-0", "worker-1"]

    others = [{**each, "metadata": {"generateName": "other-"}} for each in pods]
    names = await run_program("docs/gangs.md", "with gang(", **{**names, "pods": others})
    assert (names["admitted"].drawn, names["admitted"].undrawn, names["admitted"].whole) == (2, 0, True)

    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sums", "namespace": "team"},
        "spec": {"parallelism": 8, "completions": 8, "template": template},
    }
    with closing(GatedApiClient()) as api:
        names = await run_program("docs/gangs.md", "a Job of parallelism 8", **{**names, "api": api, "job": job})
        batch: Any = client.BatchV1Api(api)
        assert [each.metadata.name for each in batch.list_namespaced_job("team").items] == ["sums"]


async def test_the_metrics_are_in_the_program_s_registry() -> None:
    """The example of metrics.md."""
    names = await run_program("docs/metrics.md", "REGISTRY")
    assert names["REGISTRY"] is REGISTRY
    (ours,) = (each for each in REGISTRY._collector_to_names if "backoff" in type(each).__module__)
    try:
        assert b"\n# TYPE backoff_ctrl_waiting gauge\n" in generate_latest()
    finally:
        REGISTRY.unregister(ours)

"""A job that its service does not end holds no namespace for ever: its Task is let go, and says what may still run."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from backoff_ctrl.k8s.tasks.cluster.owning import owning
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.managing import carry_out
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.services.webapi.ending import Patience
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import configured, path, task
from tests.cluster.tasks.custom_resources.test_owning import gone
from tests.tasks.webapi.jobs_service import JobsPlugin, JobsService

pytestmark = pytest.mark.long

SOON = Patience(hopeless=0.1, failing=0.2)
NAMED = {"TOKEN": {"secret": "service", "key": "token"}}


class WithToken(JobsPlugin):
    """A plugin that needs its task's Secret to end a job, too."""

    async def delete(self, context: Any, meta: Any, reason: str) -> None:
        if context.task.spec.get("secrets"):
            await context.secret("TOKEN")
        await super().delete(context, meta, reason)


@asynccontextmanager
async def managed(server: Server, namespace: str, url: str) -> AsyncIterator[None]:
    """Carry the tasks of a namespace out by a web plugin, with little patience."""
    entry = WebPluginEntry("jobs", ("job",), lambda setup: WithToken(setup, url))
    registry, config, configuration = Registry([entry]), K8sPluginConfig(), configured(server)
    section = {"caching": {"maxSystemFailures": 0}}
    make = through_plugins(registry, configuration, lambda _: section, SOON)
    async with ClusterStore(configuration, [namespace]) as store:
        work = asyncio.create_task(carry_out(store, owning(make, store, registry), lambda: config))
        try:
            yield
        finally:
            work.cancel()
            await asyncio.wait({work})


async def running(api: Api, namespace: str) -> str:
    """Create a Secret and a Task whose job runs; return the path of the Secret."""
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    token = base64.b64encode(b"hunter2").decode()
    made(await api.post(secrets, {"metadata": {"name": "service"}, "data": {"token": token}}))
    job = task("train", type="job", container=None, custom={"state": "RUNNING"}, secrets=NAMED)
    made(await api.post(path(namespace), job))
    found = await api.until(path(namespace, "train"), lambda found: found.get("status", {}).get("phase") == "Running")
    assert found["metadata"]["finalizers"] == [FINALIZER]
    return f"{secrets}/service"


def refusing(service: JobsService, status: int) -> None:
    service.answer = lambda method, _: web.Response(status=status, text="no") if method == "DELETE" else None


@pytest.mark.only_kubernetes("the sandbox empties a namespace at once")
@pytest.mark.parametrize("trouble", ["secret", "405", "500"])
async def test_a_namespace_goes_though_the_service_refuses(kind: Api, namespace: str, trouble: str) -> None:
    service = JobsService()
    async with service.running() as url, managed(kind.server, namespace, url):
        secret = await running(kind, namespace)
        if trouble == "secret":
            made(await kind.delete(secret))
            await gone(kind, secret)
        else:
            refusing(service, int(trouble))
        made(await kind.delete(f"/api/v1/namespaces/{namespace}"))
        await gone(kind, f"/api/v1/namespaces/{namespace}")
    assert len(service.jobs) == 1


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("secret", "spec.secrets.TOKEN: secret {}/service does not exist"),
        ("405", "405: no"),
        ("500", "500: no"),
    ],
)
async def test_a_task_that_is_let_go_says_what_may_still_run(
    kind: Api, namespace: str, trouble: str, said: str
) -> None:
    service = JobsService()
    async with service.running() as url, managed(kind.server, namespace, url):
        secret = await running(kind, namespace)
        if trouble == "secret":
            made(await kind.delete(secret))
        else:
            refusing(service, int(trouble))
        made(await kind.delete(path(namespace, "train")))
        await gone(kind, path(namespace, "train"))
    (told,) = await told_of_tasks(kind, namespace)
    (job,) = service.jobs
    assert told["reason"] == "LetGo"
    assert told["note"].startswith(f'the task is let go; job {{"id": "{job}"}} of plugin jobs may still run: ending it')
    assert f"({said.format(namespace)})" in told["note"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"core": "nonsense", "plugin": ""}, "its status was not written by plugin jobs, which runs such tasks"),
        ({"core": "", "stage": "Started"}, "its status was not written by plugin jobs, which runs such tasks"),
        ({"plugin": "none"}, "plugin none, which runs this task, is not enabled"),
    ],
)
async def test_a_status_that_a_user_has_written_keeps_no_task(
    kind: Api, namespace: str, written: dict[str, Any], said: str
) -> None:
    """It named a plugin that can't end such a task, so the task could not be deleted, nor its namespace."""
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "none", "uid": "0"}
    service = JobsService()
    async with service.running() as url, managed(kind.server, namespace, url):
        await running(kind, namespace)
    found = (await kind.get(path(namespace, "train"))).json["status"]["pluginState"]
    state = {"status": {"pluginState": {**found, "object": pod, **written}}}
    made(await kind.patch(path(namespace, "train") + "/status", state, MERGE))
    async with service.running() as url, managed(kind.server, namespace, url):
        made(await kind.delete(path(namespace, "train")))
        await gone(kind, path(namespace, "train"))
    (told,) = await told_of_tasks(kind, namespace)
    assert told["reason"] == "LetGo"
    assert said in told["note"]


async def test_a_failed_attempt_whose_job_is_left_is_the_last_and_says_so(kind: Api, namespace: str) -> None:
    """Another attempt would do the work twice. The event stays; the status has it, too."""
    service = JobsService()
    refusing(service, 405)
    async with service.running() as url, managed(kind.server, namespace, url):
        made(await kind.post(path(namespace), task("train", type="job", container=None, custom={"state": "?"})))
        ended = await kind.until(path(namespace, "train"), lambda found: found.get("status", {}).get("endedAt"))
    status = ended["status"]
    assert (status["phase"], status["code"], status["try"]) == ("PermanentFailure", "RefreshFailed", 1)
    assert "of plugin jobs may still run: ending it failed" in status["reason"]
    (told,) = await told_of_tasks(kind, namespace)
    assert told["reason"] == "LetGo"
    assert service.calls["POST"] == 1


async def told_of_tasks(api: Api, namespace: str) -> list[dict[str, Any]]:
    events = (await api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")).json["items"]
    return [each for each in events if each["regarding"]["kind"] == "Task"]

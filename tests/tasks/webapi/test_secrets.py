"""Secrets are read at each use, in the task's namespace, and are in no state and no log."""

from __future__ import annotations

import base64
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from kubernetes.client import Configuration

from backoff_ctrl import plugins
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.tasks.plugins.pod_building import pod_of_container
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RemoteError
from backoff_ctrl.k8s.tasks.services.webapi.state import NEXT

from .jobs_service import JobsPlugin, JobsService
from .web_bench import context, web_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-web-plugin.md"
NAMED = {"TOKEN": {"secret": "service", "key": "token"}}


@pytest.fixture
def cluster() -> Iterator[str]:
    """A sandbox with a namespace ``team``."""
    with running_sandbox(seed=3) as running:
        running.create_namespace("team")
        yield running.url


@pytest.fixture
async def service() -> JobsService:
    return JobsService()


@pytest.fixture
async def url(service: JobsService) -> AsyncIterator[str]:
    async with service.running() as url:
        yield url


async def put(cluster: str, value: str) -> None:
    """Create the Secret."""
    body = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "service"},
        "data": {"token": base64.b64encode(value.encode()).decode(), "binary": base64.b64encode(b"\xff").decode()},
    }  # fmt: skip
    url = f"{cluster}/api/v1/namespaces/team/secrets"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        assert answer.status == 201, await answer.text()


async def test_a_plugin_reads_the_secret_that_its_task_names(
    service: JobsService, url: str, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    await put(cluster, "hunter2")
    task = context(custom={"token": "TOKEN", "shows": True, "state": "SUCCEEDED"}, secrets=NAMED)
    with caplog.at_level(logging.DEBUG):
        async with web_bench(url, configuration=Configuration(host=cluster)) as bench:
            ended = await bench.end(task)
    assert service.jobs["a/0"]["token"] == "hunter2"
    assert "hunter2" not in str(ended.state)
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ({}, "spec.secrets.TOKEN: the plugin needs this secret: name it"),
        ({"TOKEN": {"secret": "other", "key": "token"}}, "secret team/other does not exist"),
        ({"TOKEN": {"secret": "service", "key": "none"}}, "secret team/service has no key none"),
        ({"TOKEN": {"secret": "service", "key": "binary"}}, "the value of key binary is no text"),
    ],
)
async def test_a_secret_that_can_not_be_read_is_the_users_failure(
    url: str, cluster: str, secrets: dict[str, Any], said: str
) -> None:
    await put(cluster, "x")
    async with web_bench(url, configuration=Configuration(host=cluster)) as bench:
        ended = await bench.end(context(custom={"token": "TOKEN"}, secrets=secrets))
    assert ended.info.error is not None
    assert (ended.info.error.code, ended.info.error.kind) == ("SecretNotReadable", "USER")
    assert said in ended.info.reason


async def test_an_api_server_that_is_away_fails_no_task(url: str) -> None:
    async with web_bench(url, configuration=Configuration(host="http://127.0.0.1:1")) as bench:
        task = context(custom={"token": "TOKEN"}, secrets=NAMED)
        said = await bench.until(task, lambda each: "tried again" in each.info.reason)
    assert not said.info.phase.is_terminal


class Telling(JobsPlugin):
    """One that puts the secret into the text of an error."""

    async def create(self, context: Any) -> Any:
        token = (await context.secret("TOKEN")).strip()
        kind = context.task.spec["custom"]["kind"]
        raise RemoteError(400, f"no such token {token}") if kind is RemoteError else kind(f"a?token={token}")


@pytest.mark.parametrize("kind", [ValueError, RemoteError, TimeoutError, aiohttp.ClientError])
async def test_an_error_with_a_secret_in_its_text_is_told_without_it(
    url: str, cluster: str, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    """Services repeat what they were sent, and errors of libraries have URLs in them."""
    await put(cluster, "hunter2\n")
    task = context(custom={"kind": kind}, secrets=NAMED)
    with caplog.at_level(logging.DEBUG):
        async with web_bench(url, Telling, configuration=Configuration(host=cluster)) as bench:
            said = await bench.until(task, lambda each: "[secret]" in each.info.reason)
    assert "hunter2" not in str(said)
    assert "hunter2" not in caplog.text


def test_a_container_gets_secrets_as_variables() -> None:
    """The kubelet reads them; a variable of the container's own with that name is replaced."""
    container = {"image": "busybox", "env": [{"name": "TOKEN", "value": "old"}, {"name": "A", "value": "1"}]}
    made = pod_of_container(context(container=container, secrets=NAMED))
    reference = {"secretKeyRef": {"name": "service", "key": "token"}}
    assert made["spec"]["containers"][0]["env"] == [
        {"name": "TOKEN", "valueFrom": reference}, {"name": "A", "value": "1"},
    ]  # fmt: skip


def test_the_stages_of_the_page_are_those_of_the_table() -> None:
    """Every step of these tests is held to the table, too (``WebBench``)."""
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| `(\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(stage, event, to) for stage, events in NEXT.items() for event, to in events.items()]


async def test_the_plugin_of_the_page_runs(service: JobsService, url: str, cluster: str) -> None:
    """As it stands there, with a secret, to its end."""
    await put(cluster, "hunter2")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {name: getattr(plugins, name) for name in plugins.__all__}
    exec(code, names)
    task = context(custom={}, secrets=NAMED)
    async with web_bench(
        url, loader=names["entry"].loader, section={"url": url}, configuration=Configuration(host=cluster),
        own_keys=names["entry"].own_keys,
    ) as bench:  # fmt: skip
        await bench.until(task, lambda each: (each.state or {})["stage"] == "CreateRequested")
        service.states["a/0"] = {"state": "DONE", "result": {"answer": 42}}
        ended = await bench.end(task)
    assert (ended.info.phase.title, ended.info.outputs) == ("Success", {"answer": 42})
    assert service.jobs["a/0"]["token"] == "hunter2"

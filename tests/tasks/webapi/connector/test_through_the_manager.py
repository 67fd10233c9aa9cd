"""Tasks of a connector through the manager of web API plugins: each kind of end, and what goes wrong on the way."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from flyteidl.admin import agent_pb2 as messages
from flyteidl.admin.agent_pb2 import State
from flyteidl.core.execution_pb2 import TaskExecution, TaskLog

from backoff_ctrl.k8s.tasks.services.connector import plugin
from backoff_ctrl.k8s.tasks.services.connector.directory import Directory
from backoff_ctrl.k8s.tasks.services.connector.plugin import ConnectorPlugin
from backoff_ctrl.k8s.tasks.services.connector.settings import OWN_KEYS
from tests.tasks.webapi.web_bench import WebBench, web_bench

from .scripted import Scripted, answered, refusing, section, served, task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def managed(port: int, **more: Any) -> AsyncIterator[WebBench]:
    """A manager of the plugin with this connector."""
    async with web_bench(
        "",
        loader=lambda setup: ConnectorPlugin(setup, Directory()),
        section={**section(port), **more},
        own_keys=OWN_KEYS,
    ) as bench:
        yield bench


async def test_a_job_is_created_once_and_its_end_is_the_tasks() -> None:
    scripted = Scripted()
    scripted.get = lambda *_: messages.GetTaskResponse(
        resource=messages.Resource(phase=TaskExecution.SUCCEEDED, log_links=[TaskLog(uri="http://a", name="console")])
    )
    async with served(scripted) as port, managed(port) as bench:
        ended = await bench.end(task())
    assert ended.info.phase.title == "Success"
    assert [each.uri for each in ended.info.logs] == ["http://a"]
    assert (len(scripted.seen["CreateTask"]), scripted.seen["DeleteTask"]) == (1, [])


IN_WORDS = {
    TaskExecution.UNDEFINED: "Running",
    TaskExecution.QUEUED: "Queued",
    TaskExecution.WAITING_FOR_RESOURCES: "Queued",
    TaskExecution.INITIALIZING: "Initializing",
    TaskExecution.RUNNING: "Running",
    TaskExecution.SUCCEEDED: "Success",
    TaskExecution.FAILED: "PermanentFailure",
    TaskExecution.RETRYABLE_FAILED: "RetryableFailure",
    TaskExecution.ABORTED: "PermanentFailure",
}
"""What a task shows whose connector answers so. A phase that flyteidl adds fails until it has a line here."""


@pytest.mark.parametrize("phase", TaskExecution.Phase.values(), ids=TaskExecution.Phase.keys())
async def test_each_phase_that_a_connector_answers_is_its_tasks_and_deletes_no_job(phase: int) -> None:
    """Both rooms: the phase is mapped in one, and accepted in the other."""
    scripted = Scripted()
    state = State.RUNNING if phase == TaskExecution.UNDEFINED else State.RETRYABLE_FAILURE
    scripted.get = lambda *_: messages.GetTaskResponse(
        resource=messages.Resource(phase=phase, state=state, message="why")
    )
    async with served(scripted) as port, managed(port) as bench:
        about = task()
        told = await bench.until(about, lambda each: "why" in each.info.reason or "failed in" in each.info.reason)
        if told.info.phase.is_terminal:
            await bench.plugin.finalize(about, told.state)
    assert told.info.phase.title == IN_WORDS[phase]
    assert "failed in" not in told.info.reason
    assert scripted.seen["DeleteTask"] == []


async def test_a_synchronous_connector_ends_its_task_at_once() -> None:
    scripted = Scripted()
    scripted.execute = lambda *_: [answered(phase=TaskExecution.FAILED, message="404")]
    async with served(scripted) as port, managed(port) as bench:
        ended = await bench.end(task("hook"))
    assert (ended.info.phase.title, ended.info.reason) == ("PermanentFailure", "failed to run the job: 404")
    assert (len(scripted.seen["ExecuteTaskSync"]), scripted.seen["GetTask"]) == (1, [])


async def test_an_abort_deletes_the_job() -> None:
    scripted = Scripted()
    async with served(scripted) as port, managed(port) as bench:
        about = task()
        await bench.until(about, lambda each: each.info.phase.title == "Running")
        handled = await bench.abort(about)
    assert handled.info.phase.title == "Aborted"
    assert len(scripted.seen["DeleteTask"]) == 1


async def test_a_connector_whose_code_raises_ends_the_attempt_for_the_platform_and_nothing_is_created_twice() -> None:
    scripted = Scripted()
    scripted.create = refusing(grpc.StatusCode.INTERNAL, "ValueError: no such warehouse")
    async with served(scripted) as port, managed(port) as bench:
        ended = await bench.end(task())
    assert ended.info.error is not None
    assert (ended.info.phase.title, ended.info.error.kind) == ("RetryableFailure", "SYSTEM")
    assert (len(scripted.seen["CreateTask"]), scripted.seen["DeleteTask"]) == (1, [])


async def test_a_job_that_its_connector_no_longer_knows_ends_the_attempt() -> None:
    scripted = Scripted()
    scripted.get = refusing(grpc.StatusCode.NOT_FOUND, "that job is of another task")
    settings = {"caching": {"resyncInterval": "5s", "maxSystemFailures": 0}}
    async with served(scripted) as port, managed(port, **settings) as bench:
        ended = await bench.end(task())
    assert ended.info.phase.is_failure
    assert len(scripted.seen["CreateTask"]) == 1


async def test_a_task_waits_while_no_connector_has_told_its_types_and_goes_on_once_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is sent meanwhile, and no retry is spent."""
    monkeypatch.setattr(plugin, "ASK_AGAIN", 0.0)
    scripted = Scripted()
    scripted.get = lambda *_: messages.GetTaskResponse(resource=messages.Resource(phase=TaskExecution.SUCCEEDED))
    scripted.listing = refusing(grpc.StatusCode.UNAVAILABLE, "starting")
    async with served(scripted) as port, managed(port) as bench:
        about = task()
        waits = await bench.until(about, lambda each: "starting" in each.info.reason)
        assert (waits.info.phase.title, scripted.seen["CreateTask"]) == ("Queued", [])
        scripted.listing = lambda *_: messages.ListAgentsResponse(agents=scripted.agents)
        ended = await bench.end(about, seconds=60)
    assert ended.info.phase.title == "Success"
    assert len(scripted.seen["CreateTask"]) == 1


async def test_a_type_that_nobody_serves_ends_the_task() -> None:
    scripted = Scripted()
    async with served(scripted) as port, managed(port) as bench:
        ended = await bench.end(task("typo"))
    assert ended.info.error is not None
    assert (ended.info.error.code, ended.info.error.kind) == ("BadTaskFormat", "USER")

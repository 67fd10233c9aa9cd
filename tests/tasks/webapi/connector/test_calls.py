"""What the plugin asks a connector, and what it makes of answers of every kind; the server is a real one over gRPC."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from flyteidl.admin import agent_pb2 as messages
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.core.literals_pb2 import Literal, LiteralMap, Primitive, Scalar
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RemoteError
from backoff_ctrl.k8s.tasks.services.connector.settings import TaskType
from tests.kit.patience import PATIENCE
from tests.proxying.passing.certificates import make_pair

from .scripted import UID, Scripted, answered, bench, refusing, section, served, task

LARGE = "x" * (10 * 1024 * 1024)


def text(value: str) -> LiteralMap:
    """Outputs of one text."""
    return LiteralMap(literals={"o": Literal(scalar=Scalar(primitive=Primitive(string_value=value)))})


async def test_a_job_is_created_read_and_deleted_by_what_its_connector_called_it() -> None:
    """The bytes of ``resource_meta`` come back as they were, also after they were stored as JSON."""
    scripted = Scripted()
    scripted.create = lambda *_: messages.CreateTaskResponse(resource_meta=b"\x00\xff job")
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task(custom={"seconds": 1}, template={"outputPrefix": "s3://b/o"}))
        created = await at.plugin.create(context)
        assert created.resource is None
        answer = await at.plugin.get(context, created.meta)
        assert at.status(context.task, created.meta, answer).phase is Phase.RUNNING
        await at.plugin.delete(context, created.meta, "over")
    (asked,), (read,), (deleted,) = (scripted.seen[each] for each in ("CreateTask", "GetTask", "DeleteTask"))
    assert (asked.template.type, asked.template.custom["seconds"], asked.output_prefix) == ("sleep_job", 1, "s3://b/o")
    assert (read.resource_meta, read.task_category.name, read.output_prefix) == (
        b"\x00\xff job",
        "sleep_job",
        "s3://b/o",
    )
    assert (deleted.resource_meta, deleted.task_type) == (b"\x00\xff job", "sleep_job")


async def test_a_synchronous_connector_gets_header_and_inputs_and_its_answer_is_the_end() -> None:
    scripted = Scripted()
    rest = messages.ExecuteTaskSyncResponse(outputs=text("later"))
    scripted.execute = lambda *_: [answered(phase=TaskExecution.SUCCEEDED, message="done"), rest]
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task("hook", template={"inputs": {"x": 3}}))
        created = await at.plugin.create(context)
        info = at.status(context.task, created.meta, created.resource)
        await at.plugin.delete(context, created.meta, "nothing is there")
    assert (info.phase, info.reason, info.outputs) == (Phase.SUCCESS, "done", {"o": "later"})
    ((header, inputs),) = scripted.seen["ExecuteTaskSync"]
    assert header.header.template.type == "hook"
    assert inputs.inputs.literals["x"].scalar.primitive.integer == 3
    assert scripted.seen["DeleteTask"] == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([answered(phase=TaskExecution.RUNNING)], "answered Running, which is no end"),
        ([], "answered without a header"),
        ([messages.ExecuteTaskSyncResponse(outputs=text("o"))], "answered without a header"),
        ([answered(phase=TaskExecution.SUCCEEDED, outputs=text(LARGE))], "larger than max"),
        ([answered(phase=TaskExecution.SUCCEEDED)] * 1001, "more than 1000 messages"),
    ],
    ids=["no end", "nothing", "no header", "10 MiB", "endless"],
)
async def test_a_broken_answer_of_a_synchronous_connector_ends_the_attempt(answers: list[Any], said: str) -> None:
    """It is not asked again for the same attempt: it may have done its work."""
    scripted = Scripted()
    scripted.execute = lambda *_: answers
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task("hook"))
        created = await at.plugin.create(context)
        info = at.status(context.task, created.meta, created.resource)
    assert info.phase is Phase.RETRYABLE_FAILURE
    assert info.error is not None
    assert info.error.kind is ErrorKind.SYSTEM
    assert said in info.error.message
    assert len(scripted.seen["ExecuteTaskSync"]) == 1


async def test_a_connector_whose_code_raises_fails_the_attempt_for_the_platform() -> None:
    """flytekit reports any exception as INTERNAL, with the traceback; the end of it says why."""
    scripted = Scripted()
    scripted.create = refusing(grpc.StatusCode.INTERNAL, f"{'traceback ' * 10_000}ValueError: no such warehouse")
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        info = at.status(context.task, created.meta, created.resource)
        await at.plugin.delete(context, created.meta, "it never began")
    assert info.error is not None
    assert (info.phase, info.error.kind, info.error.code) == (
        Phase.RETRYABLE_FAILURE, ErrorKind.SYSTEM, "TaskFailedWithError",
    )  # fmt: skip
    assert info.error.message.endswith("no such warehouse")
    assert len(info.error.message) < 3000
    assert scripted.seen["DeleteTask"] == []


async def test_a_traceback_beyond_all_limits_fails_the_attempt_as_well() -> None:
    """gRPC reports it like a connector that is overloaded; it would be created again and again."""
    scripted = Scripted()
    scripted.create = refusing(grpc.StatusCode.INTERNAL, "x" * 600_000)
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        info = at.status(context.task, created.meta, created.resource)
    assert info.phase is Phase.RETRYABLE_FAILURE
    assert "metadata size exceeds" in info.reason


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("INVALID_ARGUMENT", 400), ("FAILED_PRECONDITION", 400), ("OUT_OF_RANGE", 400), ("UNAUTHENTICATED", 401),
        ("PERMISSION_DENIED", 403), ("NOT_FOUND", 404), ("ALREADY_EXISTS", 409), ("ABORTED", 409),
        ("RESOURCE_EXHAUSTED", 429), ("UNIMPLEMENTED", 501), ("INTERNAL", 500), ("UNKNOWN", 500), ("DATA_LOSS", 500),
    ],
)  # fmt: skip
async def test_a_status_of_grpc_is_read_as_that_of_http(code: str, status: int) -> None:
    scripted = Scripted()
    scripted.get = refusing(grpc.StatusCode[code], "because")
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        with pytest.raises(RemoteError, match=f"connector defaultConnector at .*GetTask: {code}: because") as raised:
            await at.plugin.get(context, created.meta)
    assert (raised.value.status, raised.value.retry_after) == (status, None)


async def test_a_connector_that_asks_to_wait_is_understood() -> None:
    """``google.rpc.RetryInfo``, as gRPC servers send it."""
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=7)))
    metadata = (("grpc-status-details-bin", Status(details=[info]).SerializeToString()),)
    scripted = Scripted()
    scripted.get = refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down", metadata)
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        with pytest.raises(RemoteError) as raised:
            await at.plugin.get(context, created.meta)
    assert (raised.value.status, raised.value.retry_after) == (429, 7.0)


@pytest.mark.parametrize("answer", ["nothing", "10 MiB", "another task's id"])
async def test_a_wrong_answer_to_a_read_is_an_error_of_the_service(answer: str) -> None:
    scripted = Scripted()
    behaviours = {
        "nothing": lambda *_: messages.GetTaskResponse(),
        "10 MiB": lambda *_: messages.GetTaskResponse(resource=messages.Resource(message=LARGE)),
        "another task's id": refusing(grpc.StatusCode.NOT_FOUND, "that job is of another task"),
    }
    scripted.get = behaviours[answer]
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        with pytest.raises(RemoteError) as raised:
            await at.plugin.get(context, created.meta)
    assert raised.value.status == (404 if "id" in answer else 502)


async def test_a_slow_connector_is_a_fault_of_the_network() -> None:
    """By the time limit of that call; other calls have their own."""
    scripted = Scripted()
    scripted.get = lambda *_: asyncio.Event().wait()
    slow = {"timeouts": {"gettask": "100ms"}, "defaultTimeout": "1m"}
    async with served(scripted) as port, bench(section(port, **slow)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        with pytest.raises(TimeoutError, match=r"has not answered GetTask within 0\.1 s"):
            await at.plugin.get(context, created.meta)


async def test_a_synchronous_connector_that_takes_too_long_costs_an_attempt() -> None:
    """It may have done its work, and would do it again without end."""
    scripted = Scripted()
    scripted.execute = lambda *_: asyncio.Event().wait()
    async with served(scripted) as port, bench(section(port, timeouts={"ExecuteTaskSync": "100ms"})) as at:
        context = at.context(task("hook"))
        created = await at.plugin.create(context)
        info = at.status(context.task, created.meta, created.resource)
    assert info.phase is Phase.RETRYABLE_FAILURE
    assert info.error is not None
    assert "timeouts.ExecuteTaskSync" in info.error.message


async def test_a_connector_that_is_gone_refuses_and_is_there_again_at_once() -> None:
    """A create that could not be sent made no job; after a restart the same channel reaches it."""
    scripted = Scripted()
    async with served(scripted) as port, bench(section(port)) as at:
        context = at.context(task())
        created = await at.plugin.create(context)
        known = at.directory
    async with bench(section(port)) as other:
        with pytest.raises(ConnectionRefusedError, match="has not listed its task types yet"):
            await other.plugin.create(context)
        other.plugin._directory = known
        with pytest.raises(ConnectionRefusedError, match="does not answer"):
            await other.plugin.create(context)
        async with served(scripted, port), asyncio.timeout(PATIENCE):
            place = known.find(TaskType("sleep_job"))
            assert place is not None
            await other.plugin._channels.to(place.deployment).channel_ready()
            await other.plugin.get(context, created.meta)


async def test_what_speaks_no_grpc_is_a_fault_of_the_network() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = {**section(port), "supportedTaskTypes": ["sleep_job"]}
    async with server, bench(settings) as at:
        with pytest.raises(ConnectionError):
            await at.plugin.create(at.context(task()))


async def test_a_task_type_is_spelt_as_its_connector_spells_it() -> None:
    """The registry knows no capital letters, and a connector is strict about them."""
    scripted = Scripted()
    async with served(scripted) as port, bench(section(port)) as at:
        created = await at.plugin.create(at.context(task(" Sleep_Job")))
    (asked,) = scripted.seen["CreateTask"]
    assert (asked.template.type, created.meta["type"]) == ("sleep_job", "sleep_job")


async def test_a_connector_behind_tls_is_trusted_by_its_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its types and for its jobs; without the authority it is not spoken to."""
    pair, scripted = make_pair(tmp_path), Scripted()
    async with served(scripted, tls=pair) as port:
        async with bench(section(port, insecure=False)) as at:
            with pytest.raises(ConnectionError, match="has not listed its task types yet"):
                await at.plugin.create(at.context(task()))
        monkeypatch.setenv("SSL_CERT_FILE", str(pair.certificate))
        async with bench(section(port, insecure=False)) as at:
            await at.plugin.create(at.context(task()))
    assert len(scripted.seen["CreateTask"]) == 1


async def test_a_read_after_a_restart_needs_no_listing() -> None:
    """The stored job names its connector: a process that has just begun reads it although nobody lists types."""
    scripted = Scripted()
    async with served(scripted) as port:
        async with bench(section(port)) as at:
            created = await at.plugin.create(at.context(task()))
        scripted.listing = refusing(grpc.StatusCode.UNAVAILABLE)
        async with bench(section(port)) as again:
            answer = await again.plugin.get(again.context(task()), created.meta)
            assert again.status(task(), created.meta, answer).phase is Phase.RUNNING
        async with bench({"connectors": {"other": {"endpoint": f"127.0.0.1:{port}", "insecure": True}}}) as moved:
            with pytest.raises(ConnectionError, match="connector defaultConnector, which runs this job, is not in"):
                await moved.plugin.get(moved.context(task()), created.meta)


async def test_a_type_that_no_connector_serves_is_the_tasks_fault_once_all_have_answered() -> None:
    scripted = Scripted()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    async with served(scripted) as port:
        async with bench(section(port)) as at:
            with pytest.raises(TaskSpecError, match="no connector serves 'nothing': choose from hook, sleep_job"):
                await at.plugin.create(at.context(task("nothing")))
        both = {**section(port), "connectors": {"far": {"endpoint": f"127.0.0.1:{nobody}", "insecure": True}}}
        async with bench(both) as at:
            with pytest.raises(ConnectionRefusedError, match=f"connector far at 127.0.0.1:{nobody} has not listed"):
                await at.plugin.create(at.context(task("nothing")))


async def test_secrets_are_sent_as_variables_and_read_at_each_create() -> None:
    scripted = Scripted()
    async with served(scripted) as port, bench(section(port)) as at:
        at.secrets = {"TOKEN": "hush"}
        about = task(secrets={"TOKEN": {"secret": "s", "key": "k"}}, env=[{"name": "A", "value": "1"}])
        created = await at.plugin.create(at.context(about))
    (asked,) = scripted.seen["CreateTask"]
    assert dict(asked.task_execution_metadata.environment_variables) == {"A": "1", "TOKEN": "hush"}
    assert "hush" not in str(created.meta)
    assert UID in asked.task_execution_metadata.labels.values()

"""A connector for tests: a gRPC server that does as it is told, and the plugin in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc.aio
from flyteidl.admin import agent_pb2 as messages
from flyteidl.core.execution_pb2 import TaskExecution
from flyteidl.service import agent_pb2_grpc as services

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskMetadata
from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, PluginSetup, StatusContext
from backoff_ctrl.k8s.tasks.services.connector.directory import Directory
from backoff_ctrl.k8s.tasks.services.connector.plugin import ConnectorPlugin

if TYPE_CHECKING:
    from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
    from tests.proxying.passing.certificates import Pair

UID = "5f0c8a1e-1111-4222-8333-944455556666"
Behaviour = Callable[[Any, Any], Any]
"""A call's answer: of the request and its context."""


class Scripted:
    """The server. A test replaces a behaviour by assigning it; ``seen`` has all requests, by call."""

    def __init__(self) -> None:
        self.agents = [agent("sleeper", "sleep_job"), agent("hook", "hook", is_sync=True)]
        self.seen: dict[str, list[Any]] = {"CreateTask": [], "GetTask": [], "DeleteTask": [], "ExecuteTaskSync": []}
        self.create: Behaviour = lambda request, _: messages.CreateTaskResponse(
            resource_meta=request.task_execution_metadata.labels["backoff-ctrl.dev/task-uid"].encode()
        )
        self.get: Behaviour = lambda *_: messages.GetTaskResponse(
            resource=messages.Resource(phase=TaskExecution.RUNNING)
        )
        self.delete: Behaviour = lambda *_: messages.DeleteTaskResponse()
        self.execute: Behaviour = lambda *_: [answered(phase=TaskExecution.SUCCEEDED)]
        self.listing: Behaviour = lambda *_: messages.ListAgentsResponse(agents=self.agents)

    async def CreateTask(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.seen["CreateTask"].append(request)
        return await _done(self.create(request, context))

    async def GetTask(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.seen["GetTask"].append(request)
        return await _done(self.get(request, context))

    async def DeleteTask(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.seen["DeleteTask"].append(request)
        return await _done(self.delete(request, context))

    async def ExecuteTaskSync(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - gRPC's name
        requests = [each async for each in request_iterator]
        self.seen["ExecuteTaskSync"].append(requests)
        for each in await _done(self.execute(requests, context)):
            yield each

    async def ListAgents(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return await _done(self.listing(request, context))

    async def unknown(self, request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "a scripted connector has no such call")

    GetAgent = GetTaskMetrics = GetTaskLogs = unknown


async def _done(answer: Any) -> Any:
    return await answer if asyncio.iscoroutine(answer) else answer


def agent(name: str, *types: str, is_sync: bool = False, version: int = 0) -> Any:
    """What ListAgents says of a connector."""
    categories = [messages.TaskCategory(name=each, version=version) for each in types]
    return messages.Agent(name=name, supported_task_categories=categories, is_sync=is_sync)


def answered(**resource: Any) -> Any:
    """The answer of a synchronous connector."""
    return messages.ExecuteTaskSyncResponse(
        header=messages.ExecuteTaskSyncResponseHeader(resource=messages.Resource(**resource))
    )


def refusing(code: grpc.StatusCode, details: str = "no", metadata: tuple[Any, ...] = ()) -> Behaviour:
    """A behaviour that ends with this status."""

    async def refuse(_: Any, context: Any) -> None:
        await context.abort(code, details, metadata)

    return refuse


@asynccontextmanager
async def served(scripted: Scripted, port: int = 0, tls: Pair | None = None) -> AsyncIterator[int]:
    """Serve on a port, by default a free one; with ``tls`` over TLS alone."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    services.add_AsyncAgentServiceServicer_to_server(scripted, server)
    services.add_SyncAgentServiceServicer_to_server(scripted, server)
    services.add_AgentMetadataServiceServicer_to_server(scripted, server)
    where = f"127.0.0.1:{port}"
    if tls is None:
        bound = server.add_insecure_port(where)
    else:
        pair = tls.key.read_bytes(), tls.certificate.read_bytes()
        bound = server.add_secure_port(where, grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


def task(type_: str = "sleep_job", *, attempt: int = 0, uid: str = UID, **spec: Any) -> TaskContext:
    """A task of a type."""
    metadata = TaskMetadata(
        "team", "train", uid, attempt, f"train-{uid[:8]}-{attempt}", store="st", labels={"team": "red"},
        annotations={"why": "test"}, service_account="runner", project="p", domain="d",
    )  # fmt: skip
    return TaskContext(metadata, type_, {"type": type_, **spec}, K8sPluginConfig())


class _Counted:
    def count(self, event: str, times: int = 1) -> None:
        pass


@dataclass
class Bench:
    """The plugin, and what it is loaded with."""

    plugin: ConnectorPlugin
    directory: Directory
    secrets: dict[str, str] = field(default_factory=dict)

    def context(self, about: TaskContext) -> CallContext:
        """What every call gets."""

        async def secret(name: str) -> str:
            return self.secrets[name]

        return CallContext(about, f"{about.metadata.uid}/{about.metadata.attempt}", secret)

    def status(self, about: TaskContext, meta: Any, resource: Any) -> PhaseInfo:
        """What a state means."""
        return self.plugin.status(StatusContext(about, meta, datetime.now(UTC)), resource)


@asynccontextmanager
async def bench(section: dict[str, Any]) -> AsyncIterator[Bench]:
    """The plugin with these settings."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        directory = Directory()
        plugin = ConnectorPlugin(PluginSetup("connector", _Counted(), lambda: section, session), directory)
        stack.push_async_callback(plugin.aclose)
        yield Bench(plugin, directory)


def section(port: int, **more: Any) -> dict[str, Any]:
    """The settings of one connector."""
    return {"defaultConnector": {"endpoint": f"127.0.0.1:{port}", **more}}

"""The web API plugin that speaks to connectors: which one a task goes to, and each call of it.

A synchronous connector answers with the result, so the job that ``create`` returns has already ended.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc.aio
from flyteidl.admin.agent_pb2 import (
    DeleteTaskRequest,
    ExecuteTaskSyncRequest,
    GetTaskRequest,
    Resource,
    TaskCategory,
)
from flyteidl.service.agent_pb2_grpc import AsyncAgentServiceStub, SyncAgentServiceStub

from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import (
    CallContext,
    Created,
    Meta,
    PluginConfig,
    PluginSetup,
    RateLimit,
    RemoteError,
    ResourceRequirements,
    StatusContext,
)

from .answers import broken, phase_at_once, phase_of
from .channels import TOO_LARGE, Channels, translated
from .directory import Directory, Route
from .requests import Request, request_of
from .settings import ID, TaskType, section_of

T = TypeVar("T")

OWN: Final = PluginConfig(
    read_rate_limiter=RateLimit(10, 100),
    write_rate_limiter=RateLimit(10, 100),
    resource_quotas={"default": 1000},
    project=100,
    namespace=50,
)
"""The defaults of Flyte's plugin. It repeats a create after a kill, too."""
_RAISED: Final = (500, TOO_LARGE)
"""What a connector answers when its own code has raised an exception, or has answered too much."""
ASK_AGAIN: Final = 5.0
"""Seconds until the connectors are asked again for a task type without a connector."""
ANSWERS_MAX: Final = 1_000
"""The most messages of one synchronous answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A job as its connector reports it. ``at_once``: the answer of a synchronous connector."""

    resource: Resource
    at_once: bool = False


class ConnectorPlugin:
    """A web API plugin whose service is a Flyte connector."""

    def __init__(self, setup: PluginSetup, directory: Directory) -> None:
        self._setup = setup
        self._directory = directory
        self._channels = Channels()

    def get_config(self) -> PluginConfig:
        """Return the defaults of Flyte's plugin."""
        return OWN

    def resource_requirements(self, task: TaskContext) -> ResourceRequirements | None:  # noqa: ARG002 - one for all
        """Return the one pool."""
        return ResourceRequirements()

    async def create(self, context: CallContext) -> Created:
        """Create the job, or do the work of a synchronous connector at once."""
        directory = self._configured()
        secrets = {name: await context.secret(name) for name in context.task.spec.get("secrets") or {}}
        request = request_of(context.task, secrets, directory.settings.output_prefix)
        route = await self._route_to(request.type)
        request = request.spelt(route.type.name)
        try:
            if route.is_sync:
                return Created(_meta(route, None), Answer(await self._execute(route, request), at_once=True))
            stub = AsyncAgentServiceStub(self._channels.to(route.deployment))
            answer = await _call(route, "CreateTask", lambda limit: stub.CreateTask(request.message(), timeout=limit))
        except RemoteError as error:
            if error.status not in _RAISED:
                raise
            return Created(_meta(route, None), Answer(broken(error.message), at_once=True))
        return Created(_meta(route, answer.resource_meta, request.output_prefix))

    async def get(self, context: CallContext, meta: Meta) -> Answer:  # noqa: ARG002 - as every plugin
        """Return the job's present state."""
        route, job = self._job(meta)
        message = GetTaskRequest(
            task_type=route.type.name,
            task_category=_category(route.type),
            resource_meta=job,
            output_prefix=meta.get("outputPrefix", ""),
        )
        stub = AsyncAgentServiceStub(self._channels.to(route.deployment))
        answer = await _call(route, "GetTask", lambda limit: stub.GetTask(message, timeout=limit))
        if not answer.HasField("resource"):
            raise RemoteError(TOO_LARGE, f"{route}, GetTask: it answered without a resource")
        return Answer(answer.resource)

    async def delete(self, context: CallContext, meta: Meta, reason: str) -> None:  # noqa: ARG002 - as every plugin
        """End the job."""
        if meta["job"] is None:
            return
        route, job = self._job(meta)
        message = DeleteTaskRequest(task_type=route.type.name, task_category=_category(route.type), resource_meta=job)
        stub = AsyncAgentServiceStub(self._channels.to(route.deployment))
        await _call(route, "DeleteTask", lambda limit: stub.DeleteTask(message, timeout=limit))

    def status(self, context: StatusContext, resource: Answer) -> PhaseInfo:  # noqa: ARG002 - as every plugin
        """Return what the state means for the task."""
        return (phase_at_once if resource.at_once else phase_of)(resource.resource)

    async def aclose(self) -> None:
        await self._channels.aclose()

    def _configured(self) -> Directory:
        """Return the directory with the settings of now. Raises ``SettingsError``."""
        written = self._setup.settings()
        if written is not self._directory.section:
            self._directory.configure(section_of(lambda name: written if name == ID else {}))
        return self._directory

    async def _route_to(self, wanted: TaskType) -> Route:
        """Return a task type's connector. Raises ``TaskSpecError`` if all have answered and no connector serves it."""
        directory = self._configured()
        if directory.find(wanted) is None:
            await asyncio.to_thread(directory.ask, ASK_AGAIN)
        route = directory.find(wanted)
        if route is not None:
            return route
        if missing := directory.missing:
            raise ConnectionRefusedError(f"no connector is known for the task type {wanted.name!r}: {missing}")
        version = f" in version {wanted.version}" if wanted.version else ""
        known = ", ".join(directory.types()) or "none"
        raise TaskSpecError("spec.type", f"no connector serves {wanted.name!r}{version}: choose from {known}")

    def _job(self, meta: Any) -> tuple[Route, bytes]:
        """Return where a job is, and what identifies it there: its connector of now, else the one that created it."""
        wanted = TaskType(meta["type"], meta["version"])
        directory = self._configured()
        route = directory.find(wanted)
        if route is None:
            deployment = directory.deployment(meta["connector"])
            if deployment is None:
                raise ConnectionError(f"connector {meta['connector']}, which runs this job, is not in the settings")
            route = Route(meta["connector"], deployment, wanted)
        return route, base64.b64decode(meta["job"] or "")

    async def _execute(self, route: Route, request: Request) -> Resource:
        """Send a task to a synchronous connector, and return its result."""

        async def parts() -> AsyncIterator[ExecuteTaskSyncRequest]:
            yield ExecuteTaskSyncRequest(header=request.header())
            yield ExecuteTaskSyncRequest(inputs=request.inputs)

        async def collect(limit: float | None) -> Resource:
            found: Resource | None = None
            stub = SyncAgentServiceStub(self._channels.to(route.deployment))
            count = 0
            async for each in stub.ExecuteTaskSync(parts(), timeout=limit):
                count += 1
                if each.HasField("header"):
                    found = each.header.resource
                elif found is not None:
                    found.outputs.MergeFrom(each.outputs)
                if count > ANSWERS_MAX:
                    raise RemoteError(TOO_LARGE, f"{route}: more than {ANSWERS_MAX} messages in one answer")
            if found is None:
                raise RemoteError(TOO_LARGE, f"{route}, ExecuteTaskSync: it answered without a header")
            return found

        try:
            return await _call(route, "ExecuteTaskSync", collect)
        except TimeoutError as error:
            raise RemoteError(500, f"{error}; timeouts.ExecuteTaskSync allows more") from None


async def _call(route: Route, operation: str, make: Callable[[float | None], Awaitable[T]]) -> T:
    """Make one call. Raises what ``translated`` says."""
    limit = route.deployment.timeout(operation)
    try:
        return await make(limit)
    except grpc.aio.AioRpcError as error:
        raise translated(error, str(route), operation, limit) from None


def _meta(route: Route, job: bytes | None, output_prefix: str = "") -> dict[str, Any]:
    """Return what is stored of a job. ``job`` is the connector's resource_meta; None: a job that needs no deletion."""
    found: dict[str, Any] = {"connector": route.connector, "type": route.type.name, "version": route.type.version}
    if output_prefix:
        found["outputPrefix"] = output_prefix
    return {**found, "job": None if job is None else base64.b64encode(job).decode()}


def _category(task_type: TaskType) -> TaskCategory:
    return TaskCategory(name=task_type.name, version=task_type.version)

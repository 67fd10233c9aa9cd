"""A service of jobs on this machine, its description, and a rest plugin that talks to it."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskMetadata
from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, Created, PluginSetup, SecretError
from backoff_ctrl.k8s.tasks.services.rest.plugin import RestPlugin, load
from backoff_ctrl.k8s.tasks.services.rest.service_config import SERVICES, ServiceConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from backoff_ctrl.k8s.kube.operators.phases import Phase

JSON = dict[str, Any]

LEAST: JSON = {
    "id": "jobs",
    "task-types": ["job-there"],
    "parameters": {"rounds": {"type": "integer"}, "model": {"type": "string"}, "more": {"type": "object"}},
    "job-id": {"path": "$.id"},
    "create": {
        "path": "/jobs",
        "body": {"rounds": "$.custom.rounds", "tag": "{$.key}", "name": "{$.namespace}/{$.name}"},
    },
    "get": {"path": "/jobs/{$.id}"},
    "cancel": {"method": "DELETE", "path": "/jobs/{$.id}"},
    "state": "$.state",
    "states": {
        "waits": {"phase": "Queued"},
        "runs": {"phase": "Running"},
        "done": {"phase": "Success"},
        "broken": {"phase": "RetryableFailure", "kind": "USER", "code": "JobFailed"},
        "evicted": {"phase": "RetryableFailure", "kind": "SYSTEM", "code": "Evicted"},
    },
}
"""The least description of the service below, which chooses the ids of its jobs itself."""
FINDING: JSON = {
    "find": {"path": "/jobs", "query": {"tag": "{$.key}"}, "items": "$.jobs[*]"},
    "ours": {"$.tag": "{$.key}"},
    "appears-within": "50ms",
}
GIVEN: JSON = {
    "appears-within": "50ms",
    "job-id": {"given": "job-{$.key}", "path": "$.id"},
    "create": {**LEAST["create"], "body": {**LEAST["create"]["body"], "id": "$.id"}},
}


def described(**change: Any) -> ServiceConfig:
    """Return the description with changed keys; dashes are written as ``_``."""
    return SERVICES.read({**LEAST, **{key.replace("_", "-"): value for key, value in change.items()}}, "here")


def task(name: str = "train", **spec: Any) -> TaskContext:
    """Return a task."""
    about = TaskMetadata("team-a", name, f"uid-{name}", 0, f"{name}-0", labels={"team": "blue"}, project="p")
    return TaskContext(about, "job-there", {"type": "job-there", **spec}, K8sPluginConfig())


def context(of: TaskContext | None = None, key: str = "", **secrets: str) -> CallContext:
    """Return what a call gets; ``secrets`` are those that the cluster has."""
    found = of or task()

    async def secret(name: str) -> str:
        if name not in secrets:
            raise SecretError(f"spec.secrets.{name}: there is none")
        return secrets[name]

    return CallContext(found, key or f"{found.metadata.uid}/{found.metadata.attempt}", secret)


def phase_in(created: Created) -> Phase:
    """Return the phase of a job that was created or found."""
    assert created.resource is not None
    phase: Phase = created.resource.phase
    return phase


@dataclass
class JobsService:
    """Jobs in memory. ``instead`` answers a request in place of the service, once the service has carried it out."""

    url: str = ""
    jobs: dict[str, JSON] = field(default_factory=dict)
    requests: list[tuple[str, str, JSON, Mapping[str, str]]] = field(default_factory=list)
    instead: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Carry a request out."""
        body = json.loads(await request.read() or b"{}")
        self.requests.append((request.method, request.path_qs, body, dict(request.headers)))
        answer = self._carried_out(request, body)
        other = self.instead.get(request.method)
        return answer if other is None else await other(request)

    def _carried_out(self, request: web.Request, body: JSON) -> web.StreamResponse:
        if request.method == "POST":
            found = body.get("id") or f"j{len(self.jobs) + 1}"
            if found in self.jobs:
                return web.json_response({"error": f"{found} exists"}, status=409)
            self.jobs[found] = {**body, "id": found, "state": "waits"}
            return web.json_response(self.jobs[found], status=201)
        if request.path == "/jobs":
            tag = request.query.get("tag")
            return web.json_response({"jobs": [job for job in self.jobs.values() if job["tag"] == tag]})
        job = self.jobs.get(request.path.removeprefix("/jobs/"))
        if job is None:
            return web.json_response({"error": "there is no such job"}, status=404)
        if request.method == "DELETE":
            job["state"] = "cancelled"
            return web.Response(status=204)
        return web.json_response(job)

    def count(self, method: str) -> int:
        """Return how many requests of a method there were."""
        return sum(each[0] == method for each in self.requests)

    def says(self, method: str, status: int = 200, **answer: Any) -> None:
        """Answer requests of a method so from now on: with ``body`` (bytes), ``text`` or ``json``."""
        kind = answer.pop("content_type", None)

        async def other(_: web.Request) -> web.Response:
            if "json" in answer:
                return web.json_response(answer["json"], status=status)
            return web.Response(status=status, content_type=kind, **answer)

        self.instead[method] = other


@dataclass
class Events:
    """A scope for metrics."""

    counted: Counter[str] = field(default_factory=Counter)

    def count(self, event: str, times: int = 1) -> None:
        """Count."""
        self.counted[event] += times


@asynccontextmanager
async def running_service() -> AsyncIterator[JobsService]:
    """Serve on loopback."""
    service = JobsService()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", service.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    service.url = f"http://127.0.0.1:{port}"
    try:
        yield service
    finally:
        await runner.cleanup()


@asynccontextmanager
async def plugin_of(
    config: ServiceConfig, settings: Mapping[str, Any], events: Events | None = None
) -> AsyncIterator[RestPlugin]:
    """Load the plugin, with these settings below ``plugins.jobs``."""
    async with aiohttp.ClientSession() as session:
        yield load(config, PluginSetup(config.id, events or Events(), lambda: settings, session))

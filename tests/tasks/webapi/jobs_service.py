"""A service of jobs on loopback, as bad as a test wants it to be; and a plugin for it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, failed, queued, running, success
from backoff_ctrl.k8s.tasks.plugins.web_protocol import Created, PluginConfig, RemoteError, ResourceRequirements

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
    from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, PluginSetup, StatusContext

JSON = dict[str, Any]


class JobsService:
    """Keeps jobs by id. ``answer`` may replace the answer to a request; None: the usual one."""

    def __init__(self) -> None:
        self.jobs: dict[str, JSON] = {}
        self.calls: Counter[str] = Counter()
        self.answer: Callable[[str, str], web.StreamResponse | None] = lambda _method, _id: None
        self.hold: asyncio.Event | None = None
        self.held = asyncio.Event()
        self.create_twice_is_one = True
        self.states: dict[str, JSON] = {}
        """What jobs will be when they are created, by id."""
        self.times: list[tuple[float, str, str]] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        name = request.match_info.get("id", "")
        self.calls[request.method] += 1
        self.times.append((asyncio.get_running_loop().time(), request.method, name))
        if self.hold is not None:
            self.held.set()
            await self.hold.wait()
        told = self.answer(request.method, name)
        if told is not None:
            return told
        if request.method == "POST":
            asked = await request.json()
            key = asked.get("key") or asked["id"]
            name = key if self.create_twice_is_one else f"{key}#{self.calls['POST']}"
            self.jobs.setdefault(name, {"state": "PENDING", **asked, "id": name, **self.states.get(name, {})})
            return web.json_response(self.jobs[name])
        if request.method == "DELETE":
            found = self.jobs.pop(name, None)
            return web.json_response({}, status=200 if found is not None else 404)
        if name not in self.jobs:
            return web.json_response({"message": f"no job {name}"}, status=404)
        return web.json_response(self.jobs[name])

    def become(self, state: str, *names: str) -> None:
        """Bring jobs, by default all, into a state."""
        for name in names or tuple(self.jobs):
            self.jobs[name]["state"] = state

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve; yield the URL."""
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/jobs", self.serve)
        app.router.add_route("*", "/jobs/{id:.+}", self.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            if self.hold is not None:
                self.hold.set()
            await runner.cleanup()


class JobsPlugin:
    """A web API plugin of that service."""

    config = PluginConfig()

    def __init__(self, setup: PluginSetup, url: str) -> None:
        self._session = setup.session
        self._url = url

    def get_config(self) -> PluginConfig:
        return self.config

    def resource_requirements(self, task: TaskContext) -> ResourceRequirements | None:
        return ResourceRequirements(task.spec.get("custom", {}).get("pool", "default"))

    async def create(self, context: CallContext) -> Created:
        custom = dict(context.task.spec.get("custom") or {})
        if "token" in custom:
            custom["token"] = await context.secret(custom["token"])
        made = await self._ask("POST", "/jobs", {"key": context.key, **custom})
        return Created({"id": made["id"]}, made if custom.get("shows") else None)

    async def get(self, context: CallContext, meta: Any) -> Any:
        return await self._ask("GET", f"/jobs/{meta['id']}")

    async def delete(self, context: CallContext, meta: Any, reason: str) -> None:
        await self._ask("DELETE", f"/jobs/{meta['id']}")

    def status(self, context: StatusContext, resource: Any) -> PhaseInfo:
        state = resource["state"]
        if state == "SUCCEEDED":
            return success("the service says so", outputs={"id": resource["id"]})
        if state == "FAILED":
            return failed("JobFailed", resource.get("message", "it failed"))
        if state == "LOST":
            return failed("JobLost", "the service lost it", kind=ErrorKind.SYSTEM, retryable=True)
        return {"PENDING": queued("pending there"), "RUNNING": running("runs there")}[state]

    async def _ask(self, method: str, path: str, body: JSON | None = None) -> Any:
        async with self._session.request(method, f"{self._url}{path}", json=body) as answer:
            text = await answer.text()
            if answer.status >= 400:
                after = answer.headers.get("Retry-After")
                raise RemoteError(answer.status, text[:200], None if after is None else float(after))
            return json.loads(text)


class FindingPlugin(JobsPlugin):
    """One that can look a job up by its key."""

    async def find(self, context: CallContext) -> Created | None:
        try:
            found = await self._ask("GET", f"/jobs/{context.key}")
        except RemoteError as error:
            if error.status == 404:
                return None
            raise
        return Created({"id": found["id"]})


class OncePlugin(JobsPlugin):
    """One whose create must not be repeated."""

    config = PluginConfig(idempotent=False)

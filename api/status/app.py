"""The application: URLs with their OpenAPI, probes and metrics that are open to everybody, and common headers."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.status.asked import Anything, ProblemError, check_sender
from backoff_ctrl.k8s.status.conversation import Answer, problem
from backoff_ctrl.k8s.status.documents import Documents
from backoff_ctrl.k8s.status.endpoints import ENDPOINTS, Endpoint, OfHolders
from backoff_ctrl.k8s.status.metrics import CONTENT_TYPE, exposition
from backoff_ctrl.k8s.status.serving import SERVICE, own_version
from backoff_ctrl.k8s.status.shapes import Decision, Waiting
from backoff_ctrl.k8s.status.showing import shown

from . import shapes as examples
from .access import Loopback
from .describing import described
from .endpoints import Acting, Endpoints
from .gates import Gates, Merged, OwnGate, Ways
from .gates_found import Finder
from .history import History
from .overview import Overview, SeenNamespace
from .page import Page, add_page
from .routing import HEADERS, Caller, add_endpoint, handle_problems, respond
from .shapes import SeenCeiling, SeenGate, SeenOverload, SeenPage, SeenPolicy
from .tasks import TaskEndpoints, add_tasks
from .unwatched import Unwatched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .access import Access
    from .observing import Cluster
    from .served_tasks import ServedTasks

SAFE: Final = ("GET", "HEAD")
WORDS: Final = {
    "readyz": {503: "Not ready: a reason in each line."},
    "decisions": {200: "Server-sent events: `decision`, and `gap` where some are missing."},
}
"""OpenAPI's descriptions of answers by name and status."""


@dataclass(frozen=True)
class Connecting:
    """The gates to connect, by URL and by namespaces to search, and how to reach them."""

    urls: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    ways: Ways = field(default_factory=Ways)


def make_app(cluster: Cluster, connecting: Connecting, access: Access, tasks: ServedTasks | None = None) -> FastAPI:
    """Return the application for a cluster, its gates and its tasks. It runs them while it runs."""
    merged = Merged()
    streams = merged.streams()
    own = None if tasks is None else OwnGate(shown(), SERVICE.ring, tasks.url, tasks.token)
    gates = Gates(connecting.urls, merged, connecting.ways, cluster.watches, own)
    finder = Finder(cluster.reach, connecting.namespaces, gates)
    unwatched = Unwatched(cluster.source, gates)
    history = History(cluster.source, gates.holds, unwatched.amounts)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with RUNTIME.lent():
            cluster.start()
            carrying_out = tasks.running() if tasks is not None else nullcontext()
            async with gates, _beside(finder.run()), _beside(history.run()), carrying_out:
                yield

    app = FastAPI(
        title="backoff-ctrl",
        version=own_version(),
        summary="What is full in a cluster, who waits, why and until when.",
        lifespan=running,
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
    )
    about_tasks = TaskEndpoints(tasks, access, time.time)

    def end_streams() -> None:
        streams.close()
        about_tasks.close()

    app.state.end_streams = end_streams
    handle_problems(app)
    app.add_middleware(_Guard, access=access)
    overview = Overview(cluster.source, gates, unwatched, history)
    answers = Endpoints(cluster, gates, streams, overview)
    lacking = partial(cluster.lacking, connecting.namespaces, asks_who=not isinstance(access, Loopback))

    def unready() -> list[str]:
        return [*cluster.unready(), *gates.unready()]

    _add_endpoints(app, access, answers, Acting(cluster, gates, access), Probes(cluster, unready, lacking, tasks))
    add_tasks(app, about_tasks, access)
    add_page(app, Page(cluster, gates, merged, answers, access, finder=finder, tasks=tasks), access)
    return app


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine until the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _add_endpoints(app: FastAPI, access: Access, answers: Endpoints, acting: Acting, probes: Probes) -> None:
    """Add the endpoints of the table. For a gate's own shapes ``serve`` has shapes over all gates."""
    page = examples.page
    pages: dict[str, Any] = {
        "ceilings": SeenPage[SeenCeiling],
        "namespaces": SeenPage[SeenNamespace],
        "waiting": SeenPage[Waiting],
        "gates": SeenPage[SeenGate],
        "overload": SeenPage[SeenOverload],
        "policy": SeenPage[SeenPolicy],
    }
    shown_as = {
        "ceilings": page(examples.CEILING, examples.LEARNED),
        "namespaces": page(examples.NAMESPACE),
        "waiting": page(examples.WAITING),
        "request": examples.HISTORY,
        "gates": page(examples.GATE),
        "overload": page(examples.OVERLOAD),
        "policy": page(examples.POLICY),
        "holders": {"namespace": "team", "quotas": []},
        "explain": examples.EXPLAINED,
        "act": examples.ACTED,
        "version": {"version": own_version()},
    }
    bodies = {"explain": examples.MANIFEST, "act": examples.ACTION}
    for endpoint in (*ENDPOINTS, Endpoint("/v1/holders", "holders", OfHolders, "document", dict[str, Any])):
        seen = replace(endpoint, shape=pages.get(endpoint.name, endpoint.shape))
        owner = next(each for each in (answers, acting, probes) if hasattr(each, endpoint.name))
        add_endpoint(
            app, seen, getattr(owner, endpoint.name), access,
            example=shown_as.get(endpoint.name), body=bodies.get(endpoint.name), words=WORDS.get(endpoint.name),
        )  # fmt: skip
    app.openapi = lambda: described(app, Decision)  # type: ignore[method-assign]  # as FastAPI documents it


class Probes:
    """Answers liveness, readiness, version and metrics."""

    def __init__(
        self,
        cluster: Cluster,
        unready: Callable[[], list[str]],
        lacking: Callable[[], list[str]],
        tasks: ServedTasks | None,
    ) -> None:
        """``unready`` says what is not known yet. ``lacking`` names rights that are missing; it may block."""
        self._cluster = cluster
        self._unready = unready
        self._lacking = lacking
        self._tasks = tasks

    async def livez(self, _: Anything, __: Caller) -> Answer:
        """Whether the program runs."""
        return Answer([b"ok\n"])

    async def readyz(self, _: Anything, __: Caller) -> Answer:
        """Whether all quotas are watched and gates were looked for, with the reasons why not; and missing rights."""
        reasons = self._unready()
        lines = [*(reasons or ["ok"]), *await run_in_threadpool(self._lacking)]
        return Answer([f"{line}\n".encode() for line in lines], status=503 if reasons else 200)

    async def version(self, _: Anything, __: Caller) -> dict[str, str]:
        """The version of this program."""
        return {"version": own_version()}

    async def metrics(self, _: Anything, caller: Caller) -> Answer:
        """Metrics of the cluster's ceilings, and of the tasks and their gate where there are any, for Prometheus."""
        await caller.permit(None)
        sources = [*([] if self._tasks is None else SERVICE.sources), self._cluster.source]
        documents = Documents(sources, own_version())
        more = [] if self._tasks is None else list(self._tasks.samples())  # here: the loop owns the tasks
        pieces = await run_in_threadpool(exposition, documents, None, settings().series_max, more)
        return Answer(pieces, CONTENT_TYPE)


class _Guard:
    """Refuses requests from pages of other sites, and adds security headers for browsers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(each for each in more if each[0] not in own)]
            await send(message)

        request, hosts = Request(scope), None if self._access.asks_for_token else ()
        host, origin, acts = request.headers.get("host"), request.headers.get("origin"), request.method not in SAFE
        try:
            check_sender(host, origin, hosts=hosts, acts=acts)
        except ProblemError as error:
            await respond(problem(error))(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

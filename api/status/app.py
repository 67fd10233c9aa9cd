"""The application: URLs with their OpenAPI, probes and metrics that are open to everybody, and common headers."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Request
from starlette.datastructures import MutableHeaders

from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.status.asked import ProblemError, check_sender
from backoff_ctrl.k8s.status.conversation import problem
from backoff_ctrl.k8s.status.serving import SERVICE, own_version
from backoff_ctrl.k8s.status.shapes import Decision
from backoff_ctrl.k8s.status.showing import shown

from .describing import described
from .endpoints import Endpoints, Served
from .gate import OwnGate, Ways
from .gates import Gates, Merged
from .gates_found import Finder
from .history import History
from .overview import Overview
from .page import Page, add_page
from .routing import HEADERS, add_endpoints, handle_problems, respond
from .served_tasks import ServedTasks, beside
from .shapes import ENDPOINTS
from .tasks import ENDPOINTS as TASK_ENDPOINTS
from .tasks import TaskEndpoints
from .unwatched import Unwatched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .access import Access
    from .observing import Cluster

SAFE: Final = ("GET", "HEAD")


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
    unwatched = Unwatched(cluster, gates)
    history = History(cluster.source, gates.holds, unwatched.amounts)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with RUNTIME.lent():
            cluster.start()
            carrying_out = tasks.running() if tasks is not None else nullcontext()
            async with gates, beside(finder.run(), history.run()), carrying_out:
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
    answers = Endpoints(Served(cluster, gates, merged, streams, overview, finder, access, tasks))
    add_endpoints(app, ENDPOINTS, answers, access)
    add_endpoints(app, TASK_ENDPOINTS, about_tasks, access)
    app.openapi = lambda: described(app, Decision)  # type: ignore[method-assign]  # as FastAPI documents it
    add_page(app, Page(answers))
    return app


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
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request, hosts = Request(scope), None if self._access.asks_for_token else ()
        host, origin, acts = request.headers.get("host"), request.headers.get("origin"), request.method not in SAFE
        try:
            check_sender(host, origin, hosts=hosts, acts=acts)
        except ProblemError as error:
            await respond(problem(error))(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

"""The application: URLs with what OpenAPI says of them, what is open to everybody, and what every answer carries."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backoff_ctrl.k8s.runtime.host import RUNTIME
from backoff_ctrl.k8s.sharing.showing import shown
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.documents.pages import Documents
from backoff_ctrl.k8s.status.explaining.bodies import JSON_TYPES, YAML_TYPES
from backoff_ctrl.k8s.status.metrics import CONTENT_TYPE, exposition
from backoff_ctrl.k8s.status.serving import SERVICE, own_version, series_max
from backoff_ctrl.k8s.status.shapes.documents import Acted, Decision, RequestHistory, Waiting
from backoff_ctrl.k8s.status.shapes.explained import Explained

from . import examples
from .access import Loopback
from .acting import Acting
from .answers import HEADERS, PROBLEMS, described, handle_problems, parameters, problem
from .connected.finding import Finder
from .connected.gate import Ways
from .connected.gates import Gates
from .connected.merged import Merged
from .connected.own import OwnGate
from .connected.unwatched import Unwatched
from .endpoints import Endpoints
from .history import History
from .overview import Overview, SeenNamespace
from .page import Page, add_page
from .shapes import SeenCeiling, SeenGate, SeenOverload, SeenPage, SeenPolicy
from .tasks.endpoints import TaskEndpoints
from .tasks.urls import add_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .access import Access
    from .observing import Cluster
    from .tasks.served import ServedTasks

PAGING: Final = ("limit", "after")
TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "A text."}
}


@dataclass(frozen=True)
class Connecting:
    """Which gates to connect: those at these URLs, those found in these namespaces, and how they are reached."""

    urls: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    ways: Ways = field(default_factory=Ways)


def make_app(cluster: Cluster, connecting: Connecting, access: Access, tasks: ServedTasks | None = None) -> FastAPI:
    """Return the application for a cluster, its gates and its tasks. It runs them while it runs."""
    merged = Merged()
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
        merged.close()
        about_tasks.close()

    app.state.end_streams = end_streams
    handle_problems(app)
    app.add_middleware(_Guard, access=access)
    overview = Overview(cluster.source, gates, unwatched, history)
    answers = Endpoints(cluster, gates, merged, overview, access)
    _add_documents(app, answers, Acting(cluster, gates, merged, overview, access))
    add_tasks(app, about_tasks)
    lacking = partial(cluster.lacking, connecting.namespaces, asks_who=not isinstance(access, Loopback))
    _add_probes(app, cluster, answers, lacking, tasks)
    add_page(app, Page(cluster, gates, merged, overview, access, finder=finder, tasks=tasks), access)
    return app


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something until the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _add_documents(app: FastAPI, answers: Endpoints, acting: Acting) -> None:
    def add(path: str, handler: Any, shape: Any, example: Any, *names: str, **more: Any) -> None:
        content = {"application/json": {"example": example}}
        app.add_api_route(
            path,
            handler,
            methods=more.pop("methods", ["GET"]),
            responses={
                200: {"model": shape, "content": content, "description": "The document."},
                304: {"description": "Nothing has changed since the ETag."},
                **PROBLEMS,
            },
            openapi_extra={"parameters": parameters(*names), **more},
            response_class=Response,
        )

    page = examples.page
    where = ("namespace", "quota", "resource")
    add(
        "/v1/ceilings",
        answers.ceilings,
        SeenPage[SeenCeiling],
        page(examples.CEILING, examples.LEARNED),
        *where,
        *PAGING,
    )
    add("/v1/namespaces", answers.namespaces, SeenPage[SeenNamespace], page(examples.NAMESPACE), *PAGING)
    add("/v1/waiting", answers.waiting, SeenPage[Waiting], page(examples.WAITING), "namespace", *PAGING)
    add("/v1/requests/{id}", answers.history, RequestHistory, examples.HISTORY, "id")
    add("/v1/gates", answers.gates, SeenPage[SeenGate], page(examples.GATE))
    add("/v1/overload", answers.overload, SeenPage[SeenOverload], page(examples.OVERLOAD))
    add("/v1/policy", answers.policy, SeenPage[SeenPolicy], page(examples.POLICY))
    add("/v1/holders", answers.holders, dict[str, Any], {"namespace": "team", "quotas": []}, "namespace", "quota")
    manifest = {"schema": {"type": "object"}, "example": examples.MANIFEST}
    body = {"required": True, "content": {JSON_TYPES[0]: manifest, YAML_TYPES[0]: manifest}}
    asks = {"methods": ["POST"], "requestBody": body}
    add("/v1/explain", answers.explain, Explained, examples.EXPLAINED, "namespace", "confirm", **asks)
    told = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
    body = {"required": True, "content": {JSON_TYPES[0]: {"schema": told, "example": examples.ACTION}}}
    acts = {"methods": ["POST"], "requestBody": body}
    add("/v1/actions/{action}", acting.act, Acted, examples.ACTED, "action", **acts)
    app.add_api_route(
        "/v1/decisions",
        answers.decisions,
        responses={
            200: {
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
                "description": "Server-sent events: `decision`, and `gap` where some are missing.",
            },
            **PROBLEMS,
        },
        openapi_extra={"parameters": parameters("namespace", "after")},
        response_class=Response,
    )
    app.openapi = lambda: described(app, Decision)  # type: ignore[method-assign]  # as FastAPI documents it


def _add_probes(
    app: FastAPI, cluster: Cluster, answers: Endpoints, lacking: Callable[[], list[str]], tasks: ServedTasks | None
) -> None:
    @app.get("/livez", response_class=Response, responses={**TEXT, **PROBLEMS})
    async def livez() -> Response:
        """Whether the program runs."""
        return _text("ok\n")

    unready: dict[int | str, dict[str, Any]] = {503: {**TEXT[200], "description": "Not ready: a reason in each line."}}

    @app.get("/readyz", response_class=Response, responses={**TEXT, **unready, **PROBLEMS})
    async def readyz() -> Response:
        """Whether all quotas are watched, with the reasons why not; and which rights are missing for the rest."""
        reasons = cluster.unready()
        lines = [*(reasons or ["ok"]), *await run_in_threadpool(lacking)]
        return _text("".join(f"{line}\n" for line in lines), 503 if reasons else 200)

    @app.get("/version", responses=PROBLEMS)
    async def version() -> dict[str, str]:
        """Which version this is."""
        return {"version": own_version()}

    async def metrics(request: Request) -> Response:
        """Metrics of the cluster's ceilings, and of the tasks and their gate where there are any, for Prometheus."""
        await answers.permit(request, None)
        sources = [*([] if tasks is None else SERVICE.sources), cluster.source]
        documents = Documents(sources, own_version())
        more = [] if tasks is None else list(tasks.samples())  # here: the loop owns the tasks
        pieces = await run_in_threadpool(exposition, documents, None, series_max(), more)
        return Response(b"".join(pieces), media_type=CONTENT_TYPE)

    app.add_api_route("/metrics", metrics, response_class=Response, responses={**TEXT, **PROBLEMS})


def _text(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/plain; charset=utf-8")


class _Guard:
    """Refuses what comes from a page of elsewhere, and gives every answer the headers that browsers heed."""

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

        request = Request(scope)
        try:
            self._access.check_origin(request.method, request.headers)
        except ProblemError as error:
            await problem(error.problem)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

"""The live page at ``/``: rendered here, and brought up to date piece by piece by a little JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from fastapi import Request
from jinja2 import Environment, FileSystemLoader
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from backoff_ctrl.api.commands.amounts import rounded
from backoff_ctrl.k8s.creates.wait import reason_words
from backoff_ctrl.k8s.status.asked import ProblemError, wanted
from backoff_ctrl.k8s.status.explaining.bodies import checked_name
from backoff_ctrl.k8s.status.serving import own_version
from backoff_ctrl.k8s.status.shapes.documents import Waiting
from backoff_ctrl.k8s.tasks.documents import item
from backoff_ctrl.k8s.tasks.store import StoreError

from .access import ANYTHING, COOKIE, HOLDERS, TOKEN_MAX
from .answering import Answering
from .answers import answer, asked_of, tagged
from .overview import by_namespace
from .readable import ago, percent, until
from .reference import add_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastapi import FastAPI

    from backoff_ctrl.k8s.tasks.documents import TaskItem

    from .access import Access
    from .connected.finding import Finder
    from .overview import Card, Glance
    from .tasks.served import ServedTasks

FILES: Final = Path(__file__).parent / "files"
HTML: Final = "text/html; charset=utf-8"
CARDS: Final = 60
WAITING: Final = 100
TASKS: Final = 200
DECISIONS: Final = 40
FORM_MAX: Final = TOKEN_MAX * 3 + 64
"""Bytes of the token form: each character of a token may take three."""
SCRIPTS: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
FILTERS: Final = ("search", "namespace")
PIECES: Final = ("state", "namespaces", "waiting", "tasks", "decisions")
FEW: Final = 3
"""Namespaces up to which who waits is the main part of the page, and the quotas stand beside it."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the pieces of the page show at one time."""

    waiting: list[Any]
    """Creates, as documents of the API: the first ones, if there are ``more``."""
    more: bool
    cards: Sequence[Card]
    count: int
    """Namespaces, also those without a card."""
    glance: Glance
    tasks: list[TaskItem]
    several_gates: bool
    """Whether places are in several lines of a namespace."""
    no_tasks: str
    """Why tasks are not shown; empty: they are, or there are none here."""

    @property
    def few(self) -> bool:
        """Whether there are only a few namespaces."""
        return self.count <= FEW


class Page(Answering):
    """Renders the page and its pieces."""

    def __init__(self, *shown: Any, finder: Finder, tasks: ServedTasks | None) -> None:
        """Take what ``Answering`` takes, who finds gates, and the tasks that are carried out here."""
        super().__init__(*shown)
        self._finder = finder
        self._tasks = tasks
        self.templates = Environment(
            loader=FileSystemLoader(FILES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            "ago": ago,
            "percent": percent,
            "rounded": rounded,
            "until": until,
            "words": reason_words,
        }

    async def whole(self, request: Request) -> Response:
        """The page; the form for a token where nobody is known yet, and for a namespace where one is needed."""
        try:
            where = await self._where(request)
        except ProblemError as error:
            status = error.problem.status
            if status not in (401, 403):
                raise
            text = self._render("enter.html", ask="token" if status == 401 else "namespace", why=error.problem.detail)
            return Response(text, status, media_type=HTML)
        pieces, look = await self._rendered(request, where)
        text = self._render(
            "page.html",
            pieces=pieces,
            few=look.few,
            tasks=self._tasks is not None,
            server=self._cluster.place.url,
            version=own_version(),
            search=where["search"] or "",
            namespace=where["namespace"] or "",
            gates=[gate.url for gate in self._gates.gates],
            leave=self._access.asks_for_token,
        )
        return tagged(request, [text.encode()], HTML, "")

    async def pieces(self, request: Request) -> Response:
        """All pieces of the page by name, as JSON: of one look, so that they never disagree."""
        pieces, look = await self._rendered(request, await self._where(request))
        return answer(request, {"few": look.few, "pieces": pieces})

    async def piece(self, request: Request) -> Response:
        """One piece of the page."""
        name = request.path_params["piece"]
        if name not in PIECES:
            raise ProblemError(404, f"the pieces of the page are {', '.join(PIECES)}", "#/path")
        pieces, _ = await self._rendered(request, await self._where(request))
        return Response(pieces[name], media_type=HTML)

    async def holders(self, request: Request) -> Response:
        """Who holds the quotas of a namespace, as a piece."""
        asked = asked_of(request, "namespace")
        namespace = wanted(asked.query, "namespace")
        if namespace is None:
            raise ProblemError(400, "say of which namespace: ?namespace=", "#/query/namespace")
        checked_name(namespace, "#/query/namespace")
        for right in (ANYTHING, HOLDERS):
            await self.permit(request, namespace, right)
        found = await run_in_threadpool(self._cluster.holders, namespace, None)
        return Response(self._render("holders.html", found=found), media_type=HTML)

    async def enter(self, request: Request) -> Response:
        """Take a token from the form, and keep it in a cookie that no script can read."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_MAX:
                raise ProblemError(413, f"a token may have {TOKEN_MAX} characters at most", "#/body/token")
        found = parse_qs(body.decode("utf-8", "replace"))
        token = found.get("token", [""])[0].strip()
        try:
            await run_in_threadpool(self._access.may, token, None)
        except ProblemError as error:
            if error.problem.status != 403:  # known, but not for all namespaces
                text = self._render("enter.html", ask="token", why=error.problem.detail)
                return Response(text, error.problem.status, media_type=HTML)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    async def leave(self, request: Request) -> Response:  # noqa: ARG002 - every route takes it
        """Forget the token."""
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    # -- pieces ---------

    async def _where(self, request: Request) -> dict[str, str | None]:
        """Return the filters, which the caller may use."""
        asked = asked_of(request, *FILTERS)
        where = {name: wanted(asked.query, name) for name in FILTERS}
        await self.permit(request, where["namespace"])
        return where

    async def _look(self, request: Request, where: dict[str, str | None]) -> Look:
        """Look once: at who waits first, so that all numbers of who waits come from there."""
        items: list[Any] = []
        more = None
        if self._gates.gates:
            query = {"namespace": where["namespace"]} if where["namespace"] else {}
            items, more = await self._gates.page("/v1/waiting", Waiting, query, [0, ""], WAITING)
        wanted_here = _wanted(where)
        line = None if more is not None or not self._gates.answering else by_namespace(items)
        items = [each for each in items if wanted_here(each["namespace"])]
        cards, count = await run_in_threadpool(self._overview.fullest, wanted_here, CARDS, line)
        glance = await run_in_threadpool(self._overview.glance, wanted_here, line)
        tasks, why = await self._tasks_of(request, where)
        return Look(items, more is not None, cards, count, glance, tasks, len(self._gates.gates) > 1, why)

    async def _tasks_of(self, request: Request, where: dict[str, str | None]) -> tuple[list[TaskItem], str]:
        """Return the tasks that have not ended, those that wait first; or why they are not shown."""
        if self._tasks is None:
            return [], ""
        if self._tasks.trouble:
            return [], self._tasks.trouble
        namespace, wanted_here = where["namespace"], _wanted(where)
        try:
            await self.permit(request, namespace, HOLDERS)
            found = await self._tasks.store.list(0, TASKS, namespace=namespace, unfinished=True)
        except (ProblemError, StoreError) as error:
            return [], str(error)
        items = [item(each) for each in found if wanted_here(each.namespace)]
        return sorted(items, key=lambda each: each.wait is None), ""

    async def _rendered(self, request: Request, where: dict[str, str | None]) -> tuple[dict[str, str], Look]:
        look = await self._look(request, where)
        values = {
            "look": look,
            "reasons": self._cluster.unready(),
            "unreachable": self._gates.unreachable(),
            "connected": bool(self._gates.gates),
            "found": self._finder.why,
            "filtered": bool(where["namespace"] or where["search"]),
            "decisions": self._merged.latest(_wanted(where), DECISIONS),
        }
        return {name: self._render(f"{name}.html", **values) for name in PIECES}, look

    def _render(self, name: str, **values: Any) -> str:
        return self.templates.get_template(name).render(now=datetime.now(UTC), **values)


def _wanted(where: dict[str, str | None]) -> Callable[[str], bool]:
    """Return what says whether a namespace passes the filters."""
    namespace, search = where["namespace"], (where["search"] or "").lower()
    return lambda name: name == namespace if namespace else search in name.lower()


def add_page(app: FastAPI, page: Page, access: Access) -> None:
    """Add the page, its pieces and its files."""

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in SCRIPTS:
            raise ProblemError(404, f"there are {', '.join(SCRIPTS)}", "#/path")
        return Response((FILES / name).read_bytes(), media_type=SCRIPTS[name])

    paths = {
        "/": page.whole,
        "/pieces": page.pieces,
        "/pieces/holders": page.holders,
        "/pieces/{piece}": page.piece,
        "/files/{name}": file,
    }
    for path, handler in paths.items():
        app.add_api_route(path, handler, include_in_schema=False, response_class=Response)
    add_reference(app, page.templates)
    if access.asks_for_token:
        app.add_api_route("/enter", page.enter, methods=["POST"], include_in_schema=False, response_class=Response)
        app.add_api_route("/leave", page.leave, methods=["POST"], include_in_schema=False, response_class=Response)

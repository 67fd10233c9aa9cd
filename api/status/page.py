"""The live page at ``/``: rendered here, and brought up to date piece by piece by a little JavaScript."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from fastapi import Request
from jinja2 import Environment, FileSystemLoader
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from backoff_ctrl.k8s.status.asked import ProblemError, wanted
from backoff_ctrl.k8s.status.explaining.bodies import checked_name
from backoff_ctrl.k8s.status.serving import own_version
from backoff_ctrl.k8s.status.shapes.documents import Waiting

from .access import ANYTHING, COOKIE, HOLDERS, TOKEN_MAX
from .answering import Answering
from .answers import asked_of, tagged
from .readable import ago, percent, rounded, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from .access import Access
    from .connected.finding import Finder

FILES: Final = Path(__file__).parent / "files"
HTML: Final = "text/html; charset=utf-8"
CARDS: Final = 60
WAITING: Final = 100
DECISIONS: Final = 40
FORM_MAX: Final = TOKEN_MAX * 3 + 64
"""Bytes of the token form: each character of a token may take three."""
SCRIPTS: Final = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
FILTERS: Final = ("search", "namespace")


class Page(Answering):
    """Renders the page and its pieces."""

    def __init__(self, *shown: Any, finder: Finder) -> None:
        """Take what ``Answering`` takes, and who finds gates."""
        super().__init__(*shown)
        self._finder = finder
        self._templates = Environment(
            loader=FileSystemLoader(FILES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"ago": ago, "percent": percent, "rounded": rounded, "until": until}

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
        pieces = {name: await piece(request, where) for name, piece in self._pieces.items()}
        text = self._render(
            "page.html",
            pieces=pieces,
            server=self._cluster.place.url,
            version=own_version(),
            search=where["search"] or "",
            namespace=where["namespace"] or "",
            gates=[gate.url for gate in self._gates.gates],
            leave=self._access.asks_for_token,
        )
        return tagged(request, [text.encode()], HTML, "")

    async def piece(self, request: Request) -> Response:
        """One piece of the page."""
        piece = self._pieces.get(request.path_params["piece"])
        if piece is None:
            raise ProblemError(404, f"the pieces of the page are {', '.join(self._pieces)}", "#/path")
        text = await piece(request, await self._where(request))
        return Response(text, media_type=HTML)

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

    @property
    def _pieces(self) -> dict[str, Callable[..., Any]]:
        return {
            "state": self._state,
            "namespaces": self._namespaces,
            "waiting": self._waiting,
            "decisions": self._decisions,
        }

    async def _where(self, request: Request) -> dict[str, str | None]:
        """Return the filters, which the caller may use."""
        asked = asked_of(request, *FILTERS)
        where = {name: wanted(asked.query, name) for name in FILTERS}
        await self.permit(request, where["namespace"])
        return where

    async def _state(self, request: Request, where: dict[str, str | None]) -> str:  # noqa: ARG002
        glance = await run_in_threadpool(self._overview.glance, _wanted(where))
        return self._render(
            "state.html",
            glance=glance,
            reasons=self._cluster.unready(),
            unreachable=self._gates.unreachable(),
            connected=bool(self._gates.gates),
            found=self._finder.why,
        )

    async def _namespaces(self, request: Request, where: dict[str, str | None]) -> str:  # noqa: ARG002
        cards, count = await run_in_threadpool(self._overview.fullest, _wanted(where), CARDS)
        filtered = bool(where["namespace"] or where["search"])
        return self._render("namespaces.html", cards=cards, count=count, filtered=filtered)

    async def _waiting(self, request: Request, where: dict[str, str | None]) -> str:  # noqa: ARG002
        items: list[Any] = []
        more = None
        if self._gates.gates:
            query = {"namespace": where["namespace"]} if where["namespace"] else {}
            items, more = await self._gates.page("/v1/waiting", Waiting, query, [0, ""], WAITING)
            search = (where["search"] or "").lower()
            items = [each for each in items if search in str(each.get("namespace", "")).lower()]
        return self._render(
            "waiting.html",
            items=items,
            more=more is not None,
            connected=bool(self._gates.gates),
            unreachable=self._gates.unreachable(),
        )

    async def _decisions(self, request: Request, where: dict[str, str | None]) -> str:  # noqa: ARG002
        namespace = where["namespace"]
        latest = self._merged.latest(lambda name: namespace in (None, name), DECISIONS)
        return self._render("decisions.html", items=latest, connected=bool(self._gates.gates))

    def _render(self, name: str, **values: Any) -> str:
        return self._templates.get_template(name).render(now=datetime.now(UTC), **values)


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

    for path, handler in {
        "/": page.whole, "/pieces/holders": page.holders, "/pieces/{piece}": page.piece, "/files/{name}": file,
    }.items():  # fmt: skip
        app.add_api_route(path, handler, include_in_schema=False, response_class=Response)
    if access.asks_for_token:
        app.add_api_route("/enter", page.enter, methods=["POST"], include_in_schema=False, response_class=Response)
        app.add_api_route("/leave", page.leave, methods=["POST"], include_in_schema=False, response_class=Response)

"""The live page at ``/``: rendered here, and updated piece by piece by a little JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from backoff_ctrl.k8s.gate.creates.wait import reason_words
from backoff_ctrl.k8s.status.amounts import percent, rounded, span
from backoff_ctrl.k8s.status.asked import ProblemError, parameter
from backoff_ctrl.k8s.status.endpoints import Nothing, OfHolders
from backoff_ctrl.k8s.status.serving import own_version
from backoff_ctrl.k8s.status.shapes import Waiting
from backoff_ctrl.k8s.tasks.documents import TaskItem, item
from backoff_ctrl.k8s.tasks.store import StoreError

from .access import COOKIE, HOLDERS, TOKEN_MAX
from .describing import Row
from .endpoints import Endpoints
from .gate import NOT_ASKED
from .overview import by_namespace
from .routing import Caller, add_endpoints

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
PIECES: Final = ("state", "namespaces", "waiting", "tasks", "decisions")
FEW: Final = 3
"""Up to so many namespaces the waiting creates are the main part of the page, beside the quotas."""


@dataclass(frozen=True, slots=True)
class OfLook:
    search: str | None = parameter("Only namespaces with this text in their names.")
    namespace: str | None = parameter("Only this namespace.")


@dataclass(frozen=True, slots=True)
class OfPiece:
    piece: str = parameter("The name of a piece.", in_path=True)
    search: str | None = parameter("Only namespaces with this text in their names.")
    namespace: str | None = parameter("Only this namespace.")


@dataclass(frozen=True, slots=True)
class OfHeld:
    namespace: str | None = parameter("This namespace.")


class Page:
    """Renders the page and its pieces."""

    def __init__(self, answers: Endpoints) -> None:
        """Show what ``answers`` has, too."""
        self.answers = answers
        self.served = served = answers.served
        self._gates = served.gates
        self._tasks = served.tasks
        self.templates = Environment(
            loader=FileSystemLoader(FILES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= {
            "ago": ago,
            "percent": whole_percent,
            "rounded": rounded,
            "until": until,
            "words": reason_words,
        }

    async def whole(self, query: OfLook, caller: Caller) -> Response:
        """The page; or the form for a token if the caller is unknown, or for a namespace if one is needed."""
        try:
            await caller.permit(query.namespace)
        except ProblemError as error:
            status = error.problem.status
            if status not in (401, 403):
                raise
            text = self._render("enter.html", ask="token" if status == 401 else "namespace", why=error.problem.detail)
            return Response(text, status, media_type=HTML)
        pieces, few = await self._rendered(caller, query)
        text = self._render(
            "page.html",
            pieces=pieces,
            few=few,
            tasks=self._tasks is not None,
            server=self.served.cluster.place.url,
            version=own_version(),
            search=query.search or "",
            namespace=query.namespace or "",
            gates=[gate.url for gate in self._gates.gates],
            leave=self.served.access.asks_for_token,
        )
        return Response(text, media_type=HTML)

    async def pieces(self, query: OfLook, caller: Caller) -> dict[str, Any]:
        """All pieces of the page by name, as JSON: of one snapshot, so that they never disagree."""
        await caller.permit(query.namespace)
        pieces, few = await self._rendered(caller, query)
        return {"few": few, "pieces": pieces}

    async def piece(self, query: OfPiece, caller: Caller) -> Response:
        """One piece of the page."""
        if query.piece not in PIECES:
            raise ProblemError(404, f"unknown piece: choose from {', '.join(PIECES)}", "#/path")
        await caller.permit(query.namespace)
        pieces, _ = await self._rendered(caller, query)
        return Response(pieces[query.piece], media_type=HTML)

    async def holders(self, query: OfHeld, caller: Caller) -> Response:
        """Who holds the quotas of a namespace, as a piece."""
        found = await self.answers.holders(OfHolders(query.namespace), caller)
        return Response(self._render("holders.html", found=found), media_type=HTML)

    async def enter(self, _: Nothing, caller: Caller) -> Response:
        """Take a token from the form, and keep it in a cookie that no script can read."""

        def limit(length: int) -> None:
            if length > FORM_MAX:
                raise ProblemError(413, f"a token may have {TOKEN_MAX} characters at most", "#/body/token")

        found = parse_qs((await caller.body(limit)).decode("utf-8", "replace"))
        token = found.get("token", [""])[0].strip()
        try:
            await run_in_threadpool(self.served.access.may, token, None)
        except ProblemError as error:
            if error.problem.status != 403:  # known, but not for all namespaces
                text = self._render("enter.html", ask="token", why=error.problem.detail)
                return Response(text, error.problem.status, media_type=HTML)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=caller.is_secure)
        return answer

    async def leave(self, _: Nothing, __: Caller) -> Response:
        """Forget the token."""
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    # -- pieces ---------

    async def _tasks_of(self, caller: Caller, query: OfLook | OfPiece) -> tuple[list[TaskItem], str]:
        """Return the unfinished tasks, waiting ones first; or why they are not shown."""
        if self._tasks is None:
            return [], ""
        if self._tasks.trouble:
            return [], self._tasks.trouble
        namespace, wanted_here = query.namespace, _wanted(query)
        try:
            await caller.permit(namespace, HOLDERS)
            found = await self._tasks.store.list(0, TASKS, namespace=namespace, unfinished=True)
        except (ProblemError, StoreError) as error:
            return [], str(error)
        items = [item(each) for each in found if wanted_here(each.namespace)]
        return sorted(items, key=lambda each: each.wait is None), ""

    async def _rendered(self, caller: Caller, query: OfLook | OfPiece) -> tuple[dict[str, str], bool]:
        """Render all pieces of one snapshot; and return whether there are only a few namespaces.

        The waiting creates are read first, so that all their numbers come from there.
        """
        gates, wanted_here, overview = self._gates, _wanted(query), self.served.overview
        waiting: list[Any] = []
        more = None
        if gates.gates:
            asked = {"namespace": query.namespace} if query.namespace else {}
            waiting, more = await gates.page("/v1/waiting", Waiting, asked, [0, ""], WAITING)
        line = None if more is not None or not gates.answering else by_namespace(waiting)
        cards, count = await run_in_threadpool(overview.fullest, wanted_here, CARDS, line)
        glance = await run_in_threadpool(overview.glance, wanted_here, line)
        tasks, no_tasks = await self._tasks_of(caller, query)
        unreachable = gates.unreachable()
        values = {
            "waiting": [each for each in waiting if wanted_here(each["namespace"])],
            "more": more is not None,
            "cards": cards,
            "count": count,
            "glance": glance,
            "tasks": tasks,
            "no_tasks": no_tasks,
            "several_gates": len(gates.gates) > 1,  # then places are in several lines of a namespace
            "reasons": self.served.cluster.unready(),
            "unreachable": [each for each in unreachable if each["why"] != NOT_ASKED],
            "unasked": [each["gate"] for each in unreachable if each["why"] == NOT_ASKED],
            "connected": bool(gates.gates),
            "unlisted": sorted(gates.unlisted),
            "found": self.served.finder.why,
            "filtered": bool(query.namespace or query.search),
            "decisions": self.served.merged.latest(wanted_here, DECISIONS),
        }
        return {name: self._render(f"{name}.html", **values) for name in PIECES}, count <= FEW

    def _render(self, name: str, **values: Any) -> str:
        return self.templates.get_template(name).render(now=datetime.now(UTC), **values)


def _wanted(query: OfLook | OfPiece) -> Callable[[str], bool]:
    """Return a predicate: whether a namespace passes the filters."""
    namespace, search = query.namespace, (query.search or "").lower()
    return lambda name: name == namespace if namespace else search in name.lower()


def add_page(app: FastAPI, page: Page) -> None:
    """Add the page, its pieces and its files."""
    access = page.served.access

    async def file(name: str) -> Response:
        if name not in SCRIPTS:
            raise ProblemError(404, f"unknown file: choose from {', '.join(SCRIPTS)}", "#/path")
        return Response((FILES / name).read_bytes(), media_type=SCRIPTS[name])

    rows = [
        Row("/", "whole", OfLook, "text", hidden=True),
        Row("/pieces", "pieces", OfLook, "text", hidden=True),
        Row("/pieces/holders", "holders", OfHeld, "text", hidden=True),
        Row("/pieces/{piece}", "piece", OfPiece, "text", hidden=True),
    ]
    if access.asks_for_token:
        rows += [Row(f"/{each}", each, Nothing, "text", str, "POST", hidden=True) for each in ("enter", "leave")]
    add_endpoints(app, rows, page, access)
    app.add_api_route("/files/{name}", file, include_in_schema=False, response_class=Response)
    add_reference(app, page.templates)


def whole_percent(found: float) -> str:
    """Write a number of percent, as the other commands do."""
    return percent(Fraction(str(found)), 100)


def ago(text: str | None, now: datetime) -> str:
    """Return the age of a time of the API; 0 for a time in the future."""
    if not text:
        return ""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return span(abs((now - at).total_seconds()))


def until(text: str | None, now: datetime, word: str = "in") -> str:
    """Return when something is likely: ``in`` a duration, or ``within`` one."""
    if not text:
        return ""
    try:
        left = (datetime.fromisoformat(text) - now).total_seconds()
    except ValueError:
        return ""
    return "likely any moment" if left < 1 else f"likely {word} {span(left)}"


def add_reference(app: FastAPI, templates: Environment) -> None:
    """Add the page, which is rendered once, at the first request."""
    templates.filters |= {"type_of": type_of, "pretty": partial(json.dumps, indent=2, ensure_ascii=False)}
    made: list[str] = []

    async def reference(request: Request) -> Response:  # noqa: ARG001 - every route takes it
        if not made:
            made.append(templates.get_template("api.html").render(api=app.openapi()))
        return Response(made[0], media_type=HTML)

    app.add_api_route("/api", reference, include_in_schema=False, response_class=Response)


def type_of(schema: Mapping[str, Any]) -> Markup:
    """Return the type that a JSON schema describes, in words, with links to the objects of the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(map(type_of, schema["anyOf"]))
    if "enum" in schema:
        return Markup(" or ").join(Markup("<code>{}</code>").format(each) for each in schema["enum"])
    if isinstance(schema.get("items"), dict):
        return Markup("list of {}").format(type_of(schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        return Markup("map of {}").format(type_of(schema["additionalProperties"]))
    kinds = schema.get("type", "any")
    return escape(" or ".join(kinds) if isinstance(kinds, list) else kinds)

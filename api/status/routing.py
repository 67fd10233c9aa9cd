"""The adapter of FastAPI: makes routes from the table of endpoints, and responses from answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from fastapi import Depends, FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.status.asked import ProblemError, check_query
from backoff_ctrl.k8s.status.bodies import BODY_MAX, too_large
from backoff_ctrl.k8s.status.conversation import Answer, answer, problem

from .access import ANYTHING, Access, token_of
from .describing import Row, body_of, responses_of, taken

HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
"""Of every answer."""
Function = Callable[[Any, "Caller"], Awaitable[Any]]
"""Answers an endpoint by its typed query for a caller: with a document, an ``Answer``, or a ``Response`` of its own."""


class Caller:
    """The caller, and the parts of the request beside its URL."""

    def __init__(self, request: Request, access: Access) -> None:
        self.token = token_of(request.headers, request.cookies)
        self.headers: Mapping[str, str] = request.headers
        self.is_secure = request.url.scheme == "https"
        self.has_left: Callable[[], Awaitable[bool]] = request.is_disconnected
        self._request = request
        self._access = access

    async def permit(self, namespace: str | None, right: Right = ANYTHING) -> None:
        """Raise ``ProblemError`` if the caller may not do this in the namespace; None: in all of them."""
        await run_in_threadpool(self._access.may, self.token, namespace, right)

    async def name(self) -> str:
        """Return the account's name; empty for an anonymous caller. Raises ``ProblemError`` for an unknown token."""
        return await run_in_threadpool(self._access.name, self.token)

    async def body(self, limit: Callable[[int], None] = too_large) -> bytes:
        """Read the body. Raises ``ProblemError`` if ``limit`` does for its length."""
        length = self.headers.get("content-length", "")
        if length.isascii() and length.isdecimal():
            limit(int(length))
        read = bytearray()
        async for chunk in self._request.stream():
            read += chunk
            if len(read) > BODY_MAX:
                limit(len(read))
        return bytes(read)


def add_endpoints(app: FastAPI, rows: Iterable[Row], owner: Any, access: Access) -> None:
    """Add the endpoints of a table to the application; ``owner`` has a method for each name."""
    for row in rows:
        _add_endpoint(app, row, getattr(owner, row.name), access)


def _add_endpoint(app: FastAPI, row: Row, function: Function, access: Access) -> None:
    async def check(request: Request) -> None:
        check_query(row.query, request.url.query)

    async def caller(request: Request) -> Caller:
        return Caller(request, access)

    asked, who = Depends(taken(row.query)), Depends(caller)

    async def answered(request: Request, query: Any = asked, by: Any = who) -> Response:
        found = await function(query, by)
        return found if isinstance(found, Response) else respond(answer(row.method, request.headers, found))

    answered.__doc__ = function.__doc__
    app.add_api_route(
        row.path,
        answered,
        methods=[row.method],
        name=function.__name__,
        dependencies=[Depends(check)],
        responses=responses_of(row),
        response_class=Response,
        openapi_extra=body_of(row),
        include_in_schema=not row.hidden,
    )


def respond(found: Answer) -> Response:
    """Return the response for an answer."""
    media = found.content_type or None
    if found.stream is not None:
        return StreamingResponse(found.stream, found.status, found.headers, media)
    return Response(found.whole, found.status, found.headers, media)


def handle_problems(app: FastAPI) -> None:
    """Answer every error as a problem."""

    def handle(kind: type[Exception], of: Callable[[Any], ProblemError]) -> None:
        async def told(_: Request, error: Exception) -> Response:
            return respond(problem(of(error)))

        app.add_exception_handler(kind, told)

    handle(ProblemError, lambda error: error)
    handle(HTTPException, _of_starlette)
    handle(ClientDisconnect, lambda _: ProblemError(400, "the request ended before its body did"))  # nobody hears it
    handle(Exception, lambda _: ProblemError(500, "an internal error; it is logged"))  # by uvicorn


def _of_starlette(error: HTTPException) -> ProblemError:
    details = {404: "unknown path: see /api and /openapi.json", 405: "this path takes other methods"}
    detail = details.get(error.status_code, str(error.detail))
    return ProblemError(error.status_code, detail, headers=error.headers)

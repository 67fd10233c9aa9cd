"""Documents and problems as HTTP answers, ETags, and what OpenAPI says of each URL."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from backoff_ctrl.k8s.status.actions import ACTIONS
from backoff_ctrl.k8s.status.asked import LIMIT, LIMIT_MAX, VALUE_MAX, Asked, ProblemError
from backoff_ctrl.k8s.status.explaining.bodies import BODY_MAX, too_large
from backoff_ctrl.k8s.status.shapes.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fastapi import FastAPI, Request


PROBLEM: Final = "application/problem+json"
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
"""Of every answer."""
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": Problem, "content": {PROBLEM: {}}, "description": "A problem (RFC 9457)."},
    "5XX": {"model": Problem, "content": {PROBLEM: {}}, "description": "The cluster or a gate can't be asked."},
}
"""What every URL may answer, as OpenAPI says it."""
_WORDS: Final = {
    "namespace": "Only this namespace.",
    "quota": "Only the quotas of this name.",
    "resource": "Only this resource, such as requests.cpu.",
    "limit": "Items on the page: 1 to 1000, by default 100.",
    "after": "The `next` of the page before.",
    "id": "The create's id: the annotation `backoff-ctrl.dev/create-id` of its object.",
    "action": "What to do: pause, resume, forget, prioritize or cancel.",
    "confirm": "Ask the API server, too: a dry run with the rights of your token.",
}
_IN_PATH: Final = ("id", "action")
_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT},
    "confirm": {"type": "boolean", "default": False},
    "id": {"type": "string", "minLength": 1},
    "action": {"type": "string", "enum": list(ACTIONS)},
}


def asked_of(request: Request, *names: str) -> Asked:
    """Return the checked query of a request; it may have these parameters. Raises ``ProblemError``."""
    query = request.url.query
    asked = Asked(f"/?{query}" if query else "/")
    asked.allow(names)
    return asked


def answer(request: Request, document: Mapping[str, Any]) -> Response:
    """Return a document. Its ETag is that of all but ``as_of``; 304 if the caller has it."""
    rest = _json({name: value for name, value in document.items() if name != "as_of"})
    etag = f'"{hashlib.blake2b(rest, digest_size=12).hexdigest()}"'
    return tagged(request, [_json(document)], "application/json", etag)


async def read_body(request: Request) -> bytes:
    """Read a body, but not more than a manifest may have. Raises ``ProblemError``."""
    read = bytearray()
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal():
        too_large(int(length))
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_MAX:
            too_large(len(read))
    return bytes(read)


def tagged(request: Request, body: Iterable[bytes], content_type: str, etag: str) -> Response:
    """Return a body, or 304 if the caller has the one with this ETag."""
    headers = {"ETag": etag} if etag else {}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if etag and (etag in known or "*" in known):
        return Response(status_code=304, headers=headers)
    return Response(b"".join(body), headers=headers, media_type=content_type)


def problem(error: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem."""
    more = dict(headers or {})
    if error.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if error.status == 503:
        more["Retry-After"] = "5"
    return Response(_json(error), error.status, more, PROBLEM)


def handle_problems(app: FastAPI) -> None:
    """Answer every error as a problem."""

    async def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return problem(error.problem)

    async def standard(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = HTTPStatus(error.status_code).phrase
        details = {
            404: "nothing is at this path: /api and /openapi.json list what is",
            405: "this path takes other methods",
        }
        detail = details.get(error.status_code, str(error.detail))
        return problem(Problem(title, error.status_code, detail), error.headers)

    async def internal(_: Request, error: Exception) -> Response:  # noqa: ARG001 - uvicorn logs it
        return problem(Problem("Internal Server Error", 500, "an internal error; it is logged"))

    async def gone(_: Request, error: Exception) -> Response:  # noqa: ARG001 - nobody hears it
        return problem(Problem("Bad Request", 400, "the request ended before its body did"))

    app.add_exception_handler(ProblemError, told)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(HTTPException, standard)
    app.add_exception_handler(Exception, internal)


def parameters(*names: str) -> list[dict[str, Any]]:
    """Return what OpenAPI says of parameters: of the query, but for those in the path."""
    return [
        {
            "name": name,
            "in": "path" if name in _IN_PATH else "query",
            "required": name in _IN_PATH,
            "description": _WORDS[name],
            "schema": _SCHEMAS.get(name, {"type": "string", "maxLength": VALUE_MAX}),
        }
        for name in names
    ]


def described(app: FastAPI, *more: type) -> dict[str, Any]:
    """Return the OpenAPI of an application: problems have their own media type, and further shapes are listed."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for operations in found["paths"].values():
            for operation in operations.values():
                for code, each in operation["responses"].items():
                    if code in PROBLEMS and "application/json" in each["content"]:
                        each["content"][PROBLEM] = each["content"].pop("application/json")
        for shape in more:
            schema = TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
            found["components"]["schemas"] |= schema.pop("$defs", {}) | {shape.__name__: schema}
        app.openapi_schema = found
    return app.openapi_schema


def _json(document: Any) -> bytes:
    return json.dumps(document, default=vars, separators=(",", ":"), ensure_ascii=False).encode()

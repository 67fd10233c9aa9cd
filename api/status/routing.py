"""How FastAPI serves the table of endpoints: typed parameters, the caller, documents with ETags, problems, OpenAPI."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from http import HTTPStatus
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, get_type_hints

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BeforeValidator, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.kube.operators.wrong_values import told as told_of
from backoff_ctrl.k8s.status.asked import LIMIT_MAX, VALUE_MAX, ProblemError, read_query
from backoff_ctrl.k8s.status.bodies import BODY_MAX, JSON_TYPES, YAML_TYPES, too_large
from backoff_ctrl.k8s.status.endpoints import Endpoint
from backoff_ctrl.k8s.status.gate_endpoints import JSON, as_json, matches
from backoff_ctrl.k8s.status.shapes import Problem

from .access import ANYTHING, Access, token_of

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
"""OpenAPI's description of answers that every URL may give."""
Function = Callable[[Any, "Caller"], Awaitable[Any]]
"""Answers an endpoint by its typed query for a caller: with a document, or a whole ``Response``."""


class Document(Response):
    """A document as JSON."""

    media_type = JSON


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


def add_endpoint(  # noqa: PLR0913 - each is said of it in OpenAPI
    app: FastAPI,
    endpoint: Endpoint,
    function: Function,
    access: Access,
    *,
    shape: Any = None,
    example: Any = None,
    codes: Iterable[int] = (200,),
    body: Any = None,
    content_type: str = "text/plain",
    words: Mapping[int, str] | None = None,
    include_in_schema: bool = True,
) -> None:
    """Add an endpoint to the application.

    ``shape`` and ``example`` are those of the document; None: the answer has ``content_type`` instead. ``body`` is an
    example of a request's body. ``words`` describe answers by status.
    """

    def caller(request: Request) -> Caller:
        return Caller(request, access)

    asked, who = Depends(_query_of(endpoint)), Depends(caller)
    asks_only = endpoint.method == "GET"  # what was done is never unchanged

    async def answer(request: Request, query: Any = asked, by: Any = who) -> Response:
        found = await function(query, by)
        return found if isinstance(found, Response) else answered(request.headers if asks_only else {}, found)

    answer.__doc__ = function.__doc__
    responses: dict[int | str, Any] = dict(PROBLEMS)
    words = words or {}
    for code in sorted({*codes, *words}):
        content = {JSON: {"example": example}} if shape is not None else {content_type: {"schema": {"type": "string"}}}
        said = words.get(code, "A text." if shape is None else "The document.")
        responses[code] = {"content": content, "description": said} | ({} if shape is None else {"model": shape})
    if shape is not None and endpoint.method == "GET":
        responses[304] = {"description": "Nothing has changed since the ETag."}
    extra = {} if body is None else {"requestBody": _body_of(body, yaml=endpoint.name != "act")}
    app.add_api_route(
        endpoint.path,
        answer,
        methods=[endpoint.method],
        name=function.__name__,
        responses=responses,
        response_class=Response,
        openapi_extra=extra or None,
        include_in_schema=include_in_schema,
    )


def _query_of(endpoint: Endpoint) -> Callable[..., Any]:
    """Return the dependency that reads an endpoint's typed parameters, which OpenAPI shows."""

    def read(request: Request, **_: Any) -> Any:
        return read_query(endpoint.query, request.url.query, **request.path_params)

    types = get_type_hints(endpoint.query)
    empty_is_false = BeforeValidator(lambda given: given or False)  # as ``read_query`` has it
    known = [Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request)]
    for each in fields(endpoint.query):
        kind = types[each.name] if types[each.name] in (int, bool) else str
        words, one_of = each.metadata["words"], each.metadata["one_of"]
        if each.metadata["in_path"]:
            extra = {"enum": list(one_of)} if one_of else {"minLength": 1}
            place: Any = Path(description=words, json_schema_extra=extra)
        elif kind is int:
            place = Query(description=words, ge=1, le=LIMIT_MAX)
        else:
            place = Query(description=words, max_length=VALUE_MAX if kind is str else None)
        default = Parameter.empty if each.default is MISSING else each.default
        annotation: Any = Annotated[kind, empty_is_false, place] if kind is bool else Annotated[kind, place]
        known.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    read.__signature__ = Signature(known)  # type: ignore[attr-defined]  # what FastAPI goes by
    read.endpoint = endpoint  # type: ignore[attr-defined]
    return read


def _body_of(example: Any, *, yaml: bool) -> dict[str, Any]:
    told = {"type": "object"} if yaml else {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
    types = (JSON_TYPES[0], YAML_TYPES[0]) if yaml else (JSON,)
    return {"required": True, "content": {kind: {"schema": told, "example": example} for kind in types}}


def answered(headers: Mapping[str, str], document: Any, status: int = 200) -> Response:
    """Return a document. Its ETag is that of all but ``as_of``; 304 if the caller has it."""
    values = document if isinstance(document, dict) else vars(document)
    rest = as_json({name: value for name, value in values.items() if name != "as_of"}).encode()
    etag = f'"{hashlib.blake2b(rest, digest_size=12).hexdigest()}"'
    if matches(headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(as_json(values), status, {"ETag": etag}, JSON)


def problem(error: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem."""
    more = dict(headers or {})
    if error.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if error.status == 503:
        more["Retry-After"] = "5"
    return Response(as_json(error), error.status, more, PROBLEM)


def handle_problems(app: FastAPI) -> None:
    """Answer every error as a problem."""

    async def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        return problem(error.problem)

    async def malformed(request: Request, error: Exception) -> Response:
        """Describe the error in the same words as a gate's own server."""
        assert isinstance(error, RequestValidationError)
        for dependency in request.scope["route"].dependant.dependencies:
            endpoint = getattr(dependency.call, "endpoint", None)
            if endpoint is not None:
                try:
                    read_query(endpoint.query, request.url.query, **request.path_params)
                except ProblemError as why:
                    return problem(why.problem)
        first = error.errors()[0]
        pointer = "#/" + "/".join(map(str, first["loc"]))
        return problem(ProblemError(400, f"{pointer}: {told_of(first)}", pointer).problem)

    async def standard(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = HTTPStatus(error.status_code).phrase
        details = {
            404: "unknown path: see /api and /openapi.json",
            405: "this path takes other methods",
        }
        detail = details.get(error.status_code, str(error.detail))
        return problem(Problem(title, error.status_code, detail), error.headers)

    async def internal(_: Request, error: Exception) -> Response:  # noqa: ARG001 - uvicorn logs it
        return problem(Problem("Internal Server Error", 500, "an internal error; it is logged"))

    async def gone(_: Request, error: Exception) -> Response:  # noqa: ARG001 - nobody hears it
        return problem(Problem("Bad Request", 400, "the request ended before its body did"))

    app.add_exception_handler(ProblemError, told)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(HTTPException, standard)
    app.add_exception_handler(Exception, internal)


def described(app: FastAPI, *more: type) -> dict[str, Any]:
    """Return the OpenAPI of an application: problems have their own media type, and further shapes are listed."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for operations in found["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # ours is 400, as a problem
                for code, each in operation["responses"].items():
                    if code in PROBLEMS and JSON in each["content"]:
                        each["content"][PROBLEM] = each["content"].pop(JSON)
        for unused in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(unused, None)
        for shape in more:
            schema = TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
            found["components"]["schemas"] |= schema.pop("$defs", {}) | {shape.__name__: schema}
        app.openapi_schema = found
    return app.openapi_schema

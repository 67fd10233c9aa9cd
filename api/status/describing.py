"""What FastAPI needs of an endpoint beside its function: its parameters as FastAPI takes them, and its OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Query
from fastapi.openapi.utils import get_openapi
from pydantic import Field, TypeAdapter, WrapValidator

from backoff_ctrl.k8s.status.asked import LIMIT_MAX, VALUE_MAX, read_value, types_of
from backoff_ctrl.k8s.status.bodies import JSON_TYPES, YAML_TYPES
from backoff_ctrl.k8s.status.conversation import EVENTS, JSON, PROBLEM
from backoff_ctrl.k8s.status.endpoints import Endpoint
from backoff_ctrl.k8s.status.shapes import Problem

PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": Problem, "content": {PROBLEM: {}}, "description": "A problem (RFC 9457)."},
    "5XX": {"model": Problem, "content": {PROBLEM: {}}, "description": "The cluster or a gate can't be asked."},
}
"""OpenAPI's description of answers that every URL may give."""


@dataclass(frozen=True, slots=True)
class Row(Endpoint):
    """One URL of ``serve``. ``example`` is one of its documents, ``body`` one of a request's body.

    ``words`` describe answers by status. A ``hidden`` one is left out of OpenAPI.
    """

    example: Any = None
    body: Any = None
    codes: Sequence[int] = (200,)
    words: Mapping[int, str] = field(default_factory=dict)
    hidden: bool = False


def taken(shape: Any) -> type[Any]:
    """Return a subclass of the dataclass of an endpoint's parameters, as FastAPI takes it by ``Depends``.

    Its fields have what OpenAPI shows of them. Their values are read as a gate reads them, with the same problems.
    """
    types = types_of(shape)
    known: list[Any] = []
    for each in fields(shape):
        kind: Any = types[each.name] if types[each.name] in (int, bool) else str
        words, one_of = each.metadata["words"], each.metadata["one_of"]
        if each.metadata["in_path"]:
            extra = {"enum": list(one_of)} if one_of else {"minLength": 1}
            known.append((each.name, Annotated[kind, Path(description=words, json_schema_extra=extra)]))
            continue
        limits = {int: Field(ge=1, le=LIMIT_MAX), str: Field(max_length=VALUE_MAX)}.get(kind)
        annotation = Annotated[kind, limits, _reading(each.name, kind), Query(description=words)]
        known.append((each.name, annotation, each.default))
    return make_dataclass(shape.__name__, known, bases=(shape,), frozen=True)


def _reading(name: str, kind: type) -> WrapValidator:
    return WrapValidator(lambda text, _: read_value(name, kind, text))


def responses_of(row: Row) -> dict[int | str, Any]:
    """Return OpenAPI's description of an endpoint's answers by status."""
    responses: dict[int | str, Any] = dict(PROBLEMS)
    is_text = row.answers in ("text", "stream")
    for code in sorted({*row.codes, *row.words}):
        if is_text:
            kind = EVENTS if row.answers == "stream" else "text/plain"
            responses[code] = {"content": {kind: {"schema": {"type": "string"}}}, "description": "A text."}
        else:
            content = {JSON: {"example": row.example}}
            responses[code] = {"content": content, "description": "The document.", "model": row.shape}
        if code in row.words:
            responses[code]["description"] = row.words[code]
    if not is_text and row.method == "GET":
        responses[304] = {"description": "Nothing has changed since the ETag."}
    return responses


def body_of(row: Row) -> dict[str, Any] | None:
    """Return OpenAPI's description of the body, if it takes one: a manifest, or what an action needs."""
    if row.body is None:
        return None
    told: dict[str, Any] = {"type": "object"}
    types = [JSON_TYPES[0], YAML_TYPES[0]]
    if row.name == "act":
        told, types = {**told, "additionalProperties": {"type": ["string", "integer"]}}, [JSON]
    content = {kind: {"schema": told, "example": row.body} for kind in types}
    return {"requestBody": {"required": True, "content": content}}


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

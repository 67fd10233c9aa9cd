"""The API as a page at ``/api``: what OpenAPI says of each URL and object, readable without anything from elsewhere."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Request
from markupsafe import Markup, escape
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from jinja2 import Environment

_HTML = "text/html; charset=utf-8"


def add_reference(app: FastAPI, templates: Environment) -> None:
    """Add the page; its text is made once, when somebody first asks for it."""
    templates.filters |= {"type_of": type_of, "pretty": partial(json.dumps, indent=2, ensure_ascii=False)}
    made: list[str] = []

    async def reference(request: Request) -> Response:  # noqa: ARG001 - every route takes it
        if not made:
            made.append(templates.get_template("api.html").render(api=app.openapi()))
        return Response(made[0], media_type=_HTML)

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

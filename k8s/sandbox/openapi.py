"""As much OpenAPI (v3) as kubectl needs: which kinds accept ``fieldValidation`` and ``dryRun``.

There are no schemas: validation is the server's, and kubectl merges by its own built-in types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answers import no_such_page
from .discovery import VERSION

if TYPE_CHECKING:
    from .encoding import JSON
    from .kinds import Kind, Kinds

_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}


def openapi(kinds: Kinds, path: str) -> JSON:
    """The index at /openapi/v3, a document below it, or /openapi/v2. Raises 404."""
    if path == "/openapi/v2":
        return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
    parts = path.strip("/").split("/")[2:]
    if not parts:
        return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in _places(kinds)}}
    found = [kind for kind in kinds if _place(kind) == "/".join(parts)]
    if not found:
        raise no_such_page()
    paths = dict(_operation(kind) for kind in found)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": {}}}


def _place(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _places(kinds: Kinds) -> list[str]:
    return list(dict.fromkeys(_place(kind) for kind in kinds))


def _operation(kind: Kind) -> tuple[str, JSON]:
    above = "namespaces/{namespace}/" if kind.namespaced else ""
    told = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    patch = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": told,
    }
    return f"/{_place(kind)}/{above}{kind.plural}/{{name}}", {"patch": patch}

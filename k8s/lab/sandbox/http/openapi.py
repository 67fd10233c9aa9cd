"""OpenAPI v3 for kubectl: ``kubectl explain``, and which kinds accept ``fieldValidation`` and ``dryRun``.

The types beside this module, ``openapi_schemas.jsonl``, are those of Kubernetes 1.36 (Apache-2.0), see
``tools/openapi_table.py``; a custom resource has the schema of its CustomResourceDefinition. They only describe:
other modules decide what is accepted. The only operations are those that kubectl reads, the parameters of PATCH.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.answers import no_such_page
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kind, Kinds
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump

VERSION: JSON = {"major": "1", "minor": "36", "gitVersion": "v1.36.3-sandbox", "gitCommit": "", "platform": "any"}
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_INFO = {"title": "Kubernetes", "version": f"{VERSION['major']}.{VERSION['minor']}"}
_GVK = "x-kubernetes-group-version-kind"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIKE = "io.k8s.api.core.v1.ConfigMap"  # its descriptions of apiVersion and kind are those of every type
_ANYTHING: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCHEMALESS: JSON = {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}


class OpenApi:
    """The documents for the kinds served now, built on demand and cached until the kinds change."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._made: dict[str, bytes] = {}
        self._generation = -1

    def page(self, path: str) -> bytes:
        if self._generation != self._kinds.generation:
            self._made.clear()
            self._generation = self._kinds.generation
        place = path.removeprefix("/openapi/v3").strip("/")
        return self._document(place) if place else self._index()

    def _index(self) -> bytes:
        """Every document with the hash of its text, so that clients can cache it."""
        paths = {}
        for place in self._places():
            digest = hashlib.sha512(self._document(place)).hexdigest().upper()
            paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
        return dump({"paths": paths})

    def _places(self) -> list[str]:
        return list(dict.fromkeys(_place(kind) for kind in self._kinds))

    def _document(self, place: str) -> bytes:
        if place not in self._made:
            if place not in self._places():
                raise no_such_page()
            kinds = [kind for kind in self._kinds if _place(kind) == place]
            paths = dict(_operation(kind) for kind in kinds)
            schemas = {"schemas": _schemas(kinds)}
            self._made[place] = dump({"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": schemas})
        return self._made[place]


def _schemas(kinds: Iterable[Kind]) -> JSON:
    own = {_name(kind): _custom(kind) for kind in kinds if not kind.strategic}
    wanted = {(kind.group, kind.version, kind.kind) for kind in kinds}
    waiting = list(own)
    for name, schema in _types().items():
        if any((gvk["group"], gvk["version"], gvk["kind"]) in wanted for gvk in schema.get(_GVK, ())):
            waiting.append(name)
    found: JSON = {}
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = own[name] if name in own else _types()[name]
            waiting += mentioned(found[name])
    return found


def _custom(kind: Kind) -> JSON:
    """The schema of a custom resource from its definition, with the fields that all objects have."""
    schema = kind.schema or _SCHEMALESS
    shared = _types()[_LIKE]["properties"]
    metadata = {"description": shared["metadata"]["description"], "allOf": [{"$ref": f"#/components/schemas/{_META}"}]}
    properties = {**(schema.get("properties") or {}), "metadata": metadata}
    properties |= {name: shared[name] for name in ("apiVersion", "kind")}
    return {**schema, "properties": properties, _GVK: [_gvk(kind)]}


def _gvk(kind: Kind) -> JSON:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def mentioned(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "$ref" and isinstance(value, str):
                yield value.rpartition("/")[2]
            else:
                yield from mentioned(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from mentioned(value)


@cache
def _types() -> dict[str, JSON]:
    lines = Path(__file__).with_name("openapi_schemas.jsonl").read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line) for line in lines)


def _name(kind: Kind) -> str:
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _place(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _operation(kind: Kind) -> tuple[str, JSON]:
    above = "namespaces/{namespace}/" if kind.namespaced else ""
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    patch = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        _GVK: _gvk(kind),
    }
    return f"/{_place(kind)}/{above}{kind.plural}/{{name}}", {"patch": patch}

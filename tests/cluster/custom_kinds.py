"""Custom kinds for tests: a definition with a schema, a status and columns, and how to establish and retire it."""

from __future__ import annotations

import gzip
import json
import secrets
from pathlib import Path
from typing import Any

from tests.cluster.objects import JSON, made
from tests.cluster.talking import Api

OPERATORS = Path(__file__).parents[1] / "data" / "definitions"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC: JSON = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4}},
        "nick": {"type": "string", "nullable": True},
        "port": {"x-kubernetes-int-or-string": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "boolean", "default": True}}},
    },
}
STATUS: JSON = {"type": "object", "properties": {"phase": {"type": "string"}}}
SCHEMA: JSON = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
]


def definition(group: str, plural: str = "things", kind: str = "Thing") -> JSON:
    """A definition with a schema, a status and columns."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
    }
    spec = {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


async def define_operators_kind(api: Api, plural: str, probed: str) -> None:
    """Have an operator's kind served by its own definition, unless another test did; ``probed`` is a path of it.

    ``create``, not apply: it is too large for the annotation of that.
    """
    body = json.loads(gzip.decompress((OPERATORS / f"{plural}.json.gz").read_bytes()))
    reply = await api.post(DEFINITIONS, body)
    assert reply.status in {201, 409}, reply.text
    await api.until(probed, lambda listed: "items" in listed)


def fresh_group() -> str:
    return f"g{secrets.token_hex(4)}.example.com"


def is_established(obj: JSON) -> bool:
    """Whether a definition has been established, and is therefore served."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def establish(api: Api, body: JSON) -> JSON:
    """Create a definition and wait until it is served."""
    made(await api.post(DEFINITIONS, body))
    return await api.until(f"{DEFINITIONS}/{body['metadata']['name']}", is_established)


async def retire(api: Api, *names: str) -> None:
    """Delete definitions that a test no longer needs; on a real server they stay until it is stopped.

    If a kind is gone before the quota controller lists it, all quotas wait 30 s (see ``patience.PATIENCE``).
    """
    if api.server.kind == "kubernetes":
        return
    for name in names:
        assert (await api.delete(f"{DEFINITIONS}/{name}")).status == 200, name


def thing(path: str, name: str, spec: object = None, **rest: Any) -> JSON:
    """A Thing in the group that the path names."""
    body = {"apiVersion": f"{path.split('/')[2]}/v1", "kind": "Thing", "metadata": {"name": name}}
    return {**body, **({} if spec is None else {"spec": spec}), **rest}

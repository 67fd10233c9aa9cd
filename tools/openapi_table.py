"""Rewrites ``openapi_schemas.jsonl`` from the OpenAPI documents of an API server: for maintainers, unused at run time.

Usage: python -m tools.openapi_table http://127.0.0.1:8001, the address of a ``kubectl proxy`` to a Kubernetes of the
wanted release (``make cluster`` starts one). It keeps the types that the kinds of the sandbox are made of. The OpenAPI
documents in Kubernetes' source code do not suffice: they omit the allowed values of fields.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from backoff_ctrl.k8s.lab.sandbox.http.openapi import mentioned
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import BUILT_IN

TABLE = Path(__file__).parent.parent / "k8s" / "sandbox" / "http" / "openapi_schemas.jsonl"
_ALSO = (
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
)


def main(proxy: str) -> str:
    """The text of the table, one line per type."""
    schemas: dict[str, Any] = {}
    for page in _page(f"{proxy}/openapi/v3")["paths"].values():
        schemas |= _page(proxy + page["serverRelativeURL"]).get("components", {}).get("schemas", {})
    roots = {(kind.group, kind.version, kind.kind) for kind in BUILT_IN if kind.strategic}
    waiting = [*_ALSO]
    for name, schema in schemas.items():
        gvks = schema.get("x-kubernetes-group-version-kind", ())
        waiting += [name for each in gvks if (each["group"], each["version"], each["kind"]) in roots]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += mentioned(schemas[name])
    lines = [json.dumps([name, schemas[name]], separators=(",", ":"), sort_keys=True) for name in sorted(found)]
    return "\n".join([*lines, ""])


def _page(url: str) -> Any:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 - the address is the maintainer's own
        return json.load(answer)


if __name__ == "__main__":
    table = main(sys.argv[1])
    TABLE.write_text(table, encoding="utf-8")

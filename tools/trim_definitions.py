"""Write the definitions of operators' kinds small enough to keep: without descriptions, packed, as tests/data has them.

``python -m tools.trim_definitions NAME=FILE[,FILE] ...``; several files of one kind become one with all their versions.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "definitions"


def trimmed(schema: Any) -> Any:
    """Return a schema without its prose: a property may be called ``description``, and is kept."""
    if isinstance(schema, list):
        return [trimmed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: trimmed(each) for name, each in value.items()} if key == "properties" else trimmed(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }


def definition(paths: list[Path]) -> dict[str, Any]:
    """Return the definition in these files, with the versions of all of them; the first file's version is stored."""
    found = [
        each
        for path in paths
        for each in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
        if each and each["kind"] == "CustomResourceDefinition"
    ]
    first = found[0]
    spec = {key: first["spec"][key] for key in ("group", "scope", "names")}
    versions = [version for each in found for version in each["spec"]["versions"]]
    for number, version in enumerate(versions):
        version["schema"] = trimmed(version["schema"])
        version["storage"] = version["storage"] if len(found) == 1 else number == 0
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {key: first["metadata"][key] for key in ("name", "annotations") if key in first["metadata"]},
        "spec": {**spec, "versions": versions},
    }


def main(arguments: list[str]) -> None:
    """Write each definition; the bytes are the same on every machine."""
    for argument in arguments:
        name, _, files = argument.partition("=")
        body = json.dumps(definition([Path(each) for each in files.split(",")]), separators=(",", ":"), sort_keys=True)
        (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(body.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])

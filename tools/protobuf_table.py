"""Rewrites ``protobuf_fields.txt`` from the source code of Kubernetes: for maintainers, unused at run time.

Usage: python -m tools.protobuf_table API_DIR APIMACHINERY_DIR APIEXTENSIONS_DIR, with the directories of the Go
modules ``k8s.io/api``, ``k8s.io/apimachinery`` and ``k8s.io/apiextensions-apiserver`` of one release. The ``.proto``
files give numbers, names and types; only ``types.go`` tells the name in JSON where it differs (``$ref``), and whether a
field is a pointer (its zero then means zero, not "absent").
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from backoff_ctrl.k8s.lab.sandbox.objects.kinds import BUILT_IN
from backoff_ctrl.k8s.lab.sandbox.objects.protobuf import package_of

TABLE = Path(__file__).parent.parent / "k8s" / "sandbox" / "objects" / "protobuf_fields.txt"
_EXTRA = (
    "authentication.v1.SelfSubjectReview",
    "authorization.v1.SelfSubjectAccessReview",
    "autoscaling.v1.Scale",
    "meta.v1.DeleteOptions",
)
_DEFINITIONS = Path("pkg", "apis", "apiextensions", "v1", "generated.proto")
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:(optional|repeated|required) )?(map<string, [.\w]+>|[.\w]+) (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_POINTER = re.compile(r"^\t\w+\s+\*[\w.]+\s+`.*?protobuf:\"\w+,(\d+),", re.MULTILINE)
_JSON_NAME = re.compile(r"^\t\w+\s+[*\[\]\w.]+\s+`.*?json:\"([$\w][$\w-]*)[,\"].*?protobuf:\"\w+,(\d+),", re.MULTILINE)
_SCALARS = frozenset({"string", "bool", "bytes", "int32", "int64", "uint32", "uint64", "double", "float"})


def main(api: Path, machinery: Path, extensions: Path) -> str:
    """The text of the table: each message, then a line for each of its fields."""
    messages: dict[str, list[str]] = {}
    files = [*api.glob("*/*/generated.proto"), *machinery.glob("pkg/**/generated.proto"), extensions / _DEFINITIONS]
    for file in sorted(files):
        package = _package(file, api, machinery)
        types = "".join(each.read_text() for each in file.parent.glob("*types*.go"))
        structs = dict(_STRUCT.findall(types))
        for name, body in _MESSAGE.findall(file.read_text()):
            go = structs.get(name, "")
            names = {number: word for word, number in _JSON_NAME.findall(go)}
            pointers = set(_POINTER.findall(go))
            messages[f"{package}.{name}"] = [_line(package, field, names, pointers) for field in _FIELD.findall(body)]
    roots = [f"{package_of(kind.api_version)}.{kind.kind}" for kind in BUILT_IN]
    wanted = _reachable(messages, [*(root for root in roots if root in messages), *_EXTRA])
    parts = [f"{name}\n" + "".join(f" {line}\n" for line in messages[name]) for name in sorted(wanted)]
    return "".join(parts)


def _package(file: Path, api: Path, machinery: Path) -> str:
    """The table's short name of the package that a file defines."""
    inside = file.parent
    if inside.is_relative_to(api):
        return ".".join(inside.relative_to(api).parts)
    if inside.is_relative_to(machinery):
        return _short("k8s.io.apimachinery." + ".".join(inside.relative_to(machinery).parts))
    return "apiextensions.v1"


def _short(name: str) -> str:
    """The table's short name of a type: ``k8s.io.api.core.v1.Pod`` becomes ``core.v1.Pod``."""
    for prefix in ("k8s.io.apimachinery.pkg.apis.", "k8s.io.apimachinery.pkg.", "k8s.io.api."):
        name = name.removeprefix(prefix)
    return name


def _line(package: str, field: tuple[str, str, str, str], names: dict[str, str], pointers: set[str]) -> str:
    label, type_, name, number = field
    flags = "r" if label == "repeated" else ""
    if type_.startswith("map<"):
        type_, flags = type_.removeprefix("map<string, ").removesuffix(">"), "m"
    type_ = type_.removeprefix(".")
    if type_ not in _SCALARS:
        type_ = _short(type_) if "." in type_ else f"{package}.{type_}"
    return f"{number} {names.get(number, name)} {type_} {flags}{'p' if number in pointers else ''}".rstrip()


def _reachable(messages: dict[str, list[str]], roots: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found or name not in messages:
            continue
        found.add(name)
        waiting += [line.split(" ")[2] for line in messages[name]]
    return found


if __name__ == "__main__":
    table = main(*(Path(folder) for folder in sys.argv[1:4]))
    TABLE.write_text(table, encoding="utf-8")

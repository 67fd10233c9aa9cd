"""A request as a value: what it is about, read from its method, path and query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote

from .answers import bad_request, invalid_options, method_not_allowed, no_such_page, no_such_path
from .kinds import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .kinds import Kind, Kinds

_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. ``namespace`` is nothing for all namespaces, empty for kinds without one."""

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def place(self) -> str:
        """The namespace of one object: empty for kinds without one."""
        return self.namespace or ""


class WriteOptions(NamedTuple):
    """What a write may be asked for: to store nothing, and to refuse unknown fields."""

    dry_run: bool = False
    strict: bool = False


PLAIN = WriteOptions()


class Query:
    """The query of a request. Unknown parameters are ignored, as Kubernetes does."""

    __slots__ = ("_values",)

    def __init__(self, text: str = "") -> None:
        """Parse; of repeated parameters the first counts."""
        self._values: Mapping[str, list[str]] = parse_qs(text, keep_blank_values=True) if text else {}

    def text(self, name: str) -> str:
        """A parameter, empty where it is absent."""
        found = self._values.get(name)
        return found[0] if found else ""

    def flag(self, name: str) -> bool:
        """A boolean parameter; one that is given without a value counts as true."""
        found = self._values.get(name)
        return bool(found) and found[0].lower() in {"", "1", "t", "true"}  # type: ignore[index]

    def number(self, name: str) -> int | None:
        """A whole number. Raises 400."""
        text = self.text(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error

    def write_options(self) -> WriteOptions:
        """``dryRun`` and ``fieldValidation``. Raises 422."""
        if not self._values:
            return PLAIN
        return WriteOptions(self.dry_run(), self.text("fieldValidation") == "Strict")

    def dry_run(self) -> bool:
        """Whether nothing is to be stored. Raises 422 for a value other than All."""
        values = self._values.get("dryRun")
        if not values:
            return False
        if values != ["All"]:
            told = ",".join(f'"{value}"' for value in values)
            text = f'Unsupported value: [{told}]: supported values: "All"'
            raise invalid_options("CreateOptions", ("FieldValueNotSupported", "dryRun", text))
        return True


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, ...]:
    return tuple(unquote(part) for part in path.strip("/").split("/"))


def target_of(kinds: Kinds, path: str) -> Target:
    """What a path under /api/v1 or /apis/G/V names. Raises 404."""
    parts = _split(path)
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    else:
        group, version, rest = (*parts[1:3], "", "")[0], (*parts[1:3], "", "")[1], parts[3:]
    if not kinds.serves(group, version):
        raise no_such_page()
    namespace: str | None = None
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0]) if rest else None
    if kind is None or len(rest) > 4 or kind.namespaced < (namespace is not None):
        raise no_such_path()
    if kind.namespaced and namespace is None and len(rest) > 1:
        raise no_such_path()
    subresource = "/".join(rest[2:])
    if subresource and subresource not in kind.subresources:
        raise no_such_path()
    place = namespace if kind.namespaced else ""
    return Target(kind, place, rest[1] if len(rest) > 1 else "", subresource)


def verb_of(method: str, target: Target, query: Query) -> str:
    """The Kubernetes verb of a request. Raises 405."""
    if method == "HEAD":
        method = "GET"
    if target.name:
        verb = _OBJECT_VERBS.get(method)
        if target.subresource in {"binding", "eviction"}:
            verb = "create" if method == "POST" else None
    else:
        verb = _COLLECTION_VERBS.get(method)
        if verb == "list" and query.flag("watch"):
            verb = "watch"
        all_namespaces = target.kind.namespaced and target.namespace is None
        if (verb == "create" and all_namespaces) or (verb == "deletecollection" and target.kind is NAMESPACES):
            verb = None
    if verb is None or (target.subresource and verb == "delete"):
        raise method_not_allowed()
    return verb

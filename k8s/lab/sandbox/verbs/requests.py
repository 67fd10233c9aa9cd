"""A request as a value: target, verb and options, read from method, path and query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from backoff_ctrl.k8s.lab.sandbox.objects.answers import (
    Problem,
    bad_request,
    invalid_options,
    method_not_allowed,
    no_such_page,
    no_such_path,
    unsupported,
)
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import NAMESPACES, Kind, Kinds

_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_NUMBER = re.compile(r"[-+]?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)
_OF_NAMESPACES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Target:
    """The resource that a path names. ``namespace`` is None for all namespaces, empty for cluster-scoped kinds."""

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def place(self) -> str:
        return self.namespace or ""


class WriteOptions(NamedTuple):
    """The options of a write: dry run, strict checking of unknown fields, and the field manager."""

    dry_run: bool = False
    strict: bool = False
    manager: str = ""


PLAIN = WriteOptions()


class Query:
    """The query of a request. Unknown parameters are ignored, as Kubernetes does."""

    __slots__ = ("_values",)

    def __init__(self, text: str = "") -> None:
        self._values: Mapping[str, list[str]] = parse_qs(text, keep_blank_values=True) if text else {}

    def text(self, name: str) -> str:
        found = self._values.get(name)
        return found[0] if found else ""

    def values(self, name: str) -> list[str]:
        return list(self._values.get(name) or ())

    def has(self, name: str) -> bool:
        return name in self._values

    def flag(self, name: str) -> bool:
        """A boolean parameter: true for everything except "false" and "0", even without a value."""
        return self.has(name) and self.text(name).lower() not in {"false", "0"}

    def number(self, name: str) -> int | None:
        """A 64-bit integer, None where it is absent. Raises 400, also for a parameter without a value."""
        if not self.has(name):
            return None
        text = self.text(name)
        if not _NUMBER.fullmatch(text) or int(text) not in _INT64:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    def write_options(self, verb: str = "create", user_agent: str = "") -> WriteOptions:
        """``dryRun``, ``fieldValidation`` and ``fieldManager``. Raises 422."""
        agent = user_agent.partition("/")[0] or "unknown"
        if not self._values:
            return WriteOptions(manager=agent)
        problems = dry_run_problems(self.values("dryRun"))
        validation = self.text("fieldValidation")
        if validation not in _VALIDATIONS:
            problems.append(unsupported("fieldValidation", validation, *_VALIDATIONS))
        if problems:
            raise invalid_options(f"{verb.capitalize()}Options", *problems)
        return WriteOptions(bool(self.text("dryRun")), validation == "Strict", self.text("fieldManager") or agent)


def dry_run_problems(values: list[str]) -> list[Problem]:
    """What is wrong with ``dryRun``: All is its only valid value."""
    if all(value == "All" for value in values):
        return []
    listed = ",".join(f'"{value}"' for value in values)
    return [("FieldValueNotSupported", "dryRun", f'Unsupported value: [{listed}]: supported values: "All"')]


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, ...]:
    return tuple(unquote(part) for part in path.strip("/").split("/"))


def target_of(kinds: Kinds, path: str) -> Target:
    """The target of a path under /api/v1 or /apis/G/V. Raises 404."""
    parts = _split(path)
    if parts[0] not in {"api", "apis"} or parts[:2] == ("apis", ""):
        raise no_such_page()
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    else:
        group, version, rest = (*parts[1:3], "", "")[0], (*parts[1:3], "", "")[1], parts[3:]
    if not kinds.serves(group, version):
        raise no_such_path() if kinds.serves_group(group) else no_such_page()
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
    if target.name:
        verb = _OBJECT_VERBS.get(method)
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

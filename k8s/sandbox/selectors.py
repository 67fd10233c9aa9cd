"""Label and field selectors (``k8s.io/apimachinery`` ``pkg/labels`` and ``pkg/fields``)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .answers import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .kinds import Kind

    Test = Callable[[Mapping[str, str]], bool]

_SET_BASED = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUALITY = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_EXISTS = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")
_COMPARISON = re.compile(r"\s*([^\s!=,()<>]+)\s*([<>])\s*(-?\d+)\s*")

_NOTHING: Mapping[str, str] = {}

FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
        "status.podIP", "status.nominatedNodeName", "spec.hostNetwork",
    ),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    ),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs": ("status.successful",),
    "replicasets": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
    "nodes": ("spec.unschedulable",),
}  # fmt: skip


class Selection:
    """What a list, watch or deletecollection asks for."""

    __slots__ = ("_fields", "_labels", "name")

    def __init__(self, kind: Kind, labels: str, fields: str) -> None:
        """Parse both selectors. Raises 400 for what can't be parsed or is not selectable."""
        self._labels = _label_tests(labels) if labels else ()
        self._fields = tuple((path, value, wanted) for path, value, wanted in _field_tests(kind, fields))
        self.name = next((v for p, v, wanted in self._fields if p == "metadata.name" and wanted), None)

    @property
    def everything(self) -> bool:
        """Whether nothing is asked for in particular."""
        return not self._labels and not self._fields

    @property
    def labels_only(self) -> bool:
        """Whether no field is asked for."""
        return not self._fields

    def admits_labels(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the labels match."""
        return all(test(labels or _NOTHING) for test in self._labels)

    def admits(self, obj: Mapping[str, Any]) -> bool:
        """Whether the whole object matches."""
        if not self.admits_labels(obj["metadata"].get("labels")):
            return False
        return all((_field(obj, path) == value) == wanted for path, value, wanted in self._fields)


def _field(obj: Mapping[str, Any], path: str) -> str:
    """A field as the selector sees it: text, empty where it is absent."""
    value: Any = obj
    if path == "source":
        path = "source.component"
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _field_tests(kind: Kind, text: str) -> list[tuple[str, str, bool]]:
    tests = []
    for term in text.split(",") if text else ():
        found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = found.groups()
        if path not in {"metadata.name", "metadata.namespace", *FIELDS.get(kind.plural, ())}:
            raise bad_request(f"field label not supported: {path}")
        tests.append((path, value, operator != "!="))
    return tests


@lru_cache(maxsize=1024)
def _label_tests(text: str) -> tuple[Test, ...]:
    """One test per requirement. Raises 400."""
    tests: list[Test] = []
    rest = text
    while rest.strip():
        found: re.Match[str] | None = None
        for pattern, build in _FORMS:
            found = pattern.match(rest)
            if found and (found.end() == len(rest) or rest[found.end()] == ","):
                tests.append(build(found))
                rest = rest[found.end() + 1 :]
                break
        else:
            raise bad_request(f"unable to parse requirement: found '{rest}' in label selector \"{text}\"")
    return tuple(tests)


def _set_based(found: re.Match[str]) -> Test:
    key, operator, listed = found.groups()
    values = frozenset(value.strip() for value in listed.split(","))
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _equality(found: re.Match[str]) -> Test:
    key, operator, value = found.groups()
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _exists(found: re.Match[str]) -> Test:
    absent, key = found.groups()
    if absent:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _comparison(found: re.Match[str]) -> Test:
    key, operator, number = found[1], found[2], int(found[3])

    def compare(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > number if operator == ">" else int(value) < number

    return compare


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Test]], ...] = (
    (_SET_BASED, _set_based),
    (_EQUALITY, _equality),
    (_COMPARISON, _comparison),
    (_EXISTS, _exists),
)


def requirement_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One ``matchExpressions`` entry: In, NotIn, Exists, DoesNotExist."""
    key = str(expression.get("key", expression.get("scopeName", "")))
    values = expression.get("values") or ()
    operator = expression.get("operator", "")
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return labels.get(key) in values
    return operator == "NotIn" and labels.get(key) not in values

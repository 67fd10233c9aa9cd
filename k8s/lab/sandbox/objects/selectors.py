"""Label and field selectors of a list, watch or deletecollection.

Sources: ``k8s.io/apimachinery`` ``pkg/labels`` and ``pkg/fields``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from .answers import bad_request
from .kinds import Kind
from .metadata import key_problem, value_problem

Test = Callable[[Mapping[str, str]], bool]

_COMMA = re.compile(r",(?![^()]*\))")  # between requirements, not between the values of one
_MEMBER = re.compile(r"([^\s=!<>(),]+)\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(r"([^\s=!<>(),]+)\s*(==|=|!=)\s*([^\s=!<>(),]*)")
_PRESENT = re.compile(r"(!?)\s*([^\s=!<>(),]+)")
_NOTHING: Mapping[str, str] = {}
_META = ("metadata.name", "metadata.namespace")
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase",
        "status.podIP", "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    ),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs": ("status.successful",),
    "nodes": ("spec.unschedulable",),
}  # fmt: skip


class Selection:
    __slots__ = ("_fields", "_labels", "name")

    def __init__(self, kind: Kind, labels: str, fields: str) -> None:
        """Parse both selectors. Raises 400 for a malformed selector or a field that cannot select."""
        self._labels = _label_tests(labels) if labels else ()
        self._fields = tuple(_field_tests(kind, fields))
        self.name = next((v for p, v, wanted in self._fields if p == "metadata.name" and wanted), None)

    @property
    def everything(self) -> bool:
        return not self._labels and not self._fields

    @property
    def labels_only(self) -> bool:
        return not self._fields

    def admits_labels(self, labels: Mapping[str, str] | None) -> bool:
        return all(test(labels or _NOTHING) for test in self._labels)

    def admits(self, obj: Mapping[str, Any]) -> bool:
        if not self.admits_labels(obj["metadata"].get("labels")):
            return False
        return all((_field(obj, path) == value) == wanted for path, value, wanted in self._fields)


@lru_cache(maxsize=1024)
def _label_tests(text: str) -> tuple[Test, ...]:
    if not text.strip():
        return ()
    return tuple(_label_test(term.strip()) for term in _COMMA.split(text))


def _label_test(term: str) -> Test:
    if member := _MEMBER.fullmatch(term):
        key, operator = member[1], member[2]
        values = {each.strip() for each in member[3].split(",")}
        wanted = operator == "in"
    elif equal := _EQUAL.fullmatch(term):
        key, operator, values = equal[1], equal[2], {equal[3]}
        wanted = operator != "!="
    elif present := _PRESENT.fullmatch(term):
        key, values, wanted = present[2], set[str](), not present[1]
    else:
        raise bad_request(f"unable to parse requirement: '{term}'")
    problem = key_problem(key) or next(filter(None, map(value_problem, sorted(values))), "")
    if problem:
        raise bad_request(f"unable to parse requirement: '{term}': {problem}")
    if not values:
        return lambda labels: (key in labels) == wanted
    return lambda labels: (labels.get(key) in values) == wanted


def _field(obj: Mapping[str, Any], path: str) -> str:
    """A field as the selector compares it: a string, empty where the field is absent."""
    value: Any = obj
    for step in ("source.component" if path == "source" else path).split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return "false" if path == "spec.unschedulable" else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field_tests(kind: Kind, text: str) -> Iterator[tuple[str, str, bool]]:
    for term in filter(None, text.split(",")):
        path, operator, value = next((term.partition(each) for each in ("!=", "==", "=") if each in term), ("", "", ""))
        if not operator:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if kind.plural == "events":  # of events.k8s.io/v1: stored with the names of v1
            path = re.sub(r"^regarding\.", "involvedObject.", path)
        own = _FIELDS.get(kind.plural, ())
        if path not in {*_META, *own}:
            if own or not kind.strategic:
                raise bad_request(f"field label not supported: {path}")
            raise bad_request(f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        yield path, value, operator != "!="


def requirement_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Evaluate one ``matchExpressions`` entry: In, NotIn, Exists, DoesNotExist."""
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

"""Field selectors, and the selection of a list, watch or deletecollection (``k8s.io/apimachinery`` ``pkg/fields``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request

from .label_selectors import label_tests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind

_NOTHING: Mapping[str, str] = {}
_META = ("metadata.name", "metadata.namespace")

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
_FALSE_WHERE_ABSENT = frozenset({"spec.hostNetwork", "spec.unschedulable"})


class Selection:
    """The label and field selectors of a list, watch or deletecollection."""

    __slots__ = ("_fields", "_labels", "name")

    def __init__(self, kind: Kind, labels: str, fields: str) -> None:
        """Parse both selectors. Raises 400 for a malformed selector or a field that cannot select."""
        self._labels = label_tests(labels) if labels else ()
        self._fields = tuple(_field_tests(kind, fields))
        self.name = next((v for p, v, wanted in self._fields if p == "metadata.name" and wanted), None)

    @property
    def everything(self) -> bool:
        """Whether every object is selected."""
        return not self._labels and not self._fields

    @property
    def labels_only(self) -> bool:
        """Whether no field selects."""
        return not self._fields

    def admits_labels(self, labels: Mapping[str, str] | None) -> bool:
        """Whether the labels match the label selector."""
        return all(test(labels or _NOTHING) for test in self._labels)

    def admits(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object matches both selectors."""
        if not self.admits_labels(obj["metadata"].get("labels")):
            return False
        return all((_field(obj, path) == value) == wanted for path, value, wanted in self._fields)


def _field(obj: Mapping[str, Any], path: str) -> str:
    """A field as the selector compares it: a string, empty where the field is absent."""
    value: Any = obj
    for step in ("source.component" if path == "source" else path).split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return "false" if path in _FALSE_WHERE_ABSENT else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field_tests(kind: Kind, text: str) -> Iterator[tuple[str, str, bool]]:
    for term in _terms(text):
        found = re.fullmatch(r"([^=!]*)(==|=|!=)(.*)", term, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = found.groups()
        if kind.plural == "events":  # of events.k8s.io/v1: stored with the names of v1
            path = re.sub(r"^regarding\.", "involvedObject.", path)
        own = FIELDS.get(kind.plural, ())
        if path not in {*_META, *own}:
            if own or not kind.strategic:
                raise bad_request(f"field label not supported: {path}")
            raise bad_request(f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        yield path, re.sub(r"\\([\\,=])", r"\1", value), operator != "!="


def _terms(text: str) -> Iterator[str]:
    """The non-empty terms between commas that are not escaped by a backslash."""
    for term in re.findall(r"(?:\\.|[^,\\])+", text, re.DOTALL):
        if term:
            yield term


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

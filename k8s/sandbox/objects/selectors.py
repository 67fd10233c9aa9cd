"""Label and field selectors of a list, watch or deletecollection.

Sources: ``k8s.io/apimachinery`` ``pkg/labels`` and ``pkg/fields``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from backoff_ctrl.k8s.sandbox.objects.answers import ApiError, bad_request
from backoff_ctrl.k8s.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.sandbox.objects.metadata import key_problem, value_problem

Test = Callable[[Mapping[str, str]], bool]


_TOKEN = re.compile(r"\s*(?:(==|!=|[=!<>(),])|([^\s=!<>(),]+))")
_OPERATORS = frozenset({"=", "==", "!=", "in", "notin", ">", "<"})
_WORDS = "in, notin, =, ==, !=, gt, lt"


class _Token(NamedTuple):
    text: str
    word: bool


@lru_cache(maxsize=1024)
def label_tests(text: str) -> tuple[Test, ...]:
    """One test for each requirement of a selector. Raises 400."""
    return _Parser(text).requirements()


class _Parser:
    """A recursive descent parser for the tokens of one selector."""

    def __init__(self, text: str) -> None:
        self._tokens = [_Token(found[1] or found[2], bool(found[2])) for found in _TOKEN.finditer(text)]
        self._at = 0

    def requirements(self) -> tuple[Test, ...]:
        tests: list[Test] = []
        if not self._tokens:
            return ()
        if not self._is_start():
            raise _unreadable(self._peek(), "!, identifier, or 'end of string'")
        while True:
            tests.append(self._requirement())
            found = self._next()
            if not found.text:
                return tuple(tests)
            if found.text != ",":
                raise _unreadable(found, "',' or 'end of string'")
            if not self._is_start():
                raise _unreadable(self._peek(), "identifier after ','")

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("", word=False)

    def _next(self) -> _Token:
        found = self._peek()
        self._at += 1
        return found

    def _is_start(self) -> bool:
        found = self._peek()
        return found.word or found.text == "!"

    def _requirement(self) -> Test:
        absent = self._peek().text == "!"
        if absent:
            self._next()
        found = self._next()
        if not found.word:
            raise _broken(f"found '{found.text}', expected: identifier")
        key = found.text
        _check_key(key)
        if absent:
            return lambda labels: key not in labels
        if self._peek().text in {"", ","}:
            return lambda labels: key in labels
        operator = self._next().text
        if operator not in _OPERATORS:
            raise _broken(f"found '{operator}', expected: {_WORDS}")
        if operator in {"in", "notin"}:
            return self._membership(key, operator)
        value = self._next().text if self._peek().word else ""
        return _comparison(key, operator, value)

    def _membership(self, key: str, operator: str) -> Test:
        found = self._next()
        if found.text != "(":
            raise _broken(f"found '{found.text}' expected: '('")
        values: set[str] = set()
        expects_value = True
        while (found := self._next()).text != ")":
            if found.word and expects_value:
                values.add(found.text)
            elif found.text == "," and not found.word:
                values.update({""} if expects_value else ())
            else:
                raise _broken(f"found '{found.text}', expected: ',' or ')'")
            expects_value = not found.word
        values.update({""} if expects_value else ())
        _check_values(key, sorted(values))
        inside = operator == "in"
        return lambda labels: (labels.get(key) in values) == inside


def _comparison(key: str, operator: str, value: str) -> Test:
    if operator in {">", "<"}:
        if not re.fullmatch(r"[+-]?\d+", value):
            text = f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            raise _broken(text)
        bound, above = int(value), operator == ">"

        def compare(labels: Mapping[str, str]) -> bool:
            found = labels.get(key, "")
            return bool(re.fullmatch(r"[+-]?\d+", found)) and (int(found) > bound if above else int(found) < bound)

        return compare
    _check_values(key, [value])
    equal = operator != "!="
    return lambda labels: (labels.get(key) == value) == equal


def _check_key(key: str) -> None:
    problem = key_problem(key)
    if problem:
        raise _broken(f'<nil>: Invalid value: "{key}": {problem}')


def _check_values(key: str, values: list[str]) -> None:
    for index, value in enumerate(values):
        problem = value_problem(value)
        if problem:
            raise _broken(f'values[{index}][{key}]: Invalid value: "{value}": {problem}')


def _unreadable(found: _Token, expected: str) -> ApiError:
    return bad_request(f"found '{found.text}', expected: {expected}")


def _broken(text: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {text}")


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

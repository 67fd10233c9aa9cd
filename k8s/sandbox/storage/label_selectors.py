"""Label selectors, parsed and worded as in ``k8s.io/apimachinery`` ``pkg/labels``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request

from .metadata_rules import key_problem, value_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError

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

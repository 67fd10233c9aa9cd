"""A JSONPath in a config, ``$.status.state``: checked when it is read, so that it never fails on an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final

import jsonpath
from pydantic import BeforeValidator, PlainSerializer

_BRACES: Final = re.compile(r"\{(\$[^{}]*)\}")
_FIELD: Final = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*)+")


@cache
def _compiled(text: str) -> jsonpath.CompoundJSONPath | jsonpath.JSONPath:
    if not text.startswith("$"):
        raise ValueError(f"{text!r} is not a JSONPath: it begins with $, as in $.status.state")
    try:
        return jsonpath.compile(text, strict=True)
    except jsonpath.JSONPathError as error:
        raise ValueError(f"{text!r} is not a JSONPath: {str(error).splitlines()[0]}") from None


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A path that begins with ``$``, the object or the section that it is applied to.

    Raises ``ValueError`` with a sentence that says how one is written.
    """

    text: str

    def __post_init__(self) -> None:
        _compiled(self.text)

    def all(self, document: Mapping[str, Any]) -> list[Any]:
        return [value for value, _ in self.places(document)]

    def first(self, document: Mapping[str, Any]) -> Any:
        return next(iter(self.all(document)), None)

    def places(self, document: Mapping[str, Any]) -> list[tuple[Any, str]]:
        """Return the values found, each with its path, ``spec.workers[0].template``; empty for the document."""
        try:
            return [(match.obj, _dotted(match.parts)) for match in _compiled(self.text).finditer(document)]
        except (jsonpath.JSONPathError, RecursionError, TypeError):
            return []

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Text:
    """A text with paths in braces, ``{$.metadata.name}-driver``, or one path. Raises ``ValueError`` for a wrong one."""

    text: str

    def __post_init__(self) -> None:
        for path in self.paths:
            ObjectPath(path)

    @property
    def paths(self) -> list[str]:
        return self._parts()[1::2]

    def of(self, document: Mapping[str, Any], written: Callable[[str], str] = str) -> str | None:
        """Return the text, with ``written`` applied to each value; None if a path finds no word."""
        parts = self._parts()
        words = [word_of(ObjectPath(path).first(document)) for path in parts[1::2]]
        if not all(words):
            return None
        parts[1::2] = map(written, words)
        return "".join(parts)

    def lacking(self, document: Mapping[str, Any]) -> str:
        """Return the first path that finds no word; empty: each finds one."""
        return next((path for path in self.paths if not word_of(ObjectPath(path).first(document))), "")

    def _parts(self) -> list[str]:
        """Return literals and paths in turn."""
        return ["", self.text, ""] if is_path(self.text) else _BRACES.split(self.text)

    def __str__(self) -> str:
        return self.text


def word_of(value: object) -> str:
    """Return a scalar as a config writes it: ``true``, ``3``; empty for any other value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def is_path(text: str) -> bool:
    return text.startswith(("$.", "$["))


def joined(*places: str) -> str:
    return ".".join(filter(None, places)).replace(".[", "[")


def _dotted(parts: tuple[int | str, ...]) -> str:
    return joined(*(f"[{part}]" if isinstance(part, int) else str(part) for part in parts))


def _read(value: object) -> ObjectPath:
    if isinstance(value, ObjectPath):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a JSONPath, such as $.status.state")  # noqa: TRY004 - pydantic's rule
    return ObjectPath(value)


def _read_field(value: object) -> ObjectPath:
    read = _read(value)
    if not _FIELD.fullmatch(read.text):
        raise ValueError(f"{read.text!r} is not the path of one field: write names alone, as in $.spec.suspend")
    return read


def _read_several(value: object) -> tuple[ObjectPath, ...]:
    return tuple(_read(each) for each in (value if isinstance(value, list | tuple) else [value]))


def _written(paths: tuple[ObjectPath, ...]) -> list[str]:
    return [str(path) for path in paths]


Path = Annotated[ObjectPath, BeforeValidator(_read), PlainSerializer(str)]
"""A key of a config that holds one path."""
FieldPath = Annotated[ObjectPath, BeforeValidator(_read_field), PlainSerializer(str)]
"""A key that holds the path of one field, which is there once: ``$.spec.suspend``."""
Paths = Annotated[tuple[ObjectPath, ...], BeforeValidator(_read_several), PlainSerializer(_written)]
"""A key that holds a path, or several in a list."""

"""YAML: reads a body, and writes name and annotations into its text where they belong, so that every other byte stays.

Few creators send YAML. A body that PyYAML and Go's reader may read differently (with an alias, a field that occurs
twice, several documents) is not read at all, and an edit that does not read back as intended is not used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import yaml

from backoff_ctrl.k8s.kube.charges.bounded_yaml import KubernetesLoader

from .json_text import with_edits
from .messages import PayloadError

LARGEST_YAML: Final = 32 * 2**10
"""Bytes of a body in YAML that is read."""
MOST_VALUES: Final = 1_000
"""The most values and keys of a body in YAML that is read: each takes 3 us, while no other request is served. A pod has
a hundred or two.
"""
DEEPEST: Final = 100
"""Levels of a body that is read; the C loader would recurse without a limit."""
LONGEST_NUMBER: Final = 100
"""Characters. YAML 1.1 reads ``1:30:00`` in base 60, in time that grows with the square of its length."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT: Final = "tag:yaml.org,2002:str"
_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_SCALARS: Final = _NUMBERS | {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "binary", "timestamp")}
_PLAIN: Final = frozenset({None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
"""Tags of objects and lists; any other tag changes their type."""
_NULL: Final = "tag:yaml.org,2002:null"
_NO_KEY: Final = object()
_FAULTS: Final = (yaml.YAMLError, ValueError, OverflowError, TypeError, AttributeError, LookupError)
"""What the loader raises, also for values such as a date in month 99."""


def read_yaml(body: bytes) -> Any:
    """Return the value of a body. Raises ``PayloadError``."""
    return _loaded(_text(body))


def mark_yaml(body: bytes, name: str, annotations: Mapping[str, str], dropped: Collection[str]) -> bytes | None:
    """Return the body with this name, if one is given, and these annotations; None if that can't be done exactly."""
    text = _text(body)
    given = _loaded(text)
    metadata = given.get("metadata") if isinstance(given, dict) else None
    if not isinstance(metadata, dict):
        return None
    noted = metadata.get("annotations")
    if noted is not None and (not isinstance(noted, dict) or set(noted) & (set(dropped) - set(annotations))):
        return None
    wanted = {**metadata, **({"name": name} if name else {}), "annotations": {**(noted or {}), **annotations}}
    try:
        changed = _marked(text, name, annotations)
        exact = _loaded(changed) == {**given, "metadata": wanted}
    except PayloadError:
        return None
    return changed.encode() if exact else None


def _text(body: bytes) -> str:
    if len(body) > LARGEST_YAML:
        raise PayloadError(f"the body is larger than {LARGEST_YAML >> 10} KiB of YAML")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise PayloadError("the body is not valid YAML: it is not UTF-8") from None


def _loaded(text: str) -> Any:
    document = _Document()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            document.take(event)
    except PayloadError:
        raise
    except (*_FAULTS, RecursionError):
        raise PayloadError("the body is not valid YAML") from None
    return document.value


class _Document:
    """A document, built from the parser's events; its scalars are what the API server reads of them.

    Refused are aliases, which may stand for any amount of text, doubled fields, merge keys, sets and the like, several
    documents, deep nesting, and more values than can be read at once.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self._documents = self._values = 0
        self._open: list[_Open] = []
        self._scalars: Any = KubernetesLoader("")  # its rules for texts, numbers and times

    def take(self, event: Any) -> None:
        """Take the next event. Raises ``PayloadError``, and what ``yaml.SafeLoader`` raises for a malformed value."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._add(self._scalar(event))
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            if event.tag not in _PLAIN or len(self._open) >= DEEPEST:
                raise PayloadError(f"the body has a set, an ordered map or more than {DEEPEST} levels")
            self._open.append(_Open({} if kind is yaml.MappingStartEvent else []))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._add(self._open.pop().whole)
        elif kind is yaml.AliasEvent:
            raise PayloadError("the body has an alias")
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise PayloadError("the body has several documents")

    def _add(self, value: Any) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise PayloadError(f"the body has more than {MOST_VALUES} values in YAML")
        if self._open:
            self._open[-1].add(value)
        else:
            self.value = value

    def _scalar(self, event: Any) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._scalars.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag == _TEXT:
            return event.value
        if tag in _NUMBERS and len(event.value) > LONGEST_NUMBER:
            raise PayloadError(f"the body has a number of more than {LONGEST_NUMBER} characters")
        if tag not in _SCALARS:
            raise PayloadError("the body has a value with a tag that is not read")
        return self._scalars.construct_object(yaml.ScalarNode(tag, event.value))


class _Open:
    """An object or a list that has not ended yet."""

    __slots__ = ("_key", "whole")

    def __init__(self, whole: dict[Any, Any] | list[Any]) -> None:
        self.whole = whole
        self._key: Any = _NO_KEY

    def add(self, value: Any) -> None:
        """Add the next item; in an object keys and values come in turn."""
        if isinstance(self.whole, list):
            self.whole.append(value)
        elif self._key is _NO_KEY:
            if not isinstance(value, str) or value in self.whole or value == "<<":
                raise PayloadError("the body has a field twice, one that is not a text, or a merge key")
            self._key = value
        else:
            self.whole[self._key] = value
            self._key = _NO_KEY


def _marked(text: str, name: str, annotations: Mapping[str, str]) -> str:
    """Return the text with the marks written in. Raises ``PayloadError`` where it finds no place for them."""
    metadata = _member(yaml.compose(text, Loader=_LOADER), "metadata")
    edits = []
    noted = _member(metadata, "annotations")
    if isinstance(noted, yaml.MappingNode):
        edits += [_edit(noted, key, value) for key, value in annotations.items()]
    else:
        edits.append(_edit(metadata, "annotations", dict(annotations)))
    if name:
        edits.append(_edit(metadata, "name", name))
    return with_edits(text, edits)


def _edit(mapping: yaml.Node | None, key: str, value: Any) -> tuple[int, int, str]:
    """Return the edit that gives a mapping this member: start, end and text."""
    if not isinstance(mapping, yaml.MappingNode):
        raise PayloadError("the body has no metadata")
    written = json.dumps(value)
    present = _member(mapping, key)
    if present is not None:
        if not isinstance(present, yaml.ScalarNode) or present.style in {"|", ">"}:
            raise PayloadError("the body's metadata is written in an unusual way")
        return present.start_mark.index, present.end_mark.index, f" {written}" if present.tag == _NULL else written
    if mapping.flow_style:
        comma = ", " if mapping.value else ""
        return mapping.start_mark.index + 1, mapping.start_mark.index + 1, f"{json.dumps(key)}: {written}{comma}"
    first = mapping.value[0][0].start_mark
    return first.index, first.index, f"{json.dumps(key)}: {written}\n" + " " * first.column


def _member(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """Return the node of a member, or None."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)

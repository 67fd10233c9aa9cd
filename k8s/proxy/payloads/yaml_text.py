"""YAML: reads a body, and writes name and annotations into its text where they belong, so that every other byte stays.

Few creators send YAML. What PyYAML and Go's reader may take differently (an alias, a field that comes twice, several
documents) is not read at all, and an edit that does not read as it should is not used.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from .payload import PayloadError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LARGEST_YAML: Final = 32 * 2**10
"""Bytes of a body in YAML that is read: it takes fifty times as long as JSON, and everybody else waits meanwhile."""
DEEPEST: Final = 100
"""Levels of a body that is read; the C loader would recurse without a limit."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL: Final = "tag:yaml.org,2002:null"
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
    """Return the one document of a text, once it is known to be harmless."""
    try:
        _check(text)
        value = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    except PayloadError:
        raise
    except (*_FAULTS, RecursionError):
        raise PayloadError("the body is not valid YAML") from None
    return value


def _check(text: str) -> None:
    """Refuse aliases, which may stand for any amount of text, deep nesting, doubled fields and several documents."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.AliasEvent) or depth > DEEPEST or documents > 1:
            raise PayloadError(f"the body has an alias, several documents or more than {DEEPEST} levels")
    waiting = [yaml.compose(text, Loader=_LOADER)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if len(set(keys)) != len(node.value) or "<<" in keys:
                raise PayloadError("the body has a field twice, or one that is no text")
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _marked(text: str, name: str, annotations: Mapping[str, str]) -> str:
    """Return the text with the marks written in. Raises ``PayloadError`` where a place for them can't be told."""
    metadata = _member(yaml.compose(text, Loader=_LOADER), "metadata")
    edits = []
    noted = _member(metadata, "annotations")
    if isinstance(noted, yaml.MappingNode):
        edits += [_edit(noted, key, value) for key, value in annotations.items()]
    else:
        edits.append(_edit(metadata, "annotations", dict(annotations)))
    if name:
        edits.append(_edit(metadata, "name", name))
    parts, at = [], 0
    for start, stop, written in sorted(edits):
        parts += [text[at:start], written]
        at = stop
    return "".join((*parts, text[at:]))


def _edit(mapping: yaml.Node | None, key: str, value: Any) -> tuple[int, int, str]:
    """Return what to write where, so that a mapping has this member."""
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
    """Return the node of a member; None if there is none."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)

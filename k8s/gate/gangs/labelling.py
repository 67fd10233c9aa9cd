"""The label of a gang in what others make pods from: put there before the create, and found in what is stored. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.creates.naming import GANG_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FIELD: Final = re.compile(r"(?P<field>[^\[]+)(?:\[(?P<index>\d+)\])?")


def with_label(body: dict[str, Any], path: list[str], label: str) -> dict[str, Any]:
    """Return a copy of a manifest with the gang's label in the metadata of one section (``spec.template``)."""
    if not path:
        metadata = dict(body.get("metadata") or {})
        return {**body, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), GANG_LABEL: label}}}
    name, index = _field(path[0])
    if index is None:
        return {**body, name: with_label(body.get(name) or {}, path[1:], label)}
    listed = list(body[name])
    listed[index] = with_label(listed[index], path[1:], label)
    return {**body, name: listed}


def carries_label(manifest: Mapping[str, Any], templates: Iterable[str], label: str) -> bool:
    """Say whether all of these sections of a stored object, and at least one, carry the gang's label."""
    found = [_label_at(manifest, path.split(".")) for path in templates]
    return bool(found) and all(each == label for each in found)


def _label_at(section: Any, path: list[str]) -> object:
    for step in path:
        name, index = _field(step)
        section = _mapping(section).get(name)
        if index is not None:
            section = section[index] if isinstance(section, list) and index < len(section) else None
    return _mapping(_mapping(_mapping(section).get("metadata")).get("labels")).get(GANG_LABEL)


def _field(step: str) -> tuple[str, int | None]:
    """Split ``replicatedJobs[2]`` into the name and the index."""
    named = _FIELD.fullmatch(step)
    assert named is not None
    return named["field"], None if named["index"] is None else int(named["index"])


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

"""The pods that others are still to make for gangs, and how they are known: by the gang's label, or by who owns them.

The label is put, before the create, into what others make pods from; whether it is there is seen in what is stored.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.gangs import Gang
from backoff_ctrl.k8s.creates.naming import GANG_LABEL

LATE: Final = 5.0
"""Seconds for pods with the gang's label to appear; then pods are told by their owners too, as an operator may not pass
labels on.
"""
_FIELD: Final = re.compile(r"(?P<field>[^\[]+)(?:\[(?P<index>\d+)\])?")
SKEW: Final = timedelta(minutes=1)
"""The clocks of two API servers differ by less: pods that are so much older than a gang's object are not of it."""


@dataclass(frozen=True, slots=True)
class Root:
    """An object that a gang created and others make pods of. ``labelled``: those pods are to carry the gang's label."""

    uid: str
    since: str
    """None of its pods has an earlier ``creationTimestamp``. Empty: unknown."""
    labelled: bool
    noted: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to look for in a namespace: pods of gangs, ``by_owners`` too, and then none created before ``since``."""

    by_owners: bool
    since: str


@dataclass(slots=True, eq=False)
class ExpectedGang:
    """An admitted gang. ``engine`` admitted it; ``pods_made`` are the numbers of the parts that others make.

    ``templates`` are the sections that get its ``label``, by resource.
    """

    label: str
    gang: Gang
    engine: Controller
    templates: Mapping[str, frozenset[str]]
    pods_made: frozenset[int]
    roots: list[Root] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether nothing is reserved any more."""
        return self.gang.end is not None

    @property
    def made(self) -> bool:
        """Whether all pods that others make have appeared."""
        return not any(self.gang.undrawn[part] for part in self.pods_made)


class Expected:
    """The gangs of which others are still to make pods. Questions are safe from any thread, without a lock."""

    def __init__(self) -> None:
        """Start with none."""
        self._by_label: dict[str, ExpectedGang] = {}
        self._by_root: dict[str, ExpectedGang] = {}

    def add(self, gang: ExpectedGang) -> None:
        """Expect pods of a gang, and forget those that are over."""
        for other in list(self._by_label.values()):
            if other.over:
                self.drop(other)
        self._by_label[gang.label] = gang

    def drop(self, gang: ExpectedGang) -> None:
        """Expect no more of it. Twice is no error."""
        self._by_label.pop(gang.label, None)
        for root in gang.roots:
            self._by_root.pop(root.uid, None)

    def stored(self, label: str, manifest: Mapping[str, Any], resource: str, now: float) -> bool:
        """Note an object that a gang created: others may make pods of it. Say whether it was new."""
        gang = self._by_label.get(label)
        found = manifest.get("metadata")
        metadata = found if isinstance(found, dict) else {}
        uid = metadata.get("uid")
        if gang is None or not isinstance(uid, str) or not uid or uid in self._by_root:
            return False
        labelled = carries_label(manifest, gang.templates.get(resource, ()), label)
        gang.roots.append(Root(uid, _before(metadata.get("creationTimestamp")), labelled, now))
        self._by_root[uid] = gang
        return True

    def of_label(self, label: str) -> ExpectedGang | None:
        """Return the gang with this label."""
        return self._by_label.get(label)

    def of_root(self, uid: str) -> ExpectedGang | None:
        """Return the gang that created the object with this uid."""
        return self._by_root.get(uid)

    def root_ended(self, uid: str) -> ExpectedGang | None:
        """Note that an object of a gang has ended: nothing more is made of it. Return the gang if it has no other."""
        gang = self._by_root.pop(uid, None)
        if gang is None:
            return None
        gang.roots = [root for root in gang.roots if root.uid != uid]
        return None if gang.roots else gang

    def look_for(self, namespace: str, now: float) -> Expectation | None:
        """Say what to look for in a namespace; None: nothing."""
        gangs = [each for each in list(self._by_label.values()) if each.gang.namespace == namespace and not each.over]
        if not gangs:
            return None
        roots = [root for gang in gangs for root in list(gang.roots)]
        by_owners = any(not root.labelled or now - root.noted >= LATE for root in roots)
        return Expectation(by_owners, min((root.since for root in roots), default=""))


def _before(created: object) -> str:
    """Return a time that is safely before this one, in the same form; empty if it can't be read."""
    try:
        when = datetime.fromisoformat(str(created)) - SKEW
    except (ValueError, OverflowError):
        return ""
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


# -- the label ---------


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

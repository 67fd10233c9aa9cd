"""Gangs of which others are still to make pods, and how those are known: by the gang's label, or by who owns them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from .labelling import carries_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .admitted import AdmittedGang

LATE: Final = 5.0
"""Seconds for pods with the gang's label to appear; then pods are told by their owners too, as an operator may not pass
labels on.
"""
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


class Expected:
    """The gangs of which others are still to make pods. Questions are safe from any thread, without a lock."""

    def __init__(self) -> None:
        """Start with none."""
        self._by_label: dict[str, AdmittedGang] = {}
        self._by_root: dict[str, AdmittedGang] = {}
        self._roots: dict[str, list[Root]] = {}  # by the gang's label

    def add(self, gang: AdmittedGang) -> None:
        """Expect pods of a gang, and forget those that are over."""
        for other in list(self._by_label.values()):
            if other.over:
                self.drop(other)
        self._by_label[gang.label] = gang
        self._roots[gang.label] = []

    def drop(self, gang: AdmittedGang) -> None:
        """Expect no more of it. Twice is no error."""
        self._by_label.pop(gang.label, None)
        for root in self._roots.pop(gang.label, ()):
            self._by_root.pop(root.uid, None)

    def stored(self, gang: AdmittedGang, manifest: Mapping[str, Any], resource: str, now: float) -> None:
        """Note an object that a gang created: others may make pods of it."""
        found = manifest.get("metadata")
        metadata = found if isinstance(found, dict) else {}
        roots, uid = self._roots.get(gang.label), metadata.get("uid")
        if roots is None or not isinstance(uid, str) or not uid or uid in self._by_root:
            return
        labelled = carries_label(manifest, gang.asked.templates.get(resource, ()), gang.label)
        roots.append(Root(uid, _before(metadata.get("creationTimestamp")), labelled, now))
        self._by_root[uid] = gang

    def of_label(self, label: str) -> AdmittedGang | None:
        """Return the gang with this label."""
        return self._by_label.get(label)

    def label_of(self, uid: str) -> str | None:
        """Return the label of the gang that created the object with this uid."""
        gang = self._by_root.get(uid)
        return None if gang is None else gang.label

    def look_for(self, namespace: str, now: float) -> Expectation | None:
        """Say what to look for in a namespace; None: nothing."""
        gangs = [each for each in list(self._by_label.values()) if each.namespace == namespace and not each.over]
        if not gangs:
            return None
        roots = [root for gang in gangs for root in list(self._roots.get(gang.label, ()))]
        by_owners = any(not root.labelled or now - root.noted >= LATE for root in roots)
        return Expectation(by_owners, min((root.since for root in roots), default=""))


def _before(created: object) -> str:
    """Return a time that is safely before this one, in the same form; empty if it can't be read."""
    try:
        when = datetime.fromisoformat(str(created)) - SKEW
    except (ValueError, OverflowError):
        return ""
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"

"""The pods that others are still to make for gangs, and how they are known: by the gang's label, or by who owns them.

The label is put, before the create, into what others make pods from; whether it is there is seen in what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.gang_admission import GangAdmission
from backoff_ctrl.engine.gangs.gang import Gang
from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.kube.answers.fields import labels_of, mapping, metadata_of, text
from backoff_ctrl.k8s.kube.charges.footprint import charge
from backoff_ctrl.k8s.kube.charges.live import is_released
from backoff_ctrl.k8s.kube.charges.parts import COUNT

from .locked_engine import Failure, LockedEngine

T = TypeVar("T")

LATE: Final = 5.0
"""Seconds for pods with the gang's label to appear; then pods are recognised by their owners too, as an operator may
not pass labels on.
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
    """What to look for in a namespace: pods of gangs; ``by_owners`` too, if they were created after ``since``."""

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
    members: dict[str, bool] = field(default_factory=dict)
    """The living pods of a gang that keeps its room, by uid, and whether they carry its label."""
    label_passed_on: bool = False
    """Whether a pod has carried it."""

    @property
    def over(self) -> bool:
        return self.gang.end is not None

    @property
    def made(self) -> bool:
        return not any(self.gang.undrawn[part] for part in self.pods_made)


class Expected:
    """The gangs of which others are still to make pods. Questions are safe from any thread, without a lock."""

    def __init__(self, engine: LockedEngine) -> None:
        self._engine = engine
        engine.on_replace.append(self.forget)
        self.forget()

    def forget(self) -> None:
        """Drop all expectations: a new engine knows no gang."""
        # By namespace, too: who may write in one names the label of a gang in another.
        self._by_label: dict[tuple[str, str], ExpectedGang] = {}
        self._by_root: dict[str, ExpectedGang] = {}
        self._by_member: dict[str, ExpectedGang] = {}
        self._cut: dict[str, set[str]] = {}  # by namespace, the watches of members that are not up to date

    def expect(self, gang: ExpectedGang) -> None:
        """Expect the pods that others are to make for an admitted gang."""
        for other in list(self._by_label.values()):
            if other.over:
                self._drop(other)
        self._by_label[gang.gang.namespace, gang.label] = gang
        self._engine.subscribers.gang_made(gang.gang.namespace)

    def _drop(self, gang: ExpectedGang) -> None:
        if self._by_label.get(key := (gang.gang.namespace, gang.label)) is gang:
            del self._by_label[key]
        for root in gang.roots:
            self._by_root.pop(root.uid, None)
        for uid in list(gang.members):
            self._by_member.pop(uid, None)

    def gang_stored(self, label: str, namespace: str, manifest: Mapping[str, Any], resource: str) -> None:
        """Note an object that the gang of this label created, as it is stored: the pods that it owns belong to it."""
        gang, metadata = self._by_label.get((namespace, label)), metadata_of(manifest)
        uid = text(metadata.get("uid"))
        if gang is None or not uid or uid in self._by_root:
            return
        labelled = carries_label(manifest, gang.templates.get(resource, ()), label)
        gang.roots.append(Root(uid, _before(metadata.get("creationTimestamp")), labelled, self._engine.now()))
        self._by_root[uid] = gang
        self._engine.subscribers.gang_made(namespace)

    def object_ended(self, uid: str) -> None:
        """Report that an object which a gang created has ended, or is gone: what is reserved for its pods is free."""
        gang = self._by_root.pop(uid, None)
        if gang is None:
            return
        gang.roots = [root for root in gang.roots if root.uid != uid]
        if not gang.roots:
            self._drop(gang)
            self.give_back(gang.gang, gang.engine)

    def look_for(self, namespace: str) -> Expectation | None:
        """Return which pods of gangs to look for in a namespace; None if it has no open gang."""
        gangs = [each for each in list(self._by_label.values()) if each.gang.namespace == namespace and not each.over]
        if not gangs:
            return None
        now, roots = self._engine.now(), [root for gang in gangs for root in list(gang.roots)]
        by_owners = any(
            not root.labelled or (now - root.noted >= LATE and not gang.label_passed_on)
            for gang in gangs
            for root in list(gang.roots)
        )
        return Expectation(by_owners, min((root.since for root in roots), default=""))

    def label_of(self, uid: str) -> str | None:
        """Return the label of the gang that created the object with this uid; None: no gang did."""
        gang = self._by_root.get(uid)
        return None if gang is None else gang.label

    def member_seen(self, namespace: str, label: str, uid: str, manifest: Mapping[str, Any]) -> None:
        """Report a pod of the gang with this label in its namespace, with its manifest as it is stored."""
        expected = self._by_label.get((namespace, label))
        if expected is None or not uid:
            return
        if expected.gang.keeps:
            self._member_seen(expected, uid, manifest)
        elif self.appeared(expected.gang, expected.engine, uid, manifest, "pods") and expected.made:
            self._drop(expected)
            self.give_back(expected.gang, expected.engine)  # it is unknown whether the rest was made

    def _member_seen(self, expected: ExpectedGang, uid: str, manifest: Mapping[str, Any]) -> None:
        """Report a pod of a gang that keeps its room when it appears, and when it has ended."""
        if is_released(manifest):
            if uid in expected.members:
                self._engine.subscribers.member_over(manifest)
                self.member_ended(expected.gang.namespace, uid)
        elif uid not in expected.members:
            self._note(expected, uid, manifest)
            self.appeared(expected.gang, expected.engine, uid, manifest, "pods")

    def _note(self, expected: ExpectedGang, uid: str, manifest: Mapping[str, Any]) -> None:
        labelled = labels_of(manifest).get(GANG_LABEL) == expected.label
        expected.label_passed_on = expected.label_passed_on or labelled
        expected.members[uid] = labelled
        self._by_member[uid] = expected

    def appeared(self, gang: Gang, engine: Controller, uid: str, manifest: Mapping[str, Any], resource: str) -> bool:
        """Report a gang's member that another client created; return whether it counts as one."""
        charged = self._engine.attempt(charge, manifest, resource)
        if isinstance(charged, Failure):
            return False
        return self._appeared(gang, engine, uid, charged, resource)

    def _appeared(self, gang: Gang, engine: Controller, uid: str, charged: Demand, resource: str) -> bool:
        among = parts_counted_as(gang, resource)

        def appeared(used: Controller, now: float) -> bool:
            return used is engine and engine.gangs_of(gang.namespace).appeared(gang, uid, charged, now, among)

        return self._engine.act(appeared) is True

    def give_back(self, gang: Gang, engine: Controller) -> None:
        """End a gang: what is undrawn is no longer reserved. A finalizer may end its block."""

        def give_back(used: Controller, now: float) -> None:
            if used is engine:
                engine.gangs_of(gang.namespace).give_back(gang, now)

        self._engine.soon(give_back)

    # -- gangs that keep their room ---------

    def adopt(
        self, label: str, gang: Gang, engine: Controller, uid: str, manifest: Mapping[str, Any], resource: str
    ) -> bool:
        """Report a member that lives already and is charged already; say whether it is new."""
        charged = self._engine.attempt(charge, manifest, resource)
        if isinstance(charged, Failure):
            return False
        if (expected := self._by_label.get((gang.namespace, label))) is not None:
            self._note(expected, uid, manifest)
        among = parts_counted_as(gang, resource)
        return self._change(gang, engine, lambda gangs, now: gangs.adopt(gang, uid, charged, now, among)) is True

    def charged(self, gang: Gang, engine: Controller, uid: str, charged: Demand, resource: str, *, lived: bool) -> bool:
        """Report an object beside its pods that was made for a gang; say whether it counts as one.

        ``lived``: it is charged already. Who reports it follows it, and reports its end.
        """
        if not lived:
            return self._appeared(gang, engine, uid, charged, resource)
        among = parts_counted_as(gang, resource)
        return self._change(gang, engine, lambda gangs, now: gangs.adopt(gang, uid, charged, now, among)) is True

    def root_of(self, pod: str) -> str:
        """Return the uid of the object that a living pod of a gang was made from; empty: that is not known."""
        expected = self._by_member.get(pod)
        return next((root.uid for root in expected.roots), "") if expected is not None else ""

    def resize(self, gang: Gang, engine: Controller, counts: Sequence[int]) -> None:
        """Let a gang want at most so many members of each part at a time."""
        self._change(gang, engine, lambda gangs, now: gangs.resize(gang, counts, now))

    def absorb(self, label: str, gang: Gang, other_label: str, other: Gang, engine: Controller) -> None:
        """Let a gang take over another one, and the pods that others make for it."""
        self._change(gang, engine, lambda gangs, now: gangs.absorb(gang, other, now))
        mine, theirs = (self._by_label.get((gang.namespace, each)) for each in (label, other_label))
        if mine is None or theirs is None:
            return
        self._drop(theirs)
        mine.roots += theirs.roots
        mine.members |= theirs.members
        self._by_root |= dict.fromkeys((root.uid for root in theirs.roots), mine)
        self._by_member |= dict.fromkeys(theirs.members, mine)

    def _change(self, gang: Gang, engine: Controller, change: Callable[[GangAdmission, float], T]) -> T | None:
        """Have the engine that admitted a gang change it. Raises ``GangError``, which is its caller's mistake."""

        def tried(used: Controller, now: float) -> T | GangError | None:
            try:
                return change(engine.gangs_of(gang.namespace), now) if used is engine else None
            except GangError as error:
                return error

        changed = self._engine.act(tried)
        if isinstance(changed, GangError):
            raise changed
        return changed

    def is_member(self, uid: str) -> bool:
        """Return whether this is a pod of a gang that keeps its room, whose end was not reported yet."""
        return uid in self._by_member

    def member_ended(self, namespace: str, uid: str) -> None:
        """Report that a pod has finished or is gone: if it is a gang's that keeps its room, the gang has it again."""
        expected = self._by_member.pop(uid, None)
        if expected is not None:
            expected.members.pop(uid, None)
        self._engine.act(lambda engine, now: engine.ended(namespace, uid, now))

    def members_listed(self, namespace: str, present: Container[str], *, labelled: bool) -> None:
        """Report that these are all pods of a namespace, or all with a gang's label: other members are gone."""
        for uid, expected in list(self._by_member.items()):
            of_these = not labelled or expected.members.get(uid, False)
            if expected.gang.namespace == namespace and of_these and uid not in present:
                self.member_ended(namespace, uid)

    def members_told(self, namespace: str, by: str, *, told: bool) -> None:
        """Report whether the watch of this name tells all ends of members from now on; False: it may miss some."""
        cut = self._cut.setdefault(namespace, set())
        (cut.discard if told else cut.add)(by)
        if not cut:
            del self._cut[namespace]
        self._engine.act(lambda engine, now: engine.gangs_of(namespace).follow_members(now, told=not cut))


def _before(created: object) -> str:
    """Return a time that is safely before this one, in the same form; empty if it can't be read."""
    try:
        when = datetime.fromisoformat(str(created)) - SKEW
    except (ValueError, OverflowError):
        return ""
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def parts_counted_as(gang: Gang, resource: str) -> tuple[int, ...] | None:
    """Return the parts of a gang whose objects are counted as this resource; None: no part is."""
    name = f"{COUNT}{resource}"
    return tuple(part for part, shape in enumerate(gang.shapes) if name in shape.demand.amounts) or None


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
    """Return whether all of these sections of a stored object, and at least one, carry the gang's label."""
    found = [_label_at(manifest, path.split(".")) for path in templates]
    return bool(found) and all(each == label for each in found)


def _label_at(section: Any, path: list[str]) -> object:
    for step in path:
        name, index = _field(step)
        section = mapping(section).get(name)
        if index is not None:
            section = section[index] if isinstance(section, list) and index < len(section) else None
    return labels_of(section).get(GANG_LABEL)


def _field(step: str) -> tuple[str, int | None]:
    """Split ``replicatedJobs[2]`` into the name and the index."""
    named = _FIELD.fullmatch(step)
    assert named is not None
    return named["field"], None if named["index"] is None else int(named["index"])

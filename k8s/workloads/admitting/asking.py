"""What an object makes at a time, and what is asked of the line for it: a gang that keeps its room. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.k8s.gate.creates.creation import PRIORITY_MAX, Creation
from backoff_ctrl.k8s.gate.gangs import GangAsked, as_one
from backoff_ctrl.k8s.kube.answers.fields import count_at, mapping, mapping_in, text
from backoff_ctrl.k8s.kube.answers.statuses import number
from backoff_ctrl.k8s.kube.charges.admission_rules import Item
from backoff_ctrl.k8s.kube.charges.device_claims import UNKNOWN, Devices, with_devices
from backoff_ctrl.k8s.kube.charges.filling import NO_CLASSES, Classes, filled
from backoff_ctrl.k8s.kube.charges.parts import Part, parts_of

from .kinds import JOB, MIN_PARALLELISM, PARALLELISM, AdmissibleKind, Subject, field_at, whole_number

POD: Final = "Pod"
CLAIM: Final = "PersistentVolumeClaim"
NO_ROOT: Final[Mapping[str, Any]] = {"metadata": {}}
"""Says of a gang that others make its pods from an object, which is noted once it is resumed."""


@dataclass(frozen=True, slots=True)
class Elastic:
    """A Job that may begin with fewer pods: with ``least`` of them; ``most`` is what it asked for.

    ``wrong`` says why its annotation does not count.
    """

    least: int
    most: int
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Product:
    """All that an object makes, as it was read once.

    ``kind`` and ``maker`` are those of what says which pods come of it: itself, or what its controller makes of it.
    ``before``: what is made while it is suspended, by kind and maker.
    """

    kind: AdmissibleKind
    maker: Mapping[str, Any]
    parts: tuple[Part, ...]
    before: frozenset[tuple[str, str]]


def pods_made(kind: AdmissibleKind, body: Mapping[str, Any], limits: Sequence[Item] = ()) -> tuple[Part, ...]:
    """Return the pods that a resumed object makes at a time. Raises as ``parts_made`` does."""
    return tuple(part for part in parts_made(kind, body, limits) if part.kind == POD)


def parts_made(
    kind: AdmissibleKind,
    body: Mapping[str, Any],
    limits: Sequence[Item] = (),
    devices: Devices = UNKNOWN,
    classes: Classes = NO_CLASSES,
) -> tuple[Part, ...]:
    """Return all that a resumed object makes at a time: its pods, what they bring along, and what stands beside them.

    These limits of LimitRanges and what ``classes`` add go to pods and claims, ``devices`` to their ResourceClaims.
    Raises ``FieldError`` for an object that can't be read, and ``GangError`` where a number of pods is not known.
    """
    resumed = as_resumed(kind, body)
    found = _parts(kind, resumed)
    if found and (limits or classes != NO_CLASSES):
        found = _parts(kind, filled(resumed, kind.resource, found, limits, classes))
    made = tuple(part for part in found if not part.suspended)
    for part in made:
        if part.count is None:
            raise GangError(f"only the cluster knows how many {part.kind}s a {part.made_by} makes")
    return with_devices(made, devices)


def as_resumed(kind: AdmissibleKind, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as it is once it is resumed."""
    return with_field({**body, "apiVersion": kind.api_version, "kind": kind.kind}, kind.suspend.split("."), False)


def made_before(kind: AdmissibleKind, body: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Return what the controller of an object makes while that is suspended, by kind and maker: a JobSet's Jobs.

    It is charged before the object is let in. What it can't make, since a quota refuses it, is still to come.
    """
    if kind is JOB:
        return frozenset()
    suspended = {**body, "apiVersion": kind.api_version, "kind": kind.kind}
    suspended = with_field(suspended, kind.suspend.split("."), True)
    return frozenset((part.kind, part.made_by) for part in _parts(kind, suspended) if not part.suspended)


def _parts(kind: AdmissibleKind, resumed: Mapping[str, Any]) -> tuple[Part, ...]:
    return kind.makes(resumed) if kind.makes is not None else parts_of(resumed, resource=kind.resource)


def with_field(body: Mapping[str, Any], names: Sequence[str], value: object) -> dict[str, Any]:
    """Return a copy of an object with the field at this path set."""
    first, *rest = names
    return {**body, first: with_field(mapping(body.get(first)), rest, value) if rest else value}


def counts_of(
    kind: AdmissibleKind, body: Mapping[str, Any], parts: Sequence[Part], succeeded: int = 0, before: int = 0
) -> tuple[int, ...]:
    """Return how many objects of each part an object still makes at a time.

    ``succeeded`` is the number of a Job's pods that are known to have succeeded, where its status comes later;
    ``before``: so many of them don't count. Other kinds shrink only at their end: a restart makes all anew.
    """
    counts = tuple(part.count or 0 for part in parts)
    pods = sum(count for part, count in zip(parts, counts, strict=True) if part.kind == POD)
    if kind is not JOB or not pods:
        return counts
    progress = _progress_of(body, succeeded)
    to_come, done = progress.to_come(pods), progress.succeeded
    left, kept = min(pods, to_come), to_come + max(0, done - before) if to_come else 0
    in_all = pods if progress.completions is None else progress.completions
    return tuple(
        min(count, count * kept // in_all) if part.kind == CLAIM else count * left // pods
        for part, count in zip(parts, counts, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a Job is. ``failed`` indexes have failed for good."""

    completions: int | None
    succeeded: int
    active: int
    failed: int

    def to_come(self, pods: int) -> int:
        """Return how many pods run from now on: of a Job with completions in all, else at a time.

        One without completions makes no new pods once one has succeeded (``manageJob`` of the Job controller). A pod
        that has ended keeps the claims of its volumes until it is deleted; its ResourceClaims go at once.
        """
        if self.completions is None:
            return min(pods, self.active) if self.succeeded else pods
        return max(0, self.completions - self.succeeded - self.failed)


def _progress_of(body: Mapping[str, Any], succeeded: int) -> _Progress:
    """Read a Job; ``succeeded``: so many of its pods at least are known to have succeeded."""
    status = mapping(body.get("status"))
    return _Progress(
        _completions(body),
        max(succeeded, number(status.get("succeeded"))),
        number(status.get("active")),
        _indexes(status.get("failedIndexes")),
    )


def _completions(body: Mapping[str, Any]) -> int | None:
    return count_at(mapping(body.get("spec")), "completions", "spec")


def _indexes(text_of: object) -> int:
    """Return how many indexes ``1,3-5`` names: those that have failed for good are not tried again."""
    if text_of is None:
        return 0
    ends = [each.partition("-") for each in text(text_of).split(",")]
    runs = [(whole_number(first), whole_number(last) if dash else whole_number(first)) for first, dash, last in ends]
    known = [last - first + 1 for first, last in runs if first is not None and last is not None]
    return sum(known) if len(known) == len(runs) else 0


def succeeded_of(body: Mapping[str, Any]) -> int:
    """Return how many pods of a Job have succeeded by its status."""
    return number(mapping_in(body, "status").get("succeeded"))


# -- elastic ---------


def elastic_of(subject: Subject) -> Elastic | None:
    """Return how far a Job may begin with fewer pods; None: it does not ask for that, or its kind can't."""
    said = text(subject.annotations.get(MIN_PARALLELISM))
    if not said or not subject.kind.parallelism:
        return None
    now, asked = field_at(subject.body, subject.kind.parallelism), text(subject.annotations.get(PARALLELISM))
    most = max(whole_number(asked) or 0, 1 if now is None else number(now))
    least = whole_number(said) or 0
    if least < 1:
        return Elastic(most, most, f"{MIN_PARALLELISM} must be a whole number of 1 or more, not {said!r}")
    if least > most:
        return Elastic(most, most, f"{MIN_PARALLELISM} is {said}, above its parallelism of {most}: it waits for {most}")
    return Elastic(least, most)


def as_elastic(kind: AdmissibleKind, body: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return a Job with this parallelism."""
    return with_field(body, kind.parallelism.split("."), number)


# -- the gang ---------


def gang_for(
    subject: Subject,
    parts: Sequence[Part],
    counts: Sequence[int],
    *,
    server: str,
    priority: int = 0,
    label: str = "",
    standing: bool = False,
) -> GangAsked:
    """Describe the gang of an object: so many objects of each part, each number above 0.

    ``label``: its pods carry it already. ``standing``: it runs already, and does not wait. What room it lacks it gets
    before all that waits: its pods can't be held back, and would take the room of objects that were let in before it.
    Raises ``GangError``.
    """
    priority = PRIORITY_MAX if standing else priority
    kind, name = subject.kind, subject.name
    return GangAsked(
        Creation(server, "", subject.namespace, kind.resource, {"metadata": {"name": name}}, priority),
        Parts((part.demand, count) for part, count in zip(parts, counts, strict=True)),
        standing=standing,
        templates={kind.resource: templates_of(kind, parts)},
        pods_made=frozenset(number for number, part in enumerate(parts) if part.kind == POD),
        titles=tuple(_title(kind, name, part) for part in parts),
        made_from=NO_ROOT,
        keeps=True,
        label=label,
    )


def _title(kind: AdmissibleKind, name: str, part: Part) -> str:
    what = "pods" if part.kind == POD else f"{part.kind}s"
    return f"the {what} of {kind.kind} {name}" if part.made_by == kind.kind else f"the {what} of its {part.made_by}s"


def templates_of(kind: AdmissibleKind, parts: Sequence[Part]) -> frozenset[str]:
    """Return the sections that its pods are made from, where their labels may change."""
    return frozenset(part.template for part in parts if part.template) if kind.labelled else frozenset()


def whole_gang(kind: AdmissibleKind, body: Mapping[str, Any], parts: Sequence[Part]) -> GangAsked:
    """Describe an object and all that it makes as one, as a Task does that creates it. Raises ``GangError``."""
    return as_one({**body, "apiVersion": kind.api_version, "kind": kind.kind}, tuple(parts), resource=kind.resource)


def same_parts(parts: Sequence[Part], others: Sequence[Part]) -> bool:
    """Return whether these are the same objects, in any number."""
    return [each.demand.key for each in parts] == [each.demand.key for each in others]


def pods_of(parts: Sequence[Part], counts: Sequence[int]) -> int:
    """Return how many pods these are."""
    return sum(count for part, count in zip(parts, counts, strict=True) if part.kind == POD)


def for_one_more(body: Mapping[str, Any], parts: Sequence[Part]) -> tuple[int, ...] | None:
    """Return how many objects of each part a Job needs for one more pod at a time; None: its pods are not of one kind.

    The claims of the volumes of all its completions are among its parts already.
    """
    counts = [part.count or 0 for part in parts]
    pods = pods_of(parts, counts)
    if not pods or sum(part.kind == POD for part in parts) != 1:
        return None
    asked = {CLAIM} if _completions(body) is not None else ()
    return tuple(0 if part.kind in asked else count // pods for part, count in zip(parts, counts, strict=True))


def more_of(asked: GangAsked, each: Sequence[int], number: int, priority: int) -> GangAsked:
    """Return the gang by which another one grows: so many pods and what they bring, which wait at their own place.

    ``each``: how many objects of each part one pod needs.
    """
    needed = [number * count for count in each]
    parts = Parts((demand, count) for (demand, _), count in zip(asked.parts.parts, needed, strict=True) if count)
    creation = replace(asked.creation, priority=priority)
    titles = tuple(title for title, count in zip(asked.titles, needed, strict=True) if count)
    return replace(asked, creation=creation, parts=parts, titles=titles, standing=False, label="")

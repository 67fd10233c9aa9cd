"""Compute the parts of a manifest: the objects that controllers make of it, with what each is charged.

A *part* is a number of equal objects. The parts of a manifest exist at the same time, so they must fit together: also
the claims of volumes that a Job's pods leave behind when they end, which stay as long as the Job. Parts are what the
controllers of Kubernetes and of well-known operators make (``workloads``, ``operators``, ``spark``), as far as the
manifest shows. Like ``footprint``, they lack what admission adds. ``footprint_of`` adds them to the charge of the
create itself, and marks the sum as estimated. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.kube.answers.fields import FieldError, mapping_at, required_mapping_at, text_at

from .footprint import charge, checked
from .operators import DASK, RAY, TRAINING_JOBS
from .resources import resource_of
from .spark import SPARK
from .workloads import JOB_SETS, WORKLOADS, Made, Maker

PARTS_MAX: Final = 16
"""As many parts as a gang may have."""
COUNT: Final = "count/"

_MAKERS: Final[Mapping[str, Maker]] = {**WORKLOADS, **JOB_SETS, **TRAINING_JOBS, **RAY, **SPARK, **DASK}


@dataclass(frozen=True, slots=True)
class Part:
    """Equal objects that a controller makes. ``demand`` is the charge of one of them."""

    demand: Demand
    count: int | None
    """None where only the cluster knows: a DaemonSet makes a pod for each node."""
    kind: str
    made_by: str
    """The kind of the object that owns them."""
    template: str = ""
    """For pods, the path of the section that they are made from, where their labels can be set; or empty."""
    suspended: bool = False
    """They are made only when the manifest is resumed."""
    claim_template: str = ""
    """For ResourceClaims, the ResourceClaimTemplate that says which devices they ask for (``device_claims``)."""

    @property
    def resource(self) -> str:
        """The resource that its objects are counted as, ``pods`` or ``jobs.batch``; empty: they are not counted."""
        counts = (name.removeprefix(COUNT) for name in self.demand.amounts if name.startswith(COUNT))
        return next(counts, "")


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a manifest will be charged, with everything that it makes.

    ``estimated``: it makes objects, or is of an unknown custom kind. ``demand`` contains the parts whose number is
    known and that are not suspended; its scopes are those of any of the pods.
    """

    kind: str
    estimated: bool
    demand: Demand
    parts: tuple[Part, ...] = ()


def footprint_of(manifest: Mapping[str, Any]) -> Footprint:
    """Return what a manifest will be charged, including all objects that it makes. Raises as ``footprint`` does.

    A suspended object is not charged yet. See ``docs/decisions/parts.md`` for what each kind makes.
    """
    resource = resource_of(checked(manifest))
    mapping_at(manifest, "metadata", "")  # most charges do not need it, but the server rejects a malformed one
    own = charge(manifest, resource)
    kind = text_at(manifest, "kind", "")
    if not makes_others(resource):
        return Footprint(kind, estimated=is_custom(resource), demand=own)
    amounts, scopes = dict(own.amounts), set(own.scopes)
    for part in all_parts(manifest, resource):
        if part.kind == "Pod":
            scopes |= part.demand.scopes
        if part.count and not part.suspended:
            for name, amount in part.demand.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount * part.count
    return Footprint(kind, estimated=True, demand=Demand(amounts, scopes), parts=parts_of(manifest, resource=resource))


def parts_of(manifest: Mapping[str, Any], *, resource: str | None = None) -> tuple[Part, ...]:
    """Return what a manifest makes, in the order of its fields; no part for kinds that make no pods or are unknown.

    ``resource`` is ``RESOURCE[.GROUP]`` if the caller knows it. Parts of zero objects are left out. Raises
    ``FieldError`` for a malformed manifest, and for more than 16 parts.
    """
    parts = tuple(part for part in all_parts(manifest, resource or resource_of(manifest)) if part.count != 0)
    if len(parts) > PARTS_MAX:
        surplus = parts[PARTS_MAX]
        raise FieldError(
            f"{surplus.template or 'spec'}: {surplus.kind} made by {surplus.made_by} is part {PARTS_MAX + 1} of this "
            f"manifest: at most {PARTS_MAX} parts can be admitted together, split it"
        )
    return parts


def all_parts(manifest: Mapping[str, Any], resource: str) -> tuple[Part, ...]:
    """Return all parts, also those of zero objects. Raises ``FieldError`` for a malformed manifest."""
    if not makes_others(resource):
        return ()
    root = Made(
        kind=text_at(manifest, "kind", ""),
        resource=resource,
        spec=required_mapping_at(manifest, "spec", ""),
        at="spec",
        metadata=mapping_at(manifest, "metadata", ""),
        version=text_at(manifest, "apiVersion", "").rpartition("/")[2],
    )
    found: dict[tuple[object, ...], Part] = {}
    for part in _parts(root, 1, 1, suspended=False):
        key = (part.demand.key, part.kind, part.made_by, part.template, part.suspended, part.claim_template)
        found[key] = _together(found[key], part) if key in found else part
    return tuple(found.values())


def makes_others(resource: str) -> bool:
    """Return whether objects of a kind make others, and we know which.

    A bare pod does not count: the claims of its ephemeral volumes are reported only where something else makes the pod.
    """
    return resource in _MAKERS and resource != "pods"


def is_custom(resource: str) -> bool:
    """Return whether a kind is not Kubernetes' own: only its operator knows what it may make."""
    group = resource.partition(".")[2]
    return "." in group and not group.endswith(".k8s.io")


def _parts(made: Made, number: int | None, in_all: int | None, *, suspended: bool) -> Iterator[Part]:
    """Go through what ``number`` objects make, ``in_all`` with those that have ended, and what that makes in turn."""
    own = _MAKERS.get(made.resource)
    for child in (*made.makes, *(own(made) if own else ())):
        count = _times(in_all if child.outlasts else number, child.number)
        in_the_end = count if child.in_all is None else _times(number, child.in_all)
        waits = suspended or child.suspended
        document = {"kind": child.kind, "metadata": child.metadata, "spec": child.spec}
        demand = charge(document, child.resource, child.at)
        template = child.template if child.kind == "Pod" else ""
        yield Part(demand, count, child.kind, made.kind, template, waits, child.claim_template)
        yield from _parts(child, count, in_the_end, suspended=waits)


def _times(number: int | None, each: int | None) -> int | None:
    return None if number is None or each is None else number * each


def _together(one: Part, other: Part) -> Part:
    """Return two parts of equal objects as one: the Jobs of a JobSet."""
    count = None if one.count is None or other.count is None else one.count + other.count
    return replace(one, count=count)

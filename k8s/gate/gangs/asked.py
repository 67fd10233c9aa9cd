"""What a caller asks for: a gang of members in one namespace, checked before anything waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.parts import MEMBERS_MAX, Parts, is_count
from backoff_ctrl.k8s.charges.footprint import FootprintError, footprint
from backoff_ctrl.k8s.charges.parts import Part, parts_of
from backoff_ctrl.k8s.charges.resources import resource_of
from backoff_ctrl.k8s.creates.creation import Creation, OptionError

Makes = Callable[[Mapping[str, Any], str], Iterable[Part]]

_PART: Final = re.compile(r"\bpart (?P<number>\d+)")


class GangRefused(Exception):  # noqa: N818 - the engine's word for it
    """A gang was not admitted, and nothing of it was created; the message says why, with the part and the amount.

    ``reason`` is the engine's word: ``never-fits``, ``quotas-unreadable``, ``too-many-waiting``, ``given-back``.
    """

    def __init__(self, said: str, reason: str = "") -> None:
        super().__init__(said, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class GangAsked:
    """A gang: its parts, and how it waits. ``limit``: seconds without a draw after which what is undrawn is given back.

    ``creation`` says where it goes, and with which priority and time limit it waits; its body names the gang.
    ``templates`` are the sections from which others make pods, by the resource that is created for that: the pods get
    the gang's label there. ``pods_made`` are the numbers of those parts, from 0.
    """

    creation: Creation
    parts: Parts
    limit: float | None = None
    standing: bool = False
    templates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pods_made: frozenset[int] = frozenset()
    titles: tuple[str, ...] = ()
    """What people know each part by."""
    made_from: Mapping[str, Any] | None = None
    """The stored object that others make the members from, if this gang does not create it."""

    def in_words(self, detail: str) -> str:
        """Name the parts that an explanation counts: ``part 2`` becomes ``part 2, the pods of Job train``."""
        return _PART.sub(lambda found: self._titled(found[0], int(found["number"])), detail)

    def _titled(self, said: str, number: int) -> str:
        return f"{said}, {self.titles[number - 1]}" if 0 < number <= len(self.titles) else said

    @property
    def count(self) -> int:
        return sum(count for _, count in self.parts.parts)


class _Members:
    """Collects members; those of equal charge are one part."""

    def __init__(self, namespace: str, resource: str, makes: Makes) -> None:
        self.namespace = namespace
        self.resource = resource
        self._makes = makes
        self.counts: dict[tuple[str, bool], tuple[Demand, int]] = {}  # by demand, and whether others make them
        self.titles: dict[tuple[str, bool], str] = {}
        self.templates: dict[str, frozenset[str]] = {}

    def add(self, number: int, manifest: Mapping[str, Any], count: int) -> None:
        if not isinstance(manifest, dict):
            raise GangError(
                f"part {number} is not a manifest but {type(manifest).__name__}: a gang is a list of objects"
            )
        metadata = manifest.get("metadata")
        other = metadata.get("namespace") if isinstance(metadata, dict) else None
        if other not in (None, "", self.namespace):
            raise GangError(
                f"part {number} is of namespace {other}, the gang of {self.namespace}: quotas hold for one each"
            )
        try:
            resource = resource_of(manifest) if manifest.get("kind") and manifest.get("apiVersion") else self.resource
            title = _title(manifest, resource)
            self._put(footprint(manifest, resource=resource), count, title, made=False)
            made = [part for part in self._makes(manifest, resource) if not part.suspended]
        except (FootprintError, AttributeError) as error:
            raise GangError(f"part {number} can't be read: {error}") from error
        for part in made:
            if part.count is None:
                raise GangError(f"part {number}: only the cluster knows how many {part.kind}s a {part.made_by} makes")
            self._put(part.demand, count * part.count, f"the {part.kind}s of {title}", made=part.kind == "Pod")
        sections = frozenset(part.template for part in made if part.template)
        if sections:
            self.templates[resource] = self.templates.get(resource, frozenset()) | sections

    def _put(self, demand: Demand, count: int, title: str, *, made: bool) -> None:
        known = self.counts.get((demand.key, made))
        if known is not None and is_count(count):
            count += known[1]
        self.counts[demand.key, made] = (demand, count)
        self.titles.setdefault((demand.key, made), title)


def _makes(manifest: Mapping[str, Any], resource: str) -> Iterable[Part]:
    return parts_of(manifest, resource=resource)


def _title(manifest: Mapping[str, Any], resource: str) -> str:
    """Return what people know an object by: the first of equal ones stands for all."""
    metadata = manifest.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{manifest.get('kind') or resource} {name}".strip()


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def gang_of(  # noqa: PLR0913 - each is an option of its own
    namespace: str,
    members: Iterable[tuple[Mapping[str, Any], int]],
    *,
    resource: str = "pods",
    name: str = "",
    server: str = "",
    credential: str = "",
    priority: int = 0,
    timeout: float | None = None,
    limit: float | None = None,
    standing: bool = False,
    made_from: Mapping[str, Any] | None = None,
    makes: Makes = _makes,
) -> GangAsked:
    """Describe a gang by (manifest, number of them). Members of equal charge are one part.

    What a manifest's controller makes of it (the pods of a Job) belongs to the gang. ``resource`` is that of manifests
    without a kind. ``name`` is what people know the gang by. ``standing``: what lives of it already lacks these
    members, after a restart: it does not wait. ``made_from``: the object, as it is stored, that others make the members
    from; they are known by it, and what is reserved for them outlasts the gang's block. ``makes`` says
    what is made of a manifest, where the caller knows more than we do. Raises ``OptionError`` for an
    option that is wrong, and ``GangError``, which is a ``ValueError``, for members that can't be read, are of several
    namespaces, or make no gang.
    """
    if limit is not None and not _is_limit(limit):
        raise OptionError(f"limit must be a number of seconds above 0, not {limit!r}")
    found = _Members(namespace, resource, makes)
    for number, (manifest, count) in enumerate(members, 1):
        if not is_count(count):
            raise GangError(f"part {number} has 1 to {MEMBERS_MAX} members, as a whole number, not {count!r}")
        found.add(number, manifest, count)
    parts = Parts(found.counts.values())
    body = {"metadata": {"name": name or f"gang-of-{sum(count for _, count in parts.parts)}"}}
    creation = Creation(server, credential, namespace, resource, body, priority, timeout)
    made = frozenset(number for number, (_, is_made) in enumerate(found.counts) if is_made or made_from is not None)
    return GangAsked(creation, parts, limit, standing, found.templates, made, tuple(found.titles.values()), made_from)

"""What else decides about an object: LimitRanges, PriorityClasses, the controllers above it, a quota's permission."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeVar

from backoff_ctrl.engine.backoff import full_jitter
from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.answers.fields import annotations_of, mappings, metadata_of, text
from backoff_ctrl.k8s.charges.parts import Part
from backoff_ctrl.k8s.creates.creation import PRIORITY_MAX, Owner
from backoff_ctrl.k8s.gate.any_gate import NAMES
from backoff_ctrl.k8s.plugins.manager.objects import Objects
from backoff_ctrl.k8s.plugins.protocol import JSON
from backoff_ctrl.k8s.status.admission_rules import Item, items_of
from backoff_ctrl.k8s.status.bodies import found_at
from backoff_ctrl.k8s.watching.gangs import path_of
from backoff_ctrl.k8s.watching.informer import ClusterSource
from backoff_ctrl.k8s.watching.objects import Kind as Watched
from backoff_ctrl.k8s.watching.objects import WatchAbsentError, WatchBrokenError, WatchForbiddenError

from .kinds import PRIORITY, AdmissibleKind, controller_of, kind_of, whole_number

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_PRIORITY: Final = "backoff-ctrl.dev/max-priority"
"""The annotation of a ResourceQuota up to which objects of its namespace may set a priority of their own."""
DEPTH: Final = 5
"""Controllers above an object that are followed."""
REMEMBERED: Final = 2048
"""Objects whose controllers are remembered."""
SIDE_BY_SIDE: Final = 8
"""Controllers that are looked up at a time."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries of a question that was not answered; the first and the longest."""
TOO_MANY: Final = 429
BROKEN: Final = 500
CRON_JOB: Final = ("batch", "CronJob")


@dataclass(frozen=True, slots=True)
class Followed:
    """A kind that is watched. ``changed`` takes an object in, and returns the namespace that is concerned, if any."""

    kind: Watched
    made: tuple[str, str]
    changed: Callable[[JSON, bool], str | None]


class Surroundings:
    """Kept up to date by the watches that ``watched`` names."""

    def __init__(self, objects: Objects, source: ClusterSource, kinds: Sequence[AdmissibleKind]) -> None:
        self._objects = objects
        self._source = source
        self._kinds = kinds
        self._limit_ranges: dict[str, dict[str, JSON]] = {}
        self._items: dict[str, Sequence[Item]] = {}
        self._priorities: dict[str, int] = {}
        self._default_class = ""
        self._above: OrderedDict[str, Owner | None] = OrderedDict()  # the controller of each object, by its uid
        self._reading = asyncio.Semaphore(SIDE_BY_SIDE)
        self.watched = (
            Followed(
                Watched("/api/v1", "limitranges", frozenset({"LimitRange"})), ("v1", "LimitRange"), self._limit_range
            ),
            Followed(
                Watched(
                    "/apis/scheduling.k8s.io/v1", "priorityclasses", frozenset({"PriorityClass"}), namespaced=False
                ),
                ("scheduling.k8s.io/v1", "PriorityClass"),
                self._priority_class,
            ),
        )

    # -- LimitRanges ---------

    def limits(self, namespace: str) -> Sequence[Item]:
        return self._items.get(namespace, ())

    def _limit_range(self, body: JSON, gone: bool) -> str | None:
        metadata = metadata_of(body)
        namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
        ranges = self._limit_ranges.setdefault(namespace, {})
        if gone:
            ranges.pop(name, None)
        else:
            ranges[name] = body
        self._items[namespace] = items_of(ranges.values())
        if not ranges:
            del self._limit_ranges[namespace], self._items[namespace]
        return namespace

    # -- priority ---------

    def _priority_class(self, body: JSON, gone: bool) -> None:
        name, value = text(metadata_of(body).get("name")), body.get("value")
        self._priorities.pop(name, None)
        if not gone and isinstance(value, int):
            self._priorities[name] = max(-PRIORITY_MAX, min(value, PRIORITY_MAX))
        if body.get("globalDefault") is True and not gone:
            self._default_class = name
        elif self._default_class == name:
            self._default_class = ""

    async def priority(self, body: Mapping[str, Any], parts: Sequence[Part]) -> tuple[int, str]:
        """Return the priority of an object, its annotation's or else the highest of its pods' PriorityClasses.

        The annotation may not go above 0, unless who may update the quotas there has allowed it on one of them. Why it
        does not count as it stands is returned, too: a sentence, or nothing.
        """
        said = text(annotations_of(body).get(PRIORITY))
        wanted = _priority(said)
        if wanted is None:
            wrong = f"{PRIORITY} must be a whole number, not {said!r}: its PriorityClass counts" if said else ""
            names = [
                text((found_at(f"{part.template}.spec", body) or {}).get("priorityClassName")) or self._default_class
                for part in parts
                if part.template and isinstance(found_at(f"{part.template}.spec", body), dict)
            ]
            return max((self._priorities.get(name, 0) for name in names), default=0), wrong
        allowed = wanted if wanted <= 0 else await self._allowed(text(metadata_of(body).get("namespace")))
        if wanted <= allowed:
            return wanted, ""
        return allowed, (
            f"{PRIORITY} is {wanted} but counts as {allowed}: more has to be allowed by the annotation "
            f"{MAX_PRIORITY} of a ResourceQuota of its namespace"
        )

    async def _allowed(self, namespace: str) -> int:
        listed = await _answered(lambda: self._quotas(namespace))
        numbers = [_priority(text(annotations_of(each).get(MAX_PRIORITY))) for each in listed]
        return max((number for number in numbers if number is not None), default=0)

    async def _quotas(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        answer = await self._objects.ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")
        if answer.status == TOO_MANY or answer.status >= BROKEN:
            raise OutcomeUnknown(f"the API server answers {answer.status}")
        return mappings((answer.json() or {}).get("items")) if answer.ok else ()

    # -- the controllers above ---------

    def known_above(self, body: Mapping[str, Any], *, whole: bool = False) -> Sequence[Owner] | None:
        """Return the chain of controllers above an object; None: somebody has to be asked.

        It ends with the first that is admissible, and with a CronJob: what stands above that does not matter, unless
        the ``whole`` chain is asked for.
        """
        chain: list[Owner] = []
        owner = controller_of(body)
        while owner is not None and len(chain) < DEPTH:
            chain.append(owner)
            if not whole and _ends(owner, self._kinds):
                break
            if owner.uid not in self._above:
                return None
            owner = self._above[owner.uid]
        return chain

    async def above(self, body: Mapping[str, Any], *, whole: bool = False) -> Sequence[Owner]:
        """Return that chain, and ask the server where need be. What can't be read ends it."""
        while (chain := self.known_above(body, whole=whole)) is None:
            await self._look_up(self._unknown(body), text(metadata_of(body).get("namespace")))
        return chain

    def _unknown(self, body: Mapping[str, Any]) -> Owner:
        owner = controller_of(body)
        while owner is not None and owner.uid in self._above:
            owner = self._above[owner.uid]
        assert owner is not None
        return owner

    async def _look_up(self, owner: Owner, namespace: str) -> None:
        found: Mapping[str, Any] = {}
        async with self._reading:
            try:
                found = await _answered(lambda: self._source.metadata(path_of(owner, namespace)))
            except (WatchAbsentError, WatchForbiddenError) as error:
                log.info("who controls %s %s/%s is not known: %s", owner.kind, namespace, owner.name, error)
        same = found.get("uid") == owner.uid
        self._above[owner.uid] = controller_of({"metadata": found}) if same else None
        if len(self._above) > REMEMBERED:
            self._above.popitem(last=False)


async def _answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the API server answers: one that is away for a moment must not decide about an object."""
    for tries in count(1):
        try:
            return await ask()
        except (NotSent, OutcomeUnknown, WatchBrokenError) as error:
            log.debug("asked again: %s", error)
            await asyncio.sleep(full_jitter(tries, FIRST_PAUSE, LONGEST_PAUSE, NAMES))
    raise AssertionError("it is asked for ever")


def _ends(owner: Owner, kinds: Sequence[AdmissibleKind]) -> bool:
    group = owner.api_version.rpartition("/")[0]
    return (group, owner.kind) == CRON_JOB or kind_of(owner, kinds) is not None


def _priority(said: str) -> int | None:
    number = whole_number(said)
    return None if number is None else max(-PRIORITY_MAX, min(number, PRIORITY_MAX))

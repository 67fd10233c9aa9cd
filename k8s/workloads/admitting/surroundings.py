"""What else decides about an object: LimitRanges, PriorityClasses, the controllers above it, a quota's permission."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from backoff_ctrl.k8s.gate.creates.calls import quotas_url
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.observing.gangs import path_of
from backoff_ctrl.k8s.gate.runtime.places import Path, Places
from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.charges.admission_rules import Item, items_of
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.paths import PathError
from backoff_ctrl.k8s.kube.pauses import Pauses
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError, WatchBrokenError, WatchedKind, WatchForbiddenError

from .kinds import WAITING_NAMESPACES, AdmissibleKind, Subject, controller_in, kind_of
from .priorities import Priorities, priority_allowed, priority_asked

log = logging.getLogger(__name__)

T = TypeVar("T")

DEPTH: Final = 5
"""Controllers above an object that are followed."""
NAMED_MAX: Final = 300
"""Characters of what others have written that a log line has."""
REMEMBERED: Final = 2048
"""Objects whose controllers are remembered."""
SIDE_BY_SIDE: Final = 8
OF_ONE: Final = 2
"""Questions that are asked at a time, in all and about the objects of one namespace."""
TRIES: Final = 10
"""Tries of a question: about 20 s. A leader whose server is away for longer leads no more, and begins anew."""
ANSWER_WITHIN: Final = 10.0
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries of a question that was not answered; the first and the longest."""
TOO_MANY: Final = 429
BROKEN: Final = 500
CRON_JOB: Final = ("batch", "CronJob")


@dataclass(frozen=True, slots=True)
class Followed:
    """A kind that is watched. ``changed`` takes an object in, and returns the namespace that is concerned, if any."""

    kind: WatchedKind
    made: tuple[str, str]
    changed: Callable[[JSON, bool], str | None]


class UnansweredError(Exception):
    """The API server has not answered a question, however often it was asked."""


class Surroundings:
    """Kept up to date by the watches that ``watched`` names."""

    def __init__(self, objects: Objects, source: ClusterSource, kinds: Sequence[AdmissibleKind]) -> None:
        self._objects = objects
        self._source = source
        self._kinds = kinds
        self._limit_ranges: dict[str, dict[str, JSON]] = {}
        self._items: dict[str, Sequence[Item]] = {}
        self._priorities = Priorities()
        self.waiting_in: set[str] = set()
        """The namespaces whose label asks for waiting, as far as this account may know."""
        # The controller of each object, by how it is named: who may write an object names any uid under any name.
        self._above: OrderedDict[tuple[str, Owner], Owner | None] = OrderedDict()
        self._places = Places(_has_room)
        self.watched = (
            Followed(
                WatchedKind("/api/v1", "limitranges", frozenset({"LimitRange"})),
                ("v1", "LimitRange"),
                self._limit_range,
            ),
            Followed(
                WatchedKind(
                    "/apis/scheduling.k8s.io/v1", "priorityclasses", frozenset({"PriorityClass"}), namespaced=False
                ),
                ("scheduling.k8s.io/v1", "PriorityClass"),
                self._priority_class,
            ),
            Followed(WAITING_NAMESPACES, ("v1", "Namespace"), self._namespace),
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

    # -- namespaces ---------

    def _namespace(self, body: JSON, gone: bool) -> str:
        name = text(metadata_of(body).get("name"))
        (self.waiting_in.discard if gone else self.waiting_in.add)(name)
        return name

    # -- priority ---------

    def _priority_class(self, body: JSON, gone: bool) -> None:
        self._priorities.changed(body, gone=gone)

    async def priority(self, subject: Subject, parts: Sequence[Part]) -> tuple[int, str]:
        """Return the priority of an object, its annotation's or else the highest of its pods' PriorityClasses.

        The annotation may not go above 0, unless who may update the quotas there has allowed it on one of them. Why it
        does not count as it stands is returned, too: a sentence, or an empty text.
        """
        wanted, wrong = priority_asked(subject.annotations)
        if wanted is None:
            return self._priorities.of(parts), wrong
        quotas = await self._quotas_of(subject.namespace) if wanted > 0 else ()
        return priority_allowed(wanted, quotas)

    async def _quotas_of(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        try:
            return await self._answered(namespace, lambda: self._quotas(namespace))
        except UnansweredError as error:
            log.warning(
                "no priority above 0 counts in %s for now, since its quotas can't be read: %s", namespace, error
            )
            return ()

    async def _quotas(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        answer = await self._objects.ask("GET", quotas_url("", namespace))
        if answer.status == TOO_MANY or answer.status >= BROKEN:
            raise OutcomeUnknown(f"the API server answers {answer.status}")
        return mappings((answer.json() or {}).get("items")) if answer.ok else ()

    # -- the controllers above ---------

    def known_above(self, namespace: str, owner: Owner | None, *, whole: bool = False) -> Sequence[Owner] | None:
        """Return the chain of controllers above an object: its ``owner`` first. None: the server has to be asked.

        It ends with the first that is admissible, and with a CronJob: what stands above that does not matter, unless
        the ``whole`` chain is asked for.
        """
        chain, missing = self._chain(namespace, owner, whole=whole)
        return chain if missing is None else None

    async def above(self, namespace: str, owner: Owner | None, *, whole: bool = False) -> Sequence[Owner]:
        """Return that chain, and ask the server where need be. What can't be read ends it."""
        asked: dict[Owner, Owner | None] = {}  # a chain needs no remembered owner, which others may displace
        while (found := self._chain(namespace, owner, whole=whole, asked=asked))[1] is not None:
            asked[found[1]] = await self._look_up(found[1], namespace)
        return found[0]

    def _chain(
        self,
        namespace: str,
        owner: Owner | None,
        *,
        whole: bool,
        asked: Mapping[Owner, Owner | None] | None = None,
    ) -> tuple[list[Owner], Owner | None]:
        """Return the chain as far as it is known, and whose controller is to be asked for; None: it is whole."""
        asked = asked or {}
        chain: list[Owner] = []
        while owner is not None and len(chain) < DEPTH:
            chain.append(owner)
            if not whole and _ends(owner, self._kinds):
                break
            if owner in asked:
                owner = asked[owner]
            elif (namespace, owner) in self._above:
                owner = self._above[namespace, owner]
            else:
                return chain, owner
        return chain, None

    async def _look_up(self, owner: Owner, namespace: str) -> Owner | None:
        """Ask who controls an owner. None: it has no controller, or that is not known."""
        found: Mapping[str, Any] = {}
        label = printable(f"{owner.kind} {namespace}/{owner.name}"[:NAMED_MAX])
        try:
            path = path_of(owner, namespace)
            found = await self._answered(namespace, lambda: self._source.metadata(path))
        except (PathError, WatchAbsentError, WatchForbiddenError) as error:
            log.info("who controls %s is not known: %s", label, error)
        except UnansweredError as error:
            log.warning("who controls %s is not known for now, and counts as nobody: %s", label, error)
            return None  # not remembered: it is asked again when the object changes
        above = controller_in(found) if found.get("uid") == owner.uid else None
        self._above[namespace, owner] = above
        if len(self._above) > REMEMBERED:
            self._above.popitem(last=False)
        return above

    async def _answered(self, namespace: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask a few times: an API server that is away for a moment must not decide about an object.

        A place is taken for each request, not for the pauses. Raises ``UnansweredError``.
        """
        said, pauses = "", Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        for _ in range(TRIES):
            try:
                async with self._places.of(namespace), asyncio.timeout(ANSWER_WITHIN):
                    return await ask()
            except (NotSent, OutcomeUnknown, WatchBrokenError, TimeoutError) as error:
                said = str(error) or "it does not answer in time"
                log.debug("asked again: %s", said)
            await pauses.after_failure()
        raise UnansweredError(printable(said[:NAMED_MAX]))


def _has_room(places: Places, path: Path) -> bool:
    return places.taken[path] < (OF_ONE if path else SIDE_BY_SIDE)


def _ends(owner: Owner, kinds: Sequence[AdmissibleKind]) -> bool:
    group = owner.api_version.rpartition("/")[0]
    return (group, owner.kind) == CRON_JOB or kind_of(owner, kinds) is not None

"""The room of one object: what is asked of the line for it, what is reserved, and how much of that it still needs.

``case`` says when something is asked, reserved or given back; ``Room`` says how much. Methods that take a body raise
``FieldError`` and ``GangError`` where it can't be read, unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.parts import MEMBERS_MAX
from backoff_ctrl.k8s.gate.clients.session_transport import CreateTransport
from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.gangs import AdmittedGang, GangAsked, GangRefused, GangWait
from backoff_ctrl.k8s.gate.subscribers import Verdict
from backoff_ctrl.k8s.kube.answers.field_paths import found_at
from backoff_ctrl.k8s.kube.answers.fields import FieldError, labels_of, mapping, text
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import Kind
from backoff_ctrl.k8s.kube.watching.objects import is_older

from .asking import (
    Elastic,
    Product,
    as_elastic,
    elastic_of,
    for_one_more,
    gang_for,
    more_of,
    pods_of,
    same_parts,
    succeeded_of,
    templates_of,
)
from .children import Child
from .desk import Desk
from .kinds import AdmissibleKind, Subject
from .needs import Needs

VERDICTS: Final[Mapping[str, Verdict]] = {"now": "create", "unknown": "create", "wait": "wait", "never": "refuse"}


class Next(Enum):
    """What is to be done with the room of what runs."""

    NOTHING = auto()
    STAND = auto()
    """It makes other objects by now: reserve them anew."""
    GROW = auto()
    """It should have more pods."""


class Room:
    """See the module. ``say`` tells people of the object: a reason for machines, and a sentence."""

    def __init__(
        self,
        kind: AdmissibleKind,
        served: Kind,
        needs: Needs,
        desk: Desk,
        say: Callable[[str, str], object],
    ) -> None:
        self.gang: AdmittedGang | None = None
        self.asked: GangAsked | None = None
        self.elastic: Elastic | None = None
        self._kind = kind
        self._served = served
        self._needs = needs
        self._desk = desk
        self._say = say
        self._wait: GangWait | None = None
        self._parts: tuple[Part, ...] = ()
        self._size: tuple[int, ...] = ()
        self._priority = 0
        self._succeeded: set[str] = set()
        self._base, self._since = 0, ""  # of its pods that had succeeded, by its status of this version

    # -- questions ---------

    @property
    def is_reserved(self) -> bool:
        return self.gang is not None and self.gang.gang is not None

    @property
    def is_forgotten(self) -> bool:
        """Whether the engine that reserved it has failed: the new one does not know it."""
        gang = self.gang
        return gang is not None and gang.gang is not None and gang.engine is not self._desk.gate.ledger.controller

    @property
    def pods(self) -> int:
        return pods_of(self._parts, self._size)

    @property
    def resources(self) -> set[str]:
        """The resources of what it makes."""
        return {part.resource for part in self._parts}

    @property
    def templates(self) -> frozenset[str]:
        """The sections that its pods are made from, where their labels may change."""
        return frozenset() if self.asked is None else self.asked.templates[self._kind.resource]

    def waits(self) -> Wait | None:
        """Return what it waits for; None: it has no place in line."""
        return self._wait.wait() if self._wait is not None and not self._wait.over else None

    # -- in line ---------

    async def join(self, subject: Subject) -> None:
        """Wait in line until its room is reserved, if it makes pods. Raises ``GangRefused``, too."""
        asked = await self._ask(subject)
        if asked is not None:
            self.gang = await self._take(asked)

    async def _ask(self, subject: Subject) -> GangAsked | None:
        """Return what to ask of the line; None: it makes no pods."""
        desk, needs, namespace, body = self._desk, self._needs, subject.namespace, subject.body
        self.elastic = elastic_of(subject)
        if self.elastic is not None and self.elastic.wrong:
            self._say("min-parallelism", self.elastic.wrong)
        least = self._least(body, self.elastic)
        self.asked = None
        product = await needs.look_around(least, waits=True)
        mode = desk.gate.mode(namespace)
        if mode == "enforce" and (said := needs.why_never(product)):
            raise GangRefused(said, "never-fits", f"{said}; make it smaller, or ask for a larger quota")
        self._parts = needs.still_to_come(product)
        self._size = needs.counts(least, self._parts)
        if not any(self._size):
            return None
        if max(self._size) > MEMBERS_MAX and mode == "enforce":
            said = f"it asks for {max(self._size)} objects of one kind, and {MEMBERS_MAX} are let in together at most"
            raise GangRefused(said, "never-fits", said)  # not let in as what can't be read: it would pass the line
        self._priority, ignored = await desk.priority(subject, self._parts)
        if ignored:
            self._say("priority", ignored)
        self.asked = gang_for(
            subject,
            self._parts,
            self._size,
            server=desk.server,
            priority=self._priority,
            label=text(subject.admitted.get("gang")),
        )
        if mode == "shadow":
            self._count_shadow(self.asked, namespace)
        return self.asked

    def _least(self, body: Mapping[str, Any], elastic: Elastic | None) -> Mapping[str, Any]:
        """Return the object with as many pods as it may begin with."""
        return body if elastic is None else as_elastic(self._kind, body, elastic.least)

    def _count_shadow(self, asked: GangAsked, namespace: str) -> None:
        """Say what would become of it if its namespace were enforced."""
        ledger = self._desk.gate.ledger
        found = ledger.look(lambda engine, now: engine.outlook(namespace, asked.parts.parts, now))
        ledger.subscribers.shadowed(namespace, VERDICTS[found.prospect])

    async def _take(self, asked: GangAsked, *, apart: bool = False) -> AdmittedGang:
        """Wait for a gang. ``apart``: it is another one than that of the whole."""

        def begun(wait: GangWait) -> None:
            if not apart:
                self._wait = wait

        desk = self._desk
        transport = CreateTransport(desk.objects, self._served, asked.creation.namespace)
        async with desk.gate.gang(asked, transport, begun) as gang:
            return gang

    def makes_else(self, subject: Subject) -> bool:
        """Return whether it makes something else by now than what was asked for: it was edited, or a LimitRange was."""
        return self._needs.still_to_come(self._read_least(subject)) != self._parts

    def _read_least(self, subject: Subject) -> Product:
        return self._needs.read(self._least(subject.body, elastic_of(subject)))

    def lacks_else(self, subject: Subject) -> bool:
        """Return whether its controller has made by now what was asked for beside its pods."""
        self._needs.made_more.set()
        lacks = self._needs.lacks
        return self.asked is not None and bool(lacks) and self._needs.lacking(self._read_least(subject)) != lacks

    # -- what exists of it ---------

    def let_in(self, subject: Subject) -> None:
        """Let its pods be known: by its gang's label, or as its own."""
        self._base, self._since = succeeded_of(subject.body), subject.version
        if self.gang is not None:
            self.gang.stored(subject.body, self._kind.resource)

    def succeeded(self, uid: str, version: str) -> bool:
        """Note that a pod of it has succeeded: it is not made again. Return whether its status may not say so yet."""
        if is_older(version, self._since):
            return False
        self._succeeded.add(uid)
        return True

    def count(self, child: Child, *, lived: bool) -> bool:
        """Charge to it what a controller has made; return whether that is a part of its gang."""
        charged = child.charge(self._needs.devices)
        if self.gang is None or charged is None or child.resource not in self.resources:
            return False
        self.gang.charged(child.uid, charged, child.resource, lived=lived)
        return True

    def settle(self) -> None:
        """Reserve no longer, once it has pods, what is not followed: no event says when that was made."""
        if self.gang is not None and not self.gang.over and self.gang.drawn:
            self._resize(self._needs.followed(self._parts, self._size))

    # -- while it runs ---------

    async def stand(self, subject: Subject) -> str | None:
        """Reserve what a running object makes, without waiting; return the label of its pods.

        None: it makes no pods.
        """
        needs, body = self._needs, subject.body
        product = await needs.look_around(body, waits=False)
        self._parts = needs.still_to_come(product)
        self._size = needs.counts(body, self._parts)
        self.elastic = elastic_of(subject)
        if not any(self._size):
            return None
        label = self._known_label(subject)
        self._priority, _ = await self._desk.priority(subject, self._parts)
        counts = [max(1, size) for size in self._size]
        self.asked = gang_for(subject, self._parts, counts, server=self._desk.server, label=label, standing=True)
        self.gang = await self._take(self.asked)
        self.let_in(subject)
        return label

    def _known_label(self, subject: Subject) -> str:
        for template in sorted(templates_of(self._kind, self._parts)):
            found = text(labels_of(mapping(found_at(template, subject.body))).get(GANG_LABEL))
            if found:
                return found
        return text(subject.admitted.get("gang"))

    def fit(self) -> None:
        """Keep no more than its size, once all that lives of it is taken in: a gang begins with one of each part."""
        if self.gang is not None:
            self.gang.resize(self._size)

    def follow(self, subject: Subject) -> Next:
        """Keep room for no more than a running object still makes; return what is to be done beside that."""
        parts, counts = self._wanted(subject)
        if parts and not same_parts(parts, self._parts):
            return Next.STAND
        self._resize(tuple(map(min, self._size, counts or [0] * len(self._size))))
        return Next.GROW if self._exceeds(subject.body, counts) else Next.NOTHING

    def _resize(self, size: tuple[int, ...]) -> None:
        if self.gang is not None and size != self._size:
            self.gang.resize(size)
            self._size = size

    def _wanted(self, subject: Subject) -> tuple[tuple[Part, ...], tuple[int, ...]]:
        """Return what a running object makes, and how many pods of each part it should have if there were room."""
        self.elastic, body = elastic_of(subject), subject.body
        most = body if self.elastic is None else as_elastic(self._kind, body, self.elastic.most)
        parts = self._needs.still_to_come(self._needs.read(most))
        return parts, self._needs.counts(most, parts, self._base + len(self._succeeded))

    def wants_more(self, subject: Subject) -> bool:
        """Return whether it should have more pods than are reserved. Never raises."""
        with suppress(FieldError, GangError):
            return self._exceeds(subject.body, self._wanted(subject)[1])
        return False

    def _exceeds(self, body: Mapping[str, Any], counts: Sequence[int]) -> bool:
        """Return whether these are more pods than are reserved; only kinds with equal pods grow."""
        if not self._kind.parallelism or len(counts) != len(self._parts) or tuple(counts) == self._size:
            return False
        return pods_of(self._parts, counts) > self.pods > 0 and for_one_more(body, self._parts) is not None

    async def grow(self, subject: Subject) -> bool:
        """Reserve as many more pods as fit now, or else one, behind those who wait; return whether there are more.

        Raises ``GangRefused``, too.
        """
        each = for_one_more(subject.body, self._parts)
        if each is None or self.asked is None or self.gang is None or self.gang.over or not self.wants_more(subject):
            return False
        most = pods_of(*self._wanted(subject)) - self.pods
        number = self._needs.fitting(self._parts, each, most)
        more = await self._take(more_of(self.asked, each, number, self._priority), apart=True)
        if more.gang is None:
            return False
        self.gang.absorb(more)
        self._size = tuple(size + number * count for size, count in zip(self._size, each, strict=True))
        return True

    # -- the end ---------

    def forget_parts(self) -> None:
        """Forget objects for which no room can be reserved: they may be a thousand claims."""
        if not self.is_reserved:
            self.asked, self._parts, self._size = None, (), ()

    def give_back(self, uid: str) -> None:
        """Leave the line, and give back what is reserved. Twice is no error."""
        gang, self.gang, self._wait = self.gang, None, None
        self._succeeded.clear()
        if gang is not None:
            self._desk.gate.ledger.gangs.object_ended(uid)
            gang.give_back()

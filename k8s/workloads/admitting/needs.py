"""What one object needs of the quotas: of all that it makes, what is still to come once it is resumed.

Its parts are those that ``explain`` and Tasks know (``charges/parts``), with what only the cluster knows: the defaults
of LimitRanges, what RuntimeClasses and the default StorageClass add, the devices of ResourceClaimTemplates, and what
its controller has made already while it is suspended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.parts import MEMBERS_MAX
from backoff_ctrl.k8s.gate.gangs import why_never
from backoff_ctrl.k8s.kube.charges.device_claims import UNKNOWN, templates_named
from backoff_ctrl.k8s.kube.charges.filling import NO_CLASSES, reading
from backoff_ctrl.k8s.kube.charges.parts import Part

from .asking import POD, Product, counts_of, made_before, parts_made, succeeded_of, whole_gang
from .children import kept_for
from .desk import Desk
from .kinds import AdmissibleKind

MADE_WITHIN: Final = 1.0
"""Seconds for which an object waits for what its controller makes while it is suspended: that is charged by then."""
FITS: Final = frozenset({"now", "unknown"})
"""What the engine says of pods that fit: no quota that it knows is in their way."""

Which: TypeAlias = tuple[str, str, str]
"""What a part is charged, its kind, and the kind of its maker."""


class Needs:
    """See the module. Methods that take a body raise ``FieldError`` and ``GangError``."""

    def __init__(self, kind: AdmissibleKind, uid: str, namespace: str, name: str, desk: Desk) -> None:
        self._kind = kind
        self._namespace = namespace
        self._owners = uid, kept_for(namespace, name)
        self._desk = desk
        self.devices, self.classes = UNKNOWN, NO_CLASSES
        self.lacks: dict[Which, int] = {}
        """What its controller should have made while it is suspended, and has not."""
        self.made_more = asyncio.Event()
        self._ended_before = 0  # pods that had succeeded when it joined the line: their claims are charged already

    async def look_around(self, body: Mapping[str, Any], *, waits: bool) -> Product:
        """Read what only the cluster knows, and return what it makes by that.

        One that ``waits`` gives its controller a moment to make what it makes while it is suspended.
        """
        desk = self._desk
        self.devices, self.classes = UNKNOWN, NO_CLASSES
        product = self.read(body)
        self.classes = await desk.objects.learn(reading(product.maker, product.kind.resource, product.parts))
        if templates_named(product.parts):
            self.devices = await desk.objects.devices(self._namespace, product.parts)
        await desk.children.need({part.resource for part in product.parts})
        if (self.devices, self.classes) != (UNKNOWN, NO_CLASSES):
            product = self.read(body)  # if anything else has changed meanwhile, it joins anew (``Case._compare``)
        self._ended_before = succeeded_of(body) if waits else 0
        self.lacks = self.lacking(product) if waits else {}
        with suppress(TimeoutError):
            async with asyncio.timeout(MADE_WITHIN):
                while self.lacks:
                    self.made_more.clear()
                    await self.made_more.wait()
                    product = self.read(body)
                    self.lacks = self.lacking(product)
        return product

    def read(self, body: Mapping[str, Any]) -> Product:
        """Return all that it makes, also what it has made already."""
        if (found := self._desk.maker(self._kind, body)) is None:
            raise GangError(f"the object of {self._kind.made_through} that its controller makes is gone")
        kind, maker = found
        parts = parts_made(kind, maker, self._desk.limits(self._namespace), self.devices, self.classes)
        return Product(kind, maker, parts, made_before(kind, maker))

    def still_to_come(self, product: Product) -> tuple[Part, ...]:
        """Return what it makes once it is resumed, and what of the rest its controller could not make yet."""
        found = []
        for part in product.parts:
            is_before = (part.kind, part.made_by) in product.before
            if count := self.lacks.get(_which(part), 0) if is_before else part.count:
                found.append(replace(part, count=count))
        return tuple(found)

    def lacking(self, product: Product) -> dict[Which, int]:
        """Return what its controller makes while it is suspended, and has not made yet, as far as that is followed."""
        if not product.before:
            return {}
        children = self._desk.children
        there = Counter(child.resource for owner in self._owners for child in children.below(self._namespace, owner))
        found: dict[Which, int] = {}
        for part in product.parts:
            if (part.kind, part.made_by) in product.before and children.follows(part.resource):
                made = min(part.count or 0, there[part.resource])
                there[part.resource] -= made
                if more := (part.count or 0) - made:
                    found[_which(part)] = more
        return found

    def counts(self, body: Mapping[str, Any], parts: Sequence[Part], succeeded: int = 0) -> tuple[int, ...]:
        """Return how many objects of each part are still to come, or live."""
        return counts_of(self._kind, body, parts, succeeded, self._ended_before)

    def followed(self, parts: Sequence[Part], counts: Sequence[int]) -> tuple[int, ...]:
        """Return these counts without what is not followed: no event says when that was made."""
        follows = self._desk.children.follows
        pairs = zip(parts, counts, strict=True)
        return tuple(count if part.kind == POD or follows(part.resource) else 0 for part, count in pairs)

    def fitting(self, parts: Sequence[Part], each: Sequence[int], most: int) -> int:
        """Return how many more pods to reserve at once: at least half of what fits, all where no quota counts.

        ``each``: how many objects of each part one pod needs. So many patches follow as there are halves, not pods.
        """
        number = min(most, MEMBERS_MAX)
        while number > 1 and not self._fits(parts, [number * count for count in each]):
            number //= 2
        return number

    def _fits(self, parts: Sequence[Part], counts: Sequence[int]) -> bool:
        wanted = [(part.demand, count) for part, count in zip(parts, counts, strict=True) if count]
        found = self._desk.gate.ledger.look(lambda engine, now: engine.outlook(self._namespace, wanted, now))
        return found.prospect in FITS

    def why_never(self, product: Product) -> str:
        """Return why all that it makes never fits, by what is known of the quotas; empty: it does."""
        with suppress(GangError):
            asked = whole_gang(product.kind, product.maker, product.parts)
            wanted = ((asked.parts, 1),)
            ledger, namespace = self._desk.gate.ledger, self._namespace
            return why_never(asked, ledger.look(lambda engine, now: engine.outlook(namespace, wanted, now)))
        return ""


def _which(part: Part) -> Which:
    return part.demand.key, part.kind, part.made_by

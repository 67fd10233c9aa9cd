"""Which gang a pod is of, by the objects that own it: a Job's pod directly, others by a chain of owners.

Owners on the way (the Job of a JobSet, the RayCluster of a RayJob) are looked up by their metadata: each once, few at a
time, at most ``RATE`` a second, and only for pods that are no older than what a gang created.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from backoff_ctrl.k8s.charges.resource_names import plural_of
from backoff_ctrl.k8s.cluster.token_bucket import Bucket

from .reading import WatchAbsentError, WatchBrokenError, WatchForbiddenError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

DEPTH: Final = 5
"""Owners above a pod that are followed."""
SIDE_BY_SIDE: Final = 4
"""Owners of one object that are followed: as a rule there is one, its controller."""
FOLLOWED: Final = 16
"""Owners above one pod that are followed in all."""
REMEMBERED: Final = 2048
RATE: Final = 10.0
BURST: Final = 50
TRIES: Final = 3
_PLAIN: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]{0,252}")


class Metadata(Protocol):
    """Where metadata comes from."""

    async def metadata(self, path: str) -> Mapping[str, Any]:
        """Return the metadata of the object at this path. Raises the errors of ``reading``."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An entry of ``ownerReferences``."""

    uid: str
    kind: str
    name: str
    version: str

    def path(self, namespace: str) -> str:
        """Return its path. The plural of a custom kind is the regular one, as everywhere."""
        root = "/apis" if "/" in self.version else "/api"
        return f"{root}/{self.version}/namespaces/{namespace}/{plural_of(self.kind)}/{self.name}"


def owners_of(metadata: Mapping[str, Any]) -> tuple[Owner, ...]:
    """Return who owns an object: its controller first. Malformed entries are left out."""
    listed = metadata.get("ownerReferences")
    found = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    found.sort(key=lambda each: each.get("controller") is not True)
    fields: list[list[Any]] = [[each.get(name) for name in ("uid", "kind", "name", "apiVersion")] for each in found]
    return tuple(Owner(*each) for each in fields if _are_plain(*each))[:SIDE_BY_SIDE]


def _are_plain(*fields: object) -> bool:
    """Say whether these may be parts of a path: whoever creates a pod writes them, and the server lets all pass."""
    *others, version = fields
    group_and_version = version.split("/") if isinstance(version, str) else []
    texts = [*others, *group_and_version]
    known = 0 < len(group_and_version) <= 2
    return known and all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in texts)


class Owners:
    """The owners of one namespace, as far as they were looked up. ``label_of`` tells what a gang created, by uid."""

    def __init__(self, source: Metadata, namespace: str, label_of: Callable[[str], str | None]) -> None:
        """Start with none known."""
        self._source = source
        self._namespace = namespace
        self._label_of = label_of
        self._known: OrderedDict[str, tuple[Owner, ...]] = OrderedDict()
        self._looks: dict[str, asyncio.Task[tuple[Owner, ...]]] = {}
        self._forbidden: set[str] = set()
        self._bucket = Bucket(RATE, BURST)

    def knows(self, uid: str) -> bool:
        """Say whether it is known who owns an object."""
        return uid in self._known

    def know(self, uid: str, owners: tuple[Owner, ...]) -> None:
        """Remember who owns an object: a driver's pod owns the executors'."""
        self._known[uid] = owners
        self._known.move_to_end(uid)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def gang_of(self, owners: tuple[Owner, ...]) -> str | None:
        """Return the label of the gang that created one of these, or an owner of theirs; None: no gang did."""
        level, followed = list(owners), 0
        for _ in range(DEPTH):
            above: list[Owner] = []
            for owner in level:
                label = self._label_of(owner.uid)
                if label is not None:
                    return label
                if followed < FOLLOWED:
                    followed += 1
                    above += await self._owners_above(owner)
            level = above
        return None

    async def _owners_above(self, owner: Owner) -> tuple[Owner, ...]:
        """Return who owns an owner; several that ask at a time share one look-up."""
        known = self._known.get(owner.uid)
        if known is not None:
            return known
        look = self._looks.get(owner.uid)
        if look is None:
            look = self._looks[owner.uid] = asyncio.ensure_future(self._look_up(owner))
            look.add_done_callback(lambda _: self._looks.pop(owner.uid, None))
        return await asyncio.shield(look)

    async def _look_up(self, owner: Owner) -> tuple[Owner, ...]:
        """Ask the server. What can't be known (gone, forbidden) has no owners; so has one of another uid."""
        kind = f"{plural_of(owner.kind)} of {owner.version}"
        found: Mapping[str, Any] = {}
        for number in range(TRIES):
            if kind in self._forbidden:
                return ()
            await asyncio.sleep(self._wait())
            try:
                found = await self._source.metadata(owner.path(self._namespace))
                break
            except WatchAbsentError:
                break
            except WatchForbiddenError as error:
                self._forbidden.add(kind)
                log.warning(
                    "%s in %s may not be read, so the pods that a gang's objects make through them are known only by "
                    "the gang's label (%s)",
                    kind,
                    self._namespace,
                    error,
                )
                return ()
            except WatchBrokenError as error:
                if number + 1 == TRIES:
                    log.debug("%s %s: %s", owner.kind, owner.name, error)
                    return ()  # not remembered: the next pod asks again
        above = owners_of(found) if found.get("uid") == owner.uid else ()
        self.know(owner.uid, above)
        return above

    def _wait(self) -> float:
        """Take a token of the next look-up; return how long to wait for it."""
        now = asyncio.get_running_loop().time()
        wait = self._bucket.wait_for(1, now)
        self._bucket.take(now)
        return wait

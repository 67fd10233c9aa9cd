"""How much memory the objects of one namespace may take: counted as they are kept, and bounded.

One user may store thousands of objects of a megabyte, and a watch of a kind in all namespaces keeps a part of each.
``Shares`` counts the bytes that are kept of each object, by namespace. An object that does not fit is kept as a stub,
and read again once others of its namespace have gone. So one namespace takes no memory from the others.

A namespace may always have ``guaranteed`` bytes, so that many that are full together stop no other. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum, auto
from sys import getsizeof
from typing import Any, Final

OBJECT_MAX: Final = 512 << 10
"""Bytes of one object: of a Job, 300 containers with requests and limits, or as many volumes with claims."""
NAMESPACE_MAX: Final = 128 << 20
"""Bytes of the objects of one namespace: about 9,000 Jobs that wait."""
ALL_MAX: Final = 320 << 20
"""Bytes of all objects. The chart's limit is 1 GiB; objects of Tasks, reading and the engine need a part of it."""
GUARANTEED: Final = 2 << 20
"""Bytes that each namespace may have beside all others: about 150 Jobs that wait."""
BESIDE: Final = 8 << 10
"""Bytes that a Job costs beside what is kept of it: its place in line, its room, its notices."""


class Beyond(Enum):
    """Which bound an object is beyond."""

    OBJECT = auto()
    NAMESPACE = auto()


class Shares:
    """The bytes kept of each namespace's objects, within bounds. On one thread."""

    def __init__(
        self,
        of_object: int = OBJECT_MAX,
        of_namespace: int = NAMESPACE_MAX,
        of_all: int = ALL_MAX,
        guaranteed: int = GUARANTEED,
        beside: int = BESIDE,
    ) -> None:
        self.of_object = of_object
        self._of_namespace = of_namespace
        self._of_all = of_all
        self._guaranteed = guaranteed
        self._beside = beside
        self._sizes: dict[tuple[str, str], int] = {}
        self._by_namespace: Counter[str] = Counter()
        self._all = 0

    def take(self, namespace: str, uid: str, kept: Mapping[str, Any], *, force: bool = False) -> Beyond | None:
        """Count what is to be kept of an object, in place of what was; None: it is. ``force``: even beyond a bound."""
        self.give_back(namespace, uid)
        size = size_of(kept, self.of_object)
        if size > self.of_object and not force:
            return Beyond.OBJECT
        if not self.has_room(namespace, size) and not force:
            return Beyond.NAMESPACE
        size += self._beside
        self._sizes[namespace, uid] = size
        self._by_namespace[namespace] += size
        self._all += size
        return None

    def has_room(self, namespace: str, size: int) -> bool:
        """Return whether an object of this size fits beside the others."""
        more = size + self._beside
        whole = self._by_namespace[namespace] + more
        return whole <= self._guaranteed or (whole <= self._of_namespace and self._all + more <= self._of_all)

    def give_back(self, namespace: str, uid: str) -> None:
        """Count an object no longer. Twice is no error."""
        size = self._sizes.pop((namespace, uid), 0)
        if not size:
            return
        self._all -= size
        self._by_namespace[namespace] -= size
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]

    def of(self, namespace: str) -> int:
        """Return the bytes of the objects of a namespace."""
        return self._by_namespace.get(namespace, 0)


def size_of(value: object, limit: int) -> int:
    """Return how many bytes of memory a JSON value takes; one that takes more than ``limit`` is not counted to its end.

    Names of fields count each time, though those of one object may be shared.
    """
    found, ahead = 0, [value]
    while ahead and found <= limit:
        each = ahead.pop()
        found += getsizeof(each)
        if isinstance(each, Mapping):
            found += sum(map(getsizeof, each))
            ahead += each.values()
        elif isinstance(each, list):
            ahead += each
    return found

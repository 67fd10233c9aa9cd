"""How many objects of tasks there are, by kind, namespace and state: counted as they change, so a look is cheap."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.marks import is_going, metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.plugins.protocol import JSON, Kind

ZERO_FOR: Final = 300.0
"""Seconds for which a number that has fallen to 0 is shown as 0, before it is left out: dashboards must see it fall."""
GOING: Final = "deleting"
ENDED: Final = "ended"
LIVING: Final = "living"

Place = tuple[str, str, str]
"""Kind (``jobs.batch``), namespace and name; of a number, its state instead of the name."""


class Monitor:
    """Written by one event loop, read from any thread: each step is one of a dict."""

    def __init__(self, is_terminal: Callable[[Kind, JSON], bool], clock: Callable[[], float] = time.monotonic) -> None:
        """``is_terminal`` asks a kind's plugin whether an object has ended."""
        self._is_terminal = is_terminal
        self._clock = clock
        self._states: dict[Place, str] = {}
        self._numbers: Counter[Place] = Counter()
        self._zero_since: dict[Place, float] = {}

    def changed(self, kind: Kind, resource: JSON, gone: bool) -> None:
        """Take in a change."""
        metadata = metadata_of(resource)
        namespace = str(metadata.get("namespace") or "")
        place = kind.resource, namespace, str(metadata.get("name"))
        before = self._states.pop(place, None)
        after = None if gone else self._state(kind, resource)
        if after is not None:
            self._states[place] = after
        if before == after:
            return
        if before is not None:
            self._count((kind.resource, namespace, before), -1)
        if after is not None:
            self._count((kind.resource, namespace, after), 1)

    def numbers(self) -> Iterator[tuple[Place, int]]:
        """Return how many objects there are by kind, namespace and state; what fell to 0 as 0, for a while."""
        now = self._clock()
        for place, number in list(self._numbers.items()):
            if number or now - self._zero_since.get(place, now) < ZERO_FOR:
                yield place, number
            elif self._numbers.get(place) == 0:
                self._zero_since.pop(place, None)
                del self._numbers[place]

    def _state(self, kind: Kind, resource: JSON) -> str:
        if is_going(resource):
            return GOING
        return ENDED if self._is_terminal(kind, resource) else LIVING

    def _count(self, place: Place, more: int) -> None:
        self._numbers[place] += more
        if self._numbers[place] == 0:
            self._zero_since[place] = self._clock()

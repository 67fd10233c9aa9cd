"""The history of each ceiling in the last 15 minutes: used amount, limit, and creates that waited for it.

A ceiling without changes costs nothing: it keeps a point for each change, at most one for each round. Of too many
ceilings those of namespaces that changed first are kept. The page draws it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from starlette.concurrency import run_in_threadpool

from backoff_ctrl.k8s.status.slices import sliced
from backoff_ctrl.k8s.status.sources import Following, ceilings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from backoff_ctrl.k8s.status.sources import Source

    from .gate import Hold, Key

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 5.0
"""Seconds between two rounds."""
LASTS: Final = 900.0
"""Seconds that are kept."""
POINTS_MAX: Final = int(LASTS / LOOK_EVERY) + 2
CEILINGS_MAX: Final = 5_000
"""Ceilings with a history: about 10 MB if all of them change all the time."""
Ceiling: TypeAlias = tuple[str, str, str]
"""Namespace, quota and resource."""


class Point(NamedTuple):
    """The values from a time on; amounts in nano-units."""

    at: float
    used: int
    limited: int
    waiting: int


class History:
    """The history of the ceilings that ``serve`` knows. Thread-safe."""

    def __init__(
        self,
        source: Source,
        holds: Callable[[str], Mapping[Key, Hold] | None],
        unwatched: Callable[[], Iterable[tuple[Ceiling, int, int]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Record what ``source`` watches; ``clock`` returns seconds.

        ``holds`` returns what waits in a namespace. ``unwatched`` returns the ceilings that gates alone know, with
        what is used there and the limit.
        """
        self._following = Following(source)
        self._holds = holds
        self._unwatched = unwatched
        self._clock = clock
        self._points: dict[Ceiling, deque[Point]] = {}
        self._amounts: dict[str, dict[tuple[str, str], tuple[int, int]]] = {}  # as the source has them
        self._lock = threading.Lock()

    async def run(self) -> None:
        while True:
            try:
                await run_in_threadpool(self.look)
            except Exception:  # the page continues without charts
                log.exception("the history of the ceilings could not be recorded; it is retried")
            await asyncio.sleep(LOOK_EVERY)

    def look(self) -> None:
        with self._lock:
            self._follow()
            now, seen = self._clock(), set()
            for key, used, limited in sliced(self._now()):
                points = self._points.get(key)
                if points is None:
                    if len(self._points) >= CEILINGS_MAX:
                        continue
                    points = self._points[key] = deque(maxlen=POINTS_MAX)
                seen.add(key)
                holds = self._holds(key[0]) or {}
                waiting = holds[key[1:]].waiting if key[1:] in holds else 0
                if not points or points[-1][1:] != (used, limited, waiting):
                    points.append(Point(now, used, limited, waiting))
                while len(points) > 1 and points[1].at <= now - LASTS:  # the first one has the values at the beginning
                    points.popleft()
            for key in self._points.keys() - seen:
                del self._points[key]

    def of(self, namespace: str, quota: str, resource: str) -> tuple[Sequence[Point], float]:
        """Return the points of a ceiling, the oldest first, and the present."""
        with self._lock:
            return list(self._points.get((namespace, quota, resource), ())), self._clock()

    def _follow(self) -> None:
        """Update the amounts from the source."""
        for found in self._following.news():
            if found.lost:
                self._amounts.clear()
                continue
            for name in found.gone:
                self._amounts.pop(name, None)
            for name, namespace in found.items.items():
                self._amounts[name] = {key: (each.used, each.limited) for key, each in ceilings_of(namespace)}

    def _now(self) -> Iterator[tuple[Ceiling, int, int]]:
        for name, amounts in list(self._amounts.items()):
            for key, (used, limited) in amounts.items():
                yield (name, *key), used, limited
        yield from self._unwatched()


class Chart(NamedTuple):
    """The history of a ceiling as an SVG of ``WIDTH`` x ``HEIGHT``: three paths, and a description in words."""

    used: str
    limited: str
    waiting: str
    said: str


WIDTH: Final = 180
HEIGHT: Final = 40
_TOP: Final = 3


def chart(points: Sequence[Point], now: float, written: Callable[[int], str]) -> Chart | None:
    """Draw the points up to the present; None without any. ``written`` formats an amount for people.

    Used and limited share a scale, waiting creates have their own, which both begin at 0.
    """
    if not points:
        return None
    begin = now - LASTS
    most = max(1, *(max(each.used, each.limited) for each in points))
    line = max(1, *(each.waiting for each in points))

    def steps(value: Callable[[Point], float]) -> list[str]:
        found = []
        for number, each in enumerate(points):
            left = max(0.0, (each.at - begin) / LASTS * WIDTH)
            right = (points[number + 1].at - begin) / LASTS * WIDTH if number + 1 < len(points) else float(WIDTH)
            height = HEIGHT - (HEIGHT - _TOP) * value(each)
            found += [f"{left:.1f},{height:.1f}", f"{right:.1f},{height:.1f}"]
        return found

    used = steps(lambda each: each.used / most)
    edges = used[0].partition(",")[0], used[-1].partition(",")[0]
    waited = [each.waiting for each in points]
    return Chart(
        used=f"M{edges[0]},{HEIGHT} L{' '.join(used)} {edges[1]},{HEIGHT} Z",
        limited="M" + " ".join(steps(lambda each: each.limited / most)),
        waiting="M" + " ".join(steps(lambda each: each.waiting / line)) if any(waited) else "",
        said=f"the last 15 minutes: {_range([each.used for each in points], written)} used of "
        f"{_range([each.limited for each in points], written)}, {_range(waited, str)} waiting",
    )


def _range(values: Sequence[int], written: Callable[[int], str]) -> str:
    least, most = written(min(values)), written(max(values))
    return least if least == most else f"{least} to {most}"

"""Answers that are not asked for again while they are fresh."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Recent:
    """Answers of the API server that are not asked for again while they are fresh. Thread-safe."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep ``most`` answers, each for so many seconds."""
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._kept: dict[tuple[Any, ...], tuple[float, Any]] = {}  # until when, and what
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...], ask: Callable[[], T]) -> T:
        """Return a fresh answer to ``key``, else what ``ask`` returns now; an error of it is not kept."""
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and self._clock() < kept[0]:
            found: T = kept[1]
            return found
        value = ask()
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = self._clock() + self._seconds, value
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return value

    def drop(self, key: tuple[Any, ...]) -> None:
        with self._lock:
            self._kept.pop(key, None)

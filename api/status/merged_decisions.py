"""The decisions of all gates as one stream: renumbered, bounded, for listeners that resume where they were."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import islice
from typing import Any, Final

KEPT: Final = 4096
LISTENERS_MAX: Final = 200
ALIVE_EVERY: Final = 15.0
"""Seconds of silence after which a comment is sent."""
PIECE: Final = 200


class Merged:
    """A ring of decisions. It belongs to one event loop."""

    def __init__(self, kept: int = KEPT) -> None:
        self.epoch = format(time.time_ns() // 1_000_000, "x")
        self.newest = 0
        self.listeners = 0
        self.listeners_max = LISTENERS_MAX
        self._kept: deque[tuple[int, str, str]] = deque(maxlen=kept)
        self._news = asyncio.Event()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def tell(self, event: str, data: str) -> None:
        """Take in an event of a gate. Events other than decisions are left out."""
        if event != "decision":
            return
        try:
            found = json.loads(data)
            namespace = found["namespace"]
            found["seq"] = self.newest + 1
        except (ValueError, KeyError, TypeError):
            return
        self.newest += 1
        self._kept.append((self.newest, str(namespace), json.dumps(found, separators=(",", ":"))))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def place(self, last: str | None) -> tuple[int, str]:
        """Return the number after which a listener that saw the event ``last`` begins, and what to send it first."""
        if not last:
            return self.newest, ""
        epoch, _, text = last.rpartition("-")
        if epoch != self.epoch or not (text.isascii() and text.isdecimal()) or int(text) > self.newest:
            return 0, _gap(None)
        return int(text), ""

    def latest(self, wanted: Callable[[str], bool], limit: int) -> list[dict[str, Any]]:
        """Return the newest decisions of the wanted namespaces, newest first."""
        found = []
        for _, namespace, text in reversed(self._kept):
            if wanted(namespace):
                found.append(json.loads(text))
                if len(found) == limit:
                    break
        return found

    async def listen(self, seq: int, first: str, namespace: str | None) -> AsyncGenerator[str]:
        """Yield a listener's stream without end: decisions after number ``seq``, of one namespace or of all."""
        self.listeners += 1
        try:
            yield "retry: 2000\n\n" + first
            while not self._closed:
                news = self._news
                pieces, seq = self._after(seq, namespace)
                if pieces:
                    yield "".join(pieces)
                if seq < self.newest:
                    await asyncio.sleep(0)
                    continue
                try:
                    await asyncio.wait_for(news.wait(), ALIVE_EVERY)
                except TimeoutError:
                    yield ": alive\n\n"
        finally:
            self.listeners -= 1

    def _after(self, seq: int, namespace: str | None) -> tuple[list[str], int]:
        """Return the next piece after number ``seq``, and the number of its last decision."""
        oldest = self.newest - len(self._kept)
        pieces = [_gap(oldest - seq)] if seq < oldest else []
        start = max(seq, oldest)
        upto = min(self.newest, start + PIECE)
        for number, of, text in islice(self._kept, start - oldest, upto - oldest):
            if namespace in (None, of):
                pieces.append(f"id: {self.epoch}-{number}\nevent: decision\ndata: {text}\n\n")
        return pieces, upto


def _gap(missed: int | None) -> str:
    return f"event: gap\ndata: {json.dumps({'missed': missed})}\n\n"

"""Sends decisions to listeners as server-sent events, on one event loop, without delaying its other work.

A listener has a place in the ring of decisions and at most one piece of text under way, so none costs more memory than
that. One task writes the pieces, in slices; those at the same place share one. It runs only while somebody listens,
wakes at most twenty times a second, and takes a small share of a core: where the gate decides more than it can write,
listeners get a gap event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final, Generic

from .asked import ProblemError
from .decisions import Ring, T
from .slices import SLICE

log = logging.getLogger(__name__)

LISTENERS_MAX: Final = 200
PIECE: Final = 200
"""Decisions sent at once to one listener."""
PAUSE: Final = 0.05
"""Seconds between two rounds: decisions that come meanwhile go out together."""
PAUSE_MAX: Final = 1.0
SHARE: Final = 0.01
"""The share of one core that streaming takes: a round that took long is followed by a pause that is as much longer."""
ALIVE_EVERY: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies close silent streams, and a dead listener is noticed."""
RENDERED_MAX: Final = 4096
ALIVE: Final = b": alive\n\n"
RETRY: Final = b"retry: 2000\n\n"
"""Begins an answer: a browser that lost the stream connects again after two seconds."""

Position = tuple[int, str | None]
"""Up to which number a listener has read, and the one namespace it wants; None: all."""


class Listener:
    """One open stream."""

    def __init__(self, place: Position, first: bytes) -> None:
        self.place = place
        self.text = first
        self.over = False
        self.news = asyncio.Event()
        if first:
            self.news.set()

    def give(self, text: bytes, upto: int) -> None:
        self.text, self.place = text, (upto, self.place[1])
        if text:
            self.news.set()

    def end(self) -> None:
        self.over = True
        self.news.set()

    def take(self) -> bytes:
        text, self.text = self.text, b""
        self.news.clear()
        return text


class Streams(Generic[T]):
    """The listeners of one ring. They belong to one event loop."""

    def __init__(self, ring: Ring[T], render: Callable[[T], str], *, epoch: str = "") -> None:
        """``render`` writes a decision as JSON; ``epoch`` distinguishes this ring from that of an earlier process."""
        self.dropped = 0
        """Listeners that took too little of what was sent to them."""
        self.epoch = epoch or format(time.time_ns() // 1_000_000, "x")
        self._ring = ring
        self._render = render
        self._listeners: list[Listener] = []
        self._news = asyncio.Event()
        self._heard = False
        self._writing: asyncio.Task[None] | None = None
        self._closed = False
        self._spent = 0.0  # seconds in this round
        self._rendered: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Return how many listen. From any thread."""
        return len(self._listeners)

    @property
    def full(self) -> bool:
        return self._closed or len(self._listeners) >= LISTENERS_MAX

    def place(self, last: str | None) -> tuple[int, bytes]:
        """Return where a listener begins that saw the event ``last``, and what to send it first.

        Without one it begins with what comes next. After the restart of the gate it begins with the oldest decision
        that is kept, after a gap event.
        """
        if not last:
            return self._ring.newest, b""
        epoch, _, text = last.rpartition("-")
        if epoch != self.epoch or not (text.isascii() and text.isdecimal()) or int(text) > self._ring.newest:
            return 0, _gap(None)
        return int(text), b""

    def begin(self, namespace: str | None, last: str | None) -> AsyncGenerator[bytes]:
        """Return the stream for a listener that saw the event ``last``. Raises ``ProblemError`` if there are too many.

        It begins when the first piece is taken.
        """
        if self.full:
            raise ProblemError(503, "too many listeners of decisions: try again later")
        seq, first = self.place(last)
        return self.listen(seq, namespace, RETRY + first)

    async def listen(self, seq: int, namespace: str | None, first: bytes = b"") -> AsyncGenerator[bytes]:
        """Yield ``first``, then pieces of what comes after decision ``seq``, until the streams are closed."""
        listener = Listener((seq, namespace), first)
        self._listeners.append(listener)
        try:
            self._begin()
            while not listener.over:
                try:
                    async with asyncio.timeout(ALIVE_EVERY):
                        await listener.news.wait()
                except TimeoutError:
                    yield ALIVE
                    continue
                if text := listener.take():
                    self._stir()  # there may be more
                    yield text
        finally:
            self._listeners.remove(listener)
            self._stir()  # nobody may listen any more

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for listener in self._listeners:
            listener.end()
        if self._writing is not None:
            self._writing.cancel()

    # -- writing ---------

    def _begin(self) -> None:
        if self._writing is None or self._writing.done():
            loop = asyncio.get_running_loop()
            self._heard = False
            self._ring.on_news = lambda: self._on_news(loop)
            self._writing = loop.create_task(self._write())
        self._stir()

    def _on_news(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._heard:  # in the thread that decides: the next round sees the rest
            self._heard = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._stir)

    def _stir(self) -> None:
        self._news.set()

    async def _write(self) -> None:
        """Write what the listeners have not got yet, until none is left."""
        try:
            while self._listeners and not self._closed:
                await self._news.wait()
                self._news.clear()
                self._heard = False
                self._spent = 0.0
                await self._round()
                await asyncio.sleep(min(max(PAUSE, self._spent / SHARE), PAUSE_MAX))
        except Exception:  # fails open: a stream only helps
            log.exception("the stream of decisions failed; its listeners have to connect again")
            for listener in self._listeners:
                listener.end()
        finally:
            self._ring.on_news = None

    async def _round(self) -> None:
        """Give each listener the piece that follows."""
        texts: dict[Position, tuple[bytes, int]] = {}
        newest = self._ring.newest
        for listener in list(self._listeners):
            place = listener.place
            if listener.text or place[0] >= newest:
                continue
            if place not in texts:
                texts[place] = await self._text_after(place)
            text, upto = texts[place]
            listener.give(text, upto)
            if upto < newest and not text:
                self._stir()  # nothing of its namespace yet: continue in the next round

    async def _text_after(self, place: Position) -> tuple[bytes, int]:
        """Write a piece of what comes after a place; return it, and the number of its last decision."""
        seq, namespace = place
        read = self._ring.after(seq, PIECE)
        parts = [_gap(read.missed)] if read.missed else []
        began = time.perf_counter()
        for told in read.decisions:
            if namespace in (None, told.namespace):
                parts.append(self._text(told))
            if time.perf_counter() - began >= SLICE:
                self._spent += time.perf_counter() - began
                await asyncio.sleep(0)
                began = time.perf_counter()
        self._spent += time.perf_counter() - began
        return b"".join(parts), read.decisions[-1].seq if read.decisions else seq

    def _text(self, told: T) -> bytes:
        text = self._rendered.get(told.seq)
        if text is None:
            text = f"id: {self.epoch}-{told.seq}\nevent: decision\ndata: {self._render(told)}\n\n".encode()
            self._rendered[told.seq] = text
            if len(self._rendered) > RENDERED_MAX:
                del self._rendered[next(iter(self._rendered))]
        return text


def _gap(missed: int | None) -> bytes:
    """Return the event that reports missing decisions: their number, or None if it is unknown."""
    return f"event: gap\ndata: {json.dumps({'missed': missed})}\n\n".encode()

"""Sends decisions to those who listen, as server-sent events. One thread serves all; who is too slow is dropped.

Each listener has a place in the ring of decisions and at most one piece of text under way, so none costs more memory
than that. The thread runs only while somebody listens, wakes at most twenty times a second, and takes a small share of
a core: where more is decided than it can tell, listeners are told of a gap.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .decisions import Ring, Told

log = logging.getLogger(__name__)

LISTENERS_MAX: Final = 200
PIECE: Final = 200
"""Decisions sent at once to one listener."""
PAUSE: Final = 0.05
"""Seconds between two rounds: news that come meanwhile go out together."""
PAUSE_MAX: Final = 1.0
SHARE: Final = 0.01
"""The share of one core that streaming takes: a round that took long is followed by a pause that is as much longer."""
ALIVE_EVERY: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies close silent streams, and a dead listener is noticed."""
STALLED: Final = 10.0
"""Seconds that a listener may take none of what was sent to it."""
LAST_RENDERED: Final = 4096


class Listener:
    """One open stream: its connection, what it wants, and up to where it has read."""

    def __init__(self, connection: socket.socket, seq: int, namespace: str | None, first: bytes = b"") -> None:
        """Listen for decisions after number ``seq``, of one namespace or of all. ``first`` is sent before them."""
        connection.setblocking(False)
        self.connection = connection
        self.seq = seq
        self.namespace = namespace
        self.unsent = first
        self.moved = time.monotonic()

    def put(self, text: bytes) -> None:
        """Give it something to send."""
        if text:
            self.unsent = text
            self.moved = time.monotonic()

    def send(self) -> bool:
        """Send what the connection takes now. Return False if the listener is gone."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
                self.moved = time.monotonic()
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return True


class Streams:
    """The listeners of one ring."""

    def __init__(self, ring: Ring, render: Callable[[Told], str], *, stalled: float = STALLED, epoch: str = "") -> None:
        """``render`` writes a decision as JSON; ``epoch`` tells this ring from that of an earlier process."""
        self.dropped = 0
        self.epoch = epoch or format(time.time_ns() // 1_000_000, "x")
        self._ring = ring
        self._render = render
        self._stalled = stalled
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._listeners: list[Listener] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._rendered: dict[int, bytes] = {}
        self._told: list[Told] = []  # in this round: whoever is behind begins at the same place
        self._texts: dict[tuple[int, str | None], tuple[bytes, int]] = {}  # of this round: most want the same

    def __len__(self) -> int:
        """Return how many listen."""
        return len(self._listeners)

    def place(self, last: str | None) -> tuple[int, bytes]:
        """Return where a listener begins that saw the event ``last``, and what to tell it first.

        Without one it begins with what comes next. After the restart of the gate it begins with the oldest decision
        that is kept, and is told that there is a gap.
        """
        if not last:
            return self._ring.newest, b""
        epoch, _, text = last.rpartition("-")
        if epoch != self.epoch or not (text.isascii() and text.isdecimal()) or int(text) > self._ring.newest:
            return 0, _gap(None)
        return int(text), b""

    def add(self, listener: Listener) -> bool:
        """Begin to serve a listener. Return False if there are too many."""
        with self._lock:
            if self._closed or len(self._listeners) >= LISTENERS_MAX:
                return False
            self._listeners.append(listener)
            self._ring.on_news = self._heard
            self._news.set()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="backoff-ctrl-decisions", daemon=True)
                thread.start()
                self._thread = thread
        return True

    def close(self) -> None:
        """Close all streams."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, []
        self._news.set()
        for listener in listeners:
            _close(listener.connection)

    def abandon(self) -> None:
        """Let go of the connections in a forked child. The parent's stay open."""
        for listener in self._listeners:
            listener.connection.close()

    def _heard(self) -> None:
        if not self._news.is_set():  # cheaper than to set it again, and whoever decides calls this
            self._news.set()

    def _run(self) -> None:
        while True:
            self._news.wait(self._next_look())
            self._news.clear()
            with self._lock:
                listeners = list(self._listeners)
                if not listeners:
                    self._ring.on_news = None
                    self._thread = None
                    return
            began = time.thread_time()
            self._texts.clear()
            try:
                self._told = self._ring.after(min(each.seq for each in listeners)).decisions
                gone = [each for each in listeners if not self._serve(each)]
            except Exception:  # law 18: a stream only helps
                log.exception("the stream of decisions failed; its listeners have to connect again")
                gone = listeners
            self._leave(gone)
            time.sleep(min(max(PAUSE, (time.thread_time() - began) / SHARE), PAUSE_MAX))

    def _next_look(self) -> float:
        return 0.25 if any(each.unsent for each in self._listeners) else ALIVE_EVERY

    def _serve(self, listener: Listener) -> bool:
        """Send a listener what it has not seen. Return False if it is gone, or too slow."""
        if not listener.unsent:
            listener.put(self._next_text(listener))
        if not listener.send():
            return False
        if not listener.unsent and listener.seq < self._ring.newest:
            self._news.set()  # there is more: go on in the next round
        if listener.unsent and time.monotonic() - listener.moved >= self._stalled:
            self.dropped += 1
            return False
        return True

    def _next_text(self, listener: Listener) -> bytes:
        if not self._told or self._told[-1].seq <= listener.seq:
            text = b""
        else:
            start = max(listener.seq, self._told[0].seq - 1)  # what came between is forgotten
            missed = start - listener.seq
            place = (start, listener.namespace)
            found = self._texts.get(place)
            if found is None:
                found = self._texts[place] = self._text_from(*place)
            text, listener.seq = found
            if missed:
                text = _gap(missed) + text
        if not text and time.monotonic() - listener.moved >= ALIVE_EVERY:
            return b": alive\n\n"
        return text

    def _text_from(self, seq: int, namespace: str | None) -> tuple[bytes, int]:
        """Write what came after number ``seq``, a piece of it; return it with the number up to which it goes."""
        begin = seq + 1 - self._told[0].seq
        told = self._told[begin : begin + PIECE]
        return b"".join(self._text(each) for each in told if namespace in (None, each.namespace)), told[-1].seq

    def _text(self, told: Told) -> bytes:
        text = self._rendered.get(told.seq)
        if text is None:
            data = self._render(told)
            text = f"id: {self.epoch}-{told.seq}\nevent: decision\ndata: {data}\n\n".encode()
            self._rendered[told.seq] = text
            if len(self._rendered) > LAST_RENDERED:
                del self._rendered[next(iter(self._rendered))]
        return text

    def _leave(self, gone: list[Listener]) -> None:
        with self._lock:
            self._listeners = [each for each in self._listeners if each not in gone]
        for listener in gone:
            _close(listener.connection)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # a forked child may have the same connection open
    connection.close()


def _gap(missed: int | None) -> bytes:
    """Tell a listener that decisions are missing: so many, or None if that is unknown."""
    return f"event: gap\ndata: {json.dumps({'missed': missed})}\n\n".encode()

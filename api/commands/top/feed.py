"""Keeps asking an instance in the background: looks now and then, and follows its decisions without a gap."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from backoff_ctrl.api.commands.instance.following import ALL, FAILURES, Stream
from backoff_ctrl.api.exits import BadInput

from .look import look

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.api.commands.instance.asking import Instance
    from backoff_ctrl.k8s.status.shapes.documents import Decision

    from .look import Look

AGAIN: Final = 2.0
"""Seconds before a stream that broke is opened anew."""
SHARE: Final = 4
"""A look that takes long is followed by a pause of so many times as long: looking must not be the load."""


class Feed:
    """Two daemon threads. What they find goes to ``seen``, ``heard`` and ``lost`` (a sentence), from those threads."""

    def __init__(
        self,
        instance: Instance,
        namespace: str | None,
        every: float,
        *,
        seen: Callable[[Look], object],
        heard: Callable[[Decision], object],
        lost: Callable[[str], object],
    ) -> None:
        """``every``: seconds between two looks."""
        self._instance = instance
        self._namespace = namespace
        self._every = every
        self._seen, self._heard, self._lost = seen, heard, lost
        self._stopped = threading.Event()
        self._stream: Stream | None = None

    def start(self) -> None:
        """Start both threads; they end with the program, or after ``stop``."""
        for run in (self._look, self._follow):
            threading.Thread(target=run, name="backoff-ctrl-top", daemon=True).start()

    def stop(self) -> None:
        """End: nothing is told any more, except by what is under way."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()

    def _look(self) -> None:
        pause = self._every
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                self._seen(look(self._instance, self._namespace))
            except BadInput as error:
                self._lost(error.format_message())
            pause = max(self._every, SHARE * (time.monotonic() - began))

    def _follow(self) -> None:
        last = ALL
        while not self._stopped.is_set():
            try:
                stream = self._stream = Stream(self._instance, self._namespace, last)
                for decision in stream:
                    last = stream.last
                    self._heard(decision)
                    if self._stopped.is_set():
                        return
            except FAILURES as error:
                if not self._stopped.is_set():  # ``stop`` breaks the stream, too
                    self._lost(f"the stream of decisions broke, and is opened again: {error}")
            self._stopped.wait(AGAIN)

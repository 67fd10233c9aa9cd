"""Follows the decisions of an instance: its stream of server-sent events, read line by line."""

from __future__ import annotations

import json
import socket
from contextlib import closing, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from backoff_ctrl.k8s.status.shapes.documents import Decision

from .reading import read, read_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from http.client import HTTPResponse

    from .asking import Instance

ALL: Final = "0"
"""As the last event's id: begin with the oldest decision that is kept."""
SILENCE: Final = 40.0
"""Seconds without a word after which a stream is dead: the instance says something every 15 s."""
CAUGHT_UP: Final = 0.5
"""Seconds without a word after which all that is kept was told: it comes in one go."""
LINE_MAX: Final = 1 << 20


class Stream:
    """One open stream of decisions. ``last`` is the id of the last one: a new stream goes on behind it."""

    def __init__(self, instance: Instance, namespace: str | None, last: str = "", silence: float = SILENCE) -> None:
        """Connect. Raises ``OSError`` and ``HTTPException``."""
        query = urlencode({"namespace": namespace} if namespace else {})
        headers = {"Last-Event-ID": last} if last else {}
        target = f"/v1/decisions?{query}" if query else "/v1/decisions"
        self.last = last
        self._response: HTTPResponse = instance.stream(target, headers, silence)

    def __iter__(self) -> Iterator[Decision]:
        """Yield decisions until the instance ends the stream. Raises ``OSError``, ``HTTPException``, ``ValueError``."""
        event: dict[str, str] = {}
        while line := self._response.readline(LINE_MAX):
            name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
            if name:
                event[name] = value.removeprefix(" ")
                continue
            if not line.startswith(b":"):  # an empty line: the event is complete
                if event.get("event") == "decision":
                    found: Decision = read(Decision, json.loads(event.get("data", "")))
                    self.last = event.get("id", self.last)
                    yield found
                event = {}

    def close(self) -> None:
        """End it, from any thread: whoever reads it is woken."""
        connection = getattr(getattr(self._response.fp, "raw", None), "_sock", None)
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)


def latest(instance: Instance, namespace: str | None, until: datetime, most: int) -> list[Decision]:
    """Return the last ``most`` decisions that are kept, up to the time ``until``, oldest first.

    Raises ``OSError``, ``HTTPException`` and ``ValueError``.
    """
    found: list[Decision] = []
    stream = Stream(instance, namespace, ALL, CAUGHT_UP)
    with closing(stream), suppress(TimeoutError):  # by then nothing more comes
        for each in stream:
            if read_time(each.at) > until:
                break
            found.append(each)
            del found[:-most]
    return found


FAILURES: Final = (OSError, HTTPException, ValueError)
"""What following may raise."""

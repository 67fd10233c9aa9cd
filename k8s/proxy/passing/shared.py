"""What all connections of a listener share: the API server, the room that holds creates, limits and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.gathering import Gathering
    from backoff_ctrl.k8s.proxy.messages import Creates
    from backoff_ctrl.k8s.proxy.upstream import ApiServer


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is waited for, and how long."""

    connections: int = 2000
    """Connections of callers. For one more goes who only holds a place; if nobody does, it is told 503 at once."""
    head_s: float = 10.0
    """Seconds for a connection's first head, and for a later one's from its first byte."""
    idle_s: float = 180.0
    """Seconds that a connection is kept between two requests."""
    spare_s: float = 10.0
    """Seconds between two requests, or for which a body pauses, after which it goes for another one, where there is no
    room."""
    body_s: float = 60.0
    """Seconds that a body may pause."""
    half_closed_s: float = 30.0
    """Seconds that an answer may take whose caller sends nothing more."""
    linger_s: float = 2.0
    """Seconds in which a refused caller can read why."""
    body_bytes: int = 3 * 2**20
    """Longer bodies are never held: they pass."""
    held_bytes: int = 256 * 2**20
    """Bodies that are held in all; what comes on top passes."""


class Connected(Protocol):
    """A connection, as its listener sees it."""

    transport: Gathering
    heard: float
    """When it last sent something."""

    @property
    def owes(self) -> bool:
        """Whether it has begun a request whose body has not come whole, though it could."""

    def look(self, now: float) -> None:
        """End what takes too long; called every now and then."""

    def drain(self, *, at_once: bool) -> None:
        """End the connection with its present request; if there is none, with its next one, or at once."""


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    connections: int = 0
    passed: int = 0
    held: int = 0
    refused: int = 0
    failed: int = 0
    turned_away: int = 0


@dataclass(slots=True)
class Shared:
    """One for each listener."""

    server: ApiServer
    creates: Creates
    limits: Limits = field(default_factory=Limits)
    counts: Counts = field(default_factory=Counts)
    callers: set[Connected] = field(default_factory=set)
    silent: dict[Connected, float] = field(default_factory=dict)
    """Those of them that have sent no head yet, and since when, the oldest first."""
    idle: dict[Connected, float] = field(default_factory=dict)
    """Those between two requests, and since when, the oldest first."""
    held_bytes: int = 0
    draining: bool = False
    """Whether each connection ends with its present request."""
    local_hosts_only: bool = False
    """Whether requests must name this machine: a web page could rebind a name of its own to it."""

    def make_room(self, now: float) -> bool:
        """End the connection that has held its place for nothing the longest; return whether there is one."""
        gone = next(iter(self.silent), None)
        if gone is None:
            owing = ((each, each.heard) for each in self.callers if each.owes)
            quiet = [*islice(self.idle.items(), 1), *owing]
            gone, since = min(quiet, key=itemgetter(1), default=(None, now))
            if gone is None or now - since < self.limits.spare_s:
                return False
        self.forget(gone)
        gone.transport.abort()
        return True

    def forget(self, caller: Connected) -> None:
        """Let another one have its place."""
        self.callers.discard(caller)
        self.silent.pop(caller, None)
        self.idle.pop(caller, None)

"""The namespaces of a controller, in the order of their names and in the order of their last change.

Each change could concern somebody who looks, but counting each would slow down every decision. Therefore a namespace
gets a new change number only with its first change after somebody has looked at it (``seen``): nobody can tell the
difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from .handler import ComputeResourceAwareBackOffHandler as Handler
from .roll import Roll

GONE_MAX: Final = 1024
"""Forgotten namespaces whose end is remembered, for lookers that follow the changes."""


@dataclass(slots=True)
class Gone:
    """A namespace that was forgotten, and the number of that change."""

    namespace: str
    changed: int


class Register:
    """The namespaces by name and by change. ``sequence`` is the number of the newest change.

    Ends of namespaces up to the change ``forgotten_to`` are no longer remembered.
    """

    __slots__ = ("_by_change", "_by_name", "_gone", "forgotten_to", "sequence")

    def __init__(self, sequence: int) -> None:
        """Start without namespaces; the first change gets the number after ``sequence``."""
        self.sequence = self.forgotten_to = sequence
        self._by_name: Roll[Handler] = Roll(attrgetter("namespace"))
        self._by_change: Roll[Handler | Gone] = Roll(attrgetter("changed"))
        self._gone: dict[str, Gone] = {}  # the oldest first

    def enter(self, handler: Handler) -> None:
        """Add a namespace."""
        gone = self._gone.pop(handler.namespace, None)
        if gone is not None:
            self._by_change.remove(gone)
        self._by_name.add(handler)
        self._number(handler)

    def touch(self, handler: Handler) -> None:
        """Give a namespace that was ``seen`` the number of a new change."""
        handler.seen = False
        self._by_change.remove(handler)
        self._number(handler)

    def leave(self, handler: Handler) -> None:
        """Remove a namespace; its end is a change, too."""
        self._by_name.remove(handler)
        self._by_change.remove(handler)
        gone = self._gone[handler.namespace] = Gone(handler.namespace, 0)
        self._number(gone)
        if len(self._gone) > GONE_MAX:
            oldest = self._gone.pop(next(iter(self._gone)))
            self._by_change.remove(oldest)
            self.forgotten_to = oldest.changed

    def after(self, name: str | None, limit: int) -> list[Handler]:
        """Return up to ``limit`` namespaces by name, from behind ``name`` on."""
        return self._by_name.after(name, limit)

    def changed_after(self, number: int, limit: int) -> list[Handler | Gone]:
        """Return up to ``limit`` namespaces that changed after the change ``number``, the earliest first."""
        return self._by_change.after(number, limit)

    def _number(self, entry: Handler | Gone) -> None:
        self.sequence += 1
        entry.changed = self.sequence
        self._by_change.extend([entry])

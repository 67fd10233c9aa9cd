"""What a controller shows of itself: pages of namespaces, of waiters and of what to remember, and what has changed.

A look delays decisions, so a page takes about a millisecond at most, however many namespaces and waiters
there are: it ends early where there is much to show. Look at page after page, and let others in between them.

For that the namespaces are sorted twice: by name, and by their last change. Each change could concern a reader who
looks, but to count each would slow down every decision. Therefore a namespace gets a new change number only with its
first change after a reader has looked at it (``seen``): readers can't tell the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.roll import Roll
from backoff_ctrl.engine.handler import ComputeResourceAwareBackOffHandler as Handler
from backoff_ctrl.engine.line.order import ROWS_MAX
from backoff_ctrl.engine.shared import Shared

from .explaining import NamespaceSnapshot, namespace_snapshot
from .looking import WaitingSnapshot, waiting
from .memory import Memory, remember

NAMESPACES_MAX: Final = 64
"""Namespaces on a page."""
CEILINGS_MAX: Final = 128
"""A page ends with the namespace that brings it to so many ceilings."""
WAITERS_MAX: Final = 64
"""Waiting requests on a page."""
STEPS_MAX: Final = 250
"""A page of waiters ends when it took so many steps of about 2 us."""
_STEPS: Final = 6  # for each waiting request, beside the estimate
LOOKED_OVER: Final = 1000
"""Namespaces that are searched for waiting requests for one page."""
GONE_MAX: Final = 1024
"""Forgotten namespaces whose end is remembered, for lookers that follow the changes."""
Cursor: TypeAlias = tuple[str, float, int]
"""Where a page of waiters ended: its last namespace, and the place of its last request there."""


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """Some namespaces by name. ``next`` goes into the next call; None: that was the last page."""

    items: Mapping[str, NamespaceSnapshot]
    next: str | None


@dataclass(frozen=True, slots=True)
class Changes:
    """The namespaces that have changed since some change, as they are now, and those that were ``gone`` since.

    ``upto`` goes into the next call; ``more`` says that there are further changes already. ``lost``: the question goes
    back too far, and there is no answer; begin with 0, and forget all that was known.
    """

    items: Mapping[str, NamespaceSnapshot]
    gone: Sequence[str]
    upto: int
    more: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """Some waiting requests by namespace, in the order of the line. ``next`` goes into the next call; None: the end."""

    items: Sequence[WaitingSnapshot]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """What is known of some namespaces. ``next`` goes into the next call; None: that was the last page."""

    memory: Memory
    next: str | None


@dataclass(slots=True)
class Gone:
    """A namespace that was forgotten, and the number of that change."""

    namespace: str
    changed: int


class Register:
    """The namespaces (``handlers``) by name and by change. ``sequence`` is the number of the newest change.

    Ends of namespaces up to the change ``forgotten_to`` are no longer remembered.
    """

    __slots__ = ("_by_change", "_by_name", "_gone", "_handlers", "forgotten_to", "sequence")

    def __init__(self, handlers: Mapping[str, Handler], sequence: int) -> None:
        """The first change gets the number after ``sequence``."""
        self._handlers = handlers
        self.sequence = self.forgotten_to = sequence
        self._by_name: Roll[Handler] = Roll(attrgetter("namespace"))
        self._by_change: Roll[Handler | Gone] = Roll(attrgetter("changed"))
        self._gone: dict[str, Gone] = {}  # the oldest first

    def enter(self, handler: Handler) -> None:
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

    def _number(self, entry: Handler | Gone) -> None:
        self.sequence += 1
        entry.changed = self.sequence
        self._by_change.extend([entry])

    def page(self, after: str | None, limit: int, now: float) -> NamespacePage:
        """Show up to ``limit`` namespaces (fewer if they are large) by name, from behind ``after`` on.

        A namespace that exists all the while is on exactly one page.
        """
        limit = min(max(1, limit), NAMESPACES_MAX)
        handlers = self._by_name.after(after, limit + 1)
        shown = _first_few(handlers, limit)
        for handler in shown:
            handler.seen = True
        items = {handler.namespace: namespace_snapshot(handler, now) for handler in shown}
        return NamespacePage(items, shown[-1].namespace if len(shown) < len(handlers) else None)

    def changes(self, since: int, limit: int, now: float) -> Changes:
        """Show up to ``limit`` namespaces (fewer if they are large) that have changed after the change ``since``.

        Start with 0 for all; then ask with ``upto`` of the answer before.
        """
        if 0 < since < self.forgotten_to:
            return Changes({}, [], 0, more=True, lost=True)
        limit = min(max(1, limit), NAMESPACES_MAX)
        entries = self._by_change.after(since, limit + 1)
        shown = _first_few(entries, limit)
        items: dict[str, NamespaceSnapshot] = {}
        gone = []
        for entry in shown:
            if isinstance(entry, Gone):
                gone.append(entry.namespace)
            else:
                items[entry.namespace] = namespace_snapshot(entry, now)
                entry.seen = True
        more = len(shown) < len(entries)
        return Changes(items, gone, shown[-1].changed if more else self.sequence, more=more, lost=False)

    def waiting(
        self, after: Cursor | None, limit: int, now: float, namespace: str | None, shared: Shared
    ) -> WaitingPage:
        """Show up to ``limit`` waiting requests, of one namespace or of all, from behind ``after`` on.

        A page before the last one may have fewer, or be empty. Who waits all the while is on exactly one page.
        """
        limit = min(max(1, limit), WAITERS_MAX)
        steps = STEPS_MAX
        items: list[WaitingSnapshot] = []
        handlers = self._to_look_over(after, namespace)
        for handler in handlers:
            if not handler.line.rows:
                continue
            handler.seen = True
            each = _STEPS + min(ROWS_MAX, len(handler.line.rows))  # steps: the estimate looks at so many rows
            most = min(limit - len(items), max(steps // each, not items))
            start = after[1:] if after is not None and handler.namespace == after[0] else None
            found = waiting(handler, shared, start, most, now) if most > 0 else []
            items += found
            steps -= each * len(found)
            if found:
                after = (handler.namespace, *found[-1].place)
                start = found[-1].place
            if handler.line.behind(start, 1):
                return WaitingPage(items, after)
        complete = namespace is not None or len(handlers) < LOOKED_OVER
        return WaitingPage(items, None if complete else (handlers[-1].namespace, FOREVER, 0))

    def _to_look_over(self, after: Cursor | None, namespace: str | None) -> list[Handler]:
        """List the namespaces that may have waiting requests behind the cursor."""
        if namespace is not None:
            handler = self._handlers.get(namespace)
            return [] if handler is None else [handler]
        if after is None:
            return self._by_name.after(None, LOOKED_OVER)
        begun = self._handlers.get(after[0])
        return ([] if begun is None else [begun]) + self._by_name.after(after[0], LOOKED_OVER)

    def remember(self, after: str | None, limit: int, now: float, settle_time: float) -> MemoryPage:
        """Return what is known of up to ``limit`` namespaces, from behind ``after`` on."""
        limit = min(max(1, limit), LOOKED_OVER)
        handlers = self._by_name.after(after, limit + 1)
        shown = _first_few(handlers, limit)
        known = {handler.namespace: quotas for handler in shown if (quotas := remember(handler.knowledge, now))}
        behind = shown[-1].namespace if len(shown) < len(handlers) else None
        return MemoryPage(Memory(known, settle_time), behind)


_Entry = TypeVar("_Entry", bound=Handler | Gone)


def _first_few(entries: list[_Entry], limit: int) -> list[_Entry]:
    """Return the first entries, at most so many: fewer if they have many ceilings."""
    room = CEILINGS_MAX
    for count, entry in enumerate(entries[:limit], 1):
        room -= 0 if isinstance(entry, Gone) else entry.knowledge.size
        if room <= 0:
            return entries[:count]
    return entries[:limit]

"""What a controller shows of itself: pages of namespaces, of waiters and of what to remember, and what has changed.

Whoever looks holds up whoever decides, so a page takes about a millisecond at most, however many namespaces and waiters
there are: it ends early where there is much to show. Look at page after page, and let others in between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from .backoff import FOREVER
from .demand import Demand
from .explaining import Explanation, NamespaceSnapshot, Snapshot, WaitReason, explain, namespace_snapshot
from .handler import ComputeResourceAwareBackOffHandler as Handler
from .line import ROWS_MAX
from .looking import WaitingSnapshot, reasons, waiting
from .memory import Memory, remember
from .outlook import NOTHING_ELSEWHERE, Outlook, nothing_known, outlook
from .overload import WindowSnapshot
from .register import Gone, Register
from .requests import Request
from .roll import place_of
from .shared import Shared

NAMESPACES_MAX: Final = 64
"""Namespaces on a page."""
CEILINGS_MAX: Final = 128
"""A page ends with the namespace that brings it to so many ceilings."""
WAITERS_MAX: Final = 64
"""Waiting requests on a page."""
STEPS_MAX: Final = 250
"""A page of waiters ends when it took so many steps of about 2 us."""
_STEPS: Final = 6  # for each waiting request, beside the estimate
ROWS_LOOKED_AT: Final = 100
"""Rows of a line whose reasons are counted at a time: 2 us each."""
LOOKED_OVER: Final = 1000
"""Namespaces that are searched for waiting requests for one page."""
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
    back too far, and nothing is answered; begin with 0, and forget all that was known.
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


class Pages:
    """The part of a controller that only looks. ``now`` is as everywhere."""

    _handlers: dict[str, Handler]
    _register: Register
    _shared: Shared
    _now: float
    _watched: dict[str, bool]
    _watching_all: bool

    def _clock(self, now: float) -> float:
        """Move time on, never back."""
        self._now = max(self._now, now)
        return self._now

    @property
    def sequence(self) -> int:
        """The number of the newest change of any namespace."""
        return self._register.sequence

    def explain(self, request: Request, now: float) -> Explanation | None:
        """Explain why a request waits; None if it does not wait."""
        now = self._clock(now)
        if request.state != "waiting":
            return None
        handler = self._handlers[request.namespace]
        return explain(handler, request, handler.line.ahead(place_of(request)), self._shared, now)

    @property
    def size(self) -> int:
        """How many namespaces are known."""
        return len(self._handlers)

    def names(self) -> list[str]:
        """Return the names of all namespaces, in the order in which they became known: 10,000 take 50 us."""
        return list(self._handlers)

    def namespace(self, name: str, now: float) -> NamespaceSnapshot | None:
        """Show one namespace; None: nothing is known of it."""
        now = self._clock(now)
        handler = self._handlers.get(name)
        return None if handler is None else namespace_snapshot(handler, now)

    def outlook(
        self,
        name: str,
        wanted: Iterable[tuple[Demand, int]],
        now: float,
        elsewhere: Mapping[tuple[str, str], int] = NOTHING_ELSEWHERE,
    ) -> Outlook:
        """Say what would happen to creates in a namespace that come now, each demand so many times.

        ``elsewhere`` is what other gates hold and reserve there, by quota and resource.
        """
        now = self._clock(now)
        handler = self._handlers.get(name)
        if handler is None:
            return nothing_known(observing=self.is_watched(name))
        return outlook(handler, wanted, now, elsewhere)

    def is_watched(self, namespace: str) -> bool:
        """Say whether all quotas of the namespace are known, and their changes reported."""
        return self._watched.get(namespace, self._watching_all)

    def reasons(self, name: str, row: int, now: float) -> tuple[Counter[WaitReason], int | None]:
        """Count why requests wait in a namespace, from this row of its line on; say with which row to go on.

        Start with row 0; None: that was the last one.
        """
        now = self._clock(now)
        handler = self._handlers.get(name)
        return (Counter(), None) if handler is None else reasons(handler, self._shared, row, ROWS_LOOKED_AT, now)

    def page(self, after: str | None, limit: int, now: float) -> NamespacePage:
        """Show up to ``limit`` namespaces (fewer if they are large) by name, from behind ``after`` on.

        A namespace that exists all the while is on exactly one page.
        """
        now = self._clock(now)
        limit = min(max(1, limit), NAMESPACES_MAX)
        handlers = self._register.after(after, limit + 1)
        items: dict[str, NamespaceSnapshot] = {}
        room = CEILINGS_MAX
        for handler in handlers[:limit]:
            items[handler.namespace] = namespace_snapshot(handler, now)
            handler.seen = True
            room -= handler.knowledge.size
            if room <= 0:
                break
        return NamespacePage(items, next(reversed(items), after) if len(items) < len(handlers) else None)

    def changes(self, since: int, limit: int, now: float) -> Changes:
        """Show up to ``limit`` namespaces (fewer if they are large) that have changed after the change ``since``.

        Start with 0 for all; then ask with ``upto`` of the answer before.
        """
        now = self._clock(now)
        register = self._register
        if 0 < since < register.forgotten_to:
            return Changes({}, [], 0, more=True, lost=True)
        limit = min(max(1, limit), NAMESPACES_MAX)
        entries = register.changed_after(since, limit + 1)
        items: dict[str, NamespaceSnapshot] = {}
        gone = []
        room = CEILINGS_MAX
        for entry in entries[:limit]:
            since = entry.changed
            if isinstance(entry, Gone):
                gone.append(entry.namespace)
                continue
            items[entry.namespace] = namespace_snapshot(entry, now)
            entry.seen = True
            room -= entry.knowledge.size
            if room <= 0:
                break
        more = len(items) + len(gone) < len(entries)
        return Changes(items, gone, since if more else register.sequence, more=more, lost=False)

    def waiting(self, after: Cursor | None, limit: int, now: float, namespace: str | None = None) -> WaitingPage:
        """Show up to ``limit`` waiting requests, of one namespace or of all, from behind ``after`` on.

        A page may have fewer, or none, before the last one. Who waits all the while is on exactly one page.
        """
        now = self._clock(now)
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
            found = waiting(handler, self._shared, start, most, now) if most > 0 else []
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
            return self._register.after(None, LOOKED_OVER)
        begun = self._handlers.get(after[0])
        return ([] if begun is None else [begun]) + self._register.after(after[0], LOOKED_OVER)

    def flows(self, now: float) -> dict[str, WindowSnapshot]:
        """Show the overload windows."""
        now = self._clock(now)
        return {name: window.snapshot(now) for name, window in self._shared.flows.items()}

    @property
    def settle_time(self) -> float:
        """How long room settles at present, in seconds."""
        return self._shared.settle_time

    def snapshot(self, now: float) -> Snapshot:
        """Show all namespaces at once, which takes long where there are many: see ``page``."""
        now = self._clock(now)
        shown = {name: namespace_snapshot(handler, now) for name, handler in self._handlers.items()}
        return Snapshot(shown, self.flows(now), self.settle_time)

    def remember_page(self, after: str | None, limit: int, now: float) -> MemoryPage:
        """Return what ``remember`` does, for up to ``limit`` namespaces from behind ``after`` on."""
        now = self._clock(now)
        limit = min(max(1, limit), LOOKED_OVER)
        handlers = self._register.after(after, limit + 1)
        known = {}
        room = CEILINGS_MAX
        count = 0
        for handler in handlers[:limit]:
            if quotas := remember(handler.knowledge, now):
                known[handler.namespace] = quotas
            count += 1
            room -= handler.knowledge.size
            if room <= 0:
                break
        behind = handlers[count - 1].namespace if count < len(handlers) else None
        return MemoryPage(Memory(known, self.settle_time), behind)

    def remember(self, now: float) -> Memory:
        """Return what is known of quotas, for ``recall`` by the controller of a later process.

        This takes long where there are many namespaces: see ``remember_page``.
        """
        now = self._clock(now)
        known = {name: remember(handler.knowledge, now) for name, handler in self._handlers.items()}
        return Memory({name: quotas for name, quotas in known.items() if quotas}, self.settle_time)

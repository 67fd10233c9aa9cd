"""What is remembered of a call until its caller comes again.

A request that was put off, whose create waits in line. That a waiting call was logged: it has one line, however often
it comes. And creates whose callers hung up after the send, or got the answer that the outcome is unknown: the next
identical request with the same credential continues such a create instead of making a second object.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.naming import Named
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.rejections import Lane

from .callers import NAME_MAX

T = TypeVar("T")

CALLS_MAX: Final = 10_000
"""Calls that are remembered, of each kind; beyond that, the oldest are forgotten."""
ANSWER_MAX: Final = 65_536
"""Bytes of an answer that is kept; an object with a longer one is looked up."""
ANSWERS_MAX: Final = 16 * 2**20
"""Bytes of all kept answers. Beyond that, the oldest are dropped: a known name is then looked up."""
TURNS: Final = 4
"""Turns of the event loop that it takes to read a hang-up that has arrived, and to keep its create."""


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """What is remembered of one call. ``ends`` is set once its time runs."""

    call: Hashable
    item: T
    ends: asyncio.TimerHandle | None = None


class Returning(Generic[T]):
    """Remembers items by call, until the call comes again or ``ttl`` seconds have passed."""

    def __init__(self, ttl: float, forgotten: Callable[[T], object] | None = None, most: float = CALLS_MAX) -> None:
        """``forgotten`` is called with an item that was not taken; beyond ``most``, the oldest is forgotten."""
        self._ttl = ttl
        self._forgotten = forgotten
        self._most = most
        self._calls: dict[Hashable, deque[Entry[T]]] = {}
        self._ending: dict[Entry[T], None] = {}
        """The entries whose time runs, in the order of their ends."""

    def __len__(self) -> int:
        return sum(len(each) for each in self._calls.values())

    def keep(self, call: Hashable, item: T, *, first: bool = False, ends: bool = True) -> None:
        """Keep an item for the next request of this call, before its others if ``first``. ``ends``: its time runs."""
        entry = Entry(call, item)
        of_call = self._calls.setdefault(call, deque())
        if first:
            of_call.appendleft(entry)
        else:
            of_call.append(entry)
        if ends:
            self.limit(entry)

    def take(self, call: Hashable) -> T | None:
        """Remove and return the oldest item of this call."""
        of_call = self._calls.get(call)
        if of_call is None:
            return None
        entry = of_call[0]
        self.remove(entry)
        return entry.item

    def find(self, call: Hashable, item: T) -> Entry[T] | None:
        return next((each for each in self._calls.get(call, ()) if each.item is item), None)

    def limit(self, entry: Entry[T]) -> None:
        """Start its time limit."""
        entry.ends = asyncio.get_running_loop().call_later(self._ttl, self.forget, entry)
        self._ending[entry] = None
        if len(self._ending) > self._most:
            self.forget(next(iter(self._ending)))

    def forget(self, entry: Entry[T]) -> None:
        self.remove(entry)
        if self._forgotten is not None:
            self._forgotten(entry.item)

    def remove(self, entry: Entry[T]) -> None:
        of_call = self._calls[entry.call]
        of_call.remove(entry)
        if not of_call:
            del self._calls[entry.call]
        if entry.ends is not None:
            entry.ends.cancel()
            del self._ending[entry]


@dataclass(slots=True, eq=False)
class Kept:
    """A create that is under way in ``task``; once that has ended, its success, and the name that may be stored."""

    task: asyncio.Future[Any]
    answer: Answer | None = None
    named: Named | None = None
    over: bool = False
    """Whether its result has been noted."""

    @property
    def size(self) -> int:
        answer = self.answer
        if answer is None:
            return 0
        return len(answer.body) + sum(len(name) + len(value) for name, value in answer.headers.items())

    def note(self, create: Create, *, sent: bool, resumed: bool) -> None:
        """Note how the create ended. ``resumed``: it was kept before."""
        answer, named = create.answer, create.named
        created = answer is not None and answer.ok
        if created or resumed or (sent and _may_be_stored(create)):
            self.note_answer(answer)
            self.note_name(named)

    def note_name(self, named: Named | None) -> None:
        """Keep a name that may be stored."""
        if named is not None and 0 < len(named.name) <= NAME_MAX:
            self.named = replace(named, given={}, keyed=True)  # keyed: it is looked up before it is sent

    def note_answer(self, answer: Answer | None) -> None:
        """Keep a success, unless it is long."""
        if answer is not None and answer.ok and len(answer.body) <= ANSWER_MAX:
            self.answer = replace(answer)  # without the objects that were read from its bytes


def _may_be_stored(create: Create) -> bool:
    rejection = create.rejection
    return create.in_doubt or (rejection is not None and rejection.lane is Lane.UNKNOWN_OUTCOME)


class KeptCreates(Returning[Kept]):
    """The creates that are kept: while they are under way, and for a time after their end."""

    def __init__(self, ttl: float) -> None:
        super().__init__(ttl)
        self._asked: Counter[Hashable] = Counter()
        """How many requests of each call are being answered."""
        self._answers: dict[Entry[Kept], None] = {}
        """The entries that have an answer."""
        self.bytes = 0
        """The size of these answers."""

    @asynccontextmanager
    async def asked(self, call: Hashable) -> AsyncIterator[None]:
        """A context manager while a request of this call is being answered.

        Where another one is, its caller may have hung up and come again with this one. A process that was busy or
        suspended reads both requests before the hang-up between them; this waits for the hang-up, so that ``take``
        finds the create.
        """
        self._asked[call] += 1
        try:
            if self._asked[call] > 1:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            yield
        finally:
            self._asked[call] -= 1
            if not self._asked[call]:
                del self._asked[call]

    def keep_sent(self, call: Hashable, kept: Kept, note: Callable[[], object]) -> None:
        """Keep a create for the next identical call. ``note`` is called at its end, and notes its result."""

        def over(_: object = None) -> None:
            note()
            kept.over = True
            entry = self.find(call, kept)
            if entry is not None:  # else the request that took it waits for it
                self.limit(entry)

        self.keep(call, kept, ends=False)
        if kept.task.done():
            over()
        else:
            kept.task.add_done_callback(over)

    def keep_ended(self, call: Hashable, kept: Kept) -> None:
        """Keep a create whose answer was written, but not read."""
        kept.over = True
        self.keep(call, kept)

    def give_back(self, call: Hashable, kept: Kept) -> None:
        """Put a create back: the request that took it has not waited for its end."""
        self.keep(call, kept, first=True, ends=kept.over)

    def limit(self, entry: Entry[Kept]) -> None:
        """Let its time run, if there is anything to keep."""
        kept = entry.item
        if kept.answer is None and kept.named is None:
            self.remove(entry)
            return
        super().limit(entry)
        if kept.answer is not None:
            self._answers[entry] = None
            self.bytes += kept.size
        while self.bytes > ANSWERS_MAX:
            self._shed(next(iter(self._answers)))

    def remove(self, entry: Entry[Kept]) -> None:
        super().remove(entry)
        self._forget_answer(entry)

    def _shed(self, oldest: Entry[Kept]) -> None:
        """Drop an answer: its object is then looked up by its name, if that is known."""
        if oldest.item.named is None:
            self.remove(oldest)
        else:
            self._forget_answer(oldest)
            oldest.item.answer = None

    def _forget_answer(self, entry: Entry[Kept]) -> None:
        if entry in self._answers:
            del self._answers[entry]
            self.bytes -= entry.item.size

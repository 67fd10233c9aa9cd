"""What is remembered of callers that come again.

Creates whose callers hung up after they were sent, or were told that the outcome is unknown, are kept: the next
identical request of the same credential goes on with such a create, instead of making a second object. And calls that
were noticed before are not noticed again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.answers.rejections import Lane
from backoff_ctrl.k8s.creates.naming import Named
from backoff_ctrl.k8s.gate.create import Create

KEPT_MAX: Final = 10_000
ANSWER_MAX: Final = 65_536
"""Bytes of an answer that is kept; an object with a longer one is looked up."""
ANSWERS_MAX: Final = 16 * 2**20
"""Bytes of all answers that are kept. Beyond, the oldest go: their objects are looked up, where a name is known."""
NAME_MAX: Final = 253
"""Characters of a name that is kept: no server stores an object with a longer one."""
TURNS: Final = 4
"""Turns of the event loop in which a hang-up that has come is read, and its create is kept: it needs three."""


@dataclass(slots=True, eq=False)
class Kept:
    """A create that is under way in ``task``; once that has ended, its success, and the name that may be stored."""

    task: asyncio.Future[Any]
    answer: Answer | None = None
    named: Named | None = None
    over: bool = False
    """Whether what there is to keep has been noted."""

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


class KeptCreates:
    """The creates that are kept: while they are under way, and for ``ttl`` seconds after their end."""

    def __init__(self, ttl: float, now: Callable[[], float]) -> None:
        self._ttl = ttl
        self._now = now
        self._kept: dict[Hashable, deque[Kept]] = {}
        self._ends: dict[Kept, tuple[float, Hashable]] = {}
        """Those that have ended, in the order of their ends."""
        self._asked: Counter[Hashable] = Counter()
        """How many requests of each call are being answered."""
        self._answers: dict[Kept, Hashable] = {}
        """Those of them that have an answer."""
        self.bytes = 0
        """The size of these answers."""

    def __len__(self) -> int:
        return sum(len(each) for each in self._kept.values())

    @asynccontextmanager
    async def asked(self, call: Hashable) -> AsyncIterator[None]:
        """A request of this call is answered in this block.

        Where another one is, its caller may have hung up and asks again here. A process that was busy, or stood still,
        reads both requests before it reads the hang-up between them: that is read first, so that ``take`` finds it.
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

    def keep(self, call: Hashable, kept: Kept, note: Callable[[], object]) -> None:
        """Keep a create for the next identical call. ``note`` is called at its end, and notes what there is to keep."""

        def over(_: object = None) -> None:
            note()
            kept.over = True
            if kept in self._kept.get(call, ()):  # else who took it waits for it
                self._ended(call, kept)

        self._kept.setdefault(call, deque()).append(kept)
        if kept.task.done():
            over()
        else:
            kept.task.add_done_callback(over)

    def take(self, call: Hashable) -> Kept | None:
        """Return the oldest create that is kept for this call; it is kept no longer."""
        self._expire()
        kept = self._kept.get(call)
        if not kept:
            return None
        found = kept[0]
        self._drop(call, found)
        return found

    def keep_ended(self, call: Hashable, kept: Kept) -> None:
        """Keep a create whose answer was written, but can't have been read."""
        kept.over = True
        self._kept.setdefault(call, deque()).append(kept)
        self._ended(call, kept)

    def give_back(self, call: Hashable, kept: Kept) -> None:
        """Keep a create further: who took it has not waited for its end."""
        self._kept.setdefault(call, deque()).appendleft(kept)
        if kept.over:
            self._ended(call, kept)

    def _ended(self, call: Hashable, kept: Kept) -> None:
        """From now on its time runs, if there is anything to keep."""
        self._expire()
        if kept.answer is None and kept.named is None:
            self._drop(call, kept)
            return
        self._ends[kept] = (self._now() + self._ttl, call)
        if kept.answer is not None:
            self._answers[kept] = call
            self.bytes += kept.size
        if len(self._ends) > KEPT_MAX:
            self._drop_oldest()
        while self.bytes > ANSWERS_MAX:
            self._shed()

    def _shed(self) -> None:
        """Let the oldest answer go: its object is looked up by its name, or not found again."""
        kept, call = next(iter(self._answers.items()))
        if kept.named is None:
            self._drop(call, kept)
        else:
            self._forget_answer(kept)
            kept.answer = None

    def _forget_answer(self, kept: Kept) -> None:
        if self._answers.pop(kept, None) is not None:
            self.bytes -= kept.size

    def _drop(self, call: Hashable, kept: Kept) -> None:
        self._forget_answer(kept)
        self._ends.pop(kept, None)
        of_call = self._kept.get(call)
        if of_call is not None and kept in of_call:
            of_call.remove(kept)
            if not of_call:
                del self._kept[call]

    def _drop_oldest(self) -> None:
        kept, (_, call) = next(iter(self._ends.items()))
        self._drop(call, kept)

    def _expire(self) -> None:
        while self._ends and next(iter(self._ends.values()))[0] <= self._now():
            self._drop_oldest()


CALLS_MAX: Final = 10_000
"""Calls that are remembered as noticed; beyond, those answered first are forgotten."""


class Noticed:
    """When calls were first noticed whose callers may come again: one log line says that they wait, not one a request.

    ``ttl``: seconds within which a caller comes again.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._calls: dict[Hashable, deque[tuple[float, float]]] = {}
        self._size = 0
        self._ends: deque[tuple[float, Hashable]] = deque()

    def keep(self, call: Hashable, since: float, now: float) -> None:
        """Note when a call was noticed whose request has ended."""
        self._expire(now)
        self._calls.setdefault(call, deque()).append((now + self._ttl, since))
        self._ends.append((now + self._ttl, call))
        self._size += 1
        while self._size > CALLS_MAX:
            self._drop(self._ends.popleft()[1])

    def take(self, call: Hashable, now: float) -> float | None:
        """Return when the call was noticed; None: it is a new one. Of equal calls, that kept first comes."""
        if not self._calls:
            return None
        self._expire(now)
        return self._drop(call)

    def _drop(self, call: Hashable) -> float | None:
        noticed = self._calls.get(call)
        if not noticed:
            return None
        found = noticed.popleft()[1]
        self._size -= 1
        if not noticed:
            del self._calls[call]
        return found

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, call = self._ends.popleft()
            noticed = self._calls.get(call)
            if noticed and noticed[0][0] <= now:
                self._drop(call)

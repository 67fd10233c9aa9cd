"""Lines that many share, in which all take turns: one who asks for much, or is slow, holds up no other.

Who waits has a *path*, such as (tenant, server). At each fork of the paths the branches take turns, and on one path the
order is that of arrival. ``Turns`` says who is next, ``Places`` is a number of places that are taken and freed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str, ...]
NOT_NOW: Final = inf


def leaves_as_much(places: Places, path: Path, free: int) -> bool:
    """Return whether a tenant may have one more place: it has at most as many as it leaves free, so no other stands."""
    return places.taken[path] < free


@dataclass(slots=True)
class _Branch:
    branches: dict[str, _Branch] = field(default_factory=dict)
    waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.branches or self.waiting)


class Turns(ABC):
    """A line whose branches take turns. On one event loop."""

    def __init__(self) -> None:
        self._root = _Branch()
        self._alarm: asyncio.TimerHandle | None = None

    @abstractmethod
    def left(self, path: Path) -> float:
        """Return the seconds until one more of this part of the line may go; ``NOT_NOW``: until `look` is called.

        A path is asked for from its beginning on: (), (tenant,), (tenant, server).
        """

    @abstractmethod
    def go(self, path: Path) -> None:
        """Count a waiter that goes."""

    @abstractmethod
    def undo(self, path: Path) -> None:
        """Take back the count of a waiter that had left the line when its turn came."""

    async def enter(self, *path: str) -> None:
        """Wait for a turn."""
        turn = asyncio.get_running_loop().create_future()
        branch = self._root
        for name in path:
            branch = branch.branches.setdefault(name, _Branch())
        branch.waiting[turn] = None
        self.look()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(self._root, path, turn)
            else:
                self.undo(path)
            raise

    def look(self) -> None:
        """Let all waiters go that may. Call it when there is news; the passing of time needs no call."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._root:
            first = self._first(self._root, ())
            if isinstance(first, asyncio.Future):
                first.set_result(None)
                continue
            if first != NOT_NOW:
                self._alarm = asyncio.get_running_loop().call_later(first, self.look)
            return

    def waits(self, *path: str) -> bool:
        """Return whether a caller waits here."""
        branch: _Branch | None = self._root
        for name in path:
            branch = branch and branch.branches.get(name)
        return bool(branch)

    def _first(self, branch: _Branch, path: Path) -> asyncio.Future[None] | float:
        """Take out who is next; if all have to wait, return the seconds until the first may."""
        least = self.left(path)
        if least > 0:
            return least
        while branch.waiting:
            turn = next(iter(branch.waiting))
            del branch.waiting[turn]
            if not turn.cancelled():
                self.go(path)
                return turn
        least = NOT_NOW
        for name, each in branch.branches.items():
            found = self._first(each, (*path, name))
            if isinstance(found, asyncio.Future):
                del branch.branches[name]
                if each:
                    branch.branches[name] = each  # its next turn is after those of all others
                return found
            least = min(least, found)
        return least

    def _leave(self, branch: _Branch, path: Path, turn: asyncio.Future[None]) -> None:
        if not path:
            branch.waiting.pop(turn, None)
        elif (inner := branch.branches.get(path[0])) is not None:
            self._leave(inner, path[1:], turn)
            if not inner:
                del branch.branches[path[0]]


class Places(Turns):
    """Places that are taken and freed. On one event loop."""

    def __init__(self, has_room: Callable[[Places, Path], bool]) -> None:
        """``has_room`` says whether this part of the line may have one more place; see ``Turns.left``."""
        super().__init__()
        self._has_room = has_room
        self._keys: dict[Hashable, Path] = {}
        self.taken: Counter[Path | str] = Counter()
        """The places that are taken, by each part of a path; () has all. And by the last name of a path alone."""

    async def take(self, key: Hashable, *path: str) -> None:
        """Wait for a place. Who has one already has it."""
        if key not in self._keys:
            await self.enter(*path)
            self._keys[key] = path

    def adopt(self, key: Hashable, *path: str) -> None:
        """Count a place that is used already, even where there is no room. A second call has no effect."""
        if key not in self._keys:
            self.go(path)
            self._keys[key] = path

    def take_now(self, key: Hashable, *path: str) -> bool:
        """Take a place at once if there is room; return whether there was. It never waits."""
        if all(self._has_room(self, path[:end]) for end in range(len(path) + 1)):
            self.adopt(key, *path)
        return key in self._keys

    def free(self, key: Hashable) -> None:
        """Give a place back. A second call is ignored."""
        path = self._keys.pop(key, None)
        if path is not None:
            self.undo(path)

    @asynccontextmanager
    async def of(self, *path: str) -> AsyncIterator[None]:
        """Wait for a place, and have it within the block."""
        key = object()
        await self.take(key, *path)
        try:
            yield
        finally:
            self.free(key)

    def are_used(self, *path: str) -> bool:
        """Return whether a place here is taken or waited for."""
        return self.taken[path] > 0 or self.waits(*path)

    def taken_beside(self, keys: Container[Hashable]) -> bool:
        """Return whether other keys than these have a place."""
        return any(key not in keys for key in self._keys)

    # -- as a line ---------

    def left(self, path: Path) -> float:
        return 0.0 if self._has_room(self, path) else NOT_NOW

    def go(self, path: Path) -> None:
        self._count(path, 1)

    def undo(self, path: Path) -> None:
        self._count(path, -1)
        self.look()

    def _count(self, path: Path, more: int) -> None:
        parts: list[Path | str] = [path[:end] for end in range(len(path) + 1)]
        for part in (*parts, path[-1]):
            self.taken[part] += more
            if not self.taken[part]:
                del self.taken[part]

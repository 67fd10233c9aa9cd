"""Where tasks are kept: what any store offers, whether it is a file or, one day, the API server.

People and programs write what they wish (a new task, its end); the reconciler alone writes status, and each write says
which version it was made from: a status that somebody else has written meanwhile is never overwritten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from .model import JSON, TaskStatus

PAGE: Final = 1000
"""Tasks on a page of ``list``, unless told otherwise."""


class StoreError(Exception):
    """The store can't be used now, or not as asked. The message names it and says what to do."""


class BrokenStoreError(StoreError):
    """The store can't be used at all until somebody mends it: damaged, of a newer version, not readable."""


class ExistsError(StoreError):
    """There is a task of that name with another spec. The message has both values of the first field that differs."""


class FullError(StoreError):
    """A namespace has as many tasks as it may."""


class AbsentError(StoreError):
    """There is no such task."""


class ConflictError(StoreError):
    """The status was written by somebody else meanwhile, or the task is gone: read it again."""


class NeedsError(StoreError):
    """Tasks would wait for each other in a circle."""


class LeaseLostError(StoreError):
    """Another manager has the store now: nothing may be written any more."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A task as it was asked for, checked."""

    namespace: str
    name: str
    metadata: JSON
    spec: JSON
    abort: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A task as it is stored. ``uid`` is its own: one that is made again under its name is another task.

    ``version`` counts the writes of its status. ``number`` orders tasks by their creation. ``open``: a manager still
    has something to do for it.
    """

    uid: str
    number: int
    namespace: str
    name: str
    metadata: JSON
    spec: JSON
    abort: bool
    status: TaskStatus
    version: int
    open: bool
    created_at: float

    @property
    def needs(self) -> tuple[str, ...]:
        """The tasks of its namespace that have to succeed before it begins."""
        return tuple(self.spec.get("needs", ()))

    def with_status(self, status: TaskStatus, version: int) -> Stored:
        """Return the same with another status."""
        return replace(self, status=status, version=version)


@dataclass(frozen=True, slots=True)
class Change:
    """News of one task. ``task`` is None where it was deleted; ``revision`` is where to go on from."""

    revision: int
    uid: str
    task: Stored | None


class Store(Protocol):
    """What a store offers. All errors are ``StoreError``."""

    async def identity(self) -> str:
        """Return the id of the store: what its objects are labelled with."""

    async def create(self, wishes: Sequence[Wish]) -> list[tuple[Stored, bool]]:
        """Keep all of these tasks, or none; say of each whether it is new. An equal one that is there is returned.

        Raises ``ExistsError`` for a name that is in use with another spec, ``NeedsError`` for a circle, ``FullError``
        for more tasks than a namespace may have.
        """

    async def get(self, namespace: str, name: str) -> Stored:
        """Return a task. Raises ``AbsentError``."""

    async def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        """Return a page of tasks in the order of their creation, behind the one with number ``after``."""

    async def aborted(self, after: float) -> Sequence[Stored]:
        """Return the tasks that ended as aborted after a time (Unix), the newest first, ``PAGE`` at most."""

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        """Write a status made from ``version``, and return the new version. Raises ``ConflictError``.

        ``open_``: whether a manager still has something to do.
        """

    async def request_abort(self, namespace: str, name: str) -> Stored:
        """Write the wish that a task ends; one that has ended stays as it is. Raises ``AbsentError``."""

    async def delete(self, namespace: str, name: str) -> Stored:
        """Forget a task that has ended. Raises ``AbsentError``, and ``ConflictError`` if it has not ended."""

    async def revision(self) -> int:
        """Return where a ``watch`` has to begin to miss nothing that happens after this call."""

    def watch(self, since: int | None = None, *, wishes: bool = False) -> AsyncIterator[Sequence[Change]]:
        """Yield what changes after a revision, in order, batch by batch; None: from now on. It never ends by itself.

        Of several changes of one task only the latest is told. ``wishes``: only what people wish, no news of status.
        """


def circle(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a circle of names, its first one again at its end; empty: there is none. In linear time."""
    done: set[str] = set()
    for start in needs:
        path: dict[str, None] = {}
        stack: list[tuple[str, Iterable[str]]] = [(start, iter(()))] if start not in done else []
        while stack:
            name, rest = stack.pop()
            if name not in path:
                path[name] = None
                rest = iter(needs.get(name, ()))
            following = next((each for each in rest if each not in done), None)
            if following is None:
                done.add(name)
                del path[name]
                continue
            stack.append((name, rest))
            if following in path:
                names = list(path)
                return [*names[names.index(following) :], following]
            stack.append((following, ()))
    return []

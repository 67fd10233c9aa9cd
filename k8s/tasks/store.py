"""The interface of a store of tasks: a file, or the API server of a cluster.

People and programs write requests (a new task, its end); the reconciler alone writes status. Each write of a status
names the version that it was made from, so that a status that somebody else has written meanwhile is never overwritten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from .model import JSON, TaskStatus

PAGE: Final = 1000
"""Tasks on a page of ``list`` by default."""


class StoreError(Exception):
    """The store can't be used now, or not in this way. The message names it and says what to do."""


class BrokenStoreError(StoreError):
    """The store can't be used at all until somebody repairs it: damaged, of a newer version, not readable."""


class ExistsError(StoreError):
    """There is a task of that name with another spec. The message has both values of the first field that differs."""


class FullError(StoreError):
    """A namespace has reached its limit of tasks."""


class AbsentError(StoreError):
    """The task does not exist."""


class ConflictError(StoreError):
    """The status was written by somebody else meanwhile, or the task is gone: read it again."""


class NeedsError(StoreError):
    """Tasks would wait for each other in a circle."""


class LeaseLostError(StoreError):
    """Another manager has the store now: this one may no longer write."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A requested task, checked."""

    namespace: str
    name: str
    metadata: JSON
    spec: JSON
    abort: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored task. ``uid`` is unique: one that is created again under its name is another task.

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
    """News of one task. ``task`` is None if it was deleted; ``watch`` can resume from ``revision``."""

    revision: int
    uid: str
    task: Stored | None


class Store(Protocol):
    """The interface of a store. All errors are ``StoreError``."""

    async def identity(self) -> str:
        """Return the id of the store, which its objects have as a label."""

    async def create(self, wishes: Sequence[Wish]) -> list[tuple[Stored, bool]]:
        """Store all of these tasks, or none; return for each whether it is new. An existing equal one is returned.

        Raises ``ExistsError`` for a name that is in use with another spec, ``NeedsError`` for a circle, ``FullError``
        for more tasks than a namespace may have.
        """

    async def get(self, namespace: str, name: str) -> Stored:
        """Return a task. Raises ``AbsentError``."""

    async def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        """Return a page of tasks in the order of their creation, after the one with number ``after``."""

    async def aborted(self, after: float) -> Sequence[Stored]:
        """Return the tasks that ended as aborted after a time (Unix), the newest first, ``PAGE`` at most."""

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        """Write a status made from ``version``, and return the new version. Raises ``ConflictError``.

        ``open_``: whether a manager still has something to do.
        """

    def pause(self, status: TaskStatus, times: int) -> float:
        """Return the seconds between two writes of a task's status, if little but its reason has changed.

        ``times``: how often it was written in its present phase, after the first time.
        """

    async def request_abort(self, namespace: str, name: str) -> Stored:
        """Request the end of a task; one that has ended stays unchanged. Raises ``AbsentError``."""

    async def delete(self, namespace: str, name: str) -> Stored:
        """Forget a task that has ended. Raises ``AbsentError``, and ``ConflictError`` if it has not ended."""

    async def revision(self) -> int:
        """Return the revision from which a ``watch`` reports all changes after this call."""

    def watch(self, since: int | None = None, *, wishes: bool = False) -> AsyncIterator[Sequence[Change]]:
        """Yield changes after a revision, in order, batch by batch; None: from now on. It never ends by itself.

        Of several changes of one task only the latest is reported. ``wishes``: only requests, not changes of status.
        """


def circle(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle of names, with the first one again at the end; empty: there is none. In linear time."""
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

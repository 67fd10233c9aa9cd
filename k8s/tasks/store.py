"""The interface of a store of tasks: a file, or the API server of a cluster.

People and programs write requests (a new task, its end); the reconciler alone writes status. Each write of a status
names the version that it was made from, so that a status that somebody else has written meanwhile is never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from backoff_ctrl.k8s.kube.answers.printing import in_one_line
from backoff_ctrl.k8s.tasks.plugins.signal import TYPE as SIGNAL

from .model import JSON, Ending, TaskStatus, shown

BY_MAX: Final = 253
"""Characters that are kept of who asked something of a task."""
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


class RefusedError(StoreError):
    """The store will never take this status: it is not as a status may be. The message has its answer."""


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
    def needs(self) -> dict[str, Ending]:
        """The tasks of its namespace that have to end before it begins, and how."""
        return needs_of(self.spec)

    @property
    def again(self) -> int:
        """How often it was asked to run again once it has ended."""
        again: int = self.spec.get("again", 0)
        return again

    @property
    def is_asked_again(self) -> bool:
        return not self.abort and self.again > self.status.again

    def with_status(self, status: TaskStatus, version: int) -> Stored:
        """Return the same with another status."""
        return replace(self, status=status, version=version)


@dataclass(frozen=True, slots=True)
class Change:
    """News of one task. ``task`` is None if it was deleted; ``watch`` can resume from ``revision``."""

    revision: int
    uid: str
    task: Stored | None


def needs_of(spec: Mapping[str, Any]) -> dict[str, Ending]:
    """Return the names of the tasks that a spec needs, and how they have to end; what can't be read is left out."""
    found: dict[str, Ending] = {}
    listed = spec.get("needs")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, str):
            found[each] = "Success"
        elif isinstance(each, dict) and isinstance(each.get("task"), str):
            found[each["task"]] = each.get("ended", "Success")
    return found


def is_new_signal(task: Stored, value: Any) -> bool:
    """Return whether a signal is news to a task; False: it has the same one. Raises ``ConflictError``."""
    label = f"task {task.namespace}/{task.name}"
    if task.spec["type"] != SIGNAL:
        raise ConflictError(f"{label} is of the type {task.spec['type']}: only tasks of the type {SIGNAL} take signals")
    given = task.spec.get("signal")
    if given is not None:
        if json.dumps(given, sort_keys=True) == json.dumps(value, sort_keys=True):
            return False
        raise ConflictError(f"{label} has had its signal: {json.dumps(given)[:100]}")
    if not task.open:
        raise ConflictError(f"{label} has ended as {task.status.phase}: run it again before you signal it")
    return True


def signalled(value: Any, by: str, now: float) -> JSON:
    """Return the fields of the spec of a task that is signalled now. ``by``: who signals it; empty: it is not known."""
    return {"signal": value, "signalled": asked_by(by, now)}


def asked_by(by: str, now: float) -> JSON:
    """Return the note of who asks something of a task now; empty: it is not known."""
    return {**({"by": in_one_line(by)[:BY_MAX]} if by else {}), "at": shown(now)}


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
        """Write a status made from ``version``, and return the new version. Raises ``ConflictError``, ``RefusedError``.

        ``open_``: whether a manager still has something to do.
        """

    def pause(self, status: TaskStatus, times: int) -> float:
        """Return the seconds between two writes of a task's status, if little but its reason has changed.

        ``times``: how often it was written in its present phase, after the first time.
        """

    async def request_abort(self, namespace: str, name: str, by: str = "") -> Stored:
        """Request the end of a task, and keep who did and when; ``by`` is empty where that is not known.

        One that has ended, or is to end already, stays unchanged. Raises ``AbsentError``.
        """

    async def signal(self, namespace: str, name: str, value: Any, by: str = "") -> Stored:
        """Signal a task of the type signal, and keep who did and when; ``by`` is empty where that is not known.

        Raises ``AbsentError``, and ``ConflictError`` for one that takes no signal.

        The same signal once more changes nothing.
        """

    async def replace(self, uid: str, wish: Wish) -> Stored:
        """Replace a task that has ended by a new one of its name. Raises what ``create`` and ``delete`` raise.

        ``ConflictError`` also if the task of that name is another one than ``uid`` meanwhile.
        """

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

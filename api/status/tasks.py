"""The endpoints of ``serve`` below ``/v1/tasks``. They only write requests; the manager writes the status.

The manager's account may create more than its callers may. So the API server is asked for each caller: creating a task
needs the right to create that kind of object in that namespace, and aborting one the right to delete it there. Listing
tasks needs the right to list pods; seeing what they run (containers with their variables and arguments, templates) the
right to get that kind of object there; a log the right to get ``pods/log``. On loopback callers are anonymous, and any
local user and any page in a browser can connect: there changing anything, seeing what tasks run and reading their logs
needs the token that the server draws.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError
from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.status.asked import ProblemError, cursor, parameter, read_cursor
from backoff_ctrl.k8s.status.bodies import checked_name, read_manifest
from backoff_ctrl.k8s.status.client import NOTE
from backoff_ctrl.k8s.status.conversation import Answer
from backoff_ctrl.k8s.status.endpoints import Nothing, OfNamespace
from backoff_ctrl.k8s.status.shapes import Page
from backoff_ctrl.k8s.tasks.again import read_path, run_again
from backoff_ctrl.k8s.tasks.documents import TaskDocument, TaskItem, document, item
from backoff_ctrl.k8s.tasks.logs import LogError
from backoff_ctrl.k8s.tasks.model import TaskObject, TaskWait, shown
from backoff_ctrl.k8s.tasks.permitting import to_create
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.signal import flaw_of_signal
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.store import (
    AbsentError,
    ConflictError,
    ExistsError,
    FullError,
    NeedsError,
    Stored,
    StoreError,
    Wish,
    asked_by,
    signalled,
)

from .access import HOLDERS, Access, while_permitted
from .describing import Row
from .routing import Caller
from .served_tasks import ServedTasks
from .shapes import AT

audit = logging.getLogger("backoff_ctrl.audit")
WITHOUT: Final = "this server has no task store: start it with --store FILE (backoff-ctrl serve --store tasks.db)"
LOGS: Final = Right("get", "pods/log")
FOLLOWED_MAX: Final = 50
"""Logs that are read at a time: each holds a connection to the API server."""
GONE_EVERY: Final = 0.5
"""Seconds between two checks whether the reader of a log that is still empty has left, or the server ends."""
_LOCAL: Final = "send the token of this server: Authorization: Bearer TOKEN, found in {}"
_TAKEN: Final = (
    "task {0}/{1} exists: choose another name (only accounts that may get such objects there learn whether its spec "
    "is the same)"
)


_STATUSES: Final[dict[type[Exception], int]] = {AbsentError: 404, ConflictError: 409, NeedsError: 422}
"""Of problems by the error of a store; 503 for any other."""


@dataclass
class _Note:
    """What to tell people beside a log, once its first line is there."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class OfTask:
    namespace: str = parameter("The namespace of the task.", in_path=True)
    name: str = parameter("The name of the task.", in_path=True)


@dataclass(frozen=True, slots=True)
class OfLog(OfTask):
    container: str | None = parameter("The container; by default the task's main container.")
    follow: bool = parameter("Whether to follow the log until the task has ended.", False)


class TaskEndpoints:
    """Answers about the tasks of one store; None: ``serve`` has none."""

    def __init__(self, tasks: ServedTasks | None, access: Access, clock: Callable[[], float]) -> None:
        """Answer callers that ``access`` permits; ``clock`` returns Unix time."""
        self._tasks = tasks
        self._access = access
        self._clock = clock
        self._followed = 0
        self._ending = False

    def close(self) -> None:
        """End requests that wait for the first line of a log, because the server ends."""
        self._ending = True

    async def list(self, query: OfNamespace, caller: Caller) -> dict[str, Any]:
        """A page of tasks, in the order of their creation."""
        namespace, limit, after = query.namespace, query.limit, read_cursor(query.after, "tasks")
        await caller.permit(namespace, HOLDERS)
        with _refusals():
            found = await self._there.store.list(after[0] if after else 0, limit + 1, namespace=namespace)
        following = cursor("tasks", [found[limit - 1].number]) if len(found) > limit else None
        items = [item(task) for task in found[:limit]]
        return {"as_of": shown(self._clock()), "items": items, "next": following}

    async def show(self, query: OfTask, caller: Caller) -> Answer:
        """Return a task with its spec, status and history."""
        return await self._document(caller, await self._task(query, caller))

    async def create(self, _: Nothing, caller: Caller) -> Answer:
        """Create the task in the body: 201 if it is new, 200 if an equal one is there already.

        A caller that may not see what an existing task runs gets a 409 in either case: else it could guess the spec.
        """
        tasks = self._there
        self._check_local(caller)
        await caller.name()  # refuse unknown callers before reading the body
        body = await caller.body()
        manifest = await run_in_threadpool(read_manifest, body, caller.headers.get("content-type", ""))
        try:
            task = read_task(manifest)
            wish = wish_of(task)
            entry = await run_in_threadpool(tasks.check, wish)
        except TaskSpecError as error:
            raise ProblemError(422, str(error), _pointer(error.path)) from None
        await self._permit(caller, wish.namespace, to_create(entry, wish.spec))
        if wish.abort or "signal" in wish.spec:  # an existing equal task, perhaps of somebody else, would end
            await self._permit(caller, wish.namespace, entry.rights("delete", wish.spec))
            who, now = await caller.name(), self._clock()
            given = signalled(wish.spec["signal"], who, now) if "signal" in wish.spec else {}
            given |= {"aborted": asked_by(who, now)} if wish.abort else {}
            wish = replace(wish, spec={**wish.spec, **given})
        await self._check_name(caller, wish)
        try:
            ((made, new),) = await tasks.store.create([wish])
        except ExistsError as error:
            await self._check_name(caller, wish)
            raise ProblemError(409, str(error), "#/body/metadata/name") from None
        except NeedsError as error:
            raise ProblemError(422, str(error), "#/body/spec/needs") from None
        except FullError as error:
            raise ProblemError(403, str(error), "#/body/metadata/namespace") from None
        except StoreError as error:
            raise ProblemError(503, str(error)) from None
        if not new:  # it may have come meanwhile
            await self._check_name(caller, wish)
        await self._note(caller, "created" if new else "asked for again", made)
        shown_task = await self._document(caller, made)
        shown_task.status = 201 if new else 200
        return shown_task

    async def abort(self, query: OfTask, caller: Caller) -> Answer:
        """Request the end of a task; the answer is the task."""
        task = await self._to_end(query, caller)
        with _refusals():
            task = await self._there.store.request_abort(task.namespace, task.name, await caller.name())
        await self._note(caller, "asked to end", task)
        return await self._document(caller, task)

    async def signal(self, query: OfTask, caller: Caller) -> Answer:
        """Signal a task of the type signal with the ``value`` in the body; the answer is the task."""
        task = await self._to_end(query, caller)
        body = await self._fields(caller, "value")
        if flaw := flaw_of_signal(body.get("value")):
            raise ProblemError(422, flaw, "#/body/value")
        with _refusals():
            task = await self._there.store.signal(task.namespace, task.name, body["value"], await caller.name())
        await self._note(caller, "signalled", task)
        return await self._document(caller, task)

    async def again(self, query: OfTask, caller: Caller) -> Answer:
        """Run a task that has ended again, under its name: ``set`` in the body lists paths with their new values.

        The answer is the new task.
        """
        task = await self._to_end(query, caller)
        body = await self._fields(caller, "set")
        if not await self._may_read_object(caller, task):  # a change could show what the rest is
            raise ProblemError(403, "only accounts that may get such objects there may run it again")
        try:
            with _refusals():
                wish = run_again(task, _changes(body.get("set", [])))
            entry = await run_in_threadpool(self._there.check, wish)
        except TaskSpecError as error:
            raise ProblemError(422, str(error), "#/body/set") from None
        await self._permit(caller, wish.namespace, to_create(entry, wish.spec))
        with _refusals():
            made = await self._there.store.replace(task.uid, wish)
        await self._note(caller, f"run again in place of {task.uid}", made)
        return await self._document(caller, made)

    async def _to_end(self, query: OfTask, caller: Caller) -> Stored:
        """Return a task that the caller may end. Raises ``ProblemError``."""
        self._check_local(caller)
        task = await self._task(query, caller)
        try:
            entry = self._there.entry(task)
        except PluginError as error:
            raise ProblemError(409, str(error)) from None
        await self._permit(caller, task.namespace, entry.rights("delete", task.spec))
        return task

    async def _task(self, query: OfTask, caller: Caller, *rights: Right) -> Stored:
        """Return a task that the caller may list, with these further rights. Raises ``ProblemError``."""
        namespace, name = checked_name(query.namespace, "#/path/namespace"), query.name
        await self._permit(caller, namespace, (HOLDERS, *rights))
        with _refusals():
            try:
                return await self._there.store.get(namespace, name)
            except AbsentError:
                raise ProblemError(404, f"there is no task {name} in namespace {namespace}", "#/path/name") from None

    @staticmethod
    async def _fields(caller: Caller, *known: str) -> Mapping[str, Any]:
        """Read a body with these fields. Raises ``ProblemError`` for another one."""
        body = await caller.body()
        found = await run_in_threadpool(read_manifest, body, caller.headers.get("content-type", ""))
        if wrong := sorted(found.keys() - set(known)):
            raise ProblemError(422, f"unknown field {wrong[0][:60]!r}: choose from {', '.join(known)}", "#/body")
        return found

    async def delete(self, query: OfTask, caller: Caller) -> Answer:
        """Delete an ended task; the answer is the task as it was."""
        task = await self._to_end(query, caller)
        whole = await self._document(caller, task)
        with _refusals():
            task = await self._there.store.delete(task.namespace, task.name)
        await self._note(caller, "forgotten", task)
        return whole

    async def log(self, query: OfLog, caller: Caller) -> Answer:
        """Return the log of a task's pods as text: once, or with ``follow=true`` until the task has ended."""
        self._check_local(caller)
        task = await self._task(query, caller, LOGS)
        if self._followed >= FOLLOWED_MAX:
            raise ProblemError(503, "too many readers of logs: try again later")
        told = _Note()
        lines = self._lines(task, query.container or "", told, follow=query.follow)
        first = await self._first(caller, lines)
        heard = while_permitted(lines, lambda: caller.permit(task.namespace, LOGS), time.monotonic)

        async def body() -> AsyncGenerator[bytes]:
            for line in first:
                yield line
            async for line in heard:
                yield line

        headers = {NOTE: printable(told.text).encode("ascii", "replace").decode()} if told.text else {}
        return Answer(headers=headers, stream=body())

    async def _first(self, caller: Caller, lines: AsyncGenerator[bytes]) -> Sequence[bytes]:
        """Return the first line of a log, if there is one before its caller leaves: a silent log may wait for ever.

        Raises ``ProblemError`` at the end of the server, too.
        """
        coming = asyncio.ensure_future(anext(lines, b""))
        try:
            while not coming.done():
                await asyncio.wait({coming}, timeout=GONE_EVERY)
                if coming.done():
                    break
                if self._ending:
                    raise ProblemError(503, "this server ends; follow the log again once it runs")
                if await caller.has_left():
                    return []
            return [line for line in (coming.result(),) if line]
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})

    async def _lines(self, task: Stored, container: str, told: _Note, *, follow: bool) -> AsyncGenerator[bytes]:
        """Yield the lines of a log; ``told`` gets what to tell people beside it, before the first line.

        Raises ``ProblemError`` where there is none.
        """
        self._followed += 1
        try:
            async with self._there.log(task, container) as log:
                async for line in log.follow() if follow else log.lines():
                    told.text = log.note
                    yield line
                told.text = log.note
        except (LogError, PluginError) as error:
            raise ProblemError(409, str(error)) from None
        except (ClusterError, StoreError) as error:
            raise ProblemError(503, str(error)) from None
        finally:
            self._followed -= 1

    @property
    def _there(self) -> ServedTasks:
        """The tasks. Raises ``ProblemError`` where there are none."""
        if self._tasks is None:
            raise ProblemError(404, WITHOUT, "#/path")
        if self._tasks.trouble:
            raise ProblemError(503, self._tasks.trouble)
        return self._tasks

    async def _check_name(self, caller: Caller, wish: Wish) -> None:
        """Raise ``ProblemError`` if the task is there already, and the caller may not see what it runs."""
        with _refusals():
            try:
                there = await self._there.store.get(wish.namespace, wish.name)
            except AbsentError:
                return
        if not await self._may_read_object(caller, there):
            raise ProblemError(409, _TAKEN.format(wish.namespace, wish.name), "#/body/metadata/name")

    @staticmethod
    async def _permit(caller: Caller, namespace: str, rights: Sequence[Right]) -> None:
        """Raise ``ProblemError`` if the caller lacks one of these rights."""
        for right in rights:
            await caller.permit(namespace, right)

    async def _document(self, caller: Caller, task: Stored) -> Answer:
        """Answer with a task: whole if the caller may read such objects, else without fields that may hold secrets."""
        whole = await self._may_read_object(caller, task)
        return Answer.showing(document(task, self._clock(), whole=whole))

    async def _may_read_object(self, caller: Caller, task: Stored) -> bool:
        if not self._access.asks_for_token:
            return self._there.token.allows(caller.headers.get("authorization", ""))
        try:
            await self._permit(caller, task.namespace, self._there.entry(task).rights("get", task.spec))
        except PluginError:  # its kind is no longer known
            return False
        except ProblemError as error:
            if error.problem.status != 403:
                raise
            return False
        return True

    def _check_local(self, caller: Caller) -> None:
        """Raise ``ProblemError`` on this machine for a caller without the server's token."""
        token = self._there.token
        if not self._access.asks_for_token:
            token.check(caller.headers.get("authorization", ""), _LOCAL)

    async def _note(self, caller: Caller, what: str, task: Stored) -> None:
        who = await caller.name()
        audit.info("task %s/%s (%s) was %s by %s", task.namespace, task.name, task.uid, what, who or "this machine")


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise errors of a store as ``ProblemError``."""
    try:
        yield
    except StoreError as error:
        status = next((each for kind, each in _STATUSES.items() if isinstance(error, kind)), 503)
        raise ProblemError(status, str(error)) from None


def _changes(listed: Any) -> list[tuple[str, Any]]:
    """Return the changes in a body. Raises ``ProblemError``."""
    if not isinstance(listed, list) or not all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in listed
    ):
        raise ProblemError(422, 'write pairs such as ["spec.priority", 3]', "#/body/set")
    return [(read_path(path), value) for path, value in listed]


def _pointer(path: str) -> str:
    """Return a JSON Pointer to a field of the body: ``spec.needs[0]`` is ``#/body/spec/needs/0``."""
    steps = re.split(r"[.\[]", path.replace("]", ""))
    return "/".join(["#/body", *(step.replace("~", "~0").replace("/", "~1") for step in steps if step)])


TASK: Final[dict[str, Any]] = {
    "apiVersion": "backoff-ctrl.dev/v1alpha1",
    "kind": "Task",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {
        "type": "container",
        "container": {"image": "busybox", "command": ["true"], "resources": {"requests": {"cpu": "1"}}},
    },
}
_COMMON: Final[dict[str, Any]] = {
    "namespace": "team", "name": "train", "uid": "9f3b2c52-6f0e-4a44-9f0e-1f2d8c1b7a55", "type": "container",
    "plugin": "container", "phase": "WaitingForResources", "version": 2, "reason": "quota", "code": None, "kind": None,
    "attempt": 0, "object": TaskObject("v1", "Pod", "train-9f3b2c52-0", ""),
    "wait": TaskWait("quota", "compute", "requests.cpu", "1", "500m", "10", 1, None, None), "created_at": AT,
    "ended_at": None, "since": AT, "next_attempt_at": None, "needs": {}, "abort": False, "unfinished": True,
}  # fmt: skip
ITEM: Final = TaskItem(**_COMMON)
DOCUMENT: Final = TaskDocument(**_COMMON, as_of=AT, spec=TASK["spec"])


_PAGE: Final = {"as_of": AT, "items": [ITEM], "next": None}
_ONE: Final = "/v1/tasks/{namespace}/{name}"
_CHANGED: Final = {"set": [["spec.priority", 3]]}
ENDPOINTS: Final = (
    Row("/v1/tasks", "list", OfNamespace, "document", Page[TaskItem], example=_PAGE),
    Row("/v1/tasks", "create", Nothing, "document", TaskDocument, "POST", DOCUMENT, TASK, (200, 201)),
    Row(_ONE, "show", OfTask, "document", TaskDocument, "GET", DOCUMENT),
    Row(_ONE, "delete", OfTask, "document", TaskDocument, "DELETE", DOCUMENT),
    Row(f"{_ONE}/abort", "abort", OfTask, "document", TaskDocument, "POST", DOCUMENT),
    Row(f"{_ONE}/signal", "signal", OfTask, "document", TaskDocument, "POST", DOCUMENT, {"value": True}),
    Row(f"{_ONE}/again", "again", OfTask, "document", TaskDocument, "POST", DOCUMENT, _CHANGED),
    Row(f"{_ONE}/log", "log", OfLog, "text", words={200: "The log."}),
)

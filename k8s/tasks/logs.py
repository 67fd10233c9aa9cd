"""A task's log: the output of the containers of its pods, once or as it comes.

The pods are the present attempt's object itself, or those made of it. While it has no log, the log of the last attempt
that had one is shown, with a note that says so. The log of a pod that is gone is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

import aiohttp

from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, mapping_in, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.rejections import rejection_of
from backoff_ctrl.k8s.kube.charges.live import ENDED
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, PODS
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError, Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.tasks.plugins.manager.figures import ManagerCounts
from backoff_ctrl.k8s.tasks.plugins.manager.plugin_calls import PluginCalls
from backoff_ctrl.k8s.tasks.plugins.pod_phases import primary_container
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry
from backoff_ctrl.k8s.tasks.plugins.registry import Entry

from .model import TaskObject
from .store import Stored

LOOK_AGAIN: Final = 1.0
"""Seconds between two checks for new pods, and for the end of the task."""
LINE_MAX: Final = 64 << 10
"""The longest line, in bytes; a longer one is split."""
WAIT: Final = "wait for it with -f"
WAITING_LINES: Final = 1000
"""Lines that are read ahead of the consumer."""
NO_CONTENT: Final = 204
"""What a real API server answers for a pod that no node has (``LogLocation`` in registry/core/pod/strategy.go)."""
_LIMITS: Final = aiohttp.ClientTimeout(total=None, sock_connect=10)


class LogError(Exception):
    """There is no log to show; the message says why, and what to do."""


class _NoLogError(LogError):
    """The present attempt has no log, though an earlier one may have. ``fact`` says why, ``advice`` what to do."""

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(f"{fact}: {advice}" if advice else fact)
        self.fact = fact


class _NotStartedError(_NoLogError):
    """The container has not started: there may be a log later."""


class _GoneError(_NoLogError):
    """The pod was deleted."""


class TaskLog:
    """The log of one task. ``read`` returns the present task, ``entry`` is the plugin of its type."""

    def __init__(
        self, session: ClusterSession, entry: Entry, read: Callable[[], Awaitable[Stored]], container: str = ""
    ) -> None:
        """``container`` names the container to show; empty: the task's own in each pod, else the first.

        Raises ``LogError`` for a plugin without pods.
        """
        if not isinstance(entry, PluginEntry):
            raise LogError(
                f"tasks of plugin {entry.id} run in no pods, so there is no log to read here: the task's status has "
                "links to logs elsewhere, if the plugin knows any"
            )
        self._session = session
        self._objects = Objects(session)
        self._plugin = PluginCalls(entry, ManagerCounts())
        self._read = read
        self._container = container
        self.note = ""
        """What to tell people beside the lines, once the first one is there: whose log this is, or an empty text."""

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the present log, pod by pod; where the present attempt has no log, that of an earlier one, with a note.

        Raises ``LogError`` and ``ClusterError``.
        """
        task = await self._read()
        begun = False
        try:
            async for line in self._of_present(task):
                begun = True
                yield line
        except _NoLogError as error:
            why, earlier = error, [] if begun else await self._pods(task, task.status.earlier_object)
            if not earlier:
                raise
        else:
            return
        self.note = f"{why.fact}; this is the log of attempt {task.status.earlier_attempt + 1}"
        try:
            for pod in earlier:
                async for line in self._of_pod(pod, follow=False):
                    yield line
        except LogError:
            self.note = ""
            raise why from None

    async def _of_present(self, task: Stored) -> AsyncIterator[bytes]:
        """Yield the log of the present attempt. Raises ``LogError`` and ``ClusterError``."""
        made = task.status.object
        if made is None:
            raise _no_object(task)
        pods = await self._pods(task, made)
        if not pods:
            what = f"{made.kind} {task.namespace}/{made.name}"
            missing = f"{what} is gone" if made.kind == "Pod" else f"{what} has no pod, or none any more"
            raise _NoLogError(missing, "a log is deleted with its pod")
        for pod in pods:
            async for line in self._of_pod(pod, follow=False):
                yield line

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield the present log and what follows, of each pod of each attempt, until the task has ended.

        Raises ``ClusterError``.
        """
        first = True
        begun: set[str] = set()
        lines: asyncio.Queue[bytes] = asyncio.Queue(WAITING_LINES)
        reading: set[asyncio.Task[None]] = set()

        async def read(pod: JSON, uid: str) -> None:
            try:
                async for line in self._of_pod(pod, follow=True):
                    await lines.put(line)
            except _NotStartedError:
                begun.discard(uid)
            except _GoneError as error:  # no end of the log: another attempt may follow
                self.note = self.note or f"{error.fact}: its log is lost"

        try:
            while True:
                task = await self._read()
                made = self._earlier(task) if first else task.status.object
                first = False
                for pod in await self._pods(task, made):
                    uid = text(metadata_of(pod).get("uid"))
                    if uid not in begun:
                        begun.add(uid)
                        reading.add(asyncio.create_task(read(pod, uid)))
                async for line in _for(lines, LOOK_AGAIN):
                    yield line
                for each in [each for each in reading if each.done()]:
                    reading.discard(each)
                    each.result()  # raises what ended it
                if not task.open and not reading and lines.empty():
                    return
        finally:
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    def _earlier(self, task: Stored) -> TaskObject | None:
        """Return the object of the present attempt, or of an earlier one while there is no object; and note which."""
        made, earlier = task.status.object, task.status.earlier_object
        if made is None and earlier is not None:
            attempt = task.status.earlier_attempt + 1
            self.note = f"{_no_object(task).fact}; its log follows that of attempt {attempt}"
        return made or earlier

    async def _pods(self, task: Stored, made: TaskObject | None) -> list[JSON]:
        """Return the pods of an attempt's object, the oldest first: by its plugin's labels, its selector, or names."""
        if made is None:
            return []
        kind = self._plugin.kind
        resource = await self._objects.read(kind, task.namespace, made.name)
        if resource is None or (made.uid and metadata_of(resource).get("uid") != made.uid):
            return []
        if kind == PODS:
            return [resource]
        labels = self._plugin.pod_labels(resource)
        labels = labels or mapping_in(mapping_in(resource.get("spec"), "selector"), "matchLabels")
        found = await self._objects.pods_of(task.namespace, labels, partial(self._plugin.pod_names, resource))
        return sorted(found, key=lambda pod: (text(metadata_of(pod).get("creationTimestamp")), _name(pod)))

    async def _of_pod(self, pod: JSON, *, follow: bool) -> AsyncIterator[bytes]:
        """Yield the lines of one pod; where an object has several, with the pod's name before each."""
        metadata = metadata_of(pod)
        namespace, name = text(metadata.get("namespace")), _name(pod)
        label = b"" if self._plugin.kind == PODS else f"[{name}] ".encode()
        query = [("container", self._container or _container(pod)), *([("follow", "true")] if follow else [])]
        path = path_to(PODS.path, PODS.plural, namespace=namespace, name=name, part="log")
        try:
            response = await self._session.request("GET", path, query=query, timeout=_LIMITS)
            async with response:
                if response.status == NO_CONTENT:  # it is, or was, on no node
                    if text(mapping(pod.get("status")).get("phase")) in ENDED:
                        return
                    raise _NotStartedError(f"pod {namespace}/{name} is on no node yet", WAIT)
                if response.status != 200:
                    raise _refused(Answer(response.status, response.headers, await response.read()), namespace, name)
                rest = b""
                async for chunk in response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield label + line + b"\n"
                    while len(rest) > LINE_MAX:
                        yield label + rest[:LINE_MAX] + b"\n"
                        rest = rest[LINE_MAX:]
                if rest:
                    yield label + rest + b"\n"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ClusterError(f"read the log of pod {namespace}/{name}", said) from error


async def _for(lines: asyncio.Queue[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yield the lines that come within these seconds."""
    ends = asyncio.get_running_loop().time() + seconds
    while True:
        taking = asyncio.ensure_future(lines.get())
        try:
            left = max(0.0, ends - asyncio.get_running_loop().time())
            await asyncio.wait({taking}, timeout=left)
            if not taking.done():
                return
            yield taking.result()
        finally:
            taking.cancel()


def _no_object(task: Stored) -> _NoLogError:
    what = f"task {task.namespace}/{task.name}"
    if task.open:
        return _NoLogError(f"{what} has no object yet, it is {task.status.phase}", WAIT)
    return _NoLogError(f"{what} ended as {task.status.phase} without an object, and so without a log")


def _refused(answer: Answer, namespace: str, name: str) -> LogError | ClusterError:
    said = rejection_of(answer).message or f"status {answer.status}"
    if answer.status == 400 and "waiting to start" in said:
        return _NotStartedError(said, WAIT)
    if answer.status == 404:
        return _GoneError(said)
    if answer.status == 400:
        return LogError(said)
    return ClusterError(f"read the log of pod {namespace}/{name}", f"{answer.status} {said}", answer.status)


def _container(pod: JSON) -> str:
    """Return the container whose log is shown: the task's own, or the one that kubectl shows, else the first."""
    chosen = primary_container(pod) or text(annotations_of(pod).get("kubectl.kubernetes.io/default-container"))
    names = [text(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("containers"))]
    return chosen if chosen in names or not names else names[0]


def _name(pod: JSON) -> str:
    return text(metadata_of(pod).get("name"))

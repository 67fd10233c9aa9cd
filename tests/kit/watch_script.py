"""An in-memory server of lists and watches, on any clock: the test decides what it sends, refuses and breaks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.observing.quotas import QuotaWatch
from backoff_ctrl.k8s.gate.runtime.host import LoopAlarms
from backoff_ctrl.k8s.kube.answers.bounded_json import Trim
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import (
    WatchAbsentError,
    WatchBrokenError,
    WatchExpiredError,
    WatchForbiddenError,
)
from tests.kit.patience import PATIENCE, pause_after

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from backoff_ctrl.engine.facts.quotas import ObservedQuota
    from backoff_ctrl.k8s.kube.watching.objects import Kind
    from backoff_ctrl.k8s.kube.watching.status import WatchRecord

ONE = 10**9
elapse = asyncio.sleep
"""In virtual time this takes no real time: the clock jumps."""


async def until(holds: Callable[[], object], within: float = PATIENCE, every: float = 0.005) -> None:
    """Poll every few milliseconds of real time, for changes made by other tasks, threads and programs."""
    async with asyncio.timeout(within):
        while True:
            begun = time.monotonic()
            if holds():
                return
            await asyncio.sleep(pause_after(time.monotonic() - begun, every))


@dataclass(frozen=True)
class Asked:
    """A request that the server received, with its time."""

    at: float
    what: str
    plural: str
    namespace: str | None
    version: str = ""


class ScriptedServer(ClusterSource):
    """Keeps objects with their versions and serves them like an API server, unless the test says otherwise."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.forbidden: set[tuple[str, str | None]] = set()
        self.served: set[str] = set()
        self.absent: set[str] = set()
        self.down = False
        self.gone_as_answer = False
        self.pages_of = 500
        self.version = 100
        self._oldest = 0
        self.objects: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self._log: list[tuple[int, str, str, dict[str, Any]]] = []
        self._streams: list[tuple[str, str | None, asyncio.Queue[Any]]] = []

    def count(self, what: str, plural: str = "resourcequotas", namespace: str | None = "team") -> int:
        """How many such requests came."""
        return len(self.times(what, plural, namespace))

    def times(self, what: str, plural: str = "resourcequotas", namespace: str | None = "team") -> list[float]:
        """When such requests came."""
        return [a.at for a in self.asked if (a.what, a.plural, a.namespace) == (what, plural, namespace)]

    # -- objects ---------

    def put(self, plural: str, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        """Create an object, or replace it."""
        objects = self.objects.setdefault(plural, {})
        known = objects.get((namespace, name))
        self.version += 1
        uid = known["metadata"]["uid"] if known else f"uid-{self.version}"
        metadata = {**body.get("metadata", {}), "name": name, "uid": uid, "resourceVersion": str(self.version)}
        made = {**body, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}
        objects[namespace, name] = made
        self._happened(plural, namespace, {"type": "MODIFIED" if known else "ADDED", "object": made})

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object."""
        gone = self.objects[plural].pop((namespace, name))
        self.version += 1
        metadata = {**gone["metadata"], "resourceVersion": str(self.version)}
        self._happened(plural, namespace, {"type": "DELETED", "object": {**gone, "metadata": metadata}})

    def quota(self, name: str = "q", hard: str = "2", used: str = "0", *, namespace: str = "team") -> None:
        """Create a quota of pods, or replace it."""
        status = {"hard": {"pods": hard}, "used": {"pods": used}}
        self.put("resourcequotas", namespace, name, {"spec": {"hard": {"pods": hard}}, "status": status})

    def pod(self, name: str, *, namespace: str = "team") -> None:
        """Create a pod, or change it."""
        self.put("pods", namespace, name, {"kind": "PartialObjectMetadata"})

    def uid(self, plural: str, namespace: str, name: str) -> str:
        """Return the uid of an object."""
        return str(self.objects[plural][namespace, name]["metadata"]["uid"])

    # -- streams ---------

    def tell(self, *lines: Any, plural: str = "") -> None:
        """Write these lines, which may be anything, to every stream of a kind, by default to those of quotas."""
        for watched, _, queue in self._streams:
            for line in lines if watched == plural or (not plural and watched != "pods") else ():
                queue.put_nowait(line)

    def bookmark(self, plural: str = "") -> None:
        """Send a bookmark with the present version to every stream of a kind."""
        metadata = {"resourceVersion": str(self.version)}
        self.tell({"type": "BOOKMARK", "object": {"kind": plural, "metadata": metadata}}, plural=plural)

    def end(self, plural: str = "") -> None:
        """End every stream of a kind normally."""
        self.tell(StopAsyncIteration, plural=plural)

    def cut(self, error: Exception | None = None, plural: str = "") -> None:
        """Break every stream of a kind."""
        self.tell(error or WatchBrokenError("connection reset"), plural=plural)

    def forget_history(self) -> None:
        """Compact the history: a watch can no longer resume from an older version."""
        self._oldest = self.version
        self._log.clear()

    @property
    def open_streams(self) -> Counter[tuple[str, str | None]]:
        """The streams open now, by kind and namespace."""
        return Counter((plural, namespace) for plural, namespace, _ in self._streams)

    def _happened(self, plural: str, namespace: str, event: dict[str, Any]) -> None:
        self._log.append((self.version, plural, namespace, event))
        for watched, place, queue in self._streams:
            if watched == plural and place in {None, namespace}:
                queue.put_nowait(event)

    # -- requests ---------

    async def is_served(self, group: str) -> bool:
        """Say whether the group is served."""
        self._ask("discover", group, None)
        return group in self.served

    async def pages(
        self, kind: Kind, namespace: str | None, trim: Trim | None = None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """List the objects in pages."""
        self._ask("list", kind.plural, namespace)
        objects = self.objects.get(kind.plural, {})
        items = [body for place, body in objects.items() if namespace in {None, place[0]}]
        version = str(self.version)
        for start in range(0, len(items) or 1, self.pages_of):
            yield {"metadata": {"resourceVersion": version}, "items": items[start : start + self.pages_of]}

    async def watch(
        self, kind: Kind, namespace: str | None, version: str, trim: Trim | None = None
    ) -> AsyncGenerator[object, None]:
        """Stream the events since ``version`` and those to come."""
        self._ask("watch", kind.plural, namespace, version)
        if int(version) < self._oldest:
            if self.gone_as_answer:
                raise WatchExpiredError("too old resource version")
            yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}
            return
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for at, plural, place, event in self._log:
            if at > int(version) and plural == kind.plural and namespace in {None, place}:
                queue.put_nowait(event)
        entry = kind.plural, namespace, queue
        self._streams.append(entry)
        try:
            while (line := await queue.get()) is not StopAsyncIteration:
                if isinstance(line, Exception):
                    raise line
                yield line
        finally:
            self._streams.remove(entry)

    async def metadata(self, path: str) -> Mapping[str, Any]:
        """Return the metadata of the object at a path that ends with its kind and name."""
        *_, namespace, plural, name = path.split("/")
        return dict((await self._stored(namespace, plural, name))["metadata"])

    async def named(self, path: str, name: str) -> Mapping[str, Any]:
        """Return an object from the list at a path."""
        *_, namespace, plural = path.split("/")
        return await self._stored(namespace, plural, name)

    async def _stored(self, namespace: str, plural: str, name: str) -> Mapping[str, Any]:
        self._ask("get", plural, namespace)
        found = self.objects.get(plural, {}).get((namespace, name))
        if found is None:
            raise WatchAbsentError("404: not here")
        return found

    def _ask(self, what: str, plural: str, namespace: str | None, version: str = "") -> None:
        self.asked.append(Asked(asyncio.get_running_loop().time(), what, plural, namespace, version))
        if self.down:
            raise WatchBrokenError("connection refused")
        if (plural, namespace) in self.forbidden:
            raise WatchForbiddenError(f"403: may not {what} {plural}")
        if plural in self.absent:
            raise WatchAbsentError("404: not here")


class RecordingLedger(Ledger):
    """The real ledger, which also records the calls of the watch."""

    def __init__(self) -> None:
        super().__init__(LoopAlarms(), Policy(), "enforce", random.Random(1))
        self.news: list[str] = []
        self.ends_told_of: dict[str, bool] = {}

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        self.news.append(f"{namespace}/{quota}")
        super().observe_quota(namespace, quota, seen)

    def forget_quota(self, namespace: str, quota: str) -> None:
        self.news.append(f"{namespace}/{quota} is gone")
        super().forget_quota(namespace, quota)

    def watching(self, namespace: str | None) -> None:
        self.news.append(f"watching {namespace or 'all'}")
        super().watching(namespace)

    def watch_lost(self, namespace: str | None) -> None:
        self.news.append(f"lost {namespace or 'all'}")
        super().watch_lost(namespace)

    def ends_told(self, namespace: str, *, told: bool) -> None:
        self.ends_told_of[namespace] = told
        super().ends_told(namespace, told=told)

    def ended(self, namespace: str, uid: str) -> None:
        self.news.append(f"{namespace}: something ended")
        super().ended(namespace, uid)

    def hint_release(self, namespace: str) -> None:
        self.news.append(f"{namespace}: something ended")
        super().hint_release(namespace)

    def join(self, demand: Demand) -> Create:
        """Put a create that asks this in line; its ``turn`` says how it goes on."""
        gate = AsyncGate(ledger=self)
        create = Create(gate, Creation("http://s", "me", "team", "pods", {}, demand=demand))
        create.request = self.line.request(create.creation)
        self.line.join(create, None)
        return create

    def left(self, quota: str = "q", *, namespace: str = "team", resource: str = "pods") -> int | None:
        """The room that the engine sees, in whole units; None: the quota is not observed."""
        ceiling = self._ceiling(namespace, quota, resource)
        return None if ceiling is None else (ceiling.limited - ceiling.used) // ONE

    def observes(self, namespace: str = "team") -> bool:
        """Whether the engine considers the watch healthy."""
        found = self.snapshot().namespaces.get(namespace)
        return found is not None and found.observing

    def _ceiling(self, namespace: str, quota: str, resource: str) -> Any:
        found = self.snapshot().namespaces.get(namespace)
        ceiling = found and found.quotas.get(quota, {}).get(resource)
        return ceiling if ceiling and ceiling.source == "observed" else None


@dataclass
class Observed:
    """A watch of a scripted server, and the ledger that it reports to."""

    server: ScriptedServer
    ledger: RecordingLedger
    watch: QuotaWatch
    task: asyncio.Task[None]

    @property
    def record(self) -> WatchRecord:
        return self.watch.record


@contextlib.asynccontextmanager
async def observed(
    server: ScriptedServer, namespaces: tuple[str, ...] | None = ("team",), **settings: Any
) -> AsyncIterator[Observed]:
    """Start a watch and let it get the first answers."""
    ledger = RecordingLedger()
    watch = QuotaWatch(ledger, namespaces, rng=random.Random(3), **settings)
    task = asyncio.ensure_future(watch.run(server))
    try:
        await elapse(0.001)
        yield Observed(server, ledger, watch, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

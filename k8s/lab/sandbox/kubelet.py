"""A fake kubelet: an API client that "runs" pods by setting their status, on the sandbox or on a real server.

It watches pods, sets them to Running, and after the run time of the pod to Succeeded. The run time is the pod's
annotation ``sandbox.backoff-ctrl.dev/run-seconds``, else ``finish_after``. A pod that is being deleted is removed
when its grace period ends. It speaks plain REST, so that it tests the server and not a library.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import aiohttp

from .followed import JSON, RETRY_S, Followed, Server, say_failure


def status_of(pod: Mapping[str, Any], phase: str, now: str) -> dict[str, Any]:
    """The status to merge in when a pod starts (phase Running) or ends (Succeeded). ``now``: a timestamp."""
    spec, known = pod.get("spec") or {}, pod.get("status") or {}
    runs = phase == "Running"
    began = now if runs else str(known.get("startTime") or now)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": _conditions(runs, now),
        "containerStatuses": [_container(each, runs, began, now) for each in spec.get("containers") or ()],
    }
    first = spec.get("initContainers") or ()
    if first:
        sidecars = [each.get("restartPolicy") == "Always" for each in first]  # they run beside the containers
        status["initContainerStatuses"] = [
            _container(each, runs, began, now) if beside else {**_container(each, False, began, began), "ready": True}
            for each, beside in zip(first, sidecars, strict=True)
        ]
    if runs:
        status["startTime"] = now
    return status


def _conditions(runs: bool, now: str) -> list[dict[str, str]]:
    over = {} if runs else {"reason": "PodCompleted"}
    while_it_runs = "True" if runs else "False"
    return [
        {"type": "PodReadyToStartContainers", "status": while_it_runs, "lastTransitionTime": now},
        {"type": "Initialized", "status": "True", **over, "lastTransitionTime": now},
        {"type": "Ready", "status": while_it_runs, **over, "lastTransitionTime": now},
        {"type": "ContainersReady", "status": while_it_runs, **over, "lastTransitionTime": now},
    ]


def _container(container: Mapping[str, Any], runs: bool, began: str, now: str) -> dict[str, Any]:
    name = str(container.get("name"))
    where = f"sandbox://{name}"
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": now, "containerID": where}
    return {
        "name": name,
        "image": str(container.get("image") or ""),
        "imageID": "",
        "containerID": where,
        "ready": runs,
        "started": runs,
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": began}} if runs else {"terminated": ended},
    }


RUN_SECONDS = "sandbox.backoff-ctrl.dev/run-seconds"

_ENDED = frozenset({"Succeeded", "Failed"})
_TRIES = 20  # of a patch that the server refuses; an unreachable or overloaded server is tried without limit
_IN_FLIGHT = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """One action on the pod at ``path``; a pod set to Running is to end at ``ends`` (loop time), if ever.

    The end is scheduled only after the server has accepted the start: a late retry must not undo the end.
    """

    what: str
    path: str
    pod: Mapping[str, Any]
    ends: float | None = None


class Kubelet:
    """Runs every pod of a namespace, or of all namespaces. Use it as an async context manager."""

    def __init__(
        self, server: Server, *, namespace: str = "", finish_after: float | None = None, starts: bool = True
    ) -> None:
        """``finish_after``: run time in seconds for pods that have no annotation; with None they run on.

        ``starts``: whether pods are set to Running first; without it they go straight from Pending to Succeeded.
        """
        self._server = server
        self._namespace = namespace
        self._finish_after = finish_after
        self._starts = starts
        self._session: aiohttp.ClientSession | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._due: list[tuple[float, int, _Step]] = []  # (loop time, order, action)
        self._known: set[str] = set()  # uids of the pods that are scheduled
        self._order = 0
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._under_way: set[asyncio.Task[None]] = set()
        self.finished = 0

    async def __aenter__(self) -> Self:
        """Start to watch; see ``start``."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; the pods stay as they are."""
        await self.stop()

    async def start(self) -> None:
        """Start to watch and to act, in tasks of the running loop."""
        self._session = self._server.session(_IN_FLIGHT)
        within = f"/namespaces/{self._namespace}" if self._namespace else ""
        pods = Followed(self._server, self._session, f"/api/v1{within}/pods", self._seen)
        self._tasks = [asyncio.create_task(pods.run()), asyncio.create_task(self._work_off())]
        for task in self._tasks:
            task.add_done_callback(say_failure)

    async def stop(self) -> None:
        """Cancel the tasks and close all connections."""
        tasks = [*self._tasks, *self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks = []
        if self._session is not None:
            await self._session.close()

    def _seen(self, change: str, pod: JSON) -> None:
        if change == "DELETED":
            uid = pod["metadata"]["uid"]
            self._known.difference_update((uid, f"going:{uid}"))
        else:
            self._plan(pod)

    def _plan(self, pod: Mapping[str, Any]) -> None:
        """Schedule what is to be done with a pod."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        path = f"{self._server.url}/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            going = f"going:{metadata['uid']}"
            if going not in self._known:
                self._known.add(going)
                self._later(_seconds_until(metadata["deletionTimestamp"]), _Step("let-go", path, pod))
            return
        if metadata["uid"] in self._known or status.get("phase") in _ENDED:
            return
        self._known.add(metadata["uid"])
        run_time = self._run_time(metadata.get("annotations") or {})
        ends = None if run_time is None else asyncio.get_running_loop().time() + run_time
        if self._starts and status.get("phase") != "Running":
            self._later(0, _Step("Running", path, pod, ends))
        elif run_time is not None:
            self._later(run_time, _Step("Succeeded", path, pod))

    def _run_time(self, annotations: Mapping[str, str]) -> float | None:
        text = annotations.get(RUN_SECONDS)
        if text is None:
            return self._finish_after
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            _log.warning("%s: %r is not a number of seconds; the pod keeps running", RUN_SECONDS, text)
            return None
        return seconds

    def _later(self, delay: float, step: _Step) -> None:
        self._order += 1
        heapq.heappush(self._due, (asyncio.get_running_loop().time() + delay, self._order, step))
        self._news.set()

    async def _work_off(self) -> None:
        """Do what is due, several actions at a time."""
        loop = asyncio.get_running_loop()
        while True:
            while self._due and self._due[0][0] <= loop.time():
                step = heapq.heappop(self._due)[2]
                await self._slots.acquire()
                task = asyncio.create_task(self._do(step))
                self._under_way.add(task)
                task.add_done_callback(self._done)
            self._news.clear()
            delay = self._due[0][0] - loop.time() if self._due else None
            try:
                async with asyncio.timeout(delay):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._slots.release()
        say_failure(task)

    async def _do(self, step: _Step) -> None:
        """Patch or delete until the server accepts it, or the pod is gone."""
        what, path = step.what, step.path
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        refusals = 0
        while refusals < _TRIES:
            try:
                status = await (self._let_go(path) if what == "let-go" else self._set_phase(step, now))
            except (aiohttp.ClientError, OSError) as error:  # aiohttp does not wrap every TLS error
                _log.debug("%s: %s failed; it is retried: %s", path, what, error)
                status = 0
            refusals += 400 <= status < 500 and status != 429
            if status in {200, 201, 202, 404}:
                self.finished += status == 200 and what == "Succeeded"
                if status == 200 and step.ends is not None:
                    began = {**step.pod, "status": {"startTime": now}}
                    self._later(step.ends - asyncio.get_running_loop().time(), _Step("Succeeded", path, began))
                return
            await asyncio.sleep(RETRY_S)
        _log.warning("%s: gave up %s: the server refused it %d times", path, what, _TRIES)

    async def _set_phase(self, step: _Step, now: str) -> int:
        assert self._session is not None
        body = json.dumps({"status": status_of(step.pod, step.what, now)})
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        async with self._session.patch(
            f"{step.path}/status", data=body, headers=headers, **self._server.detour
        ) as answer:
            await answer.read()
            return answer.status

    async def _let_go(self, path: str) -> int:
        assert self._session is not None
        async with self._session.delete(path, params={"gracePeriodSeconds": "0"}, **self._server.detour) as answer:
            await answer.read()
            return answer.status


def _seconds_until(timestamp: str) -> float:
    return max(0.0, datetime.fromisoformat(timestamp).timestamp() - datetime.now(UTC).timestamp())

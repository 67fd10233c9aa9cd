"""A simulated Job controller: an API client that makes the pods of Jobs, on a sandbox that has no controllers.

Its pace is that of Kubernetes' own (``pkg/controller/job/job_controller.go`` of v1.36): what happens to pods is looked
at a second later, pods are created in batches that double, and a Job of which a create failed is looked at again after
1, 2, 4 ... 60 seconds, whether or not there is room. Failed pods are replaced after 10, 20, 40 ... 600 seconds, up to
``backoffLimit``.

It leaves out: indexed completions, failure and success policies, deadlines, ``ttlSecondsAfterFinished`` and finalizers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import aiohttp

from .followed import JSON, RETRY_S, Followed, Server, say_failure

BATCH = 1.0
"""Seconds from what happens to a pod until its Job is looked at: SyncJobBatchPeriod."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds after a create that failed: DefaultJobApiBackOff, MaxJobApiBackOff."""
FIRST_REPLACEMENT, LAST_REPLACEMENT = 10.0, 600.0
"""Seconds after a pod that failed: DefaultJobPodFailureBackOff, MaxJobPodFailureBackOff."""

_ENDED = frozenset({"Succeeded", "Failed"})
_FINISHED = frozenset({"Complete", "Failed"})
_IN_FLIGHT = 32
_MERGE = {"Content-Type": "application/merge-patch+json"}

_log = logging.getLogger(__name__)


class _CreateError(Exception):
    """A pod could not be created; the Job is looked at again later."""


class JobController:
    """Makes the pods of all Jobs, or of those of one namespace. Use it as an async context manager."""

    def __init__(self, server: Server, *, namespace: str = "") -> None:
        self._server = server
        self._within = f"/namespaces/{namespace}" if namespace else ""
        self._jobs: dict[str, _Job] = {}  # by uid
        self._early: defaultdict[str, dict[str, JSON]] = defaultdict(dict)  # pods of Jobs that are not seen yet
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        session = await self._stack.enter_async_context(self._server.session(_IN_FLIGHT))
        self._api = _Api(self._server, session)
        pods = Followed(self._server, session, f"/api/v1{self._within}/pods", self._pod_seen)
        jobs = Followed(self._server, session, f"/apis/batch/v1{self._within}/jobs", self._job_seen)
        self._tasks = [asyncio.create_task(pods.run()), asyncio.create_task(self._follow_after(pods, jobs))]
        for task in self._tasks:
            task.add_done_callback(say_failure)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; Jobs and pods stay as they are."""
        tasks = [*self._tasks, *(job.task for job in self._jobs.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    @staticmethod
    async def _follow_after(pods: Followed, jobs: Followed) -> None:
        """Follow Jobs once all pods are known: a Job whose pods are not would get them twice."""
        await pods.listed.wait()
        await jobs.run()

    def _job_seen(self, change: str, body: JSON) -> None:
        uid = body["metadata"]["uid"]
        if change == "DELETED":
            if job := self._jobs.pop(uid, None):
                job.task.cancel()
        elif job := self._jobs.get(uid):
            job.changed(body)
        else:
            job = self._jobs[uid] = _Job(body, self._api)
            for pod in self._early.pop(uid, {}).values():
                job.pod_seen("ADDED", pod)

    def _pod_seen(self, change: str, pod: JSON) -> None:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == "Job":
                if job := self._jobs.get(owner["uid"]):
                    job.pod_seen(change, pod)
                elif change == "DELETED":
                    self._early[owner["uid"]].pop(pod["metadata"]["uid"], None)
                else:
                    self._early[owner["uid"]][pod["metadata"]["uid"]] = pod


class _Api:
    """What a Job's work asks of the server."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def ask(
        self, method: str, path: str, body: JSON | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, JSON]:
        """Return status and body of the answer; status 0 without an answer."""
        try:
            async with self._session.request(
                method, f"{self._server.url}{path}", json=body, headers=headers, **self._server.detour
            ) as answer:
                return answer.status, await answer.json()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return 0, {"message": f"{type(error).__name__}: {error}"}


class _Job:
    """One Job: its pods, and when it is looked at next. Only the earliest look counts, as in client-go's queue."""

    def __init__(self, body: JSON, api: _Api) -> None:
        self._body = body
        self._api = api
        self._pods: dict[str, JSON] = {}  # by uid
        self._ended: dict[str, str] = {}  # their phases, also of those that are deleted
        self._replaced_at = -math.inf
        self._errors = 0
        self._due = math.inf
        self._news = asyncio.Event()
        self._look_after(0)
        self.task = asyncio.create_task(self._work())
        self.task.add_done_callback(say_failure)

    def changed(self, body: JSON) -> None:
        at_once = body["spec"] != self._body["spec"]
        self._body = body
        self._look_after(0 if at_once else BATCH)

    def pod_seen(self, change: str, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        phase = (pod.get("status") or {}).get("phase")
        if phase in _ENDED and uid not in self._ended:
            self._ended[uid] = phase
            if phase == "Failed":
                failed = Counter(self._ended.values())["Failed"]
                pause = min(LAST_REPLACEMENT, FIRST_REPLACEMENT * 2 ** (failed - 1))
                self._replaced_at = asyncio.get_running_loop().time() + pause
        if change == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
        self._look_after(BATCH)

    def _look_after(self, seconds: float) -> None:
        self._due = min(self._due, asyncio.get_running_loop().time() + seconds)
        self._news.set()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if (left := self._due - loop.time()) > 0:
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if left == math.inf else left):
                        await self._news.wait()
                continue
            self._due = math.inf
            try:
                await self._look()
            except _CreateError as error:
                _log.debug("%s: %s", self._name, error)
                self._look_after(min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._errors))
                self._errors += 1
            else:
                self._errors = 0

    # -- a look ---------

    @property
    def _name(self) -> str:
        return str(self._body["metadata"]["name"])

    @property
    def _namespace(self) -> str:
        return str(self._body["metadata"]["namespace"])

    @property
    def _active(self) -> list[JSON]:
        return [
            pod
            for uid, pod in self._pods.items()
            if uid not in self._ended and not pod["metadata"].get("deletionTimestamp")
        ]

    async def _look(self) -> None:
        """Make pods, or delete them, and write the status. Raises ``_CreateError``."""
        spec, status = self._body["spec"], self._body.get("status") or {}
        if _is_finished(status):
            return
        counts = Counter(self._ended.values())
        failed = counts["Failed"] > spec.get("backoffLimit", 6)
        complete = _is_complete(spec, counts["Succeeded"], len(self._active))
        suspended = bool(spec.get("suspend"))
        wanted = 0 if failed or complete or suspended else _wanted(spec, counts["Succeeded"], len(self._active))
        try:
            if len(self._active) > wanted:
                await self._delete(self._active[wanted:])
            elif lacking := wanted - len(self._active):
                await self._create(lacking)
        finally:
            conditions = _conditions(status, failed=failed, complete=complete, suspended=suspended)
            await self._write_status(status, counts, conditions, suspended=suspended)

    async def _delete(self, pods: Sequence[JSON]) -> None:
        for pod in pods:
            name = pod["metadata"]["name"]
            await self._api.ask("DELETE", f"/api/v1/namespaces/{self._namespace}/pods/{name}")

    async def _create(self, number: int) -> None:
        """Create pods in batches of 1, 2, 4 ...; the first batch with an error is the last. Raises ``_CreateError``."""
        if (pause := self._replaced_at - asyncio.get_running_loop().time()) > 0:
            self._look_after(pause)
            return
        batch = 1
        while number > 0:
            batch = min(batch, number)
            said = await asyncio.gather(*(self._create_one() for _ in range(batch)))
            if errors := [each for each in said if each]:
                await self._event("Warning", "FailedCreate", f"Error creating: {errors[0]}")
                raise _CreateError(errors[0])
            number -= batch
            batch *= 2

    async def _create_one(self) -> str:
        """Create a pod; return why that failed, or an empty text."""
        template, owner = self._body["spec"]["template"], self._body["metadata"]
        meant = template.get("metadata") or {}
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": self._name, "uid": owner["uid"]}
        metadata = {
            "generateName": f"{self._name}-",
            "labels": meant.get("labels") or {},
            "annotations": meant.get("annotations") or {},
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        }
        body = {"metadata": metadata, "spec": template["spec"]}
        status, answer = await self._api.ask("POST", f"/api/v1/namespaces/{self._namespace}/pods", body)
        if status != 201:
            return str(answer.get("message") or f"the server answered {status}")
        self._pods.setdefault(answer["metadata"]["uid"], answer)
        return ""

    async def _write_status(
        self, known: JSON, counts: Mapping[str, int], conditions: list[JSON], *, suspended: bool
    ) -> None:
        status: JSON = {
            "active": len(self._active),
            "succeeded": counts.get("Succeeded", 0),
            "failed": counts.get("Failed", 0),
            "conditions": conditions,
            "startTime": None if suspended else known.get("startTime") or _now(),
        }
        if any(each["type"] == "Complete" for each in conditions):
            status["completionTime"] = known.get("completionTime") or _now()
        stored = {"active": 0, "succeeded": 0, "failed": 0, "conditions": [], **known}
        if any(stored.get(name) != value for name, value in status.items()):
            path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs/{self._name}/status"
            answered, body = await self._api.ask("PATCH", path, {"status": status}, _MERGE)
            if answered == 200:
                self._body = {**self._body, "status": body["status"]}
            elif answered != 404:
                self._look_after(RETRY_S)

    async def _event(self, kind: str, reason: str, message: str) -> None:
        involved = {"apiVersion": "batch/v1", "kind": "Job", "name": self._name, "namespace": self._namespace}
        body = {
            "metadata": {"generateName": f"{self._name}."},
            "involvedObject": {**involved, "uid": self._body["metadata"]["uid"]},
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "source": {"component": "job-controller"},
        }
        await self._api.ask("POST", f"/api/v1/namespaces/{self._namespace}/events", body)


def _is_finished(status: JSON) -> bool:
    return any(each["type"] in _FINISHED and each["status"] == "True" for each in status.get("conditions") or ())


def _is_complete(spec: JSON, succeeded: int, active: int) -> bool:
    """A Job without ``completions`` is complete once a pod has succeeded and all others have ended."""
    completions = spec.get("completions")
    return succeeded >= completions if completions is not None else succeeded > 0 and active == 0


def _wanted(spec: JSON, succeeded: int, active: int) -> int:
    parallelism: int = spec.get("parallelism", 1)
    completions = spec.get("completions")
    if completions is None:
        return min(active, parallelism) if succeeded else parallelism
    return int(min(parallelism, completions - succeeded))


def _conditions(status: JSON, *, failed: bool, complete: bool, suspended: bool) -> list[JSON]:
    """Return the conditions: those that are stored, and what is new of them."""
    known = {each["type"]: each for each in status.get("conditions") or ()}
    holds = {
        "Suspended": (suspended, "JobSuspended" if suspended else "JobResumed"),
        "Failed": (failed, "BackoffLimitExceeded"),
        "Complete": (complete and not failed, "CompletionsReached"),
    }
    for name, (true, reason) in holds.items():
        said = str(true)
        if true or name in known:
            before: Mapping[str, Any] = known.get(name, {})
            if before.get("status") != said:
                known[name] = {"type": name, "status": said, "reason": reason, "lastTransitionTime": _now()}
    return list(known.values())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

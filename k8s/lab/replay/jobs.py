"""Jobs under a full quota, twice at the same time: with the plain Job controller, and with the operator beside it.

Two namespaces of one sandbox have the same quota and the same Jobs, and one Job controller makes the pods of both: the
real kube-controller-manager if its program is given, else the simulated one. In the namespace ``operator`` the Jobs
wait suspended, and ``Admitting`` lets them in, as ``backoff-ctrl operator`` does.
"""

from __future__ import annotations

import asyncio
import random
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, create_subprocess_exec
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.lab.sandbox.followed import Followed, Server
from backoff_ctrl.k8s.lab.sandbox.job_controller import JobController
from backoff_ctrl.k8s.lab.sandbox.kubelet import RUN_SECONDS
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, WAIT

from .clients import ReplayError
from .over_http import sandbox_process

PLAIN: Final = "plain"
OPERATOR: Final = "operator"
SIDES: Final = (PLAIN, OPERATOR)
CPUS: Final = 6
"""The quota of each namespace; each pod asks for one CPU."""
LONGEST: Final = 40.0
"""Seconds from the first Job to the end of the run, even if Jobs still wait."""
QPS: Final = 200
"""Requests a second of the kube-controller-manager; with its default of 20 both sides would wait for that instead."""
READY_SECONDS: Final = 15.0
"""Seconds that a kube-controller-manager may take until it makes the first pod."""
_TRIAL: Final = "trial"
_SECONDS: Final = (1.3, 1.6, 2.3, 2.6)
"""No whole seconds: the Job controller looks at a Job a second after its pods began, and if they end in that moment it
may see that before the quota does, and is refused."""
_WIDE: Final = (1, 1, 1, 2)


@dataclass(frozen=True, slots=True)
class JobToRun:
    """``parallelism`` pods at a time, ``completions`` in all, each for ``seconds``."""

    name: str
    seconds: float
    parallelism: int = 1
    completions: int = 1

    def body(self, *, waits: bool) -> dict[str, Any]:
        container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
        template = {
            "metadata": {"annotations": {RUN_SECONDS: str(self.seconds)}},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        spec = {"parallelism": self.parallelism, "completions": self.completions, "template": template}
        labels = {WAIT: "true"} if waits else {}
        return {"metadata": {"name": self.name, "labels": labels}, "spec": {**spec, "suspend": waits}}


@dataclass(slots=True)
class Side:
    """What happened in one namespace; times are seconds since its first Job was created."""

    created: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    """When the first pod of a Job was created."""
    ended: dict[str, float] = field(default_factory=dict)
    refusals: list[tuple[float, str]] = field(default_factory=list)
    """When which Job was refused a pod, as its events say."""
    usage: list[tuple[float, float]] = field(default_factory=list)
    """The CPUs that the quota counts, from each time on."""
    refused: int = 0
    """How many creates were refused, as the server counts."""
    until: float = 0.0
    """When the last Job ended, or the run."""


@dataclass(frozen=True, slots=True)
class JobsRun:
    """Both sides of a run; ``controller`` says which Job controller made the pods."""

    jobs: Sequence[JobToRun]
    sides: dict[str, Side]
    controller: str

    def waits(self, name: str) -> list[float]:
        """Return the seconds that each Job of a side waited for its first pod, as far as it got one."""
        side = self.sides[name]
        return sorted(side.began[job] - side.created[job] for job in side.began)

    def idle_share(self, name: str) -> float:
        """Return the share of a quota's CPU-seconds that were idle although a Job waited that would have fitted."""
        side = self.sides[name]
        need = {job.name: job.parallelism for job in self.jobs}
        changes = sorted({0.0, side.until, *side.began.values(), *(when for when, _ in side.usage)})
        idle = 0.0
        for begin, end in pairwise(each for each in changes if each <= side.until):
            free = CPUS - next((cpus for when, cpus in reversed(side.usage) if when <= begin), 0.0)
            waiting = [need[job] for job in side.created if side.began.get(job, end) > begin]
            idle += (end - begin) * free * (min(waiting, default=CPUS + 1) <= free)
        return idle / (CPUS * side.until)

    def document(self) -> dict[str, Any]:
        return {
            "jobs": len(self.jobs),
            "controller": self.controller,
            "quota_cpus": CPUS,
            "sides": {
                name: {
                    "jobs_ended": len(side.ended),
                    "seconds": round(side.until, 2),
                    "refused": side.refused,
                    "wait_p50_s": round(median(waits), 2) if (waits := self.waits(name)) else None,
                    "wait_longest_s": round(waits[-1], 2) if waits else None,
                    "idle_share": round(self.idle_share(name), 3),
                }
                for name, side in self.sides.items()
            },
        }


def make_jobs(number: int, seed: int) -> list[JobToRun]:
    """Return Jobs of 1.3 to 2.6 seconds; some have two pods, and one has six that run two at a time."""
    chosen = random.Random(seed)
    singles = [
        JobToRun(f"job-{turn:02}", chosen.choice(_SECONDS), wide := chosen.choice(_WIDE), wide)
        for turn in range(1, number)
    ]
    return [JobToRun("job-00", _SECONDS[0], 2, 6), *singles]


def run_jobs(
    jobs: Sequence[JobToRun],
    *,
    seed: int,
    program: Path | None = None,
    on_ended: Callable[[str], object] = lambda _: None,
) -> JobsRun:
    """Run the Jobs on both sides; ``program``: a kube-controller-manager. ``on_ended`` gets the side of each that ends.

    Raises ``OSError`` if the sandbox does not start, and ``ReplayError`` if the kube-controller-manager does not.
    """
    hard = {"requests.cpu": str(CPUS)}
    with sandbox_process(dict.fromkeys((*SIDES, _TRIAL), hard), seed=seed) as url:
        return asyncio.run(_run(url, jobs, program, on_ended))


async def _run(url: str, jobs: Sequence[JobToRun], program: Path | None, on_ended: Callable[[str], object]) -> JobsRun:
    async with AsyncExitStack() as stack:
        place = find_place(url, None, None, None)
        session = await stack.enter_async_context(ClusterSession(place.configuration))
        await _ask(session, "DELETE", "/sandbox/faults")  # what is compared is waiting, not races of admission
        controller = "a simulated Job controller"
        if program is None:
            await stack.enter_async_context(JobController(Server(url)))
        else:
            controller = await stack.enter_async_context(_controller_manager(program, url))
            await _until_it_works(session, program)
        await stack.enter_async_context(_operator(place.configuration))
        sides = {name: await stack.enter_async_context(_watched(url, name, on_ended)) for name in SIDES}
        for job in jobs:
            for name, watched in sides.items():
                watched.created(job)
                await _ask(session, "POST", _jobs(name), job.body(waits=name == OPERATOR))
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                await asyncio.gather(*(each.all_ended(len(jobs)) for each in sides.values()))
        counted = (await _ask(session, "GET", "/sandbox/counters"))["by_namespace"]
        for name, watched in sides.items():
            watched.finish(counted.get(name, {}))
        return JobsRun(jobs, {name: each.side for name, each in sides.items()}, controller)


@asynccontextmanager
async def _operator(configuration: Any) -> AsyncIterator[None]:
    async with Admitting(configuration, namespaces=(OPERATOR,), kinds=(JOB,)) as admitting:
        leading = asyncio.create_task(admitting.lead())
        try:
            yield
        finally:
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading


# -- the real Job controller ---------


@asynccontextmanager
async def _controller_manager(program: Path, url: str) -> AsyncIterator[str]:
    """Run the Job controller of a kube-controller-manager; yields what it is called. Raises ``ReplayError``."""
    with (
        tempfile.TemporaryDirectory(prefix="backoff-ctrl-jobs-") as name,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        port = free.getsockname()[1]
        free.close()
        flags = [f"--master={url}", "--controllers=job-controller", "--leader-elect=false"]
        pace = [f"--kube-api-qps={QPS}", f"--kube-api-burst={2 * QPS}"]
        place = ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={name}"]
        version = await _version(program)
        process = await create_subprocess_exec(program, *flags, *pace, *place, stdout=DEVNULL, stderr=DEVNULL)
        try:
            yield f"kube-controller-manager {version} (--kube-api-qps={QPS})"
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _version(program: Path) -> str:
    """Return the version that a kube-controller-manager prints. Raises ``ReplayError`` for another program."""
    try:
        process = await create_subprocess_exec(program, "--version", stdout=PIPE, stderr=DEVNULL)
    except OSError as error:
        raise ReplayError(f"{program} can't be run: {error.strerror}") from error
    said, _ = await process.communicate()
    words = said.decode(errors="replace").split()
    if process.returncode or words[:1] != ["Kubernetes"]:
        raise ReplayError(f"{program} is no kube-controller-manager: --version does not name Kubernetes")
    return words[-1]


async def _until_it_works(session: ClusterSession, program: Path) -> None:
    """Wait until a Job of a namespace apart gets its pod. Raises ``ReplayError``."""
    await _ask(session, "POST", _jobs(_TRIAL), JobToRun("trial", 0.1).body(waits=False))
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not (await _ask(session, "GET", f"/api/v1/namespaces/{_TRIAL}/pods"))["items"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise ReplayError(f"{program} made no pod of a Job within {READY_SECONDS:g} s") from None


# -- what happens ---------


class _Watched:
    """Writes down what happens in one namespace."""

    def __init__(self, name: str, on_ended: Callable[[str], object]) -> None:
        self._name = name
        self._on_ended = on_ended
        self._began: float | None = None
        self._news = asyncio.Event()
        self.side = Side()

    def _now(self) -> float:
        now = asyncio.get_running_loop().time()
        if self._began is None:
            self._began = now
        return now - self._began

    def created(self, job: JobToRun) -> None:
        self.side.created[job.name] = self._now()

    def job_seen(self, _: str, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        if JOB.has_ended(body) and name not in self.side.ended:
            self.side.ended[name] = self._now()
            self._on_ended(self._name)
            self._news.set()

    def pod_seen(self, _: str, pod: dict[str, Any]) -> None:
        self.side.began.setdefault(pod["metadata"]["ownerReferences"][0]["name"], self._now())

    def event_seen(self, change: str, event: dict[str, Any]) -> None:
        if event["reason"] == "FailedCreate" and change != "DELETED":
            self.side.refusals.append((self._now(), event["involvedObject"]["name"]))

    def quota_seen(self, _: str, quota: dict[str, Any]) -> None:
        used = (quota.get("status") or {}).get("used") or {}
        if self._began is not None:
            self.side.usage.append((self._now(), parse_quantity(used.get("requests.cpu", "0")) / parse_quantity("1")))

    async def all_ended(self, number: int) -> None:
        while len(self.side.ended) < number:
            self._news.clear()
            await self._news.wait()

    def finish(self, counted: dict[str, int]) -> None:
        self.side.refused = counted.get("refused", 0)
        ended = len(self.side.ended) == len(self.side.created)
        self.side.until = max(self.side.ended.values()) if ended else self._now()


@asynccontextmanager
async def _watched(url: str, name: str, on_ended: Callable[[str], object]) -> AsyncIterator[_Watched]:
    server = Server(url)
    watched = _Watched(name, on_ended)
    async with server.session(4) as session:
        followed = [
            Followed(server, session, path, seen)
            for path, seen in (
                (_jobs(name), watched.job_seen),
                (f"/api/v1/namespaces/{name}/pods", watched.pod_seen),
                (f"/api/v1/namespaces/{name}/events", watched.event_seen),
                (f"/api/v1/namespaces/{name}/resourcequotas", watched.quota_seen),
            )
        ]
        tasks = [asyncio.create_task(each.run()) for each in followed]
        await asyncio.gather(*(each.listed.wait() for each in followed))
        try:
            yield watched
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


async def _ask(session: ClusterSession, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask the sandbox, which takes all that is asked of it here. Raises ``ReplayError`` if it does not."""
    answer = await session.ask(method, path, body, timeout=30)
    if not answer.ok:
        raise ReplayError(f"{method} {path}: the sandbox answers {answer.status}")
    return answer.json() or {}

"""A service that counts for itself which jobs it runs, and a manager before it that is killed again and again."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import urlopen

from aiohttp import web

from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.kit.patience import PATIENCE
from tests.tasks.tasks_written import until, wish

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backoff_ctrl.k8s.tasks.store import Wish


class Limits(NamedTuple):
    """Jobs in all, of a project and of a namespace."""

    total: int
    project: int
    namespace: int


class Owner(NamedTuple):
    """Whose job it is."""

    project: str
    namespace: str


@dataclass
class CountedJobs:
    """Runs jobs, each for so many seconds. ``to_come``: the tasks that have no job yet.

    A job with ``waits`` is answered once it has ended, any other at once. ``passed`` has a sentence for each job that
    was begun beyond a limit. ``idle`` are the times in seconds for which there was room for a task without a job, from
    the moment on in which a new manager has filled all room.
    """

    limits: Limits
    to_come: Counter[Owner]
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    posts: int = 0
    most: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """A manager has asked since this was cleared."""
    _running: dict[str, Owner] = field(default_factory=dict)
    _ends: dict[str, asyncio.Event] = field(default_factory=dict)
    _idle_since: float | None = None
    _filled: bool = False

    async def create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        key = asked["key"]
        self.posts += 1
        self.heard.set()
        if key not in self.jobs:
            owner = Owner(asked["project"], asked["namespace"])
            self.jobs[key] = {"id": key, "state": "RUNNING"}
            self._ends[key] = asyncio.Event()
            self._running[key] = owner
            self.to_come[owner] -= 1
            self._check()
            asyncio.get_running_loop().call_later(asked["seconds"], self._end, key)
        if asked["waits"]:
            await self._ends[key].wait()
        return web.json_response(self.jobs[key])

    async def get(self, request: web.Request) -> web.Response:
        self.heard.set()
        return web.json_response(self.jobs[request.match_info["id"]])

    def nobody_asks(self) -> None:
        """The manager is gone: what is idle until the next one asks is not counted."""
        self._idle_since, self._filled = None, False
        self.heard.clear()

    def _end(self, key: str) -> None:
        self.jobs[key]["state"] = "SUCCEEDED"
        del self._running[key]
        self._ends[key].set()
        self._check()

    def _check(self) -> None:
        """Count what runs by hand, and look whether somebody without a job would fit."""
        total = len(self._running)
        projects = Counter(each.project for each in self._running.values())
        namespaces = Counter(each.namespace for each in self._running.values())
        self.most = max(self.most, total)
        used = (total, max(projects.values(), default=0), max(namespaces.values(), default=0))
        if any(each > limit for each, limit in zip(used, self.limits, strict=True)):
            self.passed.append(f"{used} run, {self.limits} may")
        fits = total < self.limits.total and any(
            count > 0
            and projects[owner.project] < self.limits.project
            and namespaces[owner.namespace] < self.limits.namespace
            for owner, count in self.to_come.items()
        )
        now = perf_counter()
        if not fits and self.heard.is_set():
            self._filled = True
        if not fits and self._idle_since is not None:
            self.idle.append(now - self._idle_since)
        if not fits or not self._filled:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/jobs", self.create)
        app.router.add_get("/jobs/{id:.+}", self.get)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@dataclass(frozen=True)
class Proof:
    """What came of it. ``left``: the resources of the pool with tokens at the end, and how many."""

    jobs: CountedJobs
    phases: Counter[tuple[str, int]]
    kills: int
    left: dict[str, str]
    seconds: float


async def killed_again_and_again(
    folder: Path, tasks: int, projects: int, limits: Limits, kills: int, *, read: float = 0.0, longest: float = 0.3
) -> Proof:
    """Carry out so many tasks while the manager is killed so often. ``read``: the share of jobs that are read."""
    rng = random.Random(1)
    wishes = [one_wish(number, projects, rng, read, longest) for number in range(tasks)]
    jobs = CountedJobs(limits, Counter(Owner(each.spec["project"], each.namespace) for each in wishes))
    file, began = folder / "tasks.db", perf_counter()
    async with SqliteStore(file) as store, jobs.served() as url:
        await store.create(wishes[:-1])  # the last one for the last manager, which is asked for its tokens

        async def over() -> bool:
            return not await store.list(unfinished=True)

        done = 0
        while done < kills and not await over():
            process = await manager(file, url, limits)
            await jobs.heard.wait()
            with suppress(TimeoutError):
                await until(over, rng.uniform(0.2, 1.5))
            process.kill()
            await process.wait()
            jobs.nobody_asks()
            done += 1
        process = await manager(file, url, limits)
        assert process.stdout is not None
        status = (await process.stdout.readline()).decode().strip()
        await store.create(wishes[-1:])
        await until(over, 600)
        left = await asyncio.to_thread(tokens_left, status)
        process.kill()
        await process.wait()
        stored = await store.list(limit=100_000)
    phases = Counter((each.status.phase, each.status.attempt) for each in stored)
    return Proof(jobs, phases, done, left, perf_counter() - began)


def one_wish(number: int, projects: int, rng: random.Random, read: float, longest: float) -> Wish:
    """One of many tasks: each project has two namespaces."""
    project = f"project-{number % projects}"
    custom = {"seconds": rng.uniform(0.02, longest), "waits": rng.random() >= read}
    wished = wish(f"task-{number}", type="job", container=None, custom=custom, project=project, priority=number % 3)
    return type(wished)(f"{project}-{number // projects % 2}", wished.name, wished.metadata, wished.spec)


async def manager(file: Path, url: str, limits: Limits) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.tasks.webapi.pool_manager", str(file), url, ",".join(map(str, limits)),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


def tokens_left(status: str) -> dict[str, str]:
    with urlopen(f"{status}/v1/ceilings?namespace=pool.jobs", timeout=PATIENCE) as answer:
        return {each["resource"]: each["used"] for each in json.loads(answer.read())["items"]}

"""``make test-ray``: tasks as jobs of a real Ray, with all that may go wrong; writes docs/ray-jobs.md.

Ray is ray[default] from PyPI, in an environment of its own: a head of one CPU on loopback. The manager is
``backoff-ctrl task run``, its API server the sandbox. Between manager and Ray is a gateway that counts requests and can
keep an answer back, so that the manager is killed between a submission and its answer, and not about then.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import yaml
from aiohttp import web

from backoff_ctrl.k8s.tasks.services.rest.service_config import SERVICES
from tests.programs.environments import RAY, ROOT
from tests.tasks.sandbox_process import sandbox_process
from tests.tasks.webapi.rest.jobs_service import context as call_context
from tests.tasks.webapi.rest.jobs_service import plugin_of
from tests.tasks.webapi.rest.jobs_service import task as task_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

JSON = dict[str, Any]
PAGE: Final = ROOT / "docs" / "ray-jobs.md"
NAMESPACE: Final = "team"
UNTIL_RAY_STARTS: Final = 180.0
UNTIL_IT_ENDS: Final = 400.0
MANY: Final = 20
KILLS: Final = 3
HEAD_STARTS: Final = 5
STARTED: Final = "Ray runtime started."
MARK: Final = "BACKOFF_TEST_RAY_HEAD"
"""The variable by which all processes of a head are found again: Ray gives some of them sessions of their own."""


class RayError(Exception):
    """Something did not happen as it should. The message says what did."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float, every: float = 0.5) -> None:
    """Look again and again. Raises ``TimeoutError``."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - what it looks at is another process
            await asyncio.sleep(every)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


# -- Ray ---------


class Head:
    """A Ray head. It can be killed, and started again at the same address, as one that has lost its memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._ports = [free_port() for _ in range(3)]
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"http://127.0.0.1:{self._ports[0]}"

    async def start(self) -> None:
        """Start it, and wait until it answers. Ray gives up after 30 s, so on a busy machine it is started again."""
        for _ in range(HEAD_STARTS - 1):
            try:
                return await self._start()
            except RayError:
                await self.kill()
        return await self._start()

    async def _start(self) -> None:
        self._starts += 1
        dashboard, gcs, agent = self._ports
        folder = f"{self._folder}/{self._starts}"
        words = [
            "start", "--head", "--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats",
            "--node-ip-address=127.0.0.2", f"--port={gcs}", "--dashboard-host=127.0.0.1", f"--temp-dir={folder}",
            f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
        ]  # fmt: skip
        with (self._folder / f"head-{self._starts}.log").open("w") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(RAY.folder / "bin" / "ray"), *words, stdout=log, stderr=log, env={**os.environ, MARK: self._mark}
            )
        await until(self._serves, UNTIL_RAY_STARTS)

    async def _serves(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            raise RayError("Ray has not started")
        if STARTED not in (self._folder / f"head-{self._starts}.log").read_text():
            return False  # its page answers earlier
        return isinstance(await self.asked("/api/jobs/"), list)

    async def asked(self, path: str) -> Any:
        """Return what it answers; None: nothing, or an error."""
        try:
            async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
                return await answer.json() if answer.status == 200 else None
        except aiohttp.ClientError:
            return None

    async def jobs(self, name: str = "") -> list[JSON]:
        """Return its jobs, or those of one task."""
        found = await self.asked("/api/jobs/") or []
        return [each for each in found if not name or (each["metadata"] or {}).get("job_name") == f"{NAMESPACE}/{name}"]

    async def kill(self) -> None:
        """Kill all its processes: those that we started, and what they started."""
        kill_marked(f"{MARK}={self._mark}".encode())
        if self._process is not None:
            await self._process.wait()


def kill_marked(mark: bytes) -> None:
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and mark in (each / "environ").read_bytes():
                os.kill(int(each.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended by itself, or belongs to somebody else


@dataclass
class Gateway:
    """What stands between manager and Ray. ``keeps`` the answers of submissions back, once Ray has given them."""

    head: Head
    url: str = ""
    submissions: int = 0
    keeps: bool = False
    kept: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        body = await request.read()
        is_submission = request.method == "POST" and request.path == "/api/jobs/"
        self.submissions += is_submission
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(request.method, self.head.url + request.path_qs, data=body, headers=headers) as answer,
            ):
                content = await answer.read()
        except aiohttp.ClientConnectionError:
            assert request.transport is not None
            request.transport.abort()  # as if nobody were there
            return web.Response()
        if is_submission and self.keeps:
            self.kept.set()
            await asyncio.sleep(3_600)
        return web.Response(status=answer.status, body=content, content_type=answer.content_type)


@asynccontextmanager
async def gateway_to(head: Head) -> AsyncIterator[Gateway]:
    gateway = Gateway(head)
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", gateway.pass_on)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    gateway.url = f"http://127.0.0.1:{port}"
    try:
        yield gateway
    finally:
        await runner.cleanup()


# -- the manager ---------


class Tasks:
    """A store of tasks, and the process that manages it."""

    def __init__(self, folder: Path, upstream: str, ray: str) -> None:
        self._folder = folder
        self._upstream = upstream
        self._process: asyncio.subprocess.Process | None = None
        settings = {"ray-jobs": {"url": ray, "caching": {"resyncInterval": "5s"}}}
        (folder / "settings.yaml").write_text(yaml.safe_dump({"plugins": settings}))

    async def run(self, *tasks: JSON) -> None:
        """Manage the store, with these tasks in addition."""
        file = self._folder / "tasks.yaml"
        file.write_text(yaml.safe_dump_all(tasks))
        words = [
            "run",
            *(["-f", "tasks.yaml"] if tasks else []),
            "--config",
            "settings.yaml",
            "--apiserver",
            self._upstream,
        ]
        with (self._folder / "manager.log").open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._words(*words), cwd=self._folder, stdout=log, stderr=log
            )
        await until(self._is_stored, UNTIL_IT_ENDS)

    async def kill(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    async def _is_stored(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            raise RayError("the manager has ended")
        try:
            return b'"name"' in await self._said("list", "--json")
        except RayError:
            return False  # there is no store yet

    async def status(self, name: str) -> JSON:
        shown = json.loads(await self._said("show", name, "-n", NAMESPACE, "--json"))
        return dict(shown.get("status", shown))

    async def until(self, name: str, *phases: str) -> JSON:
        """Wait until a task is in one of these phases; return its status."""
        status: JSON = {}

        async def is_there() -> bool:
            nonlocal status
            status = await self.status(name)
            return status["phase"] in phases

        try:
            await until(is_there, UNTIL_IT_ENDS)
        except TimeoutError:
            raise RayError(f"{name} is {status.get('phase')}: {status.get('reason')}") from None
        return status

    async def abort(self, name: str) -> None:
        await self._said("abort", name, "-n", NAMESPACE, "--config", "settings.yaml", "--apiserver", self._upstream)

    async def _said(self, *words: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *self._words(*words), cwd=self._folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        if process.returncode:
            raise RayError(f"task {words[0]} ended with {process.returncode}: {err.decode()[-1000:]}")
        return out

    def _words(self, command: str, *words: str) -> list[str]:
        return [sys.executable, "-m", "backoff_ctrl", "task", command, "--store", "tasks.db", *words]


def task(name: str, entrypoint: str, **spec: Any) -> JSON:
    custom = {"entrypoint": entrypoint, **spec.pop("custom", {})}
    return {
        "apiVersion": "backoff-ctrl.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "ray-job", "custom": custom, **spec},
    }


# -- what is tried ---------


@dataclass
class Bench:
    """All that a trial needs."""

    head: Head
    gateway: Gateway
    tasks: Tasks
    folder: Path


async def submits(bench: Bench) -> str:
    """A job that succeeds, with a variable of the task."""
    await bench.tasks.run(
        task(
            "greets",
            "python -c \"import os; print('hello', os.environ['WHO'])\"",
            env=[{"name": "WHO", "value": "Ray"}],
        )
    )
    status = await bench.tasks.until("greets", "Success", "PermanentFailure")
    (job,) = await bench.head.jobs("greets")
    logs = await bench.head.asked(f"/api/jobs/{job['submission_id']}/logs")
    expect(status["phase"] == "Success" and "hello Ray" in logs["logs"], status)
    links = {each["name"]: each["uri"] for each in status["logs"]}
    expect(links["driver log"].endswith(f"/api/jobs/{job['submission_id']}/logs"), links)
    return f"{status['phase']}; its log has the line `hello Ray`"


async def fails(bench: Bench) -> str:
    """A program that ends with 3, and one more attempt."""
    await bench.tasks.run(task("fails", "exit 3", retries={"user": 1}))
    status = await bench.tasks.until("fails", "Success", "PermanentFailure")
    jobs = await bench.head.jobs("fails")
    expect((status["code"], status["kind"], len(jobs)) == ("TaskFailedWithError", "USER", 2), status)
    return told(status, "two jobs, one an attempt")


async def refuses(bench: Bench) -> str:
    """A runtime environment that Ray does not accept."""
    wrong = {"runtimeEnv": {"env_vars": {"A": 1}}}
    await bench.tasks.run(task("refused", "true", custom=wrong))
    status = await bench.tasks.until("refused", "Success", "PermanentFailure")
    expect(status["kind"] == "USER", status)
    return told(status)


async def stops(bench: Bench) -> str:
    """An abort while the job runs."""
    await bench.tasks.run(task("stopped", "sleep 600"))
    await bench.tasks.until("stopped", "Running")
    await bench.tasks.abort("stopped")
    status = await bench.tasks.until("stopped", "Aborted")

    async def has_ended() -> bool:
        return {each["status"] for each in await bench.head.jobs("stopped")} != {"RUNNING"}

    await until(has_ended, 60)
    (job,) = await bench.head.jobs("stopped")
    expect(job["status"] == "STOPPED", job)
    return f'{status["phase"]} ("{status["reason"]}"); Ray says {job["status"]}'


async def sent_twice(bench: Bench) -> str:
    """Both answers arrive: Ray refuses the second submission, and the plugin takes the job that is there."""
    (ray,) = SERVICES.shipped()
    twice = task_context("twice", custom={"entrypoint": "true"})
    async with plugin_of(ray, {"url": bench.gateway.url}) as plugin:
        first, second = await plugin.create(call_context(twice)), await plugin.create(call_context(twice))
    jobs = [each["submission_id"] for each in await bench.head.jobs()]
    expect(first.meta == second.meta and jobs.count(first.meta["id"]) == 1, [first, second, jobs])
    return "1 job, which the second create has found"


async def killed_before_the_answer(bench: Bench) -> str:
    """Ray has taken the submission, the manager is killed before it gets the answer, and another one goes on."""
    gateway = bench.gateway
    before = gateway.submissions
    gateway.keeps = True
    await bench.tasks.run(task("once", "true"))
    await asyncio.wait_for(gateway.kept.wait(), UNTIL_IT_ENDS)
    await bench.tasks.kill()
    gateway.keeps = False
    await bench.tasks.run()
    status = await bench.tasks.until("once", "Success", "PermanentFailure")
    jobs = await bench.head.jobs("once")
    expect((status["phase"], status["attempt"], len(jobs)) == ("Success", 0, 1), status)
    sent = count(gateway.submissions - before, "submission")
    return f"{status['phase']} at the first attempt; {sent}, {count(len(jobs), 'job')}"


async def killed_again_and_again(bench: Bench) -> str:
    """Twenty tasks, and a manager that is killed three times while they are submitted."""
    gateway = bench.gateway
    before = gateway.submissions
    names = [f"many-{number}" for number in range(MANY)]
    await bench.tasks.run(*(task(name, "true", custom={"numCpus": 0}) for name in names))
    for kill in range(1, KILLS + 1):

        async def is_that_far(share: int = kill * MANY // (KILLS + 1)) -> bool:
            return gateway.submissions - before >= share

        await until(is_that_far, UNTIL_IT_ENDS, 0.01)
        await bench.tasks.kill()
        await bench.tasks.run()
    ended = [await bench.tasks.until(name, "Success", "PermanentFailure") for name in names]
    jobs = [len(await bench.head.jobs(name)) for name in names]
    sent = gateway.submissions - before
    expect({each["phase"] for each in ended} == {"Success"} and jobs == [1] * MANY, [jobs, ended])
    return f"{MANY} Success, {count(sum(jobs), 'job')}, {count(sent, 'submission')}"


async def head_restarts(bench: Bench) -> str:
    """The head is killed while a job runs, and started again without its memory."""
    flag = bench.folder / "began"
    again = f"test -e {flag} && exit 0; touch {flag}; sleep 600"
    await bench.tasks.run(task("outlives", again, retries={"system": 1}))
    await bench.tasks.until("outlives", "Running")
    await bench.head.kill()

    async def is_told() -> bool:
        return "can't be" in (await bench.tasks.status("outlives"))["reason"]

    await until(is_told, UNTIL_IT_ENDS)
    away = await bench.tasks.status("outlives")
    begun = time.monotonic()
    await bench.head.start()
    status = await bench.tasks.until("outlives", "Success", "PermanentFailure")
    took = time.monotonic() - begun
    lost = next((each for each in status["history"] if each.get("code") == "JobLost"), None)
    expect(lost is not None and lost["kind"] == "SYSTEM" and status["phase"] == "Success", status)
    assert lost is not None
    second = f"{status['phase']} at the second attempt, in {took:.0f} s"
    return (
        f'away: {away["phase"]}, "{sentence(away["reason"])}"; started again: {lost["code"]} ({lost["kind"]}): '
        f'"{sentence(lost["reason"])}"; {second}'
    )


TRIALS: Final[dict[str, Callable[[Bench], Awaitable[str]]]] = {
    "a job that succeeds": submits,
    "a job that fails, with one retry": fails,
    "a submission that Ray does not accept": refuses,
    "an abort while it runs": stops,
    "the same submission twice, each with its answer": sent_twice,
    "the manager killed after Ray took the submission, before the answer": killed_before_the_answer,
    f"{MANY} tasks, the manager killed {KILLS} times while they are submitted": killed_again_and_again,
    "the head killed while a job runs, and started again": head_restarts,
}


def expect(fulfilled: bool, found: object) -> None:
    if not fulfilled:
        raise RayError(f"it should not have been {found}")


def told(status: JSON, more: str = "") -> str:
    code = f'{status["phase"]} {status["code"]} ({status["kind"]}): "{sentence(status["reason"])}"'
    return "; ".join(filter(None, (code, more)))


def sentence(reason: str) -> str:
    """Return the beginning of a reason, on one line."""
    text = " ".join(reason.split()).replace("|", r"\|")
    return text if len(text) <= 160 else f"{text[:157]}..."


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def try_all(folder: Path, upstream: str) -> list[tuple[str, str]]:
    """Try all; return a row each. Raises ``RayError``."""
    head = Head(folder)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(head.kill)
        say("starting a Ray head ...")
        await head.start()
        gateway = await stack.enter_async_context(gateway_to(head))
        rows = []
        for number, (title, trial) in enumerate(TRIALS.items()):
            own = folder / f"trial-{number}"
            own.mkdir()
            tasks = Tasks(own, upstream, gateway.url)
            try:
                rows.append((title, await trial(Bench(head, gateway, tasks, own))))
            except (RayError, TimeoutError) as error:
                log = "".join(each.read_text()[-3000:] for each in own.glob("manager.log"))
                raise RayError(f"{title}: {str(error) or 'it took too long'}\n{log}") from None
            finally:
                await tasks.kill()
            say(f"{title}: {rows[-1][1]}")
    return rows


def main() -> int:
    try:
        RAY.make(say)
        with (
            tempfile.TemporaryDirectory(prefix="ray-") as folder,
            sandbox_process(Path(folder), "sandbox", "--port", "0") as upstream,
        ):
            rows = asyncio.run(try_all(Path(folder), upstream))
    except (RayError, RuntimeError) as error:
        say(str(error))
        return 1
    table = "\n".join(f"| {' | '.join(row)} |" for row in (("what", "what happened"), ("---", "---"), *rows))
    print(table)
    PAGE.write_text(_page(table), "utf-8")
    say(f"written to {PAGE.relative_to(ROOT)}")
    return 0


def _page(table: str) -> str:
    return f"""\
# Ray's job server, for real

Written by `make test-ray`: tasks of the type `ray-job` at a head of {RAY.requirements[0]} with one CPU, by
`backoff-ctrl task run`. A gateway between the two counts submissions, and can keep an answer back.

{table}

`submissions` are requests; a job that exists already is not made again, since its `submission_id` is made of the task's
key. How Ray is described: [the file](../k8s/tasks/services/rest/services/ray-jobs.yaml). How to describe another
service: [describe a service](how-to/describe-a-service.md).
"""


if __name__ == "__main__":
    sys.exit(main())

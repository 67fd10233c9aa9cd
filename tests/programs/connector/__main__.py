"""``make test-connector``: ``pyflyte serve connector`` of flytekit, and a manager that is killed on the way.

200 tasks go through a connector of its own (``flytekit_connector`` in the folder ``scripts``) and flytekit's built-in
webhook, with four kinds of end. The manager, ``backoff-ctrl task run``, is killed five times by SIGKILL, each while a
create is under way; the connector is stopped for 20 s twice. Each task has to end rightly, and creates beyond one an
attempt are at most one a kill, for the settings allow one create in flight.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web

from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import StoreError
from tests.programs.environments import FLYTEKIT, ROOT
from tests.tasks.sandbox_process import sandbox_process

SCRIPTS: Final = Path(__file__).parents[1] / "scripts"
KILLS: Final = 5
STOPS: Final = 2
STOPPED: Final = 20.0
"""Seconds that the connector is stopped."""
WITHIN: Final = 180.0
"""Seconds for the next creates, and for all ends after the last interruption."""
BETWEEN: Final = 12
"""Creates of the connector between two interruptions."""


@dataclass(frozen=True)
class TaskKind:
    """Tasks of one kind: how many, their type, how they are to end, with how many creates each."""

    name: str
    count: int
    type: str
    phase: str
    creates: int = 1
    kind: str | None = None
    retries: dict[str, int] = field(default_factory=dict)


KINDS: Final = (
    TaskKind("success", 60, "proof", "Success"),
    TaskKind("user", 15, "proof", "PermanentFailure", kind="USER"),
    TaskKind("once", 10, "proof", "Success", creates=2, retries={"user": 1}),
    TaskKind("raise", 5, "proof", "PermanentFailure", creates=2, kind="SYSTEM", retries={"system": 1}),
    TaskKind("abort", 10, "proof", "Aborted"),
    TaskKind("hook", 85, "webhook", "Success"),
    TaskKind("refused", 15, "webhook", "PermanentFailure", kind="USER"),
)


def manifests(hook: str) -> list[dict[str, Any]]:
    """Return all tasks, the kinds mixed."""
    made = [_manifest(kind, f"{kind.name}-{number}", hook) for kind in KINDS for number in range(kind.count)]
    return sorted(made, key=lambda each: sum(each["metadata"]["name"].encode()) * 7919 % 211)


def _manifest(kind: TaskKind, name: str, hook: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": kind.type, "retries": kind.retries}
    if kind.type == "webhook":
        url = f"{hook}/{'no' if kind.name == 'refused' else 'yes'}"
        spec |= {"custom": {"url": url, "method": "POST", "headers": {}, "data": {"job": name}, "timeout_sec": 30}}
    else:
        end = {"abort": "success"}.get(kind.name, kind.name)
        spec |= {"custom": {"end": end}, "template": {"inputs": {"seconds": 900 if kind.name == "abort" else 8}}}
    about = {"name": name, "namespace": "default"}
    return {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": about, "spec": spec}


class Hook:
    """The service behind the webhook: it counts what it is asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve on a free port of this machine."""
        app = web.Application()
        app.router.add_post("/{answer}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked[(await request.json())["job"]] += 1
        await asyncio.sleep(0.02)
        refused = request.match_info["answer"] == "no"
        return web.json_response({"ok": not refused}, status=500 if refused else 200)


class Connector:
    """``pyflyte serve connector`` as a process, and the calls that its own connector wrote down."""

    def __init__(self, folder: Path) -> None:
        self.port, self._metrics = _free_port(), _free_port()
        self._calls = folder / "calls"
        self._calls.touch()
        self._log = folder / "pyflyte.log"
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it until the end of the block."""
        command = [
            str(FLYTEKIT.folder / "bin" / "pyflyte"), "serve", "connector", "--port", str(self.port),
            "--prometheus_port", str(self._metrics), "--modules", "flytekit_connector",
        ]  # fmt: skip
        environment = {**os.environ, "PROOF_CALLS": str(self._calls)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=SCRIPTS, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            self._process.kill()
            self._process.wait()

    async def ready(self) -> None:
        """Wait until it listens."""
        assert self._process is not None
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except ConnectionError:
                if self._process.poll() is not None:
                    raise RuntimeError(f"pyflyte has ended:\n{self._log.read_text()[-3000:]}") from None
                await asyncio.sleep(0.2)
            else:
                writer.close()
                return

    def calls(self, name: str) -> Counter[str]:
        """Return how often it was called for each job."""
        lines = (each.split() for each in self._calls.read_text().splitlines())
        return Counter(job for call, job in lines if call == name)

    def begins_creates(self, number: int) -> None:
        """Block until it has begun so many creates."""
        until = time.monotonic() + WITHIN
        while self.calls("create").total() < number:
            if time.monotonic() > until:
                raise RuntimeError(f"there are only {self.calls('create').total()} creates after {WITHIN:g} s")
            time.sleep(0.002)

    async def stop(self, seconds: float) -> None:
        """Stop it for so long."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)


class Manager:
    """``backoff-ctrl task run`` as a process that may be killed."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._command = [sys.executable, "-m", "backoff_ctrl", "task", "run", *words]
        self._log = folder / "manager.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self) -> None:
        """Block until it has ended by itself."""
        assert self._process is not None
        self._process.wait(WITHIN)


async def run(folder: Path) -> int:
    """Run the proof; return an exit code."""
    hook, connector = Hook(), Connector(folder)
    async with AsyncExitStack() as stack:
        hook_url = await stack.enter_async_context(hook.served())
        stack.enter_context(connector.running())
        cluster = await asyncio.to_thread(stack.enter_context, sandbox_process(folder, "sandbox", "--port", "0"))
        await asyncio.wait_for(connector.ready(), 180)
        (folder / "settings.yaml").write_text(yaml.safe_dump(_settings(connector.port)))
        (folder / "tasks.yaml").write_text(yaml.safe_dump_all(manifests(hook_url)))
        store = folder / "tasks.db"
        words = ["--store", str(store), "--config", str(folder / "settings.yaml"), "--apiserver", cluster]
        manager = Manager(folder, "-f", str(folder / "tasks.yaml"), *words)
        stack.callback(manager.kill)
        began = time.monotonic()
        manager.start()
        aborting = asyncio.create_task(_abort(store))
        await _interrupt(manager, connector)
        await asyncio.to_thread(manager.wait)
        aborting.cancel()
        return _report(await _listed(words), connector, hook, time.monotonic() - began, folder)


def _settings(port: int) -> dict[str, Any]:
    section = {
        "defaultConnector": {
            "endpoint": f"127.0.0.1:{port}",
            "timeouts": {"CreateTask": "50s", "ExecuteTaskSync": "50s", "GetTask": "5s"},
        },
        "createsInFlight": 1,
        "caching": {"resyncInterval": "5s"},
        "writeRateLimiter": {"qps": 4, "burst": 5},
        "readRateLimiter": {"qps": 100, "burst": 100},
        "resourceConstraints": {"project": 200, "namespace": 200},
    }
    return {"plugins": {"connector": section}}


async def _interrupt(manager: Manager, connector: Connector) -> None:
    """Kill the manager, and stop the connector, one after the other."""
    for what in ("kill", "kill", "stop", "kill", "kill", "stop", "kill"):
        await asyncio.to_thread(connector.begins_creates, connector.calls("create").total() + BETWEEN)
        if what == "kill":
            manager.kill()
            manager.start()
        else:
            await connector.stop(STOPPED)
        _say(f"{what}: {connector.calls('create').total()} creates so far")


async def _abort(file: Path) -> None:
    """Abort each task that is to be aborted, once it runs."""
    left = {f"abort-{number}" for kind in KINDS if kind.name == "abort" for number in range(kind.count)}
    while left:
        await asyncio.sleep(1)
        try:
            async with SqliteStore(file, create=False) as store:
                for name in sorted(left):
                    if (await store.get("default", name)).status.phase == "Running":
                        await store.request_abort("default", name)
                        left.discard(name)
        except StoreError:  # it is being made
            continue


async def _listed(words: list[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "backoff_ctrl", "task", "list", *words[:2], "--json"]
    listing = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    out, _ = await listing.communicate()
    found: list[dict[str, Any]] = json.loads(out)["items"]
    return found


def _report(items: list[dict[str, Any]], connector: Connector, hook: Hook, seconds: float, folder: Path) -> int:
    ended = {each["name"]: (each["phase"], each["kind"]) for each in items}
    wrong = [
        f"{name} ended as {ended.get(name)}"
        for kind in KINDS
        for name in (f"{kind.name}-{number}" for number in range(kind.count))
        if ended.get(name) != (kind.phase, kind.kind)
    ]
    wanted = sum(kind.count * kind.creates for kind in KINDS)
    creates = connector.calls("create") + hook.asked
    extra = creates.total() - wanted
    deleted = {each.partition("/")[0] for each in connector.calls("delete")}
    not_deleted = [name for name in ended if name.startswith("abort-") and name not in deleted]
    print(f"{sum(kind.count for kind in KINDS)} tasks, {KILLS} kills, {STOPS} stops of {STOPPED:g} s: {seconds:.0f} s")
    for kind in KINDS:
        print(f"  {kind.count} {kind.type} tasks, {kind.name}: {kind.phase}, {kind.creates} creates each")
    print(f"  wrong ends: {len(wrong)}; aborted jobs that were not deleted: {len(not_deleted)}")
    print(f"  {creates.total()} creates for {wanted} attempts: {extra} more")
    for each in wrong[:10]:
        print(f"  {each}")
    if wrong or not_deleted or not 0 <= extra <= KILLS:
        print((folder / "manager.log").read_text()[-3000:])
        return 1
    return 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Make the environment, and run the proof in a folder of its own."""
    FLYTEKIT.make(_say)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))


if __name__ == "__main__":
    sys.exit(main())

"""``make test-programs``: real programs on a real Kubernetes, each waiting on a full quota; writes docs/programs.md.

Each has an environment of its own, with the program's own pins, and a namespace with a quota that one pod fills. Once
the program's create waits, that pod is deleted, and the program has to get in.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.lab.sandbox.followed import Server as KubeletServer
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from tests.cluster.control_plane.bed import Bed, BedError
from tests.cluster.control_plane.binaries import BinariesError, build, wanted
from tests.cluster.talking import Api
from tests.programs.environments import AIRFLOW, KOPF, OFFICIAL, OTHERS, ROOT, SPAWNER, Environment
from tests.programs.telling import pod_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.control_plane.servers import Server

SCRIPTS: Final = Path(__file__).parent / "scripts"
PAGE: Final = ROOT / "docs" / "programs.md"
UNTIL_IT_WAITS: Final = 180.0
"""Seconds: Airflow alone takes 20 to load on a slow machine."""
UNTIL_IT_ENDS: Final = 180.0
HELD: Final = 2.0
"""Seconds that it is left waiting before there is room."""


class ProgramError(Exception):
    """A program did not do what it should. The message says what it said."""


@dataclass(frozen=True)
class Program:
    """A program: how people call it, its script, its environment, and whether its pod is to be run to the end."""

    title: str
    script: str
    environment: Environment
    runs: bool = False


PROGRAMS: Final = (
    Program("Airflow: `PodManager.create_pod`", "airflow_pod_manager", AIRFLOW),
    Program("Airflow: `KubernetesPodOperator.execute`", "airflow_pod_operator", AIRFLOW, runs=True),
    Program("kopf: a handler that creates a pod", "kopf_handler", KOPF),
    Program("`kubernetes.utils.create_from_yaml`", "create_from_yaml", OFFICIAL),
    Program("`kubernetes.dynamic.DynamicClient`", "dynamic_client", OFFICIAL),
    Program("KubeSpawner: its create of a user's pod", "kubespawner_create", SPAWNER),
    Program("lightkube, by a transport of its own", "lightkube_transport", OTHERS),
    Program("kr8s, by a transport of its own", "kr8s_transport", OTHERS),
)


def main(chosen: Sequence[str]) -> int:
    """Run them all, or those whose script has one of the words. Only a run of all writes the page."""
    programs = [each for each in PROGRAMS if not chosen or any(word in each.script for word in chosen)]
    if not programs:
        _say(f"no program is called {' or '.join(chosen)}; there are {', '.join(each.script for each in PROGRAMS)}")
        return 2
    try:
        for environment in dict.fromkeys(each.environment for each in programs):
            environment.make(_say)
        binaries = wanted()
        build(binaries, _say)
        with Bed(binaries, logs=ROOT / "build" / "cluster-logs" / "programs", say=_say) as bed:
            rows = asyncio.run(_run_all(bed.server, programs))
    except (BedError, BinariesError, RuntimeError) as error:
        _say(str(error))
        return 1
    table = _table(rows)
    print(f"\n{table}")
    if len(programs) == len(PROGRAMS) and all(outcome == "in" for *_, outcome in rows):
        PAGE.write_text(_page(table, binaries.recipe.version), "utf-8")
        _say(f"written to {PAGE.relative_to(ROOT)}")
    return 0 if all(outcome == "in" for *_, outcome in rows) else 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def _run_all(server: Server, programs: Sequence[Program]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    async with Api(server) as api:
        for number, program in enumerate(programs):
            _say(f"{program.script} ...")
            try:
                rows.append(await _run(api, program, f"program-{number}"))
            except (ProgramError, TimeoutError) as error:
                _say(f"{program.script} failed: {error}")
                rows.append((program.title, "", "", "", "", "failed"))
            else:
                _say(f"{program.script}: {', '.join(rows[-1][1:])}")
    return rows


async def _run(api: Api, program: Program, namespace: str) -> tuple[str, ...]:
    """Run one in a namespace of its own; return its row."""
    await _expect(201, api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}))
    within = f"/api/v1/namespaces/{namespace}"
    await api.until(f"{within}/serviceaccounts/default", bool)
    quota = {"metadata": {"name": "tight"}, "spec": {"hard": {"pods": "1"}}}
    await _expect(201, api.post(f"{within}/resourcequotas", quota))
    await api.until(f"{within}/resourcequotas/tight", lambda found: "used" in found.get("status", {}))
    await _expect(201, api.post(f"{within}/pods", pod_manifest("first")))

    async with AsyncExitStack() as stack:
        process = await _start(program, str(api.server.kubeconfig()), namespace)
        stack.push_async_callback(_end, process)
        reading = _Reading(process)
        waits = await asyncio.wait_for(reading.until("waits_for"), UNTIL_IT_WAITS)
        await asyncio.sleep(HELD)
        listed = (await api.get(f"{within}/pods")).json["items"]
        if [pod["metadata"]["name"] for pod in listed] != ["first"]:
            raise ProgramError("it said that it waits, but has created its pod")
        await _expect(200, api.call("DELETE", f"{within}/pods/first", params={"gracePeriodSeconds": "0"}))
        if program.runs:
            at = KubeletServer(
                api.server.url, {"Authorization": f"Bearer {api.server.token('tester')}"}, api.server.ssl()
            )
            await stack.enter_async_context(Kubelet(at, namespace=namespace, finish_after=1.0))
        report = await asyncio.wait_for(reading.until("creates"), UNTIL_IT_ENDS)
        if await asyncio.wait_for(process.wait(), UNTIL_IT_ENDS):
            raise ProgramError(f"it ended with {process.returncode}:\n{await reading.errors()}")
    found = await api.get(f"{within}/pods/{report['pod']}")
    if found.status != 200:
        raise ProgramError(f"its pod {report['pod']} is not there")
    if report["failed_open"]:
        raise ProgramError("the gate had an internal error")
    phase = found.json["status"]["phase"]
    if program.runs and phase != "Succeeded":
        raise ProgramError(f"its pod is {phase}")
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    _say(f"{program.script} waited for {waits['waits_for']}")
    return program.title, versions, str(report["creates"]), str(report["refused"]), f"{report['waited_s']} s", "in"


async def _start(program: Program, kubeconfig: str, namespace: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(program.environment.folder / "home")}
    return await asyncio.create_subprocess_exec(
        str(program.environment.python),
        str(SCRIPTS / f"{program.script}.py"),
        kubeconfig,
        namespace,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=program.environment.folder,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


class _Reading:
    """What a program prints. Programs log on standard output, too: only our own lines count."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stderr is not None
        self._errors = asyncio.ensure_future(process.stderr.read())

    async def until(self, key: str) -> dict[str, Any]:
        """Return the first object that has this key."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"{"):
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if key in found:
                    return dict(found)
        raise ProgramError(f"it ended before it said {key}:\n{await self.errors()}")

    async def errors(self) -> str:
        """Return the end of what it wrote to standard error, once it has ended."""
        return (await self._errors).decode("utf-8", "replace")[-4000:]


async def _expect(status: int, asked: Any) -> None:
    reply = await asked
    if reply.status != status:
        raise ProgramError(f"the server answered {reply.status}: {reply.text}")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head = ("program", "versions", "creates sent", "refused", "waited", "outcome")
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _page(table: str, kubernetes: str) -> str:
    return f"""\
# Real programs through the gate

Written by `make test-programs`, on a kube-apiserver {kubernetes} and Python {platform.python_version()}. Each program
has an environment of its own with its own pins, and a namespace whose quota is full. It runs with a gated client in
place of the plain one: [tests/programs/scripts](../tests/programs/scripts) shows how little that takes. Once its create
waits, room is made; it must get in by itself.

{table}

"creates sent" are requests to the API server, "waited" is the time in line until the create returned. Programs on the
official clients watch the quota and are sent when there is room; those with a transport of their own learn from
refusals and look again after 1 to 20 s.

What to set:

- **Airflow**: give `PodManager` a gated client; for the operator override its `hook`, whose `get_conn` returns one.
- **KubeSpawner**: it cancels a create after `k8s_api_request_timeout` (3 s) and gives up after
  `k8s_api_request_retry_timeout` (30 s): set both to what a user may have to wait.
- **kopf**: a synchronous handler waits in one of kopf's threads (`settings.execution.max_workers`); an asynchronous one
  with `AsyncGatedApiClient` holds none.
- All others: nothing but the client.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

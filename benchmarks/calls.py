"""How many Python functions of ours one create calls, and in how many modules: what there is to read and to go wrong.

Counted by ``sys.setprofile``, in a process that has done the same many times before, with a server that answers from
memory. A generator that is resumed counts once more. The first line counts what lies between the client's adapter and
its transport; the second has both, too. ``--list`` names what is called, and how often.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import threading
from collections import Counter
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import urllib3
from kubernetes import client

import backoff_ctrl
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.sidecar.holding.holding import Holding
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request, Response
from backoff_ctrl.k8s.status.serving import Service
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskMetadata
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, WAIT
from tests.tasks.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

WARM = 200
"""Creates before the one that is counted: growing windows and caches take calls of their own."""
ROOT = f"{Path(backoff_ctrl.__file__).parent}/"
GATED = "k8s/gate/clients/"
SANDBOX = f"{ROOT}k8s/lab/sandbox/"
SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
POD: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}, "spec": SPEC}
HEADERS = {"Content-Type": "application/json", "X-Kubernetes-Pf-Prioritylevel-Uid": "level"}
SUSPENDED: Any = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {"suspend": True, "template": {"spec": {**SPEC, "restartPolicy": "Never"}}},
}
AT_REST = 0.05
"""Seconds without a call after which a way has ended."""
EMPTY_LIST = b'{"kind":"ResourceQuotaList","apiVersion":"v1","metadata":{},"items":[]}'

Calls = Counter[tuple[str, str]]
"""How often each function, by its module and name, was called."""


def counter(calls: Calls) -> Callable[[FrameType, str, object], None]:
    """Return what counts each call of a function of ours."""

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_filename.startswith(SANDBOX):
            calls[code.co_filename.removeprefix(ROOT).removesuffix(".py"), code.co_qualname] += 1

    return count


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls of this thread."""
    calls: Calls = Counter()
    sys.setprofile(counter(calls))
    try:
        yield calls
    finally:
        sys.setprofile(None)


def stored(method: str, body: Any) -> tuple[int, bytes]:
    """Answer as an API server does that has stored the object."""
    if method == "GET":
        return 200, EMPTY_LIST
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    return 201, text.encode() if isinstance(text, str) else text


class Connections:
    """What the client for threads has below it in place of sockets."""

    def request(self, method: str, _: str, *, body: Any = None, **__: Any) -> urllib3.HTTPResponse:
        """Answer at once."""
        status, answer = stored(method, body)
        headers = urllib3.HTTPHeaderDict(HEADERS)
        return urllib3.HTTPResponse(answer, headers, status, preload_content=False)

    def clear(self) -> None:
        """Do nothing: there are no connections."""


class Transport:
    """A way to the server for creates on asyncio. ``sent`` is called with each body."""

    def __init__(self, sent: Callable[[Any], object] = lambda _: None) -> None:
        """Answer at once."""
        self.sent = sent

    async def send(self, body: dict[str, Any]) -> Answer:
        """Answer with what is stored."""
        self.sent(body)
        return Answer(201, HEADERS, stored("POST", body)[1])

    async def look_up(self, name: str) -> Answer:
        """Fail: no answer gets lost here."""
        raise AssertionError(name)


class Upstream:
    """The API server behind a sidecar."""

    async def ask(self, request: Request, limit: int = 0) -> Response:  # noqa: ARG002 - as the sidecar calls it
        """Answer at once."""
        status, answer = stored(request.head.method.decode(), request.body)
        return Response(status, b"", [(b"Content-Type", b"application/json")], answer)


def free_create() -> Calls:
    """A create through the client for threads, which need not wait."""
    api = GatedApiClient(client.Configuration(host="http://memory"), gate=Gate())
    rest: Any = api.rest_client
    rest.pool_manager = Connections()
    core: Any = client.CoreV1Api(api)
    for _ in range(WARM):
        core.create_namespaced_pod("team", POD)
    with counted() as calls:
        core.create_namespaced_pod("team", POD)
    api.close()
    return calls


def creation() -> Creation:
    """Describe a create in a namespace."""
    return Creation("http://memory", "", "team", "pods", POD)


async def free_asyncio_create() -> Calls:
    """The same on asyncio, at the gate itself: from ``AsyncGate.create`` to its answer."""
    gate, transport = AsyncGate(), Transport()
    for _ in range(WARM):
        await gate.create(creation(), transport)
    with counted() as calls:
        await gate.create(creation(), transport)
    await gate.aclose()
    return calls


async def sidecar_create() -> Calls:
    """A create through the sidecar's room for held creates, from the request to the response."""
    gate = AsyncGate()
    holding = Holding(Upstream().ask, gate, "http://memory", None)
    body = json.dumps(POD).encode()
    headers = [(b"Authorization", b"Bearer ann"), (b"Accept", b"application/json")]
    headers += [(b"Content-Type", b"application/json"), (b"Content-Length", str(len(body)).encode())]

    async def one() -> None:
        request = Request(Head(b"POST", b"/api/v1/namespaces/team/pods", list(headers)), body)
        assert holding.reads(request.head)
        response = await holding.answer(request)
        assert response.status == 201, response

    for _ in range(WARM):
        await one()
    with counted() as calls:
        await one()
    await gate.aclose()
    return calls


async def task_create() -> Calls:
    """A task of the type ``container``, from its first step until its pod is stored; with the news in between."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        async with Bench(sandbox.url, container) as bench:

            async def one(name: str) -> None:
                metadata = TaskMetadata("team", name, f"uid-{name}", 0, name, store="s1")
                await bench.until(
                    TaskContext(metadata, "container", {"container": {"image": "i"}}, K8sPluginConfig()), Phase.QUEUED
                )

            for number in range(20):
                await one(f"warm-{number}")
            with counted() as calls:
                await one("counted")
            return calls


async def job_let_in() -> tuple[Calls, Calls]:
    """A suspended Job that comes while the quota is full, and is then let in: until it waits, and until it runs.

    With what its watch reports, without the news of the quota, which are read on another thread.
    """
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "0"})
        configuration = client.Configuration(host=sandbox.url)
        async with (
            aiohttp.ClientSession(sandbox.url) as session,
            Admitting(configuration, namespaces=("team",), kinds=(JOB,), events=False) as admitting,
        ):
            leading = asyncio.create_task(admitting.lead())

            async def until(holds: Callable[[], object], calls: Calls) -> None:
                """Wait for it, without counting the question, and then until nothing more is called."""
                before = -1
                while before != calls.total():
                    sys.setprofile(None)
                    before = calls.total() if holds() else -1
                    sys.setprofile(counter(calls))
                    await asyncio.sleep(AT_REST if before >= 0 else 0)
                sys.setprofile(None)

            joining, running, clock = Calls(), Calls(), asyncio.get_running_loop().time
            for number in range(1, 5):
                joining.clear()
                running.clear()
                seen = clock()  # what waits is looked at each second: begin right after that
                await until(lambda: number == 1 or admitting._looked > seen, joining)  # noqa: B023, SLF001
                joining.clear()
                body = {**SUSPENDED, "metadata": {"name": f"job-{number}", "labels": {WAIT: "true"}}}
                sys.setprofile(counter(joining))
                await ask(session, "POST", "/apis/batch/v1/namespaces/team/jobs", body)
                await until(lambda: any("quota" in each for each in admitting.waiting()), joining)
                limit = {"spec": {"hard": {"pods": str(number)}}}
                sys.setprofile(counter(running))
                await ask(session, "PATCH", "/api/v1/namespaces/team/resourcequotas/q", limit)
                await until(lambda: admitting.states()["running"] == number, running)  # noqa: B023
            leading.cancel()
        admitting.gate.ledger.close()  # its alarms would be counted in other ways
        return joining, running


async def ask(session: aiohttp.ClientSession, method: str, path: str, body: object) -> None:
    """Change an object."""
    headers = {"Content-Type": "application/json" if method == "POST" else "application/merge-patch+json"}
    async with session.request(method, path, json=body, headers=headers) as answer:
        assert answer.ok, await answer.text()


async def admitting_event() -> Calls:
    """The news that a quota has room for one that waits, from the ledger until that create is handed to the transport.

    The create's own task is woken in between.
    """
    waits, sent = asyncio.Event(), asyncio.Event()
    gate, transport = AsyncGate(), Transport(lambda _: sent.set())
    ledger = gate.ledger
    one = parse_quantity("1")

    def used(pods: int) -> None:
        ledger.observe_quota("team", "q", ObservedQuota({"pods": one}, {"pods": one}, {"pods": pods * one}))

    calls: Calls = Counter()
    used(1)
    ledger.watching("team")
    for number in range(20):
        waits.clear()
        sent.clear()
        asked = Creation("http://memory", "", "team", "pods", POD, on_wait=lambda _: waits.set())
        created = asyncio.create_task(gate.create(asked, transport))
        await waits.wait()
        await asyncio.sleep(0)
        if number < 19:
            used(0)
            await sent.wait()
        else:
            with counted() as calls:
                used(0)
                await sent.wait()
        await created
        used(1)
    await gate.aclose()
    return calls


def status_request() -> Calls:
    """A request for the ceilings that a gate knows, from its head to the answer: on the loop, and in a thread."""
    gate, service, calls, counting = Gate(), Service(), Calls(), threading.Event()
    one = parse_quantity("1")
    gate.ledger.observe_quota("team", "q", ObservedQuota({"pods": one}, {"pods": one}, {"pods": one}))
    service.add(gate.ledger)

    def count(frame: FrameType, event: str, _: object) -> None:
        if counting.is_set():
            counter(calls)(frame, event, _)

    threading.setprofile(count)  # of the threads that make documents: the first question starts them
    try:
        host = service.serve("127.0.0.1:0").url.removeprefix("http://")
        RUNTIME.post(sys.setprofile, count)
        # One connection for all: the end of another would be counted, before or after what comes next.
        with closing(HTTPConnection(host)) as connection:
            for number in range(20):
                if number == 19:
                    RUNTIME.post(counting.set)
                    counting.wait()
                connection.request("GET", "/v1/ceilings")
                connection.getresponse().read()
    finally:
        counting.clear()
        threading.setprofile(None)
        RUNTIME.post(sys.setprofile, None)
    service.close()
    gate.close()
    return calls


def figure(calls: Calls) -> Mapping[str, int]:
    """Return the number of calls, and of the modules that they are in."""
    return {"calls": calls.total(), "modules": len({module for module, _ in calls})}


def main() -> None:
    """Print a line for each way, or with ``--list`` what it calls."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--list", action="store_true", help="name the functions, too")
    listed = options.parse_args().list
    logging.disable()
    whole = free_create()
    joining, running = asyncio.run(job_let_in())
    found = {
        "free create": Counter(
            {(module, name): times for (module, name), times in whole.items() if GATED not in module}
        ),
        "free create, with the client": whole,
        "free create, asyncio": asyncio.run(free_asyncio_create()),
        "create through the sidecar": asyncio.run(sidecar_create()),
        "create of a task": asyncio.run(task_create()),
        "Job, until it waits": joining,
        "Job, from room until it runs": running,
        "quota event that admits a create": asyncio.run(admitting_event()),
        "request for the status of a gate": status_request(),
    }
    for name, calls in found.items():
        counts = figure(calls)
        print(f"{name:34} {counts['calls']:4} calls in {counts['modules']:3} modules")
        for (module, function), times in calls.items() if listed else ():
            print(f"    {times:3} {module} {function}")


if __name__ == "__main__":
    main()

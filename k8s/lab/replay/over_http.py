"""The replay over real HTTP: on a sandbox in a process of its own, or on any cluster in the replay's own namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import aiohttp

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.observing.quotas import QuotaWatch
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess, find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.status import WatchState
from backoff_ctrl.k8s.lab.sandbox import Sandbox
from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet

from .clients import Client, Gated, Run, make_client, replay, result_of
from .rooms import set_apart
from .virtual_time import Record
from .workload import POD_LABEL, QUOTA_NAME, Workload

log = logging.getLogger(__name__)

PROXY: Final = "proxy"
"""The client that retries plainly, behind the sidecar."""
HOLD: Final = 600.0
"""Seconds of the trace that one request is held: what docs/sidecar.md says for clients without a limit of their own."""
HOLD_TOTAL: Final = 86_400.0
ASK_SECONDS: Final = 60.0
READY_SECONDS: Final = 20.0
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
STALE_SHARE: Final = 0.03  # of releases, after which admission lags behind the watch (on 1.36: 2-4 %)
_POLL: Final = 0.01


class HttpCluster:
    """An API server's pods and quotas over HTTP, within ``reached``."""

    def __init__(self, namespaces: Collection[str] | None, session: ClusterSession) -> None:
        self._namespaces = namespaces
        self._session = session
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: QuotaWatch | None = None
        self.record = Record()

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        if self._namespaces is not None:
            body = set_apart(body)
        answer = await self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        self.record.creates += 1
        self.record.refused += answer.status == 403
        if answer.status == 201:
            name = body["metadata"]["labels"][POD_LABEL]
            self.record.admitted[name] += 1
            self.record.admitted_at.setdefault(name, asyncio.get_running_loop().time())
        return answer

    async def look_up(self, namespace: str, name: str) -> Answer:
        return await self.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Send a request. Raises ``NotSent`` or ``OutcomeUnknown`` without an answer."""
        try:
            async with await self._session.request(method, path, body=body, timeout=ASK_SECONDS) as response:
                return Answer(response.status, dict(response.headers), await response.read())
        except aiohttp.ClientConnectorError as error:
            raise NotSent(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OutcomeUnknown(str(error)) from error

    def _everywhere(self, resource: str) -> list[str]:
        """Return the paths that list a resource: one for a whole sandbox, one per namespace of a cluster."""
        if self._namespaces is None:
            return [f"/api/v1/{resource}"]
        return [f"/api/v1/namespaces/{namespace}/{resource}" for namespace in self._namespaces]

    async def count(self) -> Record:
        """Bring the record up to date: creates as the sandbox counts them, and the pods that exist.

        A pod that was created twice counts twice. A cluster counts no creates: there the answers are the record.
        """
        if self._namespaces is None:
            seen = json.loads((await self.ask("GET", "/sandbox/counters")).body)["creates"]
            self.record.creates, self.record.refused = seen["seen"], seen["refused"]
        self.record.admitted.clear()
        for path in self._everywhere("pods"):
            pods = json.loads((await self.ask("GET", path)).body)["items"]
            self.record.admitted.update(pod["metadata"]["labels"][POD_LABEL] for pod in pods)
        return self.record

    def record_usage(self) -> None:
        """Record every change of the quotas from now on, for the picture."""
        for path in self._everywhere("resourcequotas"):
            self._spawn(self._record(path))

    async def _record(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        query = [("watch", "true"), ("timeoutSeconds", 3600)]
        endless = aiohttp.ClientTimeout(total=None)
        async with await self._session.request("GET", path, query=query, timeout=endless) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    used = (event["object"].get("status") or {}).get("used") or {}
                    amounts = {name: parse_quantity(amount) for name, amount in used.items()}
                    self.record.usage.append((loop.time(), event["object"]["metadata"]["namespace"], amounts))

    def observe(self, ledger: Ledger) -> None:
        """Let a ledger observe the quotas from now on, as the product does: by list and watch."""
        self._watch = QuotaWatch(ledger, self._namespaces)
        self._spawn(self._watch.run(ClusterSource(self._session)))

    async def until_observed(self, client: Client) -> None:
        """Let an observing gate list every quota. Raises ``TimeoutError`` if it can't."""
        if isinstance(client, Gated):
            client.start()
        if self._watch is None:
            return
        async with asyncio.timeout(READY_SECONDS):
            for namespace in self._namespaces or [""]:
                while (seen := self._watch.record.of(namespace)) is None or seen.state is not WatchState.QUOTAS:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):  # logged only: the result of the replay stands without it
                log.warning("a background task of the replay failed: %s: %s", type(outcome).__name__, outcome)


@asynccontextmanager
async def reached(place: ClusterAccess, namespaces: Collection[str] | None = None) -> AsyncIterator[HttpCluster]:
    """Use a real cluster, of which only ``namespaces`` are touched; or (None) a sandbox, which counts creates itself.

    No node runs the pods of those namespaces: kubelets of ours do.
    """
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClusterSession(place.configuration))
        cluster = await stack.enter_async_context(aclosing(HttpCluster(namespaces, session)))
        for namespace in namespaces or ():
            server = Server(str(place.configuration.host), place.headers(), place.tls(), place.detour)
            await stack.enter_async_context(Kubelet(server, namespace=namespace, starts=False))
        yield cluster


async def run_over_http(
    place: ClusterAccess,
    name: str,
    workload: Workload,
    factor: float,
    on_placed: Callable[[], object] = lambda: None,
    *,
    namespaces: Collection[str] | None = None,
) -> Run:
    """Replay through one client, ``factor`` times faster; times in the result are seconds of the trace.

    ``namespaces`` are those of ``reached``. Raises ``ReplayError``.
    """
    loop = asyncio.get_running_loop()
    async with reached(place, namespaces) as cluster:
        cluster.record_usage()
        client = make_client(name, cluster, seed=workload.seed, factor=factor)
        await cluster.until_observed(client)
        began = loop.time()
        try:
            await replay(workload.faster(factor), client, on_placed)
        finally:
            if isinstance(client, Gated):
                with contextlib.suppress(asyncio.CancelledError):
                    await client.gate.aclose()
        record = await cluster.count()
        record.admitted_at = {pod: (when - began) * factor for pod, when in record.admitted_at.items()}
        record.usage = [((when - began) * factor, space, used) for when, space, used in record.usage]
        return result_of(name, workload, record)


def run_on_sandbox(workload: Workload, client: str, factor: float, on_placed: Callable[[], object]) -> Run:
    """Run one client against a sandbox of its own. Raises ``OSError`` if it, or the proxy before it, does not start."""
    with ExitStack() as stack:
        url = stack.enter_context(sandbox_process(workload.hard(), seed=workload.seed))
        if client == PROXY:
            url = stack.enter_context(proxy_process(url, factor))
        return asyncio.run(run_over_http(find_place(url, None, None, None), client, workload, factor, on_placed))


@contextmanager
def sandbox_process(quotas: Mapping[str, Mapping[str, str]], *, seed: int) -> Iterator[str]:
    """Serve namespaces with these quotas, and a fake kubelet, while the block runs; yields the URL.

    In a process of their own, so that server and clients share no interpreter lock. Raises ``OSError`` if it can't
    serve.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, dict(quotas), seed), name="sandbox", daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_SECONDS):
            raise OSError(f"the sandbox did not start within {START_SECONDS:g} s")
        try:
            url = ours.recv()
        except EOFError:
            raise OSError("the sandbox process ended before it could serve") from None
        yield str(url)
    finally:
        ours.close()  # the process ends when it sees this
        process.join(STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(parent: Connection, quotas: Mapping[str, Mapping[str, str]], seed: int) -> None:
    """The sandbox process. It ignores Ctrl-C: the parent handles it and ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def until_closed() -> None:
        closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(parent.fileno(), closed.set)
        async with Sandbox(seed=seed) as sandbox, Kubelet(Server(sandbox.url), starts=False):
            sandbox.faults.stale_admission_share = STALE_SHARE
            for namespace, hard in quotas.items():
                sandbox.create_namespace(namespace)
                sandbox.create_quota(namespace, QUOTA_NAME, hard)
            parent.send(sandbox.url)
            await closed.wait()

    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        asyncio.run(until_closed())


def has_proxy() -> bool:
    """Return whether the packages of the extra ``proxy`` are installed."""
    return find_spec("httptools") is not None


@contextmanager
def proxy_process(upstream: str, factor: float) -> Iterator[str]:
    """Run ``backoff-ctrl proxy`` before ``upstream`` while the block runs; yields its URL.

    Its holds are divided by ``factor``, as all durations are. Raises ``OSError`` if it does not start.
    """
    holds = ("--hold", str(HOLD / factor), "--hold-total", str(HOLD_TOTAL / factor), "--drain", "0")
    listen = ["--listen", "127.0.0.1:0", "--apiserver", upstream]
    command = [sys.executable, "-m", "backoff_ctrl", "proxy", *listen, *holds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            said = process.stdout.readline()
            if not said.startswith("listening on "):
                raise OSError(f"the proxy did not start: {process.stderr.read().strip()}")
            yield said.split()[-1]
        finally:
            process.terminate()
            try:
                process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

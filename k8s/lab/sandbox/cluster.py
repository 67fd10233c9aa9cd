"""The public face of the sandbox: start it, create namespaces and quotas, inject faults, read counters.

``Sandbox`` runs in the event loop that serves it; ``running_sandbox`` gives synchronous code one in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web

from backoff_ctrl.k8s.lab.sandbox.http.server import LOG, Front
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import NAMESPACES, QUOTAS, SERVICES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.store import Event
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, load
from backoff_ctrl.k8s.lab.sandbox.verbs.controllers import NamespaceContents
from backoff_ctrl.k8s.lab.sandbox.verbs.requests import Target, WriteOptions
from backoff_ctrl.k8s.lab.sandbox.verbs.writing import Writer

from .core import Core
from .faults import Counters, Faults, Settings

_STANDARD_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_KUBERNETES: JSON = {  # every API server has this service of itself; here its address leads nowhere
    "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
    "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
}
_GRACE_OF_STOP = 0.5


class Sandbox:
    """An embedded API server with quota admission, on a port of the local machine.

    Use it as an async context manager; keyword arguments are the fields of ``Settings``::

        async with Sandbox(seed=0, release_delay=0.002) as sandbox:
            sandbox.create_namespace("team")
            sandbox.create_quota("team", "pods", {"pods": "5"})
            ...  # any client at sandbox.url

    Call its methods in the event loop that serves it; from other threads use ``running_sandbox``.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", **settings: Any) -> None:
        """``port`` 0 picks a free port. Raises ``TypeError`` for a setting that does not exist."""
        self._host = host
        self._port = port
        self._core = Core(Settings(**settings))
        self._front = Front(self._core)
        self._writer = Writer(self._core)
        self._runner: web.ServerRunner | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._core.store.listen(self._wake_waiters)
        NamespaceContents(self._core)
        for name in _STANDARD_NAMESPACES:
            self.create_namespace(name)
        self.create(SERVICES, "default", _KUBERNETES)

    @property
    def settings(self) -> Settings:
        return self._core.settings

    @property
    def url(self) -> str:
        """The base URL, valid once the sandbox has started."""
        return f"http://{self._host}:{self._port}"

    @property
    def faults(self) -> Faults:
        """The injected faults: assign to their fields at any time."""
        return self._core.faults

    @property
    def counters(self) -> Counters:
        """What the server has counted so far."""
        return self._core.counters

    async def start(self) -> None:
        """Start to listen. Raises ``OSError`` when the port is in use."""
        loop = asyncio.get_running_loop()
        self._core.pacing.loop = loop
        limit = self._core.settings.largest_body

        def request_of(*parts: Any) -> web.BaseRequest:
            message, payload, protocol, writer, task = parts
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limit)

        server = web.Server(self._front.handle, request_factory=request_of, access_log=None, logger=LOG)
        runner = web.ServerRunner(server, shutdown_timeout=_GRACE_OF_STOP)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port, backlog=1024)
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._port = runner.addresses[0][1]
        self._runner = runner
        self._core.controller.start()
        self._front.garbage.start()

    async def stop(self) -> None:
        """End all watches and connections. Stopping twice does no harm."""
        runner, self._runner = self._runner, None
        if runner is not None:
            self._core.controller.stop()
            self._front.garbage.stop()
            self._front.end_watches()
            await runner.cleanup()
            self._core.pacing.loop = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace. Raises ``ApiError`` when it exists already."""
        self.create(NAMESPACES, "", {"metadata": {"name": name, "labels": dict(labels or {})}})

    def create_quota(
        self,
        namespace: str,
        name: str,
        hard: Mapping[str, str],
        scopes: Iterable[str] = (),
        scope_selector: JSON | None = None,
    ) -> None:
        """Create a ResourceQuota and fill in its status at once, so that it is enforced when this returns."""
        spec: JSON = {"hard": dict(hard)}
        if scopes:
            spec["scopes"] = list(scopes)
        if scope_selector:
            spec["scopeSelector"] = dict(scope_selector)
        self.create(QUOTAS, namespace, {"metadata": {"name": name}, "spec": spec})
        self.recount(namespace)

    def create(self, kind: Kind, namespace: str, obj: JSON, *, strict: bool = False) -> JSON:
        """Create an object with all of admission, but without HTTP and its faults; ``strict``: no unknown fields.

        Raises ``ApiError``.
        """
        return load(self._writer.create(Target(kind, namespace), obj, WriteOptions(strict=strict)))

    def get(self, kind: Kind, namespace: str, name: str) -> JSON:
        """The object as it is stored. Raises ``ApiError`` (404)."""
        return self._core.store.get(kind, namespace, name).parse()

    def used(self, namespace: str, quota: str) -> dict[str, str]:
        """``status.used`` of a quota, amounts as Quantity strings. Raises ``ApiError`` (404)."""
        status = self.get(QUOTAS, namespace, quota).get("status") or {}
        return dict(status.get("used") or {})

    def recount(self, namespace: str | None = None) -> None:
        """Make the quota controller recount one namespace now, or all of them."""
        if namespace is None:
            self._core.controller.recount_all()
        else:
            self._core.controller.recount(namespace)

    async def until(self, condition: Callable[[], bool], within: float = 45.0) -> None:
        """Wait until ``condition()`` holds; it is evaluated after each change of a stored object.

        Raises ``TimeoutError`` after ``within`` seconds.
        """
        async with asyncio.timeout(within):
            while not condition():
                changed = asyncio.get_running_loop().create_future()
                self._waiters.append(changed)
                await changed

    def _wake_waiters(self, _kind: Kind, _event: Event, _obj: JSON) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def compact(self) -> None:
        """Forget the history: a watch that resumes from an older version gets 410 as an ERROR event."""
        self._core.store.compact()

    def kind(self, plural: str, group: str = "", version: str = "v1") -> Kind:
        """The served kind with this plural, group and version. Raises ``LookupError``."""
        found = self._core.kinds.find(group, version, plural)
        if found is None:
            raise LookupError(f"the sandbox does not serve {plural} in {group or 'the core group'} {version}")
        return found


T = TypeVar("T")


class BackgroundSandbox:
    """A sandbox that runs in another thread. Every method waits until that thread has done the work."""

    def __init__(self, sandbox: Sandbox, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap ``sandbox``, which runs on ``loop``."""
        self._sandbox = sandbox
        self._loop = loop

    @property
    def url(self) -> str:
        return self._sandbox.url

    @property
    def faults(self) -> Faults:
        """The injected faults: assigning to their fields is safe from any thread."""
        return self._sandbox.faults

    @property
    def counters(self) -> Counters:
        """What the server has counted: read it while no request is in flight."""
        return self._sandbox.counters

    def call(self, work: Callable[[Sandbox], T]) -> T:
        """Run ``work(sandbox)`` in the serving thread and return its result; raises what it raises."""

        async def run() -> T:
            return work(self._sandbox)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace, from any thread."""
        self.call(lambda sandbox: sandbox.create_namespace(name, labels))

    def create_quota(
        self,
        namespace: str,
        name: str,
        hard: Mapping[str, str],
        scopes: Iterable[str] = (),
        scope_selector: JSON | None = None,
    ) -> None:
        """Create a ResourceQuota, from any thread; its status is set at once."""
        self.call(lambda sandbox: sandbox.create_quota(namespace, name, hard, scopes, scope_selector))

    def used(self, namespace: str, quota: str) -> dict[str, str]:
        """Return ``status.used`` of a quota, from any thread."""
        return self.call(lambda sandbox: sandbox.used(namespace, quota))


@contextmanager
def running_sandbox(**settings: Any) -> Iterator[BackgroundSandbox]:
    """Serve a sandbox from another thread until the ``with`` block ends.

    Takes the arguments of ``Sandbox``. Raises ``OSError`` when the port is in use.
    """
    started: threading.Event = threading.Event()
    found: list[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]] = []
    failed: list[BaseException] = []

    async def serve() -> None:
        stopping = asyncio.Event()
        try:
            sandbox = Sandbox(**settings)
            await sandbox.start()
        except (OSError, TypeError) as error:
            failed.append(error)
            started.set()
            return
        found.append((sandbox, asyncio.get_running_loop(), stopping))
        started.set()
        await stopping.wait()
        await sandbox.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="sandbox", daemon=True)
    thread.start()
    started.wait()
    if failed:
        thread.join()
        raise failed[0]
    sandbox, loop, stopping = found[0]
    try:
        yield BackgroundSandbox(sandbox, loop)
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(timeout=10)

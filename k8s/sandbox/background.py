"""The sandbox in a thread of its own, for synchronous code."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from .cluster import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from backoff_ctrl.k8s.sandbox.wire.counters import Counters
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON
    from backoff_ctrl.k8s.sandbox.wire.faults import Faults

T = TypeVar("T")


class BackgroundSandbox:
    """A sandbox that runs in another thread. Every method waits until that thread has done the work."""

    def __init__(self, sandbox: Sandbox, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap ``sandbox``, which runs on ``loop``."""
        self._sandbox = sandbox
        self._loop = loop

    @property
    def url(self) -> str:
        """The base URL."""
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

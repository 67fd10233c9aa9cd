"""Runs a sandbox and a fake kubelet in their own process, so that server and clients share no interpreter lock."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.sandbox import Sandbox
from backoff_ctrl.k8s.sandbox.kubelet.kubelet import Kubelet, Server

from .workload import QUOTA_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
STALE_SHARE: Final = 0.03  # of releases, after which admission lags behind the watch (on 1.36: 2-4 %)


@contextmanager
def sandbox_process(quotas: Mapping[str, Mapping[str, str]], *, seed: int) -> Iterator[str]:
    """Serve namespaces with these quotas while the block runs; yields the URL.

    Raises ``OSError`` if the process cannot serve.
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


def _serve(parent: Connection, quotas: dict[str, dict[str, str]], seed: int) -> None:
    """The sandbox process. It ignores Ctrl-C: the parent handles it and ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        asyncio.run(_serve_until_closed(parent, quotas, seed))


async def _serve_until_closed(parent: Connection, quotas: dict[str, dict[str, str]], seed: int) -> None:
    closed = asyncio.Event()
    asyncio.get_running_loop().add_reader(parent.fileno(), closed.set)
    settings: dict[str, Any] = {"seed": seed}
    async with Sandbox(**settings) as sandbox:
        sandbox.faults.stale_admission_share = STALE_SHARE
        for namespace, hard in quotas.items():
            sandbox.create_namespace(namespace)
            sandbox.create_quota(namespace, QUOTA_NAME, hard)
        async with Kubelet(Server(sandbox.url), starts=False):
            parent.send(sandbox.url)
            await closed.wait()

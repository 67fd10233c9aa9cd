"""Informers: runs the Go program in ./informers; and a tap, a proxy between it and the server that can be shut."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cluster.control_plane.servers import Server
from tests.kit.patience import PATIENCE

Line = dict[str, Any]

_OBJECT_EVENTS: Final = frozenset({"add", "update", "delete"})


@dataclass
class Informers:
    """The informers' process, and the lines that they have printed."""

    process: asyncio.subprocess.Process
    lines: list[Line] = field(default_factory=list)

    async def until(self, holds: Callable[[list[Line]], bool]) -> None:
        """Read lines until ``holds`` for all of them. Raises ``AssertionError`` with the lines if it never does."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds(self.lines):
                    line = await self.process.stdout.readline()
                    assert line, f"the informers ended: {self.lines}"
                    self.lines.append(json.loads(line))
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE:g} s: {self.lines}") from None

    async def seen(self, what: str, name: str, count: int = 1, **more: Any) -> None:
        """Read lines until ``what`` was reported of the object at least ``count`` times."""
        wanted = {"what": what, "name": name, **more}
        await self.until(lambda lines: sum(wanted.items() <= line.items() for line in lines) >= count)

    async def asks(self, resource: str, last: list[str]) -> None:
        """Read lines until these are the last answered requests for a resource."""
        await self.until(lambda _: self.asked(resource)[-len(last) :] == last)

    def story(self, resource: str) -> list[Line]:
        """The events of the objects of one resource, in order; immediate repetitions are left out."""
        told = [line for line in self.lines if line.get("resource") == resource and line["what"] in _OBJECT_EVENTS]
        return [line for before, line in zip([None, *told], told, strict=False) if line != before]

    def asked(self, resource: str) -> list[str]:
        """The answered requests for a resource, in order."""
        return [line["verb"] for line in self.lines if line["what"] == "request" and line["resource"] == resource
                and line.get("code") == 200]  # fmt: skip


@asynccontextmanager
async def informers(
    program: Path, server: Server, namespace: str, *, streaming: bool, url: str = ""
) -> AsyncIterator[Informers]:
    """Run the program, through ``url`` if that is given, until the block ends."""
    command = [f"--kubeconfig={server.kubeconfig()}", f"--namespace={namespace}", "--for=15m", f"--server={url}"]
    process = await asyncio.create_subprocess_exec(
        program,
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "KUBE_FEATURE_WatchListClient": str(streaming).lower()},
    )
    try:
        yield Informers(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Tap:
    """A local port that forwards to a server while it is open; shutting it breaks all its connections."""

    def __init__(self, server: Server) -> None:
        """Forward to this server; ``tapped`` starts to listen."""
        self._to = urlsplit(server.url)
        self._running: set[asyncio.Task[None]] = set()
        self._open = True
        self.url = ""

    def shut(self) -> None:
        self._open = False
        for task in self._running:
            task.cancel()

    def open(self) -> None:
        self._open = True

    async def serve(self, inside: asyncio.StreamReader, outside: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        writers = [outside]
        try:
            if not self._open:
                return
            reader, writer = await asyncio.open_connection(self._to.hostname, self._to.port)
            writers.append(writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(inside, writer))
                both.create_task(_carry(reader, outside))
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            return  # the tap was shut, or one side disconnected: both are expected
        finally:
            self._running.discard(task)
            for each in writers:
                each.transport.abort()

    @asynccontextmanager
    async def tapped(self) -> AsyncIterator[Tap]:
        listener = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"{self._to.scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listener.close()
            self.shut()
            await asyncio.gather(*self._running, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one side has ended")

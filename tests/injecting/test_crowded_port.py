"""Those who crowd a port keep nobody else out: silent or asking, from one address or from many, with TLS or without."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web

from backoff_ctrl.api.connections import CONNECTIONS_MAX, NEWCOMER, Clients, serving_at
from backoff_ctrl.api.probes import probes
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import until
from tests.proxying.passing.certificates import make_pair
from tests.serve.serving import serving

ASKS = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
KUBELET = "127.0.0.2"
ONE = ["127.0.0.3"]
MANY = [f"127.0.1.{number}" for number in range(1, 65)]


async def metrics() -> bytes:
    return b""


@asynccontextmanager
async def port(tls: Path | None = None) -> AsyncIterator[str]:
    """Serve the probes of a process; yields where."""
    app = web.Application()
    app.add_routes(probes(lambda: (True, ["ok"]), metrics))
    async with AsyncExitStack() as ends, asyncio.timeout(PATIENCE):
        yield await serving_at(app, ("127.0.0.1", 0), "--listen", make_pair(tls).server() if tls else None, ends)


async def connected(url: str, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    number = int(url.rpartition(":")[2])
    return await asyncio.open_connection("127.0.0.1", number, local_addr=(address, 0))


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask whether the process lives. Raises ``EOFError`` or ``OSError``: the connection was ended."""
    writer.write(ASKS)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length"))
    await reader.readexactly(int(length.partition(b":")[2]))


async def probed(url: str) -> bool:
    """Return what the kubelet finds, which connects anew for each probe."""
    reader, writer = await connected(url, KUBELET)
    try:
        await asked(reader, writer)
    except (EOFError, OSError):
        return False
    finally:
        writer.close()
    return True


@asynccontextmanager
async def beside(*work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Do each again and again until the end of the block."""

    async def repeated(each: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(EOFError, OSError):
                await each()

    tasks = [asyncio.ensure_future(repeated(each)) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("tls", [False, True])
async def test_more_silent_connections_than_may_be_leave_probes_answered(tls: bool, tmp_path: Path) -> None:
    """1,100 were as many as a process may have files open."""
    async with port(tmp_path if tls else None) as url, AsyncExitStack() as ends:
        number = int(url.rpartition(":")[2])
        async with ClientSession(connector=TCPConnector(ssl=False)) as kubelet:
            assert (await kubelet.get(f"{url}/livez")).status == 200
            silent: list[socket.socket] = []
            for count in range(CONNECTIONS_MAX + 50):
                silent.append(ends.enter_context(socket.create_connection(("127.0.0.1", number), timeout=PATIENCE)))
                if count % 16 == 0:
                    await asyncio.sleep(0)  # the server accepts
            assert (await kubelet.get(f"{url}/livez")).status == 200
        assert await asyncio.to_thread(silent[0].recv, 1) == b"", "the oldest was ended"
        async with ClientSession(connector=TCPConnector(ssl=False)) as other:
            assert (await other.get(f"{url}/livez")).status == 200


@pytest.mark.long
@pytest.mark.parametrize("addresses", [ONE, MANY], ids=["one address", "many addresses"])
async def test_clients_that_are_answered_keep_no_probe_out(addresses: list[str]) -> None:
    """They keep all connections, ask on each, and four more connect again and again.

    Those of one address end none of another, such as an API server's, which asks rarely.
    """
    kept: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def again() -> None:
        for address in addresses[:4]:
            reader, writer = await connected(url, address)
            try:
                await asked(reader, writer)
            finally:
                writer.close()

    async with port() as url:
        server = await connected(url, "127.0.0.4")
        await asked(*server)
        for number in range(CONNECTIONS_MAX):
            kept.append(await connected(url, addresses[number % len(addresses)]))
            await asked(*kept[-1])

        async def ask_on_all() -> None:
            for each in kept:
                await asyncio.sleep(0)
                with suppress(EOFError, OSError):
                    await asked(*each)

        async with beside(ask_on_all, *[again] * 4):
            found = [await probed(url) for _ in range(60)]
            if addresses == ONE:
                await asked(*server)
        for _, writer in (server, *kept):
            writer.close()
    assert all(found), f"{found.count(False)} of {len(found)} probes failed"


@pytest.mark.long
@pytest.mark.parametrize("addresses", [ONE, MANY], ids=["one address", "many addresses"])
async def test_a_flood_of_connections_ends_none_that_was_answered(addresses: list[str]) -> None:
    """An API server keeps its connection for its next review."""
    flood: list[asyncio.StreamWriter] = []
    async with port() as url:
        server = await connected(url, KUBELET)
        await asked(*server)
        clock = asyncio.get_running_loop().time
        begun = clock()
        while clock() < begun + 2 * NEWCOMER or len(flood) < 4 * CONNECTIONS_MAX:
            flood.append((await connected(url, addresses[len(flood) % len(addresses)]))[1])
            if len(flood) >= 8 * CONNECTIONS_MAX:  # so many at most are open here
                for writer in flood[:CONNECTIONS_MAX]:
                    writer.close()
                del flood[:CONNECTIONS_MAX]
        await asked(*server)
        assert await probed(url)
        for writer in (*flood, server[1]):
            writer.close()


async def test_a_connection_that_is_closed_is_forgotten_with_the_next() -> None:
    clients = Clients()

    class Protocol(asyncio.Protocol):
        """One that can be referred to weakly."""

    made: list[weakref.ref[Protocol]] = []

    def make() -> Protocol:
        protocol = Protocol()
        made.append(weakref.ref(protocol))
        return protocol

    with socket.create_server(("127.0.0.1", 0)) as bound:
        clients.open(bound, make, None)
        for number in range(1, 5):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            await until(lambda number=number: len(made) == number)  # type: ignore[misc]
            writer.close()
            await writer.wait_closed()
            await until(lambda: gc.collect() >= 0 and sum(each() is not None for each in made) <= 1)
        clients.close()


@pytest.mark.long
async def test_serve_answers_beside_silent_connections() -> None:
    """More than it takes: uvicorn's own limit would answer 503 to all that come later."""
    with running_sandbox() as sandbox, serving("--apiserver", sandbox.url) as url:
        silent = [await connected(url, ONE[0]) for _ in range(600)]
        assert await probed(url)
        for _, writer in silent:
            writer.close()

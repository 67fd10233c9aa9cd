"""A probe that comes while a server still loads waits for its answer: a refused one is a warning on the pod."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import ClientSession, web

from backoff_ctrl.api.connections import serving_at
from backoff_ctrl.early import listen_early, listening_early
from tests.patience import PATIENCE

LOADS_LATE = """
import sys
from importlib.abc import MetaPathFinder

class Waits(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "backoff_ctrl.api.main":
            sys.stdin.readline()

sys.meta_path.insert(0, Waits())
from backoff_ctrl.__main__ import main
main()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


@asynccontextmanager
async def loading(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command line; it loads once its input has a line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOADS_LATE, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as the program has begun."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)


@pytest.mark.long
async def test_the_first_probe_of_a_sidecar_finds_it_started() -> None:
    """It connects before the program is loaded, and its answer is not "not yet" either."""
    port = free_port()
    listens = ("--listen=127.0.0.1:0", f"--probe-listen=127.0.0.1:{port}", "--listen-first")
    async with loading("proxy", *listens, "--apiserver=http://127.0.0.1:9") as process:
        reader, writer = await connected(port)
        writer.write(b"GET /startupz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert process.stdin is not None
        process.stdin.write(b"\n")
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


@pytest.mark.parametrize("words", [["--probe-listen=127.0.0.1:PORT"], ["--probe-listen", "127.0.0.1:PORT"]])
async def test_an_application_takes_the_socket_over(words: list[str]) -> None:
    """The probes of operator and webhooks are such applications."""
    port = free_port()
    listen_early([each.replace("PORT", str(port)) for each in words])
    app = web.Application()
    app.router.add_get("/livez", _ok)
    async with AsyncExitStack() as ends, ClientSession() as session:
        asked = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/livez"))
        await serving_at(app, ("127.0.0.1", port), None, ends)
        async with asyncio.timeout(PATIENCE), await asked as answer:
            assert answer.status == 200
    assert listening_early("127.0.0.1", port) is None


async def _ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--probe-listen=127.0.0.1:PORT", "--reuse-port"],
        ["--probe-listen=127.0.0.1:PORT", "--probe-listen=127.0.0.1:1"],
        ["--probe-listen=127.0.0.1"],
        ["--probe-listen=127.0.0.1:0"],
        ["--probe-listen=127.0.0.1:99999"],
        ["--probe-listen=not an address:PORT"],
    ],
)
def test_what_the_command_has_to_judge_is_left_to_it(given: list[str]) -> None:
    """A shared port, several, and what is no address."""
    port = free_port()
    listen_early([each.replace("PORT", str(port)) for each in given])
    assert listening_early("127.0.0.1", port) is None
    assert listening_early("127.0.0.1", 0) is None

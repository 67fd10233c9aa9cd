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
from backoff_ctrl.api.status.listening import bind
from backoff_ctrl.early import listen_early, listening_early
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import scripted_server

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


@pytest.mark.long
async def test_the_first_probe_of_the_page_waits_for_its_answer() -> None:
    """Probes ask at the address of everybody."""
    port = free_port()
    with scripted_server(lambda _: (200, {"gitVersion": "v1.36.0"})) as script:
        async with loading("serve", f"--listen=127.0.0.1:{port}", "--apiserver", script.url) as process:
            reader, writer = await connected(port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert process.stdin is not None
            process.stdin.write(b"\n")
            async with asyncio.timeout(PATIENCE):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()


def test_the_socket_of_the_page_is_as_if_it_had_been_opened_late() -> None:
    """Connections without delay, to both families, and none for a client that reads nothing."""
    port = free_port()
    listen_early("serve", [f"--listen=[::1]:{port}"])
    with bind("::1", port) as early, bind("::1", 0) as late:
        assert early.getsockname()[1] == port
        for level, option in (
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            (socket.SOL_SOCKET, socket.SO_REUSEADDR),
            (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
        ):
            assert early.getsockopt(level, option) == late.getsockopt(level, option)
        assert early.proto == late.proto == socket.IPPROTO_TCP
    listen_early("serve", [f"--probe-listen=127.0.0.1:{port}"])
    assert listening_early("127.0.0.1", port) is None


@pytest.mark.parametrize("words", [["--probe-listen=127.0.0.1:PORT"], ["--probe-listen", "127.0.0.1:PORT"]])
async def test_an_application_takes_the_socket_over(words: list[str]) -> None:
    """The probes of operator and webhooks are such applications."""
    port = free_port()
    listen_early("operator", [each.replace("PORT", str(port)) for each in words])
    app = web.Application()
    app.router.add_get("/livez", _ok)
    async with AsyncExitStack() as ends, ClientSession() as session:
        asked = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/livez"))
        await serving_at(app, ("127.0.0.1", port), "--probe-listen", None, ends)
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
    listen_early("operator", [each.replace("PORT", str(port)) for each in given])
    assert listening_early("127.0.0.1", port) is None
    assert listening_early("127.0.0.1", 0) is None

"""TLS on either side behaves as a bare connection does: it streams, slows down and ends; and it trusts nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.proxy.http import transports as layer
from backoff_ctrl.k8s.proxy.passing import Limits
from backoff_ctrl.k8s.proxy.place import Material, Place
from tests.proxying.passing.certificates import make_pair
from tests.proxying.passing.wire import GET, OK, PATIENCE, Chosen, Side, proxied, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Any

    from tests.proxying.passing.wire import Proxied

CREATE = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"


class Encrypted:
    """A proxy with TLS on both sides."""

    def __init__(self, proxy: Proxied, client: ssl.SSLContext) -> None:
        """Connect to it as ``client``."""
        self.proxy = proxy
        self._client = client

    async def caller(self, sent: bytes = b"") -> Side:
        """Connect, and send."""
        return await self.proxy.caller(self._client, sent)

    async def pair(self, sent: bytes) -> tuple[Side, Side]:
        """Connect and send; return the caller, and the connection to the upstream that is made for it."""
        return await self.caller(sent), await self.proxy.upstream.connection()


@asynccontextmanager
async def encrypted(folder: Path, creates: Any = None, limits: Limits | None = None) -> AsyncIterator[Encrypted]:
    """Run one before an upstream that the test plays."""
    ours, theirs = make_pair(folder / "ours"), make_pair(folder / "theirs")

    def place(port: int) -> Place:
        return Place("127.0.0.1", port, True, authority=Material(theirs.certificate))

    async with proxied(creates, limits, ours.server(), theirs.server(), place) as proxy:
        yield Encrypted(proxy, ours.client())


async def test_bodies_of_all_sizes_arrive_in_both_directions(tmp_path: Path) -> None:
    """Around the length of a record, and many of them; the connections are kept."""
    async with encrypted(tmp_path) as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(OK)
        await caller.gets(OK)
        for size in (1, 16383, 16384, 16385, 3_000_000):
            body = bytes(index % 251 for index in range(size))
            caller.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + body)
            await server.head()
            await server.gets(body)
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body
            server.send(answer)
            await caller.gets(answer)
        assert proxy.proxy.upstream.arrived.empty()


async def test_who_reads_slowly_slows_its_writer(tmp_path: Path) -> None:
    """On either side; then it goes on where it was."""
    async with encrypted(tmp_path) as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        size = 64 * 2**20
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        await caller.head()
        await server.floods(bytes(2**16))
        async with asyncio.timeout(PATIENCE):
            await caller.reader.readexactly(2**20)
        uploader, other = await proxy.pair(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        await other.head()
        await uploader.floods(bytes(2**16))
        async with asyncio.timeout(PATIENCE):
            await other.reader.readexactly(2**20)


@pytest.mark.parametrize("says_so", [True, False])
async def test_the_end_of_a_caller_gives_its_create_up(tmp_path: Path, says_so: bool) -> None:
    """Whether TLS ends with it, or the connection alone."""
    creates = Chosen()
    async with encrypted(tmp_path, creates) as proxy:
        caller = await proxy.caller(CREATE)
        await creates.asked.get()
        if says_so:
            await caller.close()
        else:
            caller.writer.transport.abort()
        await until(lambda: creates.given_up)
        await until(lambda: not proxy.proxy.shared.callers)


async def test_the_answer_arrives_before_the_end(tmp_path: Path) -> None:
    """What the caller still sends is thrown away: it does not reset the connection before the answer was read."""
    async with encrypted(tmp_path) as proxy:
        caller = await proxy.caller(b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(8):
            caller.send(bytes(2**16))
        assert (await caller.head()).startswith(b"HTTP/1.1 400 ")
        assert (await caller.rest()).startswith(b"{")
        await caller.close()
        await until(lambda: not proxy.proxy.shared.callers)
        caller, server = await proxy.pair(GET.replace(b"Host", b"Connection: close\r\nHost") + bytes(2**20))
        await server.head()
        server.send(OK)
        assert b"Connection: close" in await caller.head()
        assert await caller.rest() == b"ok"
        await caller.close()
        await until(lambda: not proxy.proxy.shared.callers)


async def test_a_side_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that was refused, and holds its connection open."""
    monkeypatch.setattr(layer, "END_MAX", 0.1)
    async with encrypted(tmp_path) as proxy:
        ours = make_pair(tmp_path / "unused").client()
        ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE

        def call() -> bytes:
            """Read no further than the answer, until the proxy has no caller any more."""
            with (
                socket.create_connection(("127.0.0.1", proxy.proxy.port)) as bare,
                ours.wrap_socket(bare) as caller,
            ):
                caller.sendall(b"nonsense\r\n\r\n")
                got = caller.recv(12)
                while proxy.proxy.shared.callers:
                    pass
                return got

        assert await asyncio.wait_for(asyncio.to_thread(call), PATIENCE) == b"HTTP/1.1 400"


async def test_a_tunnel_within_tls(tmp_path: Path) -> None:
    """Bytes pass in both directions; the end of one side is the end of both, for TLS knows no half."""
    async with encrypted(tmp_path) as proxy:
        caller, server = await proxy.pair(
            b"POST /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nearly"
        )
        await server.head()
        switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        server.send(switched + b"back")
        await caller.gets(switched + b"back")
        await server.gets(b"early")
        for side, other in ((caller, server), (server, caller)):
            side.send(b"x" * 100_000)
            await other.gets(b"x" * 100_000)
        await server.close()
        await caller.ended()


async def test_a_server_that_is_cut_off_has_not_ended_its_answer(tmp_path: Path) -> None:
    """Without a length, TLS alone tells the end of an answer from that of a connection that someone else has cut."""
    begin = b"HTTP/1.1 200 OK\r\n\r\nbegin"
    creates = Chosen()
    async with encrypted(tmp_path, creates) as proxy:
        for says_so in (True, False):
            caller, server = await proxy.pair(b"DELETE /api/v1/pods HTTP/1.1\r\nHost: a\r\n\r\n")
            await server.head()
            server.send(begin)
            await caller.gets(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegin")
            if says_so:
                server.writer.close()
            else:
                with _below(server) as bare:
                    bare.shutdown(socket.SHUT_WR)
            await caller.ended()
        assert len(creates.seen) == 1


async def test_garbage_ends_its_own_connection_alone(tmp_path: Path) -> None:
    """A record that was tampered with, in the middle of a request: the server hears nothing of it."""
    async with encrypted(tmp_path) as proxy:
        good, server = await proxy.pair(GET)
        bad, other = await proxy.pair(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        await server.head()
        await other.head()
        with _below(bad) as bare:
            bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        await other.ended()
        server.send(OK)
        await good.gets(OK)


def _below(side: Side) -> socket.socket:
    """Return the socket below a connection with TLS, to do to it what others on its way could."""
    return socket.socket(fileno=os.dup(side.writer.get_extra_info("socket").fileno()))


async def _bare(proxy: Encrypted) -> Side:
    """Connect without TLS."""
    return await proxy.proxy.caller()


async def test_a_handshake_takes_no_longer_than_a_head_may(tmp_path: Path) -> None:
    """Who says nothing, or HTTP without TLS, is not kept; who tries TLS in vain hears so."""
    async with encrypted(tmp_path, limits=Limits(head_s=0.1)) as proxy:
        silent, plain, broken = await _bare(proxy), await _bare(proxy), await _bare(proxy)
        plain.send(GET)
        assert b"HTTP" not in await plain.rest()
        broken.send(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00")
        assert (await broken.rest()).startswith(b"\x15\x03")  # an alert
        await silent.ended()
        assert not proxy.proxy.shared.callers


async def test_a_handshake_may_come_in_pieces_and_the_end_without_one(tmp_path: Path) -> None:
    """Byte by byte, the first request in the same piece as its end. The end of TLS is one, even if TCP does not end."""
    pair = make_pair(tmp_path / "ours")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = pair.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    creates = Chosen()
    async with proxied(creates, tls=pair.server()) as proxy:
        bare = await proxy.caller()
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    bare.send(bytes([byte]))
                    await asyncio.sleep(0)
                incoming.write(await bare.reader.read(65536))
        client.write(CREATE)
        bare.send(outgoing.read())
        request, _ = await creates.asked.get()
        assert request.body == b"body"
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()
        bare.send(outgoing.read())
        await until(lambda: creates.given_up)


@pytest.mark.parametrize(
    ("name", "authority", "sentence"),
    [
        ("elsewhere", "theirs", b"its certificate is not trusted (Hostname mismatch"),
        ("localhost", "ours", b"its certificate is not trusted (self-signed certificate)"),
        ("localhost", "plain", b"TLS failed (WRONG_VERSION_NUMBER)"),
        ("localhost", "closed", b"it closes the connection at once"),
    ],
)
async def test_a_server_that_is_not_trusted_gets_no_request(
    tmp_path: Path, name: str, authority: str, sentence: bytes
) -> None:
    """Another name, another authority, no TLS at all: the caller is told, and nothing was sent."""
    pairs = {each: make_pair(tmp_path / each) for each in ("ours", "theirs")}
    trusted = pairs.get(authority, pairs["theirs"])
    context = None if authority in {"plain", "closed"} else pairs["theirs"].server()

    def place(port: int) -> Place:
        return Place("127.0.0.1", port, True, authority=Material(trusted.certificate), server_name=name)

    async with proxied(upstream_tls=context, place=place) as proxy:
        caller = await proxy.caller(sent=GET)
        if context is None:
            server = await proxy.upstream.connection()
            if authority == "plain":
                server.send(OK)
            else:
                await server.reader.read(1000)
                await server.close()
        assert (await caller.head()).startswith(b"HTTP/1.1 503 ")
        assert sentence in await caller.reader.read(1000)
        assert context is None or proxy.upstream.arrived.empty()

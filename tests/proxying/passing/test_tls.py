"""TLS on either side: it behaves as a bare connection does, trusts nobody else, and is renewed."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.sidecar import upstream
from backoff_ctrl.k8s.sidecar.http import transports as layer
from backoff_ctrl.k8s.sidecar.passing import Limits
from backoff_ctrl.k8s.sidecar.place import Material, Place, place_at
from tests.kit.patience import PATIENCE
from tests.proxying.passing.certificates import Pair, make_pair
from tests.proxying.passing.wire import GET, OK, Chosen, Proxied, answered, below, idle, proxied, until

CREATE = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"


def _https(trusted: Pair, **more: Any) -> Callable[[int], Place]:
    """Return the server at a port of loopback, by whom it trusts."""
    return lambda port: Place("127.0.0.1", port, True, authority=Material(trusted.certificate), **more)


@asynccontextmanager
async def encrypted(folder: Path, creates: Any = None, limits: Limits | None = None) -> AsyncIterator[Proxied]:
    """A proxy with TLS on both sides."""
    ours, theirs = make_pair(folder / "ours"), make_pair(folder / "theirs")
    async with proxied(creates, limits, ours.server(), theirs.server(), _https(theirs)) as proxy:
        proxy.client = ours.client()
        yield proxy


async def test_bodies_of_all_sizes_arrive_in_both_directions(tmp_path: Path) -> None:
    """Around the length of a record, and many of them; the connections are kept."""
    async with encrypted(tmp_path) as proxy:
        caller, server = await proxy.pair(GET)
        assert server.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1", "all that is offered"
        await answered(caller, server)
        for size in (1, 16383, 16384, 16385, 3_000_000):
            body = bytes(index % 251 for index in range(size))
            caller.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + body)
            await server.head()
            await server.gets(body)
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body
            server.send(answer)
            await caller.gets(answer)
        assert proxy.upstream.arrived.empty()


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
        caller = await proxy.caller(sent=CREATE)
        await creates.asked.get()
        if says_so:
            await caller.close()
        else:
            caller.writer.transport.abort()
        await until(lambda: creates.given_up)
        await until(lambda: not proxy.shared.callers)


async def test_the_answer_arrives_before_the_end(tmp_path: Path) -> None:
    """What the caller still sends is thrown away: it does not reset the connection before the answer was read."""
    async with encrypted(tmp_path) as proxy:
        caller = await proxy.caller(sent=b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(8):
            caller.send(bytes(2**16))
        assert (await caller.head()).startswith(b"HTTP/1.1 400 ")
        assert (await caller.rest()).startswith(b"{")
        await caller.close()
        await until(lambda: not proxy.shared.callers)
        caller, server = await proxy.pair(GET.replace(b"Host", b"Connection: close\r\nHost") + bytes(2**20))
        await server.head()
        server.send(OK)
        assert b"Connection: close" in await caller.head()
        assert await caller.rest() == b"ok"
        await caller.close()
        await until(lambda: not proxy.shared.callers)


async def test_a_side_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that was refused, and holds its connection open."""
    monkeypatch.setattr(layer, "END_MAX", 0.1)
    async with encrypted(tmp_path) as proxy:
        ours = make_pair(tmp_path / "unused").client()
        ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE

        def call() -> bytes:
            """Read no further than the answer, until the proxy has no caller any more."""
            with (
                socket.create_connection(("127.0.0.1", proxy.port)) as bare,
                ours.wrap_socket(bare) as caller,
            ):
                caller.sendall(b"nonsense\r\n\r\n")
                got = caller.recv(12)
                while proxy.shared.callers:
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
                with below(server) as bare:
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
        with below(bad) as bare:
            bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        await other.ended()
        server.send(OK)
        await good.gets(OK)


async def test_a_handshake_takes_no_longer_than_a_head_may(tmp_path: Path) -> None:
    """Who says nothing, or HTTP without TLS, is not kept; who tries TLS in vain hears so."""
    async with encrypted(tmp_path, limits=Limits(head_s=0.1)) as proxy:
        silent, plain, broken = [await proxy.caller(bare=True) for _ in range(3)]
        plain.send(GET)
        assert b"HTTP" not in await plain.rest()
        broken.send(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00")
        assert (await broken.rest()).startswith(b"\x15\x03")  # an alert
        await silent.ended()
        assert not proxy.shared.callers


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
    async with proxied(upstream_tls=context, place=_https(trusted, server_name=name)) as proxy:
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


async def test_certificates_are_read_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authority of the server is replaced while the proxy runs."""
    monkeypatch.setattr(upstream, "_LOOK_AGAIN", 0.0)
    first, second = make_pair(tmp_path / "first"), make_pair(tmp_path / "second")
    trusted = Pair(tmp_path / "ca.crt", first.key)
    trusted.certificate.write_bytes(first.certificate.read_bytes())
    async with proxied(upstream_tls=first.server(), place=_https(trusted)) as proxy:
        await idle(proxy)
        await proxy.upstream.stop()
        await proxy.upstream.listen(second.server())
        caller = await proxy.caller(sent=GET)
        assert (await caller.head()).startswith(b"HTTP/1.1 503 ")
        new = tmp_path / "new.crt"
        new.write_bytes(second.certificate.read_bytes())
        new.replace(trusted.certificate)
        again = await proxy.caller(sent=GET)
        await answered(again, await proxy.upstream.connection())


@pytest.mark.parametrize("use_own", [False, True])
async def test_own_credentials_are_for_requests_without_any(tmp_path: Path, use_own: bool) -> None:
    """And only on demand. A certificate speaks for a whole connection: callers with a token never share one."""
    server_pair, mine = make_pair(tmp_path / "server"), make_pair(tmp_path / "mine", "proxy")
    token = tmp_path / "token"
    token.write_text("first\n")
    place = _https(server_pair, certificate=Material(mine.certificate), key=Material(mine.key), token=Material(token))
    async with proxied(upstream_tls=server_pair.server(mine), place=place, use_own=use_own) as proxy:
        with_token = GET.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer theirs\r\n\r\n")
        caller, server = await proxy.pair(with_token)
        assert server.writer.get_extra_info("peercert") in ({}, None)
        assert b"Bearer theirs\r\n" in await server.head()
        server.send(OK)
        await caller.gets(OK)
        caller.send(GET)
        if use_own:
            server = await proxy.upstream.connection()
            assert server.writer.get_extra_info("peercert")
        head = await server.head()
        assert (b"\r\nAuthorization: Bearer first\r\n" in head) == use_own
        assert b"theirs" not in head
        server.send(OK)
        await caller.gets(OK)
        new = tmp_path / "new"
        new.write_text("second")
        new.replace(token)
        caller.send(GET)
        assert (b"\r\nAuthorization: Bearer second\r\n" in await server.head()) == use_own


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
async def test_a_caller_that_nobody_knows_is_told_why(status: bytes) -> None:
    """Its certificate did not come along; kubectl prints such warnings."""
    body = b'{"message":"User \\"system:anonymous\\" cannot list"}'
    answer = b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(answer)
        assert b"\r\nWarning: 299 backoff-ctrl " in await caller.head()
        await caller.gets(body)
        caller.send(GET.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer t\r\n\r\n"))
        await server.head()
        server.send(answer)
        await caller.gets(answer)


async def test_the_path_of_the_address_is_kept() -> None:
    """As for a cluster behind a gateway; basic credentials pass."""
    async with proxied(place=lambda port: place_at(f"http://127.0.0.1:{port}/k8s/c-1/")) as proxy:
        basic = b"Authorization: Basic " + base64.b64encode(b"a:b")
        _, server = await proxy.pair(GET.replace(b"\r\n\r\n", b"\r\n" + basic + b"\r\n\r\n"))
        head = await server.head()
        assert head.startswith(b"GET /k8s/c-1/api HTTP/1.1\r\n")
        assert basic in head
        await until(lambda: proxy.shared.counts.passed)

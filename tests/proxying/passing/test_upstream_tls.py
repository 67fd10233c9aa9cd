"""TLS towards the API server and its rotation, and whose credentials a request carries."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.proxy import upstream
from backoff_ctrl.k8s.proxy.place import Material, Place, place_at
from tests.proxying.passing.certificates import Pair, make_pair
from tests.proxying.passing.wire import GET, OK, Proxied, proxied, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proxying.passing.wire import Side


async def _answered(caller: Side, server: Side) -> None:
    """Answer a request, so that its connection is kept."""
    await server.head()
    server.send(OK)
    await caller.gets(OK)


async def _idle(proxy: Proxied) -> Side:
    """Leave one idle connection to the server, and return the server's end of it."""
    caller, server = await proxy.pair(GET)
    await _answered(caller, server)
    await caller.close()
    return server


def _https(trusted: Pair, **more: Any) -> Callable[[int], Place]:
    """Return the server at a port of loopback, by whom it trusts."""
    return lambda port: Place("127.0.0.1", port, True, authority=Material(trusted.certificate), **more)


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    """HTTP/1.1 alone is offered to the server, and to the caller."""
    ours, theirs = make_pair(tmp_path / "ours"), make_pair(tmp_path / "theirs")
    async with proxied(tls=ours.server(), upstream_tls=theirs.server(), place=_https(theirs)) as proxy:
        caller = await proxy.caller(ours.client(), GET)
        server = await proxy.upstream.connection()
        assert server.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        await _answered(caller, server)
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)
        caller.send(GET)
        await server.head()
        server.send(body)
        await caller.gets(body)


async def test_certificates_are_read_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authority of the server is replaced while the proxy runs."""
    monkeypatch.setattr(upstream, "_LOOK_AGAIN", 0.0)
    first, second = make_pair(tmp_path / "first"), make_pair(tmp_path / "second")
    trusted = Pair(tmp_path / "ca.crt", first.key)
    trusted.certificate.write_bytes(first.certificate.read_bytes())
    async with proxied(upstream_tls=first.server(), place=_https(trusted)) as proxy:
        await _idle(proxy)
        await proxy.upstream.stop()
        await proxy.upstream.listen(second.server())
        caller = await proxy.caller(sent=GET)
        assert (await caller.head()).startswith(b"HTTP/1.1 503 ")
        new = tmp_path / "new.crt"
        new.write_bytes(second.certificate.read_bytes())
        new.replace(trusted.certificate)
        again = await proxy.caller(sent=GET)
        await _answered(again, await proxy.upstream.connection())


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

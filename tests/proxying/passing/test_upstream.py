"""The way to the API server: kept connections, restarts, tunnels, whole requests."""

from __future__ import annotations

import asyncio
import gc

import pytest

from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.sidecar.http.answers import WholeBody
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request
from backoff_ctrl.k8s.sidecar.http.writing import whole_request
from tests.proxying.passing.wire import GET, OK, answered, idle, proxied, until

POST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
LIST = Request(Head(b"GET", b"/api", [(b"Accept", b"a/b"), (b"Connection", b"X-Y"), (b"X-Y", b"1")]), b"")
CREATE = Request(Head(b"POST", b"/pods", [(b"Content-Type", b"a/b"), (b"Content-Length", b"9")]), b"body")


async def test_a_write_looks_first_whether_its_connection_has_ended() -> None:
    """The end has come, but this process has not read it yet: the write goes on a new connection."""
    async with proxied() as proxy:
        kept = await idle(proxy)
        connection = proxy.shared.server.way(has_credentials=False)[0].take(careful=False)
        assert connection is not None
        assert connection.silent()
        connection.hold()
        await kept.close()
        await until(lambda: not connection.silent())


@pytest.mark.parametrize("request_", [GET, POST])
async def test_a_connection_that_the_server_closed_is_not_used(request_: bytes) -> None:
    """A restart while nothing was on its way is not noticed, whatever comes next."""
    async with proxied() as proxy:
        await idle(proxy)
        await proxy.upstream.stop()
        await proxy.upstream.listen()
        caller, server = await proxy.pair(request_)
        await server.head()
        if request_ is POST:
            await server.gets(b"hi")
        server.send(OK)
        await caller.gets(OK)


async def test_a_read_is_sent_once_more_if_a_kept_connection_ends_unanswered() -> None:
    """The server closed it as the request was on its way; on a new connection it is not repeated."""
    async with proxied() as proxy:
        kept = await idle(proxy)
        caller = await proxy.caller(sent=GET)
        await kept.head()
        await kept.close()
        server = await proxy.upstream.connection()
        await server.head()
        await server.close()
        assert (await caller.head()).startswith(b"HTTP/1.1 502 ")
        assert proxy.upstream.arrived.empty()


async def test_a_write_is_never_sent_twice() -> None:
    """Nobody knows what the server did with it."""
    async with proxied() as proxy:
        kept = await idle(proxy)
        caller = await proxy.caller(sent=POST)
        await kept.head()
        await kept.close()
        assert (await caller.head()).startswith(b"HTTP/1.1 502 ")
        assert proxy.upstream.arrived.empty()


async def test_a_server_that_is_down_is_a_503_to_be_repeated() -> None:
    """Nothing was sent, so that clients may repeat even a create; after the restart all is well."""
    async with proxied() as proxy:
        await proxy.upstream.stop()
        caller = await proxy.caller(sent=POST)
        head = await caller.head()
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in head
        body = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        assert b"the request was not sent: Connection refused" in await caller.reader.readexactly(body)
        await proxy.upstream.listen()
        caller.send(GET)
        await answered(caller, await proxy.upstream.connection())


async def test_a_tunnel_is_bytes_in_both_directions() -> None:
    """Also those that come early on either side; each half ends by itself."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(
            b"POST /pods/a/exec?command=sh HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nearly"
        )
        head = await server.head()
        assert head.endswith(
            b"\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        )
        server.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\nX-P: 1\r\n\r\nsoon"
        )
        assert await caller.head() == (
            b"HTTP/1.1 101 Switching Protocols\r\nX-P: 1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        )
        await caller.gets(b"soon")
        await server.gets(b"early")
        for data in (b"\0\xffGET / HTTP/1.1\r\n\r\n", b"x" * 500_000):
            caller.send(data)
            await server.gets(data)
            server.send(data)
            await caller.gets(data)
        caller.writer.write_eof()
        await server.ended()
        server.send(b"last words")
        await server.close()
        assert await caller.rest() == b"last words"


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
async def test_a_switch_that_is_declined_leaves_http(upgrade: bytes) -> None:
    """What the caller sent behind it is its next request; h2c is not even asked for."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(
            b"GET /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
            + upgrade
            + b"\r\n\r\n"
            + GET
        )
        assert (b"Upgrade: " + upgrade in await server.head()) == (upgrade == b"websocket")
        server.send(OK)
        await caller.gets(OK)
        assert (await server.head()).startswith(b"GET /api ")
        server.send(OK)
        await caller.gets(OK)


async def test_a_slow_end_of_a_tunnel_slows_the_other() -> None:
    """In both directions."""
    upgrade = b"GET /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    async with proxied() as proxy:
        for one in ("caller", "server"):
            caller, server = await proxy.pair(upgrade)
            await server.head()
            server.send(switched)
            await caller.head()
            await (caller if one == "caller" else server).floods(b"x" * 2**20)


async def test_a_whole_request_and_its_answer() -> None:
    """Framed anew, without what concerns the connection; chunks are taken off the answer."""
    async with proxied() as proxy:
        asked = asyncio.create_task(proxy.shared.server.ask(CREATE))
        server = await proxy.upstream.connection()
        await server.gets(
            b"POST /pods HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: a/b\r\nContent-Length: 4\r\n\r\nbody"
            % proxy.upstream.port
        )
        server.send(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        server.send(b"3\r\nabc\r\n")
        server.send(b"0\r\n\r\n")
        response = await asked
        assert (response.status, response.reason, response.headers, response.body) == (
            201,
            b"Created",
            [(b"X-A", b"1")],
            b"abc",
        )
        listed = asyncio.create_task(proxy.shared.server.ask(LIST))
        assert (
            await server.head()
            == b"GET /api HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: a/b\r\n\r\n" % proxy.upstream.port
        )
        server.send(OK)
        assert (await listed).body == b"ok"


async def test_not_sent_and_outcome_unknown_are_told_apart() -> None:
    """No connection: it was not sent. Anything else without a whole answer: nobody knows."""
    async with proxied() as proxy:
        server_of = proxy.shared.server
        for answer in (
            b"",
            b"HTTP/1.1 201 Cre",
            b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nab",
            b"junk\r\n\r\n",
        ):
            asked = asyncio.create_task(server_of.ask(CREATE))
            server = await proxy.upstream.connection()
            await server.head()
            server.send(answer)
            await server.close()
            with pytest.raises(OutcomeUnknown):
                await asked
        long = asyncio.create_task(server_of.ask(CREATE, limit=10))
        server = await proxy.upstream.connection()
        await server.head()
        server.send(b"HTTP/1.1 201 Created\r\nContent-Length: 90\r\n\r\n" + b"x" * 90)
        with pytest.raises(OutcomeUnknown):
            await long
        kept = await idle(proxy)
        again = asyncio.create_task(server_of.ask(CREATE))
        await kept.head()
        await kept.close()
        with pytest.raises(OutcomeUnknown):
            await again
        await proxy.upstream.stop()
        with pytest.raises(NotSent):
            await server_of.ask(CREATE)


async def test_a_cancelled_request_closes_its_connection() -> None:
    """Its answer must not become that of the next."""
    async with proxied() as proxy:
        asked = asyncio.create_task(proxy.shared.server.ask(CREATE))
        server = await proxy.upstream.connection()
        await server.head()
        asked.cancel()
        await server.gets(b"body")
        await server.ended()


async def test_a_whole_request_leaves_out_what_any_connection_header_names() -> None:
    """As a request that passes does; there may be several."""
    headers = [
        (b"Connection", b"keep-alive, X-A"),
        (b"connection", b"X-B"),
        (b"X-B", b"2"),
        (b"X-C", b"3"),
        (b"X-A", b"1"),
    ]
    sent = whole_request(Request(Head(b"POST", b"/pods", headers), b"{}"), b"h:1", b"", ())
    assert sent == b"POST /pods HTTP/1.1\r\nHost: h:1\r\nX-C: 3\r\nContent-Length: 2\r\n\r\n{}"


async def test_whole_requests_survive_a_closed_connection() -> None:
    """Reads are sent once more, creates go on a connection that is known to be open."""
    async with proxied() as proxy:
        kept = await idle(proxy)
        asked = asyncio.create_task(proxy.shared.server.ask(LIST))
        await kept.head()
        await kept.close()
        server = await proxy.upstream.connection()
        await server.head()
        server.send(OK)
        assert (await asked).body == b"ok"


async def test_an_answer_that_was_read_is_gone_at_once() -> None:
    """Parser and reader hold each other in no cycle, which would wait for a collection."""
    async with proxied() as proxy:
        gc.collect()
        gc.disable()
        try:
            asked = asyncio.create_task(proxy.shared.server.ask(LIST))
            server = await proxy.upstream.connection()
            await server.head()
            server.send(OK)
            assert (await asked).body == b"ok"
            assert not any(isinstance(each, WholeBody) for each in gc.get_objects())
        finally:
            gc.enable()

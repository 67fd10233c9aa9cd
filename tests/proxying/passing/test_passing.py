"""What passes arrives as it was sent, in both directions, and streams."""

from __future__ import annotations

import pytest

from tests.proxying.passing.wire import GET, OK, Chosen, answered, proxied


async def test_head_and_body_arrive_as_they_were_sent() -> None:
    """Method, target, order and case of headers; only Host names the API server."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(
            b"PATCH /apis/x?dryRun=All&a=%20b HTTP/1.1\r\nhost: there\r\nX-b: 2\r\nX-A: 1\r\nX-b: 3\r\n"
            b"Authorization: Bearer t\r\nImpersonate-User: u\r\nContent-Type: application/json-patch+json\r\n"
            b"Content-Length: 5\r\n\r\n[\r\n\r]"
        )
        await server.gets(
            b"PATCH /apis/x?dryRun=All&a=%%20b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-b: 2\r\nX-A: 1\r\nX-b: 3\r\n"
            b"Authorization: Bearer t\r\nImpersonate-User: u\r\nContent-Type: application/json-patch+json\r\n"
            b"Content-Length: 5\r\n\r\n[\r\n\r]" % proxy.upstream.port
        )
        answer = b"HTTP/1.1 409 Odd Reason\r\nX-Z: 1\r\nContent-Encoding: gzip\r\nx-a: 2\r\n"
        answer += b"Content-Length: 4\r\n\r\n\x1f\x8b\0\xff"
        server.send(answer)
        await caller.gets(answer)


async def test_both_connections_are_kept() -> None:
    """The second request goes on the connections of the first."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        for _ in range(3):
            await answered(caller, server)
            caller.send(GET)
        await server.head()
        assert proxy.upstream.arrived.empty()


async def test_hop_by_hop_headers_end_here() -> None:
    """What concerns one connection goes no further, nor what Connection names; on the way back neither."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(
            b"GET / HTTP/1.1\r\nHost: a\r\nKeep-Alive: 5\r\nConnection: keep-alive, X-Mine\r\n"
            b"X-Mine: 1\r\nX-Theirs: 2\r\n"
            b"Proxy-Connection: x\r\nTE: trailers, deflate\r\nProxy-Authorization: Basic x\r\n\r\n"
        )
        head = await server.head()
        assert head == (
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Theirs: 2\r\nTE: trailers\r\nConnection: TE\r\n\r\n"
            % proxy.upstream.port
        )
        server.send(
            b"HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\nConnection: X-Ours\r\nX-Ours: 1\r\nX-A: 2\r\n"
            b"Content-Length: 0\r\n\r\n"
        )
        await caller.gets(b"HTTP/1.1 200 OK\r\nX-A: 2\r\nContent-Length: 0\r\n\r\n")


async def test_a_chunked_body_streams_with_its_trailers() -> None:
    """Each chunk arrives before the next is sent; chunk extensions are left out, trailers are not."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await server.head()).endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        caller.send(b"5;x=y\r\nabcde\r\n")
        await server.gets(b"5\r\nabcde\r\n")
        caller.send(b"00A\r\n0123456789\r\n0\r\nX-Sum: 7\r\n\r\n")
        await server.gets(b"a\r\n0123456789\r\n0\r\nX-Sum: 7\r\n\r\n")


async def test_a_chunked_answer_streams_as_it_is() -> None:
    """A watch: each event arrives before the next; extensions and trailers included."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"GET /pods?watch=true HTTP/1.1\r\nHost: a\r\n\r\n")
        await server.head()
        for piece in (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"3\r\nabc\r\n",
            b"4;n=1\r\nde",
            b"fg\r\n",
            b"0\r\nX-T: 1\r\n\r\n",
        ):
            server.send(piece)
            await caller.gets(piece)
        caller.send(GET)
        await server.head()


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_an_answer_without_a_body_ends_with_its_head(status: bytes) -> None:
    """Whatever length it names; the next answer is the next request's."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET + GET)
        await server.head()
        answer = (
            b"HTTP/1.1 " + status + b"\r\nContent-Length: 9\r\n\r\n" if b"304" in status else b"HTTP/1.1 204 \r\n\r\n"
        )
        server.send(answer)
        await caller.gets(answer)
        await answered(caller, server)


async def test_the_answer_to_head_has_no_body() -> None:
    """Though it names a length."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        await server.head()
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        await caller.gets(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        await answered(caller, server)


async def test_an_answer_that_ends_with_its_connection() -> None:
    """Arrives whole, and ends the caller's connection, too."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(b"HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nbo")
        await caller.gets(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nConnection: close\r\n\r\nbo")
        server.send(b"dy")
        await server.close()
        assert await caller.rest() == b"dy"


async def test_an_old_caller_is_answered_as_such() -> None:
    """HTTP/1.0 goes on as HTTP/1.0, and the connection ends."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"GET / HTTP/1.0\r\n\r\n")
        assert (await server.head()).startswith(b"GET / HTTP/1.0\r\nHost: 127.0.0.1:")
        server.send(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nbody")
        await server.close()
        assert await caller.rest() == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody"


async def test_a_caller_that_closes_is_obeyed() -> None:
    """Its connection ends with the answer; that to the server is kept."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert b"Connection" not in await server.head()
        server.send(OK)
        assert await caller.rest() == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        (await proxy.caller()).send(GET)
        await server.head()


async def test_pipelined_requests_are_answered_in_order() -> None:
    """One after the other reaches the server, also behind a chunked body in the same packet."""
    chunked = b"POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    async with proxied() as proxy:
        caller, server = await proxy.pair(chunked + GET.replace(b"/api", b"/2") + GET.replace(b"/api", b"/3"))
        for number in (b"1", b"2", b"3"):
            head = await server.head()
            assert b" /" + number + b" HTTP/1.1" in head
            if number == b"1":
                await server.gets(b"2\r\nhi\r\n0\r\n\r\n")
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + number
            server.send(answer)
            await caller.gets(answer)


async def test_reading_stops_behind_many_pipelined_requests() -> None:
    """What waits behind an answer is bounded."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        await caller.floods(GET * 10_000)
        server.send(OK)
        await caller.gets(OK)
        await server.head()


async def test_a_target_with_scheme_and_host_is_a_path() -> None:
    """As RFC 9112 asks of servers."""
    async with proxied() as proxy:
        _, server = await proxy.pair(b"GET http://x:1/api?a=b HTTP/1.1\r\nHost: x:1\r\n\r\n")
        assert (await server.head()).startswith(b"GET /api?a=b HTTP/1.1\r\n")


async def test_continue_is_passed_through() -> None:
    """For a body that is not read here, the server says whether it wants it."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(
            b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert b"\r\nExpect: 100-continue\r\n" in await server.head()
        server.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await caller.gets(b"HTTP/1.1 100 Continue\r\n\r\n")
        caller.send(b"hi")
        await server.gets(b"hi")
        server.send(OK)
        await caller.gets(OK)


async def test_an_early_answer_ends_the_connection() -> None:
    """A server that answers before the body has come: the caller is told not to send another request."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab")
        await server.head()
        server.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        assert await caller.rest() == b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        await server.gets(b"ab")
        await server.ended()


async def test_answers_that_the_gate_watches_pass_and_are_seen() -> None:
    """It gets the body without its framing, and an empty one where it is long."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller, server = await proxy.pair(b"DELETE /p HTTP/1.1\r\nHost: a\r\n\r\n")
        await server.head()
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        server.send(answer)
        await caller.gets(answer)
        caller.send(b"DELETE /q HTTP/1.1\r\nHost: a\r\n\r\n")
        await server.head()
        long = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
        server.send(long)
        await caller.gets(long)
        assert [(each[0], each[1], each[3]) for each in creates.seen] == [
            (b"DELETE /p", 200, b"abc"),
            (b"DELETE /q", 200, b""),
        ]


async def test_a_slow_reader_slows_its_writer() -> None:
    """In both directions: what is buffered here is bounded."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 134217728\r\n\r\n")
        await caller.floods(b"x" * 2**20)
        await server.head()
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 134217728\r\n\r\n")
        await server.floods(b"x" * 2**20)


async def test_a_caller_that_hangs_up_ends_its_watch() -> None:
    """The server learns of it at once, also if only one half was closed."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"GET /pods?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        await server.head()
        server.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await caller.head()
        caller.writer.write_eof()
        await server.ended()
        await caller.ended()


async def test_a_half_closed_caller_gets_its_answers() -> None:
    """All that it has asked for."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET + GET)
        caller.writer.write_eof()
        for _ in range(2):
            await server.head()
            server.send(OK)
        assert await caller.rest() == OK + OK


async def test_a_caller_that_ends_amid_its_body_ends_its_request() -> None:
    """The server sees the connection end, not a shorter body."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab")
        await server.head()
        caller.writer.write_eof()
        assert await server.rest() in {b"ab", b""}
        await caller.ended()


async def test_a_server_that_breaks_off_cuts_the_answer() -> None:
    """The caller sees a body that is too short, and the end of the connection."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
        await caller.gets(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
        await server.close()
        await caller.ended()

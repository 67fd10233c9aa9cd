"""Requests that the room of held creates answers: read whole, answered as it says, given up with their caller."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from backoff_ctrl.k8s.sidecar.caller import Caller
from backoff_ctrl.k8s.sidecar.http.messages import Response
from backoff_ctrl.k8s.sidecar.http.transports import LONG, Gathering, Outbox
from backoff_ctrl.k8s.sidecar.passing import Limits
from tests.kit.patience import PATIENCE
from tests.proxying.passing.wire import GET, OK, Chosen, Proxied, answered, below, proxied, until

HEAD = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\n"
MADE = Response(201, b"Created", [(b"X-A", b"1"), (b"Connection", b"x"), (b"Content-Length", b"9")], b"made")
CREATED = b"HTTP/1.1 201 Created\r\nX-A: 1\r\nContent-Length: 4\r\n\r\nmade"


@pytest.mark.parametrize(
    "framed", [b"Content-Length: 4\r\n\r\nbody", b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"]
)
async def test_the_body_is_read_whole_and_the_answer_framed(framed: bytes) -> None:
    """Whatever its framing; the connection goes on with the next request, which may pass."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller = await proxy.caller(sent=HEAD + framed + GET)
        request, answer = await creates.asked.get()
        assert (request.head.method, request.head.target) == (b"POST", b"/api/v1/namespaces/a/pods")
        assert request.body == b"body"
        assert proxy.upstream.all == []
        answer.set_result(MADE)
        await caller.gets(CREATED)
        server = await proxy.upstream.connection()
        await answered(caller, server)
        assert proxy.shared.held.total == 0


async def test_continue_is_answered_here() -> None:
    """For a body that is read here; not where it came already."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        expecting = HEAD + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        caller = await proxy.caller(sent=expecting)
        await caller.gets(b"HTTP/1.1 100 Continue\r\n\r\n")
        caller.send(b"body")
        (await creates.asked.get())[1].set_result(MADE)
        await caller.gets(CREATED)
        caller.send(expecting + b"body")
        (await creates.asked.get())[1].set_result(MADE)
        await caller.gets(CREATED)


async def test_an_old_caller_is_not_asked_to_continue() -> None:
    """HTTP/1.0 knows no 100: its caller would take it for the answer."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        old = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        caller = await proxy.caller(sent=old)
        while not proxy.shared.counts.held:  # noqa: ASYNC110 - it has read the head
            await asyncio.sleep(0)
        caller.send(b"body")
        (await creates.asked.get())[1].set_result(MADE)
        assert (await caller.head()).startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("half", [True, False])
async def test_a_caller_that_hangs_up_is_not_waited_for(half: bool) -> None:
    """To close one's half counts as hanging up."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller = await proxy.caller(sent=HEAD + b"Content-Length: 4\r\n\r\nbody" + GET)
        await creates.asked.get()
        if half:
            caller.writer.write_eof()
            await caller.ended()
        else:
            await caller.close()
        await until(lambda: creates.given_up and not proxy.shared.held.total)


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_long_body_passes(chunked: bool) -> None:
    """Known by its length at once, else as soon as it is too long; nothing of it is lost."""
    body = bytes(range(256)) * 20
    framed = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n%b"
    creates = Chosen()
    async with proxied(creates, Limits(body_bytes=1000)) as proxy:
        caller, server = await proxy.pair(HEAD + framed % (len(body), body))
        await server.head()
        await server.gets(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
        server.send(OK)
        await caller.gets(OK)
        assert creates.asked.empty()
        assert proxy.shared.held.total == 0


async def test_held_bytes_are_bounded_in_all() -> None:
    """What comes on top passes; once bytes are free again the next is held."""
    creates = Chosen()
    body = b"Content-Length: 600\r\n\r\n" + b"x" * 600
    async with proxied(creates, Limits(held_bytes=1500)) as proxy:
        first = await proxy.caller(sent=HEAD + body)
        _, answer = await creates.asked.get()
        _, server = await proxy.pair(HEAD + body)
        await server.head()
        answer.set_result(MADE)
        await first.gets(CREATED)
        first.send(HEAD + body)
        await creates.asked.get()


async def test_bodies_of_one_address_let_those_of_others_in() -> None:
    """Whole or in part: what an address sends beyond half of the bytes passes, however it is framed."""
    creates = Chosen()
    body = b"Content-Length: 600\r\n\r\n" + b"x" * 600
    async with proxied(creates, Limits(held_bytes=2000)) as proxy:
        await proxy.caller(sent=HEAD + b"Content-Length: 900\r\n\r\n" + b"x" * 600)
        await until(lambda: proxy.shared.held.total == 600)
        _, server = await proxy.pair(HEAD + body)
        await server.head()
        await proxy.pair(HEAD + b"Transfer-Encoding: chunked\r\n\r\n258\r\n" + b"x" * 600 + b"\r\n0\r\n\r\n")
        await proxy.caller(sent=HEAD + body, at="127.0.0.2")
        await creates.asked.get()
        assert proxy.shared.held.total == 1200


async def test_a_failure_of_the_gate_lets_requests_pass() -> None:
    """Law 18: what it can't say is passed on; what it fails on while it answers is told, and not sent again."""

    class Broken(Chosen):
        def reads(self, head: object) -> bool:
            raise ZeroDivisionError

        def watches(self, head: object, status: int) -> bool:
            raise ZeroDivisionError

    async with proxied(Broken()) as proxy:
        caller, server = await proxy.pair(HEAD + b"Content-Length: 4\r\n\r\nbody")
        await server.head()
        await server.gets(b"body")
        server.send(OK)
        await caller.gets(OK)
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller = await proxy.caller(sent=HEAD + b"Content-Length: 4\r\n\r\nbody")
        (await creates.asked.get())[1].set_exception(ZeroDivisionError())
        assert (await caller.head()).startswith(b"HTTP/1.1 500 ")
        assert proxy.upstream.all == []


@pytest.mark.long
async def test_at_the_end_held_answers_are_still_sent() -> None:
    """The listener ends watches at once, idle connections soon, serves whoever still comes, and waits for the rest."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        held = await proxy.caller(sent=HEAD + b"Content-Length: 4\r\n\r\nbody")
        _, answer = await creates.asked.get()
        idle = await proxy.caller()
        watch, server = await proxy.pair(b"GET /p?watch=true HTTP/1.1\r\nHost: a\r\n\r\n")
        await server.head()
        slow, other = await proxy.pair(GET)
        await other.head()
        await until(lambda: len(proxy.shared.callers) == 4)
        closing = asyncio.create_task(proxy.listener.close(5.0))
        await watch.ended()
        late, asked = await proxy.pair(GET)
        await asked.head()
        asked.send(OK)
        assert b"\r\nConnection: close\r\n" in await late.rest(), "it is served, and comes again to the next proxy"
        await idle.ended()
        answer.set_result(MADE)
        assert await held.rest() == CREATED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        other.send(OK)
        assert b"\r\nConnection: close\r\n" in await slow.rest()
        for each in (held, slow):
            await each.close()
        await closing
        with pytest.raises(ConnectionRefusedError):
            await proxy.caller()


CREATE = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
BARE = Response(201, b"Created", [], b"made")


async def _connected(proxy: Proxied) -> socket.socket:
    """A caller's bare socket: it reads and closes when the test says so, not when the loop does."""
    loop = asyncio.get_running_loop()
    caller = socket.socket()
    caller.setblocking(False)
    await loop.sock_connect(caller, ("127.0.0.1", proxy.port))
    await loop.sock_sendall(caller, CREATE)
    return caller


@pytest.mark.parametrize("close", [False, True])
async def test_an_answer_to_a_caller_that_is_gone_is_unread(close: bool) -> None:
    """Whatever is noticed first, its end or that its bytes are refused: the room of held creates hears of it."""
    creates, unread = Chosen(), []
    async with proxied(creates) as proxy:
        caller = await _connected(proxy)
        request, answer = await creates.asked.get()
        proxy.shared.draining = close
        caller.close()
        answer.set_result(replace(BARE, if_unread=lambda: unread.append(request)))
        await until(lambda: unread or creates.given_up)
        await until(lambda: not proxy.shared.callers)
        assert len(unread) + len(creates.given_up) == 1


async def test_an_answer_that_comes_as_the_connection_is_lost_is_unread() -> None:
    """The answer is there, the connection is not, and nothing of the create was cancelled: no error, and it is kept."""
    creates, unread, failures = Chosen(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with proxied(creates) as proxy:
        caller = await _connected(proxy)
        request, answer = await creates.asked.get()
        (known,) = proxy.shared.callers
        answer.set_result(replace(BARE, if_unread=lambda: unread.append(request)))
        await asyncio.sleep(0)  # the create has ended; who waits for it hears next
        known.transport.abort()
        await until(lambda: unread or creates.given_up)
        await until(lambda: not proxy.shared.callers)
        caller.close()
    assert len(unread) + len(creates.given_up) == 1
    assert failures == []


async def test_an_answer_that_lies_unread_when_its_caller_dies_is_unread() -> None:
    """It has arrived at the machine, but not in the program."""
    creates, unread = Chosen(), []
    async with proxied(creates) as proxy:
        caller = await _connected(proxy)
        request, answer = await creates.asked.get()
        answer.set_result(replace(BARE, if_unread=lambda: unread.append(request)))
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(caller, arrived.set)
        async with asyncio.timeout(PATIENCE):
            await arrived.wait()
        loop.remove_reader(caller)
        assert unread == []
        caller.close()
        await until(lambda: unread)
        await until(lambda: not proxy.shared.callers)
        assert unread == [request]


@pytest.mark.parametrize("goes_on", [False, True])
async def test_an_answer_that_was_read_is_not_unread(goes_on: bool) -> None:
    """The caller ends in peace, or asks for more and breaks off then."""
    creates, unread = Chosen(), []
    async with proxied(creates) as proxy:
        caller = await proxy.caller(sent=CREATE)
        request, answer = await creates.asked.get()
        answer.set_result(replace(BARE, if_unread=lambda: unread.append(request)))
        assert (await caller.head()).startswith(b"HTTP/1.1 201 ")
        await caller.gets(b"made")
        if goes_on:
            caller.send(GET)
            server = await proxy.upstream.connection()
            await server.head()
            caller.writer.transport.abort()
            server.send(OK)
        else:
            await caller.close()
        await until(lambda: not proxy.shared.callers)
        assert unread == []


@pytest.mark.long
async def test_requests_are_not_begun_for_a_caller_that_reads_no_answers() -> None:
    """Else their answers would pile up here. It goes on as soon as the caller reads; one that never does is dropped."""

    class Long(Chosen):
        made = 0

        async def answer(self, request: object) -> Response:
            self.made += 1
            return replace(BARE, body=b"x" * 100_000)

    creates = Long()
    async with proxied(creates) as proxy:
        caller = await proxy.caller()
        await caller.floods(CREATE * 1000)
        assert creates.made < 200, "20 MB of answers would be buffered"
        made = creates.made
        async with asyncio.timeout(PATIENCE):
            await caller.reader.readexactly(100_000 * made)
        await until(lambda: creates.made > made)
    async with proxied(creates, Limits(idle_s=0.5)) as proxy:
        caller = await proxy.caller()
        await caller.floods(CREATE * 1000)
        await until(lambda: not proxy.shared.callers)


async def test_a_held_create_without_credentials_is_told_why_it_is_not_known() -> None:
    """As a request that passes is: its client certificate did not come through."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller = await proxy.caller(sent=CREATE)
        (await creates.asked.get())[1].set_result(Response(401, b"Unauthorized", [], b"{}"))
        assert b"\r\nWarning: 299 " in await caller.head()
        await caller.gets(b"{}")
        caller.send(CREATE.replace(b"Host: a", b"Host: a\r\nAuthorization: Bearer x"))
        (await creates.asked.get())[1].set_result(Response(401, b"Unauthorized", [], b"{}"))
        assert b"Warning" not in await caller.head()


@pytest.mark.parametrize("cut", [b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf", b"GET /x HT", CREATE])
async def test_behind_a_half_closed_connection_nothing_is_waited_for(cut: bytes) -> None:
    """A request whose end can't come any more, or a create whose caller hung up, ends with the answer before it."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller, server = await proxy.pair(GET + cut)
        await server.head()
        caller.writer.write_eof()
        (known,) = proxy.shared.callers
        await until(lambda: known.sends_no_more)
        server.send(OK)
        assert await caller.rest() == OK
        await until(lambda: not proxy.shared.callers)
        assert creates.asked.empty() or creates.given_up


@pytest.mark.parametrize("half", [False, True])
async def test_an_answer_that_comes_with_the_end_of_its_caller_arrives(half: bool) -> None:
    """The proxy hears of both in one go: what it has written is not lost with the connection."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        with below(server) as answering, below(caller) as ending:
            answering.sendall(OK)
            if half:
                ending.shutdown(socket.SHUT_WR)
            else:
                ending.sendall(b"GET / HTTP/1.1\r\nnonsense\r\n\r\n")
        await caller.gets(OK)
        assert (await caller.rest())[:12] == (b"" if half else b"HTTP/1.1 400")


async def test_the_answer_to_a_create_is_written_when_it_is_said_to_be() -> None:
    """Whether it can have been read is judged from then on."""
    creates = Chosen()
    async with proxied(creates) as proxy:
        caller = await proxy.caller(sent=CREATE)
        request, answer = await creates.asked.get()
        (known,) = proxy.shared.callers
        assert isinstance(known, Caller)
        known.transport.write(OK)
        with below(caller) as bare:
            bare.setblocking(False)
            with pytest.raises(BlockingIOError):
                bare.recv(100)
            known.notice_unread(None)
            assert bare.recv(100) == OK
        answer.cancel()
        assert request.body == b"body"


@asynccontextmanager
async def _gathering(outbox: Outbox) -> AsyncIterator[tuple[Gathering, asyncio.Transport, asyncio.StreamReader]]:
    """Connect; yield what is written to, the transport below it, and what reads at the other end."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    try:
        yield Gathering(transport, outbox), transport, reader
    finally:
        transport.abort()
        writer.transport.abort()


async def test_short_and_long_pieces_stay_in_order() -> None:
    """And an end comes last."""
    pieces = [b"a", b"b" * LONG, b"", b"c", b"d" * (LONG - 1), b"e" * 3 * LONG, b"f"]
    async with _gathering(Outbox()) as (gathering, _, reader):
        for each in pieces:
            gathering.write(each)
        gathering.close()
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b"".join(pieces)


async def test_one_that_fails_does_not_keep_the_others_from_being_sent() -> None:
    """The loop reports its error."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    outbox = Outbox()
    async with _gathering(outbox) as (first, transport, _), _gathering(outbox) as (second, _, reader):
        first.write(b"x")
        transport.write_eof()  # from now on it raises an error at each write
        second.write(b"y")
        async with asyncio.timeout(PATIENCE):
            assert await reader.readexactly(1) == b"y"
    assert [type(each) for each in failures] == [RuntimeError]

"""Requests that the room of held creates answers: read whole, answered as it says, given up with their caller."""

from __future__ import annotations

import asyncio

import pytest

from backoff_ctrl.k8s.proxy.http.messages import Response
from backoff_ctrl.k8s.proxy.passing import Limits
from tests.proxying.passing.wire import GET, OK, Chosen, proxied, until

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
        await server.head()
        server.send(OK)
        await caller.gets(OK)
        assert proxy.shared.held_bytes == 0


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
        await until(lambda: creates.given_up and not proxy.shared.held_bytes)


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
        assert proxy.shared.held_bytes == 0


async def test_held_bytes_are_bounded_in_all() -> None:
    """What comes on top passes; once bytes are free again the next is held."""
    creates = Chosen()
    body = b"Content-Length: 600\r\n\r\n" + b"x" * 600
    async with proxied(creates, Limits(held_bytes=1000)) as proxy:
        first = await proxy.caller(sent=HEAD + body)
        _, answer = await creates.asked.get()
        _, server = await proxy.pair(HEAD + body)
        await server.head()
        answer.set_result(MADE)
        await first.gets(CREATED)
        first.send(HEAD + body)
        await creates.asked.get()


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

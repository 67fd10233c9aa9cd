"""What is sent a moment later is sent all the same: in order, and before any end."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.proxy.caller import Caller
from backoff_ctrl.k8s.proxy.http.transports import LONG, Gathering, Outbox
from tests.proxying.passing.wire import GET, OK, PATIENCE, Chosen, proxied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.proxying.passing.wire import Side

CREATE = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"


def _below(side: Side) -> socket.socket:
    """Return the socket below a connection: what is done to it happens now."""
    return socket.socket(fileno=os.dup(side.writer.get_extra_info("socket").fileno()))


@pytest.mark.parametrize("half", [False, True])
async def test_an_answer_that_comes_with_the_end_of_its_caller_arrives(half: bool) -> None:
    """The proxy hears of both in one go: what it has written is not lost with the connection."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        with _below(server) as answering, _below(caller) as ending:
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
        with _below(caller) as bare:
            bare.setblocking(False)
            with pytest.raises(BlockingIOError):
                bare.recv(100)
            known.told(None)
            assert bare.recv(100) == OK
        answer.cancel()
        assert request.body == b"body"


@asynccontextmanager
async def _connected(outbox: Outbox) -> AsyncIterator[tuple[Gathering, asyncio.Transport, asyncio.StreamReader]]:
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
    async with _connected(Outbox()) as (gathering, _, reader):
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
    async with _connected(outbox) as (first, transport, _), _connected(outbox) as (second, _, reader):
        first.write(b"x")
        transport.write_eof()  # from now on it raises an error at each write
        second.write(b"y")
        async with asyncio.timeout(PATIENCE):
            assert await reader.readexactly(1) == b"y"
    assert [type(each) for each in failures] == [RuntimeError]

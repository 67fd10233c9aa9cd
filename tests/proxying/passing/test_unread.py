"""Answers to creates that did not reach their caller, callers that read nothing, and pages that may not come in."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from backoff_ctrl.k8s.proxy.http.messages import Response
from backoff_ctrl.k8s.proxy.passing import Limits
from tests.proxying.passing.wire import GET, OK, PATIENCE, Chosen, Proxied, proxied, until

CREATE = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
MADE = Response(201, b"Created", [], b"made")


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
        answer.set_result(replace(MADE, if_unread=lambda: unread.append(request)))
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
        answer.set_result(replace(MADE, if_unread=lambda: unread.append(request)))
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
        answer.set_result(replace(MADE, if_unread=lambda: unread.append(request)))
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
        answer.set_result(replace(MADE, if_unread=lambda: unread.append(request)))
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


async def test_requests_are_not_begun_for_a_caller_that_reads_no_answers() -> None:
    """Else their answers would pile up here. It goes on as soon as the caller reads; one that never does is dropped."""

    class Long(Chosen):
        made = 0

        async def answer(self, request: object) -> Response:
            self.made += 1
            return replace(MADE, body=b"x" * 100_000)

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


HERE = b"Host: 127.0.0.1:8001\r\n"
JSON = b"Content-Type: application/json\r\n"
A_POD = b"POST /api/v1/namespaces/a/pods HTTP/1.1\r\nContent-Length: 2\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /api HTTP/1.1\r\nOrigin: https://evil.example\r\n", b"403"),
        (b"GET /api HTTP/1.1\r\nOrigin: null\r\n", b"403"),
        (A_POD + JSON + b"Origin: http://127.0.0.1.evil.example\r\n", b"403"),
        (A_POD + b"Origin: http://127.0.0.1:3000\r\n", b"403"),
        (A_POD + JSON + b"Origin: http://localhost:8001\r\n", b"403"),
        (b"GET /api HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n", b"403"),
        (b"GET /api HTTP/1.1\r\nSec-Fetch-Site: same-site\r\n", b"403"),
        (A_POD + b"Content-Type: text/plain; charset=utf-8\r\n", b"415"),
        (A_POD + b"Content-Type: Application/X-WWW-Form-Urlencoded\r\n", b"415"),
        (A_POD + b"Content-Type: multipart/form-data; boundary=x\r\n", b"415"),
    ],
)  # fmt: skip
async def test_a_page_of_another_site_can_not_use_our_credentials(head: bytes, status: bytes) -> None:
    """Neither with a POST that needs no preflight, nor with a WebSocket: a browser says whose page it is.

    Another port of this machine is another site, too.
    """
    creates = Chosen()
    async with proxied(creates, local_hosts_only=True) as proxy:
        caller = await proxy.caller(sent=head + HERE + b"\r\n{}")
        assert (await caller.rest()).startswith(b"HTTP/1.1 " + status)
        assert creates.asked.empty()
        assert not proxy.upstream.all


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api HTTP/1.1\r\n",
        b"GET /api HTTP/1.1\r\nSec-Fetch-Site: none\r\n",
        b"GET /api HTTP/1.1\r\nSec-Fetch-Site: same-origin\r\nOrigin: http://127.0.0.1:8001\r\n",
        b"POST /exec HTTP/1.1\r\nContent-Length: 0\r\n",
        b"POST /raw HTTP/1.1\r\nContent-Length: 2\r\n",
        b"POST /form HTTP/1.1\r\nOrigin: http://127.0.0.1:8001\r\nContent-Length: 2\r\n",
        b"POST /api HTTP/1.1\r\nContent-Length: 2\r\n" + JSON,
        b"PATCH /api HTTP/1.1\r\nContent-Type: application/apply-patch+yaml\r\nContent-Length: 2\r\n",
    ],
)  # fmt: skip
async def test_programs_and_our_own_pages_may_use_our_credentials(head: bytes) -> None:
    """Programs say nothing of pages; a page that came through the proxy is its own."""
    async with proxied(Chosen(), local_hosts_only=True) as proxy:
        body = b"{}" if b"Content-Length: 2" in head else b""
        caller, server = await proxy.pair(head + HERE + b"\r\n" + body)
        await server.head()
        server.send(OK)
        await caller.gets(OK)


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

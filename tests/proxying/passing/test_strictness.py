"""Requests that are not whole, not valid or ambiguous are refused: nothing of them reaches the API server."""

from __future__ import annotations

import pytest

from backoff_ctrl.k8s.sidecar.passing import Limits
from tests.proxying.passing.wire import GET, OK, Chosen, answered, proxied

POST = b"POST /api HTTP/1.1\r\nHost: a\r\n"
BAD = {
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": POST + b"Content-Length: +3\r\n\r\nabc",
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks not last": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "a folded header": POST + b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a bare line feed": POST + b"X: a\nContent-Length: 3\r\n\r\nabc",
    "a bare carriage return": POST + b"X: a\rContent-Length: 3\r\n\r\nabc",
    "a null byte": POST + b"X: a\0b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET api HTTP/1.1\r\nHost: a\r\n\r\n",
    "a method nobody knows": b"FETCH / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tunnel as of other proxies": b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "the connection names the length": POST + b"Connection: content-length\r\nContent-Length: 3\r\n\r\nabc",
    "the connection names who acts": POST + b"Impersonate-User: u\r\nConnection: Impersonate-User\r\n\r\n",
    "a second connection names who asks": POST + b"Cookie: c\r\nConnection: x\r\nConnection: y, cookie\r\n\r\n",
    "the connection names the form": POST + b"Connection: content-type\r\nContent-Type: a/b\r\n\r\n",
    "a body before a switch": POST + b"Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\nabc",
    "chunks of an old caller": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}
OTHERS = {
    b"501": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"505": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"417": POST + b"Expect: the-unexpected\r\n\r\n",
    b"431": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD)
async def test_a_bad_head_is_answered_400_and_reaches_nobody(sent: bytes) -> None:
    """The connection is closed; what came behind is not read as a request."""
    async with proxied() as proxy:
        caller = await proxy.caller(sent=sent + GET)
        answer = await caller.rest()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nConnection: close\r\n" in answer
        assert answer.count(b"HTTP/1.1 4") == 1
        assert proxy.upstream.all == []


@pytest.mark.parametrize(("status", "sent"), OTHERS.items())
async def test_other_refusals_have_their_own_status(status: bytes, sent: bytes) -> None:
    """Likewise with nothing passed on."""
    async with proxied() as proxy:
        caller = await proxy.caller(sent=sent)
        assert (await caller.rest()).startswith(b"HTTP/1.1 " + status)
        assert proxy.upstream.all == []


async def test_a_head_that_never_ends_is_too_long() -> None:
    """Even while no header of it is whole."""
    async with proxied() as proxy:
        caller = await proxy.caller(sent=b"GET / HTTP/1.1\r\nX: ")
        caller.send(b"x" * 100_000)
        assert (await caller.rest()).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("begin", "status"),
    [(b"GET / HT", b"408"), (POST + b"Content-Length: 3\r\n\r\na", b"408"), (b"", b"")],
    ids=["head", "body", "nothing"],
)
async def test_what_pauses_too_long_is_ended(begin: bytes, status: bytes) -> None:
    """A head or a body with a word, an idle connection without."""
    async with proxied(limits=Limits(head_s=0.1, body_s=0.1, idle_s=0.1)) as proxy:
        caller = await proxy.caller(sent=begin)
        answer = await caller.rest()
        assert answer.split(b" ")[1:2] == ([status] if status else [])


@pytest.mark.parametrize("chunk", [b"3\r\nabcX0\r\n\r\n", b"+3\r\nabc\r\n", b"3\nabc\r\n", b"ffffffffffffffffff\r\n"])
async def test_a_bad_chunk_ends_the_request(chunk: bytes) -> None:
    """The server sees a body that never ends properly, and the connection's end."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await server.head()
        await server.gets(b"2\r\nhi\r\n")
        caller.send(chunk + GET)
        assert (await caller.rest()).startswith(b"HTTP/1.1 400 ")
        assert b"0\r\n" not in await server.rest()
        assert proxy.upstream.arrived.empty()


async def test_a_trailer_can_not_be_a_framing_header() -> None:
    """Nor one that says who asks."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: x\r\n\r\n")
        assert (await caller.rest()).startswith(b"HTTP/1.1 400 ")
        await server.rest()


async def test_what_is_not_whole_is_not_passed_on() -> None:
    """A head reaches the server with its last byte, not before."""
    async with proxied() as proxy:
        caller = await proxy.caller()
        for byte in GET[:-1]:
            caller.send(bytes([byte]))
            await caller.writer.drain()
        assert proxy.upstream.all == []
        caller.send(GET[-1:])
        server = await proxy.upstream.connection()
        assert (await server.head()).startswith(b"GET /api HTTP/1.1\r\n")
        server.send(OK)
        await caller.gets(OK)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nab",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000,
    ],
)
async def test_a_bad_answer_is_a_502(answer: bytes) -> None:
    """And the connection that it came on is closed."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(answer)
        assert (await caller.head()).startswith(b"HTTP/1.1 502 ")
        await server.ended()


async def test_what_comes_behind_an_answer_is_nobodys() -> None:
    """A server that says more than it was asked loses its connection; the next request gets a new one."""
    async with proxied() as proxy:
        caller, server = await proxy.pair(GET)
        await server.head()
        server.send(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await caller.gets(OK)
        caller.send(GET)
        second = await proxy.upstream.connection()
        await second.head()
        second.send(OK)
        await caller.gets(OK)


async def test_a_page_of_elsewhere_can_not_use_our_credentials() -> None:
    """Where the proxy adds its own, requests must name this machine."""
    async with proxied(local_hosts_only=True) as proxy:
        caller = await proxy.caller(sent=GET.replace(b"Host: a", b"Host: evil.example:80"))
        assert (await caller.rest()).startswith(b"HTTP/1.1 403 ")
        _, server = await proxy.pair(GET.replace(b"Host: a", b"Host: localhost:8001"))
        await server.head()


@pytest.mark.parametrize(
    ("path", "runs"),
    [
        ("/api/v1/namespaces/n/pods/p/exec?command=sh", True),
        ("/api/v1/namespaces/n/pods/p/attach", True),
        ("/api/v1/namespaces/pods/pods/p/exec/", True),
        ("//api/v1/namespaces/n//pods/p/%65xec", True),
        ("/api/v1/namespaces/n/pods/p%2Fexec", True),
        ("/api/v1/namespaces/n/pods/p/log/../exec", True),
        ("/api/v1/nodes/node-1/proxy/run/n/p/c?cmd=id", True),
        ("/api/v1/nodes/node-1:10250/proxy/exec/n/p/c", True),
        ("/api/v1/namespaces/n/pods/p/portforward", False),
        ("/api/v1/namespaces/n/pods/p/proxy/exec", False),
        ("/api/v1/namespaces/n/pods/exec", False),
        ("/api/v1/namespaces/n/pods/exec/log?x=/pods/p/exec", False),
        ("/apis/g/v1/namespaces/n/pods/p/exec", False),
    ],
)
async def test_our_credentials_run_nothing_in_a_pod_unless_that_is_allowed(path: str, runs: bool) -> None:
    """A page behind ``pods/x/proxy/`` has the origin of the proxy itself. Who brings a token of its own may."""
    upgrade = (
        "Host: localhost:8001\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://localhost:8001\r\n\r\n"
    )
    asked = f"GET {path} HTTP/1.1\r\n{upgrade}".encode()
    async with proxied(use_own=True, local_hosts_only=True) as proxy:
        if runs:
            caller = await proxy.caller(sent=asked)
            answer = await caller.rest()
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b"start the proxy with --allow-exec" in answer
            asked = asked.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer mine\r\n\r\n")
        _, server = await proxy.pair(asked)
        assert (await server.head()).startswith(f"GET {path} ".encode())


async def test_exec_is_lent_our_credentials_where_that_is_allowed() -> None:
    """With ``--allow-exec``; and without credentials of ours nothing is refused."""
    exec_ = GET.replace(b"GET /api ", b"GET /api/v1/namespaces/n/pods/p/exec ")
    for own in (True, False):
        async with proxied(use_own=own, lends_exec=own) as proxy:
            _, server = await proxy.pair(exec_)
            await server.head()


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
        await answered(caller, server)

"""Connections that only hold a place: at the creators' address and at that for probes, on real sockets."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.proxy.passing import Limits
from backoff_ctrl.k8s.proxy.probes import CONNECTIONS_MAX, ProbeConnection, Probes
from tests.proxying.passing.wire import GET, OK, Side, proxied, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.proxying.passing.wire import Proxied

FEW = 3
LAST = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")  # each gets a connection of its own to the server
LIVE = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


def gone(side: Side) -> bool:
    """Whether the proxy has ended this connection."""
    return side.reader.at_eof() or side.reader.exception() is not None


async def answered(proxy: Proxied) -> Side:
    """A caller that was answered, and keeps its connection."""
    caller = await proxy.caller(sent=GET)
    server = await proxy.upstream.connection()
    await server.head()
    server.send(LAST)
    await caller.gets(OK)
    return caller


async def test_silent_connections_turn_nobody_away() -> None:
    """The oldest goes for who comes; who is asking, or has asked a moment ago, stays."""
    async with proxied(limits=Limits(connections=FEW)) as proxy:
        asking = await proxy.caller(sent=GET)
        await proxy.upstream.connection()
        silent = []
        for _ in range(3 * FEW):
            silent.append(await proxy.caller())
            await until(lambda: proxy.shared.counts.connections == 1 + len(silent))
        for each in silent[: -FEW + 1]:
            await each.ended()
        halting = silent[-1]
        halting.send(b"GET / HTTP/1.1\r\n")  # no head until it ends
        inside = [await answered(proxy) for _ in range(FEW - 1)]
        for each in silent[-FEW + 1 :]:
            await each.ended()
        late = await proxy.caller(sent=GET)
        assert (await late.rest()).startswith(b"HTTP/1.1 503 ")
        assert not any(gone(each) for each in (asking, *inside))


async def test_a_connection_that_has_asked_goes_where_it_asks_no_more() -> None:
    """For another one alone, that first which has been quiet the longest: else one cheap request would keep a place."""
    async with proxied(limits=Limits(connections=FEW, spare_s=0.0)) as proxy:
        inside = [await answered(proxy) for _ in range(FEW)]
        inside[0].send(GET)
        server = await proxy.upstream.connection()
        await server.head()
        await answered(proxy)
        await inside[1].ended()
        server.send(LAST)
        await inside[0].gets(OK)
        await answered(proxy)
        await inside[2].ended()
        assert not gone(inside[0])
        assert proxy.shared.counts.turned_away == 2


async def test_a_body_that_pauses_keeps_nobody_out() -> None:
    """Nobody has to be known to begin one. One goes for who comes; whose body came whole stays."""
    begun = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab"
    for spare_s in (60.0, 0.0):
        async with proxied(limits=Limits(connections=FEW, spare_s=spare_s)) as proxy:
            inside = []
            for number in range(FEW):
                inside.append(await proxy.caller(sent=begun))
                await proxy.upstream.connection()
                await until(lambda: sum(each.owes for each in proxy.shared.callers) > number)  # noqa: B023 - at once
            inside[0].send(b"cd")
            await until(lambda: sum(each.owes for each in proxy.shared.callers) == FEW - 1)
            if spare_s:
                late = await proxy.caller(sent=GET)
                assert (await late.rest()).startswith(b"HTTP/1.1 503 ")
                continue
            await answered(proxy)
            await until(lambda: sum(gone(each) for each in inside[1:]) == 1)  # noqa: B023 - at once
            assert not gone(inside[0])


async def test_a_connection_that_sends_no_head_goes_by_itself() -> None:
    """Sooner than one that has asked."""
    async with proxied(limits=Limits(head_s=0.1)) as proxy:
        inside = await answered(proxy)
        silent = await proxy.caller()
        await silent.ended()
        assert (len(proxy.shared.callers), len(proxy.shared.silent)) == (1, 0)
        assert not gone(inside)


@asynccontextmanager
async def probed(
    more: Callable[[], str] = lambda: "",
) -> AsyncIterator[tuple[Probes, Callable[[bytes], Awaitable[Side]]]]:
    """The address for probes of a proxy, and how to connect to it."""
    callers: list[Side] = []
    async with proxied() as proxy:
        probes = Probes(proxy.shared, more)
        server = await asyncio.get_running_loop().create_server(partial(ProbeConnection, probes), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def caller(sent: bytes) -> Side:
            made = Side(*await asyncio.open_connection("127.0.0.1", port))
            callers.append(made)
            made.send(sent)
            return made

        try:
            yield probes, caller
        finally:
            server.close()
            for each in callers:
                each.writer.transport.abort()


async def test_silent_connections_fail_no_probe() -> None:
    """However many there are: else whoever reaches the port has the kubelet restart the proxy."""
    async with probed() as (probes, caller):
        silent = [await caller(b"") for _ in range(CONNECTIONS_MAX + 8)]
        for _ in range(3):
            assert (await (await caller(LIVE)).rest()).startswith(b"HTTP/1.1 200 OK")
            silent += [await caller(b"GET /livez") for _ in range(CONNECTIONS_MAX)]
        for each in silent[:8]:
            await each.ended()
        assert len(probes.silent) + len(probes.asking) <= CONNECTIONS_MAX


async def test_metrics_that_take_long_fail_no_probe() -> None:
    """One text is made at a time, however many ask for it, and a probe finds room."""
    goes_on, made = threading.Event(), []

    def slow() -> str:
        made.append(threading.current_thread())
        goes_on.wait(10)
        return "more 1\n"

    async with probed(slow) as (probes, caller):
        try:
            scrapes = [await caller(METRICS) for _ in range(CONNECTIONS_MAX)]
            await until(lambda: len(probes.asking) == CONNECTIONS_MAX)
            assert (await (await caller(LIVE)).rest()).startswith(b"HTTP/1.1 200 OK")
            await until(lambda: sum(gone(each) for each in scrapes) == 1)
            assert len(made) == 1
        finally:
            goes_on.set()
        stays = next(each for each in scrapes if not gone(each))
        assert (await stays.rest()).endswith(b"more 1\n")

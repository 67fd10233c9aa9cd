"""TLS connections that never come to speak: they count as any other, and the limit holds, on real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvloop

from backoff_ctrl.k8s.proxy.passing import Limits
from tests.proxying.passing.certificates import make_pair
from tests.proxying.passing.wire import GET, OK, PATIENCE, proxied, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.proxying.passing.certificates import Pair
    from tests.proxying.passing.wire import Proxied, Side

MOST: Final = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A certificate for the proxy."""
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a conversation on either event loop: each has TLS of its own."""

    def running(conversation: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(conversation)

    return running


@asynccontextmanager
async def bounded(pair: Pair, head_s: float = PATIENCE) -> AsyncIterator[Proxied]:
    """A proxy in TLS mode that takes five connections."""
    async with proxied(tls=pair.server(), limits=Limits(connections=MOST, head_s=head_s)) as proxy:
        yield proxy


def handshakes(proxy: Proxied) -> int:
    """How many handshakes are under way."""
    return len(proxy.listener._server)  # type: ignore[arg-type]


async def served(proxy: Proxied, pair: Pair) -> Side:
    """A caller that speaks TLS, and is answered."""
    caller = await proxy.caller(pair.client(), GET)
    server = await proxy.upstream.connection()
    await server.head()
    server.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))  # each gets one of its own
    assert (await caller.head()).startswith(b"HTTP/1.1 200 OK")
    return caller


def test_half_open_handshakes_count_and_let_others_in(pair: Pair, run: Callable[..., None]) -> None:
    """A flood of them takes no more connections than the limit, and the oldest go for who really comes."""

    async def conversation() -> None:
        async with bounded(pair) as proxy:
            flood = []
            for _ in range(3 * MOST):
                flood.append(await proxy.caller())
                await until(lambda: handshakes(proxy) + proxy.shared.counts.turned_away == len(flood))
                assert handshakes(proxy) <= MOST
            assert proxy.shared.counts.turned_away == 2 * MOST
            for each in flood[: 2 * MOST]:
                await each.ended()
            await served(proxy, pair)
            await flood[2 * MOST].ended()
            assert (handshakes(proxy), len(proxy.shared.callers)) == (MOST - 1, 1)

    run(conversation())


def test_connections_that_speak_are_not_given_up_for_new_ones(pair: Pair, run: Callable[..., None]) -> None:
    """Where all are in use one more is closed at once; when one has gone, the next is served."""

    async def conversation() -> None:
        async with bounded(pair) as proxy:
            inside = [await served(proxy, pair) for _ in range(MOST)]
            late = await proxy.caller()
            await late.ended()
            assert (handshakes(proxy), len(proxy.shared.callers)) == (0, MOST)
            await inside[0].close()
            await until(lambda: len(proxy.shared.callers) < MOST)
            await served(proxy, pair)

    run(conversation())


def test_who_says_nothing_behind_its_handshake_lets_others_in(pair: Pair, run: Callable[..., None]) -> None:
    """The oldest goes first, be it amid its handshake or behind it; who spoke within the last seconds stays."""

    async def conversation() -> None:
        async with bounded(pair) as proxy:
            spoken = await served(proxy, pair)
            shaken = [await proxy.caller(pair.client()) for _ in range(MOST - 2)]
            await until(lambda: len(proxy.shared.silent) == MOST - 2)
            amid = await proxy.caller()
            await until(lambda: handshakes(proxy) == 1)
            for each in (*shaken, amid):
                await served(proxy, pair)
                await each.ended()
            assert (len(proxy.shared.callers), handshakes(proxy)) == (MOST, 0)
            assert not spoken.reader.at_eof()

    run(conversation())


def test_a_handshake_has_a_limit(pair: Pair, run: Callable[..., None]) -> None:
    """Who says nothing, and who stops amid it, is let go, and counts no longer."""

    async def conversation() -> None:
        async with bounded(pair, head_s=0.2) as proxy:
            silent, halting = await proxy.caller(), await proxy.caller()
            halting.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
            await until(lambda: handshakes(proxy) == 2)
            await silent.ended()
            await halting.ended()
            await until(lambda: handshakes(proxy) == 0)

    run(conversation())


def test_who_speaks_no_tls_is_let_go(pair: Pair, run: Callable[..., None]) -> None:
    """Without a word in plain text: it could be no answer of the proxy's."""

    async def conversation() -> None:
        async with bounded(pair) as proxy:
            caller = await proxy.caller(sent=GET)
            assert b"HTTP" not in await caller.rest()
            await until(lambda: handshakes(proxy) == 0)
            await served(proxy, pair)

    run(conversation())


def test_the_end_of_the_proxy_ends_handshakes(pair: Pair, run: Callable[..., None]) -> None:
    """They are not waited for."""

    async def conversation() -> None:
        async with bounded(pair) as proxy:
            caller = await proxy.caller()
            await until(lambda: handshakes(proxy) == 1)
            await proxy.listener.close(PATIENCE)
            await caller.ended()

    run(conversation())

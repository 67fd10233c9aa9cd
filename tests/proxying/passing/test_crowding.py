"""One address keeps no other out, whatever its connections do: asyncio's own sockets, at several addresses."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from backoff_ctrl.k8s.sidecar.passing import Limits
from tests.proxying.passing.certificates import Pair, make_pair
from tests.proxying.passing.wire import GET, Chosen, Proxied, Side, proxied, until

MOST: Final = 6
OTHER: Final = "127.0.0.2"
THIRD: Final = "127.0.0.3"
CREATE: Final = b"POST /api/v1/namespaces/d/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


def gone(side: Side) -> bool:
    return side.reader.at_eof() or side.reader.exception() is not None


async def asking(proxy: Proxied, at: str = "127.0.0.1") -> Side:
    """A caller whose request the API server does not answer: a watch, say."""
    caller = await proxy.caller(sent=GET, at=at)
    await (await proxy.upstream.connection()).head()
    loop = asyncio.get_running_loop()
    now = loop.time()
    await until(lambda: loop.time() > now)  # uvloop's clock counts milliseconds: the next one is newer
    return caller


async def test_requests_of_one_address_keep_no_other_out() -> None:
    """The newest goes for who comes from elsewhere; where its own come, they find no place."""
    async with proxied(limits=Limits(connections=MOST)) as proxy:
        crowd = [await asking(proxy) for _ in range(MOST)]
        others = [await asking(proxy, OTHER), await asking(proxy, THIRD)]
        await until(lambda: sum(map(gone, crowd)) == len(others))
        assert [gone(each) for each in crowd] == [False] * (MOST - 2) + [True] * 2
        late = await proxy.caller(sent=GET)
        assert (await late.rest()).startswith(b"HTTP/1.1 503 ")
        assert not any(map(gone, others))
        assert proxy.shared.addresses == {"127.0.0.1": MOST - 2, OTHER: 1, THIRD: 1}


async def test_addresses_that_have_as_much_leave_each_other_alone() -> None:
    """One more of any of them finds no place, nor does one of an address that would have as much then."""
    async with proxied(limits=Limits(connections=MOST)) as proxy:
        inside = [await asking(proxy, at) for at in ("127.0.0.1", OTHER, THIRD) for _ in range(MOST // 3)]
        late = await proxy.caller(sent=GET, at=OTHER)
        assert (await late.rest()).startswith(b"HTTP/1.1 503 ")
        await asking(proxy, "127.0.0.4")
        await until(lambda: sum(map(gone, inside)) == 1)
        late = await proxy.caller(sent=GET, at="127.0.0.4")
        assert (await late.rest()).startswith(b"HTTP/1.1 503 ")


async def test_a_held_create_that_goes_is_asked_to_come_again() -> None:
    """Its caller is told so; a hold that ends without a word looks like a fault of the network."""
    room = Chosen()
    async with proxied(room, limits=Limits(connections=MOST)) as proxy:
        held = [await proxy.caller(sent=CREATE) for _ in range(MOST)]
        for _ in held:
            await room.asked.get()
        other = await proxy.caller(sent=CREATE, at=OTHER)
        await room.asked.get()
        await until(lambda: len(room.given_up) == 1)
        (left,) = [each for each in held if gone(each) or each.reader._buffer]  # type: ignore[attr-defined]
        answer = await left.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in answer
        assert not gone(other)


async def test_silent_ones_of_an_address_that_has_much_go_for_each_other() -> None:
    """Not for those of others, which may be about to ask."""
    async with proxied(limits=Limits(connections=MOST)) as proxy:
        other = await proxy.caller(at=OTHER)
        await until(lambda: proxy.shared.counts.connections == 1)
        silent = []
        for _ in range(3 * MOST):
            silent.append(await proxy.caller())
            await until(lambda: proxy.shared.counts.connections == 1 + len(silent))
        for each in silent[: -MOST + 1]:
            await each.ended()
        assert not gone(other)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


async def test_handshakes_of_one_address_give_up_none_of_another(pair: Pair) -> None:
    """With TLS a place is taken before anything is said."""
    async with proxied(tls=pair.server(), limits=Limits(connections=MOST)) as proxy:
        other = await proxy.caller(bare=True, at=OTHER)
        await until(lambda: len(proxy.shared.handshakes) == 1)
        for number in range(3 * MOST):
            await proxy.caller(bare=True)
            await until(lambda: len(proxy.shared.handshakes) + proxy.shared.counts.turned_away == number + 2)  # noqa: B023 - at once
        assert not gone(other)
        crowd = [await proxy.caller(pair.client(), GET) for _ in range(MOST - 1)]
        for _ in crowd:
            await (await proxy.upstream.connection()).head()
        assert proxy.shared.addresses == {"127.0.0.1": MOST - 1, OTHER: 1}
        served = await proxy.caller(pair.client(), GET, at=THIRD)
        await (await proxy.upstream.connection()).head()
        assert not gone(served)
        assert proxy.shared.addresses == {"127.0.0.1": MOST - 2, OTHER: 1, THIRD: 1}

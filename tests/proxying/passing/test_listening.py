"""Where the proxy listens, who gets a place there, and who loses it; on real sockets."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any, Final

import pytest
import yaml

from backoff_ctrl.k8s.sidecar import place as places
from backoff_ctrl.k8s.sidecar.listening import BindError, bind, descriptors_for, leave_path, read_address
from backoff_ctrl.k8s.sidecar.passing import Limits
from backoff_ctrl.k8s.sidecar.place import PlaceError, find_place, place_of_account
from backoff_ctrl.k8s.sidecar.probes import CONNECTIONS_MAX, ProbeConnection, Probes
from backoff_ctrl.k8s.sidecar.upstream import ApiServer
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.patience import PATIENCE
from tests.proxying.passing.certificates import Pair, make_pair
from tests.proxying.passing.wire import GET, OK, Proxied, Side, proxied, until


def _data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_kubeconfig_is_read_as_client_go_reads_it(tmp_path: Path) -> None:
    """Data wins over files, a token file over a token, and files lie beside it."""
    (tmp_path / "token").write_text("from a file\n")
    user = {"token": "t", "tokenFile": "token", "client-certificate-data": _data("cert"), "client-key": "my.key"}
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": _data("ca"), "tls-server-name": "kube"}
    file = write_kubeconfig(tmp_path / "config", "https://[::1]:6443/k8s/", user, **cluster)
    found = find_place(None, file)
    assert (found.host, found.port, found.tls, found.prefix) == ("::1", 6443, True, "/k8s")
    assert (found.url, found.netloc) == ("https://[::1]:6443/k8s", b"[::1]:6443")
    assert found.authority.read() == b"ca"
    assert found.token.read() == b"from a file\n"
    assert found.certificate.read() == b"cert"
    assert found.key.path == tmp_path / "my.key"
    assert found.server_name == "kube"
    elsewhere = find_place("https://127.0.0.1", file)
    assert (elsewhere.netloc, elsewhere.authority, elsewhere.token) == (b"127.0.0.1", found.authority, found.token)


def test_in_a_cluster_the_pods_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no kubeconfig."""
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "token").write_text("mine")
    monkeypatch.setattr(places, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = place_of_account(tmp_path)
    assert (found.url, found.token.read()) == ("https://10.0.0.1:6443", b"mine")


def _config(**changes: Any) -> dict[str, Any]:
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    return {**whole, **changes}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            _config(clusters=[]),
            "the cluster of context here is 'c', which is not in it: it has no clusters; choose another",
        ),
        (_config(contexts=None), "has no context, so it names no cluster"),
        (_config(**{"current-context": ""}), "names no current context"),
        (_config(clusters=[{"name": "c", "cluster": {}}]), "the server of context here must be a URL"),
        (_config(users=[{"name": "u", "user": {"client-key-data": "!"}}]), "holds data that is not base64"),
        (_config(clusters=[{"name": "c", "cluster": {"proxy-url": "x"}}]), "asks for a proxy-url"),
        (["secret"], "does not have the structure of a kubeconfig"),
        ("{", "is not valid YAML"),
        ("a: 2001-99-99", "is not valid YAML"),
        ("a: 1" + ":1" * 600, "is not valid YAML"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_one_sentence(tmp_path: Path, document: Any, sentence: str) -> None:
    """Which shows none of its secrets."""
    file = tmp_path / "config"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    with pytest.raises(PlaceError, match=r"^the ") as caught:
        find_place(None, str(file))
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://a", "127.0.0.1:80", "http://", "http://a:99999", "http://a:x", "http://a/?b"])
def test_an_address_that_is_none(url: str) -> None:
    """Is named."""
    with pytest.raises(PlaceError, match="--apiserver must be a URL such as"):
        find_place(url, None)


def test_certificates_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    """At the start, not at the first request."""
    file = write_kubeconfig(tmp_path / "c", "https://127.0.0.1:1", None, **{"certificate-authority": "none.crt"})
    with pytest.raises(PlaceError, match=r"No such file or directory: .*none\.crt"):
        ApiServer(find_place(None, file))
    file = write_kubeconfig(
        tmp_path / "c", "https://127.0.0.1:1", None, **{"certificate-authority-data": _data("nonsense")}
    )
    with pytest.raises(PlaceError, match=r"the certificates for https://127\.0\.0\.1:1 can't be used"):
        ApiServer(find_place(None, file))


@pytest.mark.parametrize("listen", ["8001", "127.0.0.1", "127.0.0.1:99999", ":80", "unix:here", "unix:/" + "x" * 120])
def test_a_place_to_listen_that_is_none(listen: str) -> None:
    """Is named."""
    with pytest.raises(BindError, match="--listen"):
        read_address(listen)


@pytest.mark.parametrize(
    ("listen", "local"),
    [("127.0.0.1:0", True), ("localhost:1", True), ("[::1]:1", True), ("unix:/s", True), ("0.0.0.0:1", False)],
)
def test_who_can_reach_an_address(listen: str, local: bool) -> None:
    """Loopback and sockets of this machine: nobody else."""
    assert read_address(listen).of_this_machine is local


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    """One that somebody serves is not, nor is a file."""
    address = read_address(f"unix:{tmp_path}/s")
    bind(address).close()
    with bind(address), pytest.raises(BindError, match="Address already in use"):
        bind(address)
    (tmp_path / "f").write_text("mine")
    with pytest.raises(BindError):
        bind(read_address(f"unix:{tmp_path}/f"))
    with bind(read_address("127.0.0.1:0")) as bound, pytest.raises(BindError, match="Address already in use"):
        bind(read_address(f"127.0.0.1:{bound.getsockname()[1]}"))


def test_a_path_is_left_to_the_process_that_bound_it_last(tmp_path: Path) -> None:
    """Who ends removes its own socket, not that of the process that follows; nor what is gone already."""
    path = tmp_path / "s"
    address = read_address(f"unix:{path}")
    with bind(address):
        leave = leave_path(path)
    with bind(address) as following:
        leave()
        assert path.exists()
        with socket(AF_UNIX) as caller:
            caller.connect(str(path))
        leave_following = leave_path(path)
        following.close()
    leave_following()
    assert not path.exists()
    leave_following()


def test_a_socket_with_our_credentials_is_for_this_user_alone(tmp_path: Path) -> None:
    """Whatever the umask lets others do."""
    before = os.umask(0)
    try:
        with bind(read_address(f"unix:{tmp_path}/s"), private=True):
            assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
        with bind(read_address(f"unix:{tmp_path}/t")):
            assert (tmp_path / "t").stat().st_mode & 0o777 == 0o777
    finally:
        os.umask(before)


def test_descriptors_limit_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit is raised; where even the hard one is too low, fewer callers are let in, two descriptors each."""
    set_to: list[object] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    monkeypatch.setattr("resource.setrlimit", lambda _, both: set_to.append(both))
    assert descriptors_for(100, 256) == 100
    assert descriptors_for(2000, 256) == (1024 - 64 - 256) // 2
    assert set_to == [(520, 1024), (1024, 1024)]


FEW = 3
LAST = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")  # each gets a connection of its own to the server
LIVE = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


def gone(side: Side) -> bool:
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


MOST: Final = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


@asynccontextmanager
async def bounded(pair: Pair, head_s: float = PATIENCE) -> AsyncIterator[Proxied]:
    async with proxied(tls=pair.server(), limits=Limits(connections=MOST, head_s=head_s)) as proxy:
        yield proxy


def handshakes(proxy: Proxied) -> int:
    return len(proxy.shared.handshakes)


async def served(proxy: Proxied, pair: Pair) -> Side:
    caller = await proxy.caller(pair.client(), GET)
    server = await proxy.upstream.connection()
    await server.head()
    server.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))  # each gets one of its own
    assert (await caller.head()).startswith(b"HTTP/1.1 200 OK")
    return caller


async def test_half_open_handshakes_count_and_let_others_in(pair: Pair) -> None:
    """A flood of them takes no more connections than the limit, and the oldest go for who really comes."""
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


async def test_connections_that_speak_are_not_given_up_for_new_ones(pair: Pair) -> None:
    """Where all are in use one more is closed at once; when one has gone, the next is served."""
    async with bounded(pair) as proxy:
        inside = [await served(proxy, pair) for _ in range(MOST)]
        late = await proxy.caller()
        await late.ended()
        assert (handshakes(proxy), len(proxy.shared.callers)) == (0, MOST)
        await inside[0].close()
        await until(lambda: len(proxy.shared.callers) < MOST)
        await served(proxy, pair)


async def test_who_says_nothing_behind_its_handshake_lets_others_in(pair: Pair) -> None:
    """The oldest goes first, be it amid its handshake or behind it; who spoke within the last seconds stays."""
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


async def test_a_handshake_has_a_limit(pair: Pair) -> None:
    """Who says nothing, and who stops amid it, is let go, and counts no longer."""
    async with bounded(pair, head_s=0.2) as proxy:
        silent, halting = await proxy.caller(), await proxy.caller()
        halting.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        await until(lambda: handshakes(proxy) == 2)
        await silent.ended()
        await halting.ended()
        await until(lambda: handshakes(proxy) == 0)


async def test_the_end_of_the_proxy_ends_handshakes(pair: Pair) -> None:
    """They are not waited for."""
    async with bounded(pair) as proxy:
        caller = await proxy.caller()
        await until(lambda: handshakes(proxy) == 1)
        await proxy.listener.close(PATIENCE)
        await caller.ended()

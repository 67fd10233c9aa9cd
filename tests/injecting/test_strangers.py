"""The webhook's port is open to every pod: what strangers send there neither exhausts it nor spoils its metrics."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import ssl
import tracemalloc
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from backoff_ctrl.api.connections import CONNECTIONS_MAX
from backoff_ctrl.api.webhooks.server import ALL_MAX, BODY_MAX, Bodies, InjectionSettings, Webhook, serve
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.sidecar.authority import new_authority
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Port:
    """The webhook's port, as a stranger sees it."""

    def __init__(self, webhook: Webhook, number: int) -> None:
        """Connect to nothing yet."""
        self.webhook = webhook
        self._number = number
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def send(
        self, body: bytes, *, length: int | None = None, path: str = "/inject", head: str = ""
    ) -> Connection:
        """Send a request, perhaps less of its body than its head says."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._number, ssl=self._tls)
        size = len(body) if length is None else length
        method = "POST" if size else "GET"
        said = f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {size}\r\n{head}\r\n"
        writer.write(said.encode() + body)
        await writer.drain()
        return reader, writer

    async def connected(self) -> Connection:
        """Connect, and send nothing yet."""
        return await asyncio.open_connection("127.0.0.1", self._number, ssl=self._tls)

    async def status(self, connection: Connection) -> int:
        """Return the status of the answer."""
        reader, writer = connection
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    async def asked(self, body: bytes, **more: str) -> int:
        """Send a whole request; return the status of its answer."""
        return await self.status(await self.send(body, **more))  # type: ignore[arg-type]


def review(namespace: str = "team", containers: object = ()) -> bytes:
    """Return a question about a pod."""
    asked = {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}, "namespace": namespace}
    pod = {"object": {"spec": {"containers": containers}}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": asked | pod}).encode()


@asynccontextmanager
async def port(tmp_path: Path, *, probes: bool = True) -> AsyncIterator[Port]:
    """The webhook, listening, with certificates of others."""
    now = datetime.now(UTC)
    file = tmp_path / "tls.pem"
    file.write_bytes(new_authority(now).issue(["localhost"], now, timedelta(days=1)).pem)
    said: asyncio.Queue[str] = asyncio.Queue()
    over = asyncio.Event()
    async with ClusterSession(find_place("http://127.0.0.1:1", None, None, None).configuration) as session:
        probe_listen = ("127.0.0.1", 0) if probes else None
        settings = InjectionSettings(("127.0.0.1", 0), probe_listen, files=(file, file))
        webhook = Webhook(settings, session)
        serving = asyncio.create_task(serve(webhook, settings, over, said.put_nowait))
        yield Port(webhook, int((await said.get()).rpartition(":")[2]))
        over.set()
        await serving


class Stalled:
    """A request whose body never comes to its end."""

    content_length = BODY_MAX

    @property
    def content(self) -> Stalled:
        """Itself: it has no more."""
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Wait for ever."""
        yield await asyncio.Future()


async def test_of_too_many_bodies_the_one_that_takes_longest_is_given_up() -> None:
    """One pod of anybody's held 40 of them, and the webhook grew beyond its limit of memory."""
    bodies = Bodies(patience=3600)
    count = ALL_MAX // BODY_MAX

    async def read() -> None:
        async with bodies.of(Stalled()):  # type: ignore[arg-type]
            pass

    reading = [asyncio.create_task(read()) for _ in range(count + 2)]
    async with asyncio.timeout(PATIENCE):
        done = await asyncio.gather(*reading[:2], return_exceptions=True)
    assert [type(each) for each in done] == [web.HTTPRequestTimeout] * 2
    assert not any(each.done() for each in reading[2:])
    for each in reading[2:]:
        each.cancel()


class Whole:
    """A request whose body has come."""

    def __init__(self, size: int) -> None:
        """``size`` is that of its body in bytes."""
        self.content_length = size

    @property
    def content(self) -> Whole:
        """Itself: it has no more."""
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Return its body."""
        yield b" " * self.content_length


async def test_bodies_that_wait_for_their_answers_count_too() -> None:
    """Reviews of Tasks wait for a thread: 256 connections held 2 GB of them. A small one is taken all the same."""
    bodies = Bodies()
    async with AsyncExitStack() as under_way:
        for _ in range(ALL_MAX // BODY_MAX):
            await under_way.enter_async_context(bodies.of(Whole(BODY_MAX)))  # type: ignore[arg-type]
        with pytest.raises(web.HTTPServiceUnavailable):
            await under_way.enter_async_context(bodies.of(Whole(BODY_MAX)))  # type: ignore[arg-type]
        async with bodies.of(Whole(1000)) as body:  # type: ignore[arg-type]
            assert len(body) == 1000
    async with bodies.of(Whole(BODY_MAX)) as body:  # type: ignore[arg-type]
        assert len(body) == BODY_MAX


async def test_nothing_of_a_body_is_left_once_it_is_answered(tmp_path: Path) -> None:
    """Whether its connection stays open or not: aiohttp kept refused ones until the next collection, 600 MB of them."""
    body, kept = b"x" * (BODY_MAX // 2), list[Connection]()
    head = b"POST /inject HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with port(tmp_path) as webhook:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(5):
                kept.append(await webhook.connected())
                kept[-1][1].write(head + body)
                assert await kept[-1][0].readline() == b"HTTP/1.1 400 Bad Request\r\n"
                assert await webhook.asked(body) == 400
            left, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        for _, writer in kept:
            writer.close()
    assert left < BODY_MAX


@pytest.mark.parametrize("unit", ["[[[[]]]]", '{"a":{"b":0}}'])
async def test_a_body_of_a_million_values_is_not_parsed(unit: str, tmp_path: Path) -> None:
    """One of 8 MB took 350 MB of memory, beside a limit of 256, and 1.6 s in which no other review was answered."""
    body = f'{{"object":[{",".join([unit] * 300_000)}]}}'.encode()
    assert len(body) < BODY_MAX
    async with port(tmp_path) as webhook:
        tracemalloc.start()
        try:
            assert await webhook.asked(body) == 400
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 4 * BODY_MAX, "the body itself, in pieces and as a whole"


@pytest.mark.long
async def test_a_body_that_never_ends_is_answered_after_its_time(tmp_path: Path) -> None:
    """Meanwhile an honest one is."""
    async with port(tmp_path) as webhook:
        stalled = await webhook.send(b" ", length=BODY_MAX)
        assert await webhook.asked(review()) == 200
        assert await webhook.status(stalled) == 408


async def test_a_body_that_is_too_large_or_packed_is_not_read(tmp_path: Path) -> None:
    """0.2 MB unpacked to 200 and took two seconds, in which no pod could be created in time."""
    async with port(tmp_path) as webhook:
        assert await webhook.status(await webhook.send(b" ", length=BODY_MAX + 1)) == 413
        assert await webhook.asked(gzip.compress(review()), head="Content-Encoding: gzip\r\n") == 400
        assert webhook.webhook.counts.pods.malformed == 1


@pytest.mark.parametrize("namespace", ["\ud800", "x" * 64, 'a"} 1\nb{c="'])
async def test_what_is_no_namespace_is_no_label(namespace: str, tmp_path: Path) -> None:
    """Half a character there made each scrape fail from then on; a long one was kept for ever."""
    async with port(tmp_path, probes=False) as webhook:
        assert await webhook.asked(review(namespace)) == 400
        assert await webhook.asked(b"", path="/metrics") == 200
        assert webhook.webhook.counts.pods.by_outcome.total() == 0


async def test_metrics_are_at_the_port_for_probes_alone(tmp_path: Path) -> None:
    """A NetworkPolicy leaves the webhook's port open to all, and says who may read metrics."""
    async with port(tmp_path) as webhook:
        assert [await webhook.asked(b"", path=path) for path in ("/metrics", "/readyz", "/livez")] == [404] * 3


async def test_a_pod_that_is_nested_deeply_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Copied whole, it would be one, and let the pod past the webhook."""
    deep: list[object] = []
    for _ in range(600):
        deep = [deep]
    mount = {"name": "a", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    body = review(containers=[{"name": "c", "volumeMounts": [mount], "env": [], "x": deep}]).decode()
    body = body.replace('"spec": {', '"spec": {"volumes": [{"name": "a", "secret": {}}], ')
    async with port(tmp_path) as webhook:
        for _ in range(3):
            assert await webhook.asked(body.encode()) == 200
        assert webhook.webhook.counts.pods.by_outcome["team", "failed"] == 0
        assert webhook.webhook.counts.pods.by_outcome.total() == 3
    assert "Traceback" not in caplog.text


@pytest.mark.long
async def test_idle_connections_are_limited_and_an_api_server_keeps_its_own(tmp_path: Path) -> None:
    """Those on which no question was answered go first; who asks before and after is answered."""
    keeps = b"POST /inject HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(review())
    async with port(tmp_path) as webhook:
        server = await webhook.connected()
        idle: list[Connection] = []
        for _ in range(2):
            server[1].write(keeps + review())
            assert await server[0].readline() == b"HTTP/1.1 200 OK\r\n"
            head = await server[0].readuntil(b"\r\n\r\n")
            length = next(line for line in head.splitlines() if line.lower().startswith(b"content-length"))
            await server[0].readexactly(int(length.partition(b":")[2]))
            if not idle:
                idle = [await webhook.connected() for _ in range(CONNECTIONS_MAX + 4)]
        async with asyncio.timeout(PATIENCE):
            while (ended := sum(reader.at_eof() for reader, _ in idle)) < 5:  # noqa: ASYNC110 - sockets have no callback
                await asyncio.sleep(0.01)
        assert ended == 5, "one for each beyond the bound"
        for _, writer in (server, *idle):
            writer.close()

"""Creates through `backoff-ctrl proxy` on a real API server: rate, latency, CPU, wake-up, and what held ones cost.

Usage: python -m benchmarks.proxied_creates [--pairs 12] [--creates 480] [--held 1000] [--releases 200]
All in one run on one machine, direct and through the proxy in turn: creates per second at 16 in flight where there is
room; the time of one create alone; at a full quota the time from the server's answer to a delete until the next create
is stored, beside a bare loop that watches the quota and creates at once; the memory of 1,000 held creates, and whether
all get in, in order. Exits with 1 below a bar.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.proxying.sidecar import Proxy, proxy

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

IN_FLIGHT: Final = 16
RATE_BAR, LATENCY_BAR, WAKE_BAR, HELD_BAR = 0.9, 1.0, 1.3, 20.0
_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "p-"},
    "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "busybox:1"}]},
}


@dataclass
class Way:
    """A way to the API server."""

    name: str
    session: aiohttp.ClientSession
    namespace: str
    rates: list[float] = field(default_factory=list)
    alone_ms: list[float] = field(default_factory=list)

    @property
    def pods(self) -> str:
        """The collection of its pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def create(self) -> dict[str, Any]:
        """Create a pod; it must succeed."""
        async with self.session.post(self.pods, json=POD) as answer:
            made: dict[str, Any] = await answer.json()
            assert answer.status == 201, made
            return made

    async def delete(self, name: str) -> None:
        """Delete a pod at once."""
        async with self.session.delete(f"{self.pods}/{name}", params={"gracePeriodSeconds": "0"}) as answer:
            assert answer.status == 200, await answer.text()

    async def many(self, count: int) -> None:
        """Create so many, 16 at a time; note the rate."""
        left = iter(range(count))

        async def work() -> None:
            for _ in left:
                await self.create()

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        self.rates.append(count / (time.perf_counter() - began))

    async def alone(self, count: int) -> None:
        """Create so many, one after the other; note how long each takes."""
        for _ in range(count):
            began = time.perf_counter()
            await self.create()
            self.alone_ms.append(1e3 * (time.perf_counter() - began))

    async def empty(self) -> None:
        """Delete all pods."""
        async with self.session.delete(self.pods, params={"gracePeriodSeconds": "0"}) as answer:
            assert answer.status == 200, await answer.text()


def used(process: int) -> tuple[float, float]:
    """Return the CPU seconds and the resident kB of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK, int(fields[21]) * _PAGE / 1024


async def prepare(direct: aiohttp.ClientSession, namespace: str, pods: int) -> None:
    """Make a namespace with a quota, and wait until it counts."""
    async with direct.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}) as answer:
        assert answer.status == 201
    await set_quota(direct, namespace, pods, "POST", "resourcequotas")


async def set_quota(direct: aiohttp.ClientSession, namespace: str, pods: int, method: str, path: str) -> None:
    """Write the quota, and wait until its status says so."""
    base = f"/api/v1/namespaces/{namespace}"
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(pods)}}}
    async with direct.request(method, f"{base}/{path}", json=body) as answer:
        assert answer.status in (200, 201), await answer.text()
    async with asyncio.timeout(60):
        while True:
            async with direct.get(f"{base}/resourcequotas/q") as answer:
                quota = await answer.json()
            if quota.get("status", {}).get("hard") == quota["spec"]["hard"]:  # as the server writes it: 1M
                return
            await asyncio.sleep(0.02)


async def rates(direct: Way, proxied: Way, running: Proxy, pairs: int, creates: int) -> list[str]:
    """Compare creates where there is room."""
    cpu = 0.0
    for pair in range(pairs):
        for way in (direct, proxied) if pair % 2 else (proxied, direct):
            before, _ = used(running.process.pid)
            await way.many(creates)
            await way.alone(20)
            if way is proxied:
                cpu += used(running.process.pid)[0] - before
            await way.empty()
    ratio = statistics.median(mine / theirs for mine, theirs in zip(proxied.rates, direct.rates, strict=True))
    alone = [statistics.median(way.alone_ms) for way in (direct, proxied)]
    each = 1e6 * cpu / (pairs * (creates + 20))
    return [
        line("creates per second, 16 in flight, direct", statistics.median(direct.rates), "/s"),
        line("the same through the proxy", statistics.median(proxied.rates), "/s"),
        line("ratio, median of the pairs", ratio, "x", ratio >= RATE_BAR, f">= {RATE_BAR}"),
        line("CPU of the proxy per create", each, "us"),
        line("one create alone, direct, p50", alone[0], "ms"),
        line(
            "added by the proxy, p50",
            alone[1] - alone[0],
            "ms",
            alone[1] - alone[0] <= LATENCY_BAR,
            f"<= {LATENCY_BAR}",
        ),
    ]


async def wakes(way: Way, releases: int, *, bare: bool) -> list[float]:
    """At a full quota, delete a pod each 0.1 s; return the milliseconds until the next one was stored."""
    names = [(await way.create())["metadata"]["name"]]
    stored: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def creator() -> None:
        while True:
            made = await (until_room(way) if bare else way.create())
            await stored.put((time.perf_counter(), made["metadata"]["name"]))

    working = asyncio.create_task(creator())
    found: list[float] = []
    try:
        for _ in range(releases):
            await asyncio.sleep(0.1)
            await way.delete(names.pop())
            freed = time.perf_counter()
            try:
                at, name = await asyncio.wait_for(stored.get(), 30)
            except TimeoutError:
                raise RuntimeError(f"{way.name}: nothing was created within 30 s of release {len(found)}") from None
            found.append(1e3 * max(0.0, at - freed))
            names.append(name)
    finally:
        working.cancel()
        await asyncio.wait({working})
    await way.empty()
    return found


async def until_room(way: Way) -> dict[str, Any]:
    """Watch the quota, and create as soon as it shows room: what a careful program would write by itself.

    If the server refuses though its quota shows room - admission trails the watch - it looks anew, 5 ms later.
    """
    path = f"/api/v1/namespaces/{way.namespace}/resourcequotas"
    while True:
        async with way.session.get(path, params={"watch": "true"}) as watch:
            async for line_of in watch.content:
                status = json.loads(line_of)["object"].get("status", {})
                if int(status.get("used", {}).get("pods", "1")) < int(status.get("hard", {}).get("pods", "0")):
                    async with way.session.post(way.pods, json=POD) as answer:
                        if answer.status == 201:
                            made: dict[str, Any] = await answer.json()
                            return made
                    break
        await asyncio.sleep(0.005)


async def held(way: Way, direct: aiohttp.ClientSession, running: Proxy, count: int) -> list[str]:
    """Hold so many creates; then make room for all, and see in which order they come."""
    await way.create()
    _, before = used(running.process.pid)
    order: list[int] = []

    async def one(number: int) -> None:
        await way.create()
        order.append(number)

    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(one(number)))
        if number % 50 == 49:
            await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    _, after = used(running.process.pid)
    await set_quota(direct, way.namespace, count + 10, "PUT", "resourcequotas/q")
    await asyncio.wait_for(asyncio.gather(*tasks), 120)
    behind = sum(abs(place - number) > 2 * IN_FLIGHT * 16 for place, number in enumerate(order))
    each = (after - before) / count
    return [
        line(f"memory of each of {count} held creates, body included", each, "kB", each <= HELD_BAR, f"<= {HELD_BAR}"),
        line("of these admitted far from their place", behind, "", behind == 0, "0"),
    ]


def line(name: str, value: float, unit: str, kept: bool | None = None, bar: str = "") -> str:
    """Write a row, with its bar."""
    verdict = "" if kept is None else f"   bar {bar}{'' if kept else '   MISSED'}"
    return f"{name:<58}{value:10.2f} {unit:<3}{verdict}"


@asynccontextmanager
async def connected(url: str, token: str, tls: ssl.SSLContext | bool = True) -> AsyncIterator[aiohttp.ClientSession]:
    """A client with a token, and as many connections as it likes."""
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    limits = aiohttp.ClientTimeout(total=None)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(url, connector=connector, headers=headers, timeout=limits) as session:
        yield session


async def measure(bed: Bed, options: argparse.Namespace) -> list[str]:
    """Run all of it."""
    server = bed.server
    patient = ("--hold", "600", "--hold-total", "600", "--max-connections", "4000")
    with tempfile.TemporaryDirectory() as folder:
        async with (
            proxy(server.kubeconfig("creator"), Path(folder), *patient) as running,
            connected(server.url, server.token("tester"), server.ssl() or True) as direct,
            connected(running.url, server.token("tester")) as through,
        ):
            ways = Way("direct", direct, "bench-direct"), Way("proxy", through, "bench-proxied")
            for way in ways:
                await prepare(direct, way.namespace, 1_000_000)
            rows = await rates(*ways, running, options.pairs, options.creates)
            bare, gated = Way("bare", direct, "bench-bare"), Way("gated", through, "bench-woken")
            for way in (bare, gated):
                await prepare(direct, way.namespace, 1)
            half = options.releases // 2
            times: dict[str, list[float]] = {"bare": [], "gated": []}
            for way in (bare, gated, gated, bare):
                times[way.name] += await wakes(way, half, bare=way is bare)
            p50 = {name: statistics.median(each) for name, each in times.items()}
            ratio = p50["gated"] / p50["bare"]
            rows += [
                line("wake at 10 releases a second, bare loop, p50", p50["bare"], "ms"),
                line("the same through the proxy, p50", p50["gated"], "ms"),
                line("ratio", ratio, "x", ratio <= WAKE_BAR, f"<= {WAKE_BAR}"),
            ]
            waiting = Way("held", through, "bench-held")
            await prepare(direct, waiting.namespace, 1)
            rows += await held(waiting, direct, running, options.held)
            rows.append(line("resident memory of the proxy in the end", used(running.process.pid)[1] / 1024, "MB"))
            return rows


def main() -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--creates", type=int, default=480)
    parser.add_argument("--held", type=int, default=1000)
    parser.add_argument("--releases", type=int, default=200)
    options = parser.parse_args()
    with Bed(wanted(), kcm_qps=500) as bed:
        rows = asyncio.run(measure(bed, options))
    print("\n".join(rows))
    sys.exit(any("MISSED" in row for row in rows))


if __name__ == "__main__":
    main()

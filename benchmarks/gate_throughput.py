"""Measures creates per second through a gated client against the same client ungated, on a real API server.

Usage: python benchmarks/gate_throughput.py [--kubeconfig FILE] [--pairs 12] [--slices 10] [--creates 80]
       [--in-flight 16] [--only async|sync] [--json]
Without a kubeconfig the test bed's server is started. 16 creates are in flight at a time, and the quotas of both
namespaces are far from full. A pair consists of short slices, gated and ungated in turn (which is first alternates,
too), so that other load on the machine and the server affects both alike. The client's CPU time per create is printed
as well. The gated client for threads asks a kubeconfig for its token at most once a
second. Exits with 1 if the lower end of the interval of the ratio is below the bar.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kubernetes import client, config
from kubernetes.aio import client as aio

from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from tests.kit.aio_configuration import aio_configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

BAR: Final = 0.93
LEAST_PAIRS: Final = 12
CONFIDENCE: Final = 0.90
PLENTY: Final = {"pods": "1000000", "requests.cpu": "1000000", "requests.memory": "1Pi", "limits.memory": "1Pi"}
POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "p-", "labels": {"app": "bench"}},
    "spec": {
        "restartPolicy": "Never",
        "schedulerName": "nobody",
        "containers": [
            {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"},
                                                                 "limits": {"memory": "128Mi"}}}
        ],
    },
}  # fmt: skip


class Room:
    """Two namespaces for this run, with the same quota. The gate uses only one of them."""

    def __init__(self, configuration: client.Configuration) -> None:
        """Choose unique names."""
        self._core: Any = client.CoreV1Api(client.ApiClient(configuration))
        self._suffix = f"{os.getpid()}-{time.time_ns() % 10**9}"
        self.namespaces = {kind: f"throughput-{kind}-{self._suffix}" for kind in ("gated", "direct")}

    def __enter__(self) -> Self:
        for name in self.namespaces.values():
            self._core.create_namespace({"metadata": {"name": name}})
            self._core.create_namespaced_resource_quota(
                name, {"metadata": {"name": "plenty"}, "spec": {"hard": PLENTY}}
            )
        deadline = time.monotonic() + 60
        while not all(self._ready(name) for name in self.namespaces.values()):
            if time.monotonic() > deadline:
                sys.exit("the quotas' status stays empty: is a controller manager running?")
            time.sleep(0.05)
        return self

    def _ready(self, name: str) -> bool:
        return bool(self._core.read_namespaced_resource_quota("plenty", name).status.hard)

    def count(self, kind: str) -> int:
        """Count the pods at the server."""
        found = self._core.list_namespaced_pod(self.namespaces[kind], limit=1)
        return len(found.items) + (found.metadata.remaining_item_count or 0)

    def empty(self, kind: str) -> None:
        """Delete the pods, so that the store does not grow, and wait until they are gone."""
        self._core.delete_collection_namespaced_pod(self.namespaces[kind], grace_period_seconds=0)
        while self.count(kind):
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        for name in self.namespaces.values():
            self._core.delete_namespace(name)


class Threads:
    """The synchronous client, a thread for each create in flight."""

    label = "sync"

    def __init__(self, configuration: client.Configuration, in_flight: int) -> None:
        configuration.connection_pool_maxsize = in_flight
        self._in_flight = in_flight
        self._clients = {"gated": GatedApiClient(configuration), "direct": client.ApiClient(configuration)}
        self._pool = ThreadPoolExecutor(in_flight)

    def spell(self, kind: str, namespace: str, creates: int) -> float:
        """Create so many pods; return the creates per second."""
        core: Any = client.CoreV1Api(self._clients[kind])  # takes plain objects, whatever its annotations say
        left = iter(range(creates))

        def work() -> None:
            for _ in left:
                core.create_namespaced_pod(namespace, POD)

        began = time.perf_counter()
        for each in [self._pool.submit(work) for _ in range(self._in_flight)]:
            each.result()
        return creates / (time.perf_counter() - began)

    def close(self) -> None:
        """Close both clients."""
        self._pool.shutdown()
        for each in self._clients.values():
            each.close()


class Loop:
    """The asyncio client, a task for each create in flight."""

    label = "async"

    def __init__(self, configuration: client.Configuration, in_flight: int) -> None:
        self._in_flight = in_flight
        self._runner = asyncio.Runner()
        self._clients: dict[str, aio.ApiClient] = self._runner.run(self._make(configuration))

    async def _make(self, configuration: client.Configuration) -> dict[str, aio.ApiClient]:
        made = aio_configuration(configuration)
        made.connection_pool_maxsize = self._in_flight
        return {"gated": AsyncGatedApiClient(made), "direct": aio.ApiClient(made)}

    def spell(self, kind: str, namespace: str, creates: int) -> float:
        """Create so many pods; return the creates per second."""
        core: Any = aio.CoreV1Api(self._clients[kind])
        left = iter(range(creates))

        async def work() -> None:
            for _ in left:
                await core.create_namespaced_pod(namespace, POD)

        async def together() -> float:
            began = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(self._in_flight)))
            return creates / (time.perf_counter() - began)

        return self._runner.run(together())

    def close(self) -> None:
        """Close both clients."""

        async def close() -> None:
            for each in self._clients.values():
                await each.close()

        self._runner.run(close())
        self._runner.close()


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the median and its confidence interval, by order statistics: no distribution is assumed.

    The median lies between the k-th smallest and the k-th largest value with probability 1 - 2 P(B < k), where B is
    binomial (number of values, 1/2); k is the largest for which this is at least ``CONFIDENCE``.
    """
    ordered, number = sorted(values), len(values)
    below, k = 0.0, 0
    while (below := below + math.comb(number, k) / 2**number) <= (1 - CONFIDENCE) / 2:
        k += 1
    if k == 0:
        raise ValueError(f"{number} values are too few for an interval")
    return statistics.median(ordered), ordered[k - 1], ordered[-k]


def measure(clients: Threads | Loop, room: Room, pairs: int, slices: int, creates: int) -> dict[str, Any]:
    """Measure the pairs with one kind of client."""
    rates: dict[str, list[float]] = {"gated": [], "direct": []}
    cpu: dict[str, list[float]] = {"gated": [], "direct": []}
    for number in range(-1, pairs):  # the first pair warms up: connections, caches, what the gate has to learn
        took, used = dict.fromkeys(rates, 0.0), dict.fromkeys(rates, 0.0)
        for turn in range(slices):
            for kind in ("gated", "direct") if turn % 2 else ("direct", "gated"):
                before = time.process_time()
                took[kind] += creates / clients.spell(kind, room.namespaces[kind], creates)
                used[kind] += time.process_time() - before
        for kind, rate in rates.items():
            if (stored := room.count(kind)) != creates * slices:
                sys.exit(f"{kind}: {stored} pods exist after {creates * slices} creates")
            room.empty(kind)
            if number >= 0:
                rate.append(creates * slices / took[kind])
                cpu[kind].append(used[kind] / (creates * slices))
    ratios = [gated / direct for gated, direct in zip(rates["gated"], rates["direct"], strict=True)]
    median, low, high = interval(ratios)
    return {
        "gated_per_s": statistics.median(rates["gated"]),
        "direct_per_s": statistics.median(rates["direct"]),
        "gated_cpu_us": statistics.median(cpu["gated"]) * 1e6,
        "direct_cpu_us": statistics.median(cpu["direct"]) * 1e6,
        "ratio_median": median,
        "ratio_low": low,
        "ratio_high": high,
        "ratios": ratios,
    }


@contextmanager
def cluster(kubeconfig: str | None) -> Iterator[client.Configuration]:
    """Yield the configuration of the given cluster, else of a real server that is started for this run."""
    configuration = client.Configuration()
    if kubeconfig is not None:
        config.load_kube_config(kubeconfig, client_configuration=configuration)
        yield configuration
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.cluster.control_plane.bed import Bed  # noqa: PLC0415 - only if no cluster is given
    from tests.cluster.control_plane.binaries import wanted  # noqa: PLC0415 - builds the binaries if there are none

    with Bed(wanted()) as bed:
        config.load_kube_config(str(bed.server.kubeconfig("tester")), client_configuration=configuration)
        yield configuration


def main() -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--creates", type=int, default=80)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--only", choices=["async", "sync"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.pairs < LEAST_PAIRS:
        parser.error(f"--pairs must be {LEAST_PAIRS} or more: fewer are too noisy to judge")
    logging.basicConfig(level=logging.WARNING)
    found: dict[str, Any] = {}
    with cluster(options.kubeconfig) as configuration:
        for make in (Loop, Threads):
            if options.only not in (None, make.label):
                continue
            with Room(configuration) as room:
                clients = make(configuration, options.in_flight)
                try:
                    found[make.label] = measure(clients, room, options.pairs, options.slices, options.creates)
                finally:
                    clients.close()
    if options.json:
        print(json.dumps({"in_flight": options.in_flight, "pairs": options.pairs, "bar": BAR, **found}, indent=2))
    else:
        for label, each in found.items():
            print(
                f"{label:<6}{each['gated_per_s']:6,.0f} creates/s gated, {each['direct_per_s']:6,.0f} direct, "
                f"{options.in_flight} in flight: median ratio {each['ratio_median']:.3f}, "
                f"{CONFIDENCE:.0%} interval {each['ratio_low']:.3f}-{each['ratio_high']:.3f} ({options.pairs} pairs); "
                f"client CPU {each['gated_cpu_us']:.0f} and {each['direct_cpu_us']:.0f} us a create"
            )
    sys.exit(any(each["ratio_low"] < BAR for each in found.values()))


if __name__ == "__main__":
    main()

"""What looking costs: ``make looking``, or ``python -m benchmarks.status [--namespaces N] [--waiters N]``.

A gate that knows many namespaces, in a hundred of which many creates wait. Printed as JSON: the memory that the status
adds to a process, the time and size of a scrape, the 99th percentiles of a filtered query and of a page, the longest
that a look holds the ledger's lock (and how much of that it computed: the rest is other work of the machine), the 99th
percentile of a decision alone and during scrapes; what 200 listeners cost (``listeners``); and ``serve`` at as many
namespaces (``serving``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from typing import Any

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.status.gate_endpoints import GateEndpoints
from backoff_ctrl.k8s.status.metrics import exposition
from backoff_ctrl.k8s.status.serving import Service
from benchmarks.serving import serve_at

GIB = 10**9
BUSY = 100
MEMORY = """
import resource, sys
from kubernetes import client
from backoff_ctrl import GatedApiClient
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
with GatedApiClient(client.Configuration(host="http://127.0.0.1:1")):
    before = rss()
    from backoff_ctrl import serve_status
    import urllib.request
    status = serve_status(listen="127.0.0.1:0")
    urllib.request.urlopen(status.url + "/metrics").read()
    urllib.request.urlopen(status.url + "/v1/ceilings").read()
    print(rss() - before)
"""


class Mute:
    """A transport that never sends: its creates wait."""

    def send(self, body: Any) -> Any:
        """Fail, if a create gets as far as that."""
        raise AssertionError(body)


def filled(namespaces: int, waiters: int) -> tuple[Gate, Service]:
    """Make a gate with quotas of two resources in each namespace; in the first hundred they are full and many wait."""
    gate = Gate(policy=Policy(base=3600, cap=3600))
    service = Service()
    service.add(gate.ledger)
    busy = min(BUSY, namespaces)
    for number in range(namespaces):
        hard = {"pods": 10 * GIB, "requests.cpu": 40 * GIB}
        used = hard if number < busy else dict.fromkeys(hard, GIB)
        gate.ledger.observe_quota(f"team-{number}", "q", ObservedQuota(hard, hard, used))
    gate.ledger.watching(None)
    for number in range(busy):
        for each in range(waiters // busy):
            cpu = f"{100 + each % 20}m"
            spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{each}"}, "spec": spec}
            creation = Creation("http://s", "c", f"team-{number}", "pods", body)
            gate.run_on(lambda step: step(), Create(gate, creation), Mute(), lambda: None)  # type: ignore[arg-type]
    return gate, service


class TimedLock:
    """A lock that notes how long it was held by the thread that is timed."""

    def __init__(self, lock: Any) -> None:
        """Wrap a lock."""
        self._lock = lock
        self.timed = threading.get_ident()
        self.longest: list[float] = []
        self.longest_busy: list[float] = []
        self._since = self._busy = 0.0

    def locked(self) -> bool:
        """Whether anybody holds it."""
        return bool(self._lock.locked())

    def __enter__(self) -> None:
        self._lock.acquire()
        self._since, self._busy = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        held = time.perf_counter() - self._since
        if threading.get_ident() == self.timed:
            self.longest.append(held)
            self.longest_busy.append(time.thread_time() - self._busy)
        self._lock.release()


def decisions(gate: Gate, seconds: float, until: threading.Event | None = None) -> list[float]:
    """Time decisions, one every millisecond."""
    amounts = {"pods": 10 * GIB, "requests.cpu": 40 * GIB}
    seen = ObservedQuota(amounts, amounts, dict.fromkeys(amounts, GIB))
    found = []
    end = time.perf_counter() + seconds
    number = 0
    while (time.perf_counter() < end) if until is None else not until.is_set():
        began = time.perf_counter()
        gate.ledger.observe_quota(f"team-{BUSY + number % 1000}", "q", seen)
        found.append(time.perf_counter() - began)
        number += 1
        time.sleep(0.001)
    return sorted(found)


def asked(endpoints: GateEndpoints, path: str, namespaces: int) -> tuple[bytes, float]:
    """Ask of one namespace after the other; return a document, and the 99th percentile in milliseconds."""
    times, body = [], b""
    place, _, query = path.partition("?")
    for number in range(500):
        began = time.perf_counter()
        body = b"".join(endpoints.reply("GET", place, query % (number % namespaces)).body)
        times.append(time.perf_counter() - began)
    return body, round(1e3 * sorted(times)[len(times) * 99 // 100], 2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespaces", type=int, default=10_000)
    parser.add_argument("--waiters", type=int, default=100_000)
    chosen = parser.parse_args()
    added = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    gate, service = filled(chosen.namespaces, chosen.waiters)
    endpoints = GateEndpoints(service.documents, None, series_max=50_000)
    exposition(service.documents)  # the first sorts the names
    alone = decisions(gate, 3.0)
    lock = gate.ledger.engine.lock = TimedLock(gate.ledger.engine.lock)  # type: ignore[assignment]
    began = time.perf_counter()
    text = b"".join(exposition(service.documents))
    took = time.perf_counter() - began
    scrape_lock, scrape_busy = sorted(lock.longest), max(lock.longest_busy)
    lock.longest, lock.longest_busy = [], []
    page, waiting = asked(endpoints, "/v1/waiting?namespace=team-%d&limit=100", min(BUSY, chosen.namespaces))
    _, filtered = asked(endpoints, "/v1/ceilings?namespace=team-%d", chosen.namespaces)
    over = threading.Event()
    during: list[float] = []
    decider = threading.Thread(target=lambda: during.extend(decisions(gate, 0, over)))
    decider.start()
    for _ in range(5):
        exposition(service.documents)
    over.set()
    decider.join()
    during.sort()
    print(
        json.dumps(
            {
                "namespaces": chosen.namespaces,
                "waiters": gate.ledger.counts.waiting,
                "added_to_a_process_mb": round(int(added.stdout) / 1e6, 1),
                "scrape_s": round(took, 3),
                "scrape_mb": round(len(text) / 1e6, 2),
                "scrape_lock_ms_max": round(1e3 * scrape_lock[-1], 3),
                "scrape_lock_ms_p99": round(1e3 * scrape_lock[len(scrape_lock) * 99 // 100], 3),
                "scrape_lock_cpu_ms_max": round(1e3 * scrape_busy, 3),
                "filtered_query_ms_p99": filtered,
                "page_of_100_waiting_ms_p99": waiting,
                "page_bytes": len(page),
                "page_lock_ms_max": round(1e3 * max(lock.longest), 3),
                "page_lock_cpu_ms_max": round(1e3 * max(lock.longest_busy), 3),
                "decision_ms_p99": round(1e3 * alone[len(alone) * 99 // 100], 3),
                "decision_during_scrapes_ms_p99": round(1e3 * during[len(during) * 99 // 100], 3),
                **json.loads(subprocess.check_output([sys.executable, "-m", "benchmarks.listeners"])),
                **serve_at(chosen.namespaces),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()

"""Four processes that create pods in one namespace with a quota of 10: each by itself, or one sidecar between them.

Usage: python -m benchmarks.processes [--creates 200] [--quota 10] [--seconds 1] [--rounds 3] [--json]
On the embedded API server, whose pods end after so many seconds. Each process has a quarter of the creates; they come
twice as fast as the quota lets them in, so that more and more wait. ``plain``: tenacity's random exponential
back-off, from 0.1 s up to 6 s. ``gates``: a gate in each process, which watches the quota. ``proxy``: the plain
client, unchanged, behind one ``backoff-ctrl proxy``. Printed are the medians of the rounds: refusals, counted at the
server; seconds until all were created; of the first half of the pods the share of the process with the fewest and
with the most (0.25 is fair); and the median waits of the processes, from each create's arrival: the longest divided
by the shortest. Exits with 1 if behind the proxy there are more refusals than creates / 20, or if a pod is missing or
was created twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Final

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.replay.clients import make_client
from backoff_ctrl.k8s.lab.replay.over_http import proxy_process, reached, sandbox_process
from backoff_ctrl.k8s.lab.replay.workload import Pod

PROCESSES: Final = 4
WAYS: Final = {"plain": "plain", "gates": "gate_observing", "proxy": "plain"}
"""Each with the client of its processes."""
PLAIN_FACTOR: Final = 10.0
"""Plain retries pause a tenth of tenacity's own 60 s at most, as the pods run for a second."""


async def work(
    url: str, through: str, client: str, name: str, creates: int, seconds: float, every: float
) -> list[tuple[float, float]]:
    """Create the pods of one process; return when each came and when it was created, in seconds of the epoch."""
    created = []
    async with reached(find_place(through or url, None, None, None)) as cluster:
        made = make_client(client, cluster, seed=hash(name), factor=PLAIN_FACTOR if client == "plain" else 1.0)
        await cluster.until_observed(made)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # all begin together

        async def one(number: int) -> None:
            await asyncio.sleep(number * every)
            came = time.time()
            await made.place(Pod(f"{name}-{number}", "team", 0.0, seconds, {"limits.cpu": 10}))
            created.append((came, time.time()))

        await asyncio.gather(*(one(number) for number in range(creates)))
    return created


def once(way: str, creates: int, quota: int, seconds: float) -> dict[str, float]:
    """Let four processes create all pods one way; return what it took."""
    with ExitStack() as stack:
        url = stack.enter_context(sandbox_process({"team": {"pods": str(quota)}}, seed=1))
        through = stack.enter_context(proxy_process(url, 1.0)) if way == "proxy" else ""
        command = [sys.executable, "-m", "benchmarks.processes", "--work", url, through, WAYS[way]]
        rest = (str(creates // PROCESSES), str(seconds), str(seconds / quota / 2 * PROCESSES))
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, f"process-{number}", *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for number in range(PROCESSES)
        ]
        for each in running:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        began = time.time()
        for each in running:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        created = [[(came - began, at - began) for came, at in json.loads(each.communicate()[0])] for each in running]
        refused, stored = asyncio.run(counted(url))
    assert stored == creates, f"{way}: {stored} pods of {creates}"
    return {"refused": refused, **fairness(created)}


async def counted(url: str) -> tuple[int, int]:
    """Return how many creates the server refused, and how many pods there are. A pod that is there twice fails."""
    async with reached(find_place(url, None, None, None)) as cluster:
        record = await cluster.count()
        assert max(record.admitted.values()) == 1, "a pod was created twice"
        return record.refused, len(record.admitted)


def fairness(created: list[list[tuple[float, float]]]) -> dict[str, float]:
    """Return how evenly the processes were served: when did each create of each come, and when was it done?"""
    order = sorted((at, number) for number, each in enumerate(created) for _, at in each)
    half = order[: len(order) // 2]
    shares = [sum(each == number for _, each in half) / len(half) for number in range(len(created))]
    medians = [statistics.median(at - came for came, at in each) for each in created]
    return {
        "seconds": order[-1][0],
        "fewest": min(shares),
        "most": max(shares),
        "spread": max(medians) / min(medians),
    }


def main() -> None:
    """Run all ways, and print the table."""
    if sys.argv[1:2] == ["--work"]:
        url, through, client, name, creates, seconds, every = sys.argv[2:]
        done = asyncio.run(work(url, through, client, name, int(creates), float(seconds), float(every)))
        print(json.dumps(done))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--creates", type=int, default=200)
    parser.add_argument("--quota", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way, found in rounds.items():
            found.append(once(way, options.creates, options.quota, options.seconds))
    rows = {
        way: {key: statistics.median(each[key] for each in found) for key in found[0]} for way, found in rounds.items()
    }
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'':8} {'refused':>8} {'seconds':>8} {'fewest':>7} {'most':>6} {'waits, most/least':>18}")
        for way, row in rows.items():
            print(
                f"{way:8} {row['refused']:8.0f} {row['seconds']:8.1f} {row['fewest']:7.2f} {row['most']:6.2f} "
                f"{row['spread']:18.2f}"
            )
        for way, found in rounds.items():
            print(f"refused, each round, {way}: {[int(each['refused']) for each in found]}")
    sys.exit(rows["proxy"]["refused"] > options.creates / 20)


if __name__ == "__main__":
    main()

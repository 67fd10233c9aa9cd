"""Creates per second through a gate in memory, without a server: what the gate itself costs threads.

Usage: python benchmarks/free_creates.py [--threads 16] [--seconds 2] [--rounds 5] [--beside CHECKOUT]
``--beside`` names another checkout with a .venv of its own: rounds of both are run in turn, and the ratio of their
medians is printed, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve()


def creates_per_second(threads: int, seconds: float) -> tuple[float, float]:
    """Return the rate of creates that are free, from so many threads, and the 99th percentile of their times in ms."""
    from backoff_ctrl.k8s.gate.creates.creation import Creation  # noqa: PLC0415
    from backoff_ctrl.k8s.gate.threads import Gate  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.answers.answer import Answer  # noqa: PLC0415 - of whichever checkout runs this

    class Stores:
        def send(self, _: dict[str, Any]) -> Answer:
            return Answer(201, {}, b"{}")

        def look_up(self, _: str) -> Answer:
            return Answer(404, {}, b"{}")

    gate, transport = Gate(), Stores()
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    over = time.perf_counter() + seconds
    took: list[list[float]] = [[] for _ in range(threads)]

    def work(mine: list[float]) -> None:
        while (began := time.perf_counter()) < over:
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}
            gate.create(Creation("http://s", "me", "team", "pods", body), transport)
            mine.append(time.perf_counter() - began)

    workers = [threading.Thread(target=work, args=(each,)) for each in took]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    every = sorted(each for mine in took for each in mine)
    return len(every) / seconds, 1000 * every[len(every) * 99 // 100]


def measured(checkout: Path, threads: int, seconds: float) -> tuple[float, float]:
    """Measure in a process of a checkout."""
    python = checkout / ".venv" / "bin" / "python"
    command = [str(python), str(HERE), "--threads", str(threads), "--seconds", str(seconds), "--one"]
    rate, late = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.split()
    return float(rate), float(late)


def main() -> None:
    """Print the rate, and its ratio to another checkout's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        rate, late = creates_per_second(asked.threads, asked.seconds)
        sys.stdout.write(f"{rate} {late}\n")
        return
    checkouts = [HERE.parents[1], *([asked.beside.resolve()] if asked.beside else [])]
    rounds = [[measured(each, asked.threads, asked.seconds) for each in checkouts] for _ in range(asked.rounds)]
    rates = []
    for number, checkout in enumerate(checkouts):
        rate, late = (statistics.median(each[number][part] for each in rounds) for part in (0, 1))
        rates.append(rate)
        sys.stdout.write(f"{checkout.name}: {rate:,.0f} creates/s from {asked.threads} threads, p99 {late:.2f} ms\n")
    if asked.beside:
        sys.stdout.write(f"ratio: {rates[0] / rates[1]:.2f}\n")


if __name__ == "__main__":
    main()

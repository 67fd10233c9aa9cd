"""Measure the engine: what one decision, one rejection and one waiting request cost. Writes ``build/bench.json``.

Times of single decisions are given as multiples of a yardstick, ``json.loads`` of a pod of 440 bytes, measured in the
same run, alternating with them: machines differ and are noisy, ratios less so. The scenarios with a million waiting
requests run in processes of their own (``waiters.py``), and so do the creates that wait at a client
(``waiting_creates.py``). Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from backoff_ctrl.engine import Controller, Created, Demand, Rejected, Request, Ticket
from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "bench.json"
POD = (HERE / "pod-yardstick.json").read_text()
GIB = 1024**3 * 10**9
ROUNDS = 60
SCENARIOS = ("spread", "crowded")
CLIENTS = {"threads": 300, "async_req": 1000, "asyncio": 1000}  # how many creates wait
BARS = {
    "blocked_ratio": 0.2,
    "admit_settle_ratio": 0.6,
    "reject_ratio": 2.5,
    "bytes_per_waiter": 600.0,
    "bytes_per_waiting_create": 2600.0,
    "wake_us_at_1e6_waiters": 200.0,
}
GROWTH_BAR = 2.0  # a decision beside 1,000,000 waiting requests against one beside 1,000


def pod_demand(cpu_milli: int) -> Demand:
    """Return what a pod of this size is charged, under every name that a quota may use."""
    cpu, memory = cpu_milli * 10**6, cpu_milli * GIB // 500
    return Demand(
        {"pods": 10**9, "count/pods": 10**9, "cpu": cpu, "requests.cpu": cpu, "memory": memory,
         "requests.memory": memory, "limits.cpu": cpu, "limits.memory": memory}
    )  # fmt: skip


def yardstick(_round: int) -> float:
    """Return microseconds of one ``json.loads`` of the pod."""
    loads, count = json.loads, 1000
    start = perf_counter_ns()
    for _ in range(count):
        loads(POD)
    return (perf_counter_ns() - start) / count / 1000


def full_quota(controller: Controller) -> None:
    """Teach a controller a full quota by a rejection, as a gate without a watch learns it."""
    controller.submit(Request("first", "team", pod_demand(1000)), 0.0)
    [ticket] = controller.advance(0.0)
    assert isinstance(ticket, Ticket)
    limited = {"requests.cpu": 64 * 10**9, "requests.memory": 128 * GIB}
    controller.settle(ticket, Rejected("quota", {"requests.cpu": 10**9}, limited, limited), 0.1)
    controller.advance(0.1)


def blocked(_round: int) -> float:
    """Return microseconds for one create that waits behind equal ones: request, submit and advance."""
    controller = Controller()
    full_quota(controller)
    demands = [pod_demand(100 * i) for i in range(1, 9)]
    for demand in demands:
        controller.submit(Request("equal", "team", demand), 0.2)
    names = [f"pod-{i}" for i in range(1000)]
    now = 0.2
    start = perf_counter_ns()
    for name in names:
        controller.submit(Request(name, "team", demands[1]), now)
        controller.advance(now)
        now += 1e-6
    return (perf_counter_ns() - start) / len(names) / 1000


def blocked_alone(_round: int) -> float:
    """Return microseconds for one create that waits and is the first of its shape."""
    controller = Controller()
    full_quota(controller)
    demands = [pod_demand(100 + i) for i in range(200)]
    start = perf_counter_ns()
    for demand in demands:
        controller.submit(Request("pod", "team", demand), 0.2)
        controller.advance(0.2)
    return (perf_counter_ns() - start) / len(demands) / 1000


def admit_settle(_round: int) -> float:
    """Return microseconds for one create that is sent at once: request, submit, advance, settle, advance."""
    controller = Controller()
    limited = {"requests.cpu": 10**18, "requests.memory": 10**30}
    used = {"requests.cpu": 10**9, "requests.memory": GIB}
    ticket = controller.of("team").force(Request("as large as all", "team", pod_demand(1000)), 0.0)
    controller.settle(ticket, Rejected("quota", limited, used, limited), 0.1)
    controller.of(ticket.request.namespace).withdraw(ticket.request, 0.1)
    controller.advance(0.1)
    demand = pod_demand(100)
    names = [f"pod-{i}" for i in range(500)]
    now = 0.2
    start = perf_counter_ns()
    for name in names:
        controller.submit(Request(name, "team", demand), now)
        effect = controller.advance(now)[0]
        assert isinstance(effect, Ticket)
        controller.settle(effect, Created(), now)
        controller.advance(now)
        now += 1e-6
    return (perf_counter_ns() - start) / len(names) / 1000


def rejection_body(rng: random.Random, milli: int) -> bytes:
    """Return a full quota's answer to a pod as an API server words it: the whole Status, no two alike.

    Only exceeded resources are named: cpu half of the time, else cpu and memory.
    """
    name = f"job-{rng.randrange(16**8):08x}"
    requested, used = [f"requests.cpu={milli}m"], [f"requests.cpu={64_000 - rng.randrange(milli)}m"]
    limited = ["requests.cpu=64"]
    if rng.random() < 0.5:
        requested.append(f"requests.memory={milli * 1024 // 500}Mi")
        used.append(f"requests.memory={131_072 - rng.randrange(milli)}Mi")
        limited.append("requests.memory=128Gi")
    message = (
        f'pods "{name}" is forbidden: exceeded quota: team-quota, requested: {",".join(requested)}, '
        f"used: {','.join(used)}, limited: {','.join(limited)}"
    )
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "Forbidden", "details": {"name": name, "kind": "pods"}, "code": 403,
    }  # fmt: skip
    return json.dumps(status, separators=(",", ":")).encode() + b"\n"


def reject(number: int) -> float:
    """Return microseconds to read one quota rejection from bytes and learn from it; all texts differ.

    The scan of the line that follows belongs to the next decision and is not counted here.
    """
    rng = random.Random(number)
    controller = Controller()
    full_quota(controller)
    headers = {"Content-Type": "application/json"}
    sizes = [500, 1000, 1500, 2000]
    demands = {milli: pod_demand(milli) for milli in sizes}
    spent, count, now = 0, 100, 0.2
    for _ in range(count):
        milli = rng.choice(sizes)
        body = rejection_body(rng, milli)
        ticket = controller.of("team").force(Request("pod", "team", demands[milli]), now)
        now += 1e-4
        start = perf_counter_ns()
        read = read_rejection(403, headers, body)
        controller.settle(ticket, Rejected(read.quota, read.requested, read.used, read.limited), now)
        spent += perf_counter_ns() - start
        controller.advance(now)
        assert read.lane is Lane.QUOTA
        now += 1e-4
    return spent / count / 1000


MEASURES: dict[str, Callable[[int], float]] = {
    "blocked_ratio": blocked,
    "blocked, first of its shape": blocked_alone,
    "admit_settle_ratio": admit_settle,
    "reject_ratio": reject,
}


def decisions(progress: Progress, task: TaskID) -> tuple[float, dict[str, float]]:
    """Return the yardstick in microseconds, and for each measure the median over the rounds of its ratio to it."""
    rods = []
    ratios: dict[str, list[float]] = {name: [] for name in MEASURES}
    for number in range(ROUNDS):
        for name, measure in MEASURES.items():
            before = yardstick(number)
            took = measure(number)
            rod = (before + yardstick(number)) / 2
            rods.append(rod)
            ratios[name].append(took / rod)
        progress.advance(task)
    return median(rods), {name: median(found) for name, found in ratios.items()}


def apart(script: str, *arguments: str) -> dict[str, float]:
    """Run one scenario of a script beside this one in its own process; return what it prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def waiting_creates(progress: Progress, task: TaskID) -> dict[str, float]:
    """Return what a create that waits at a client takes: the most of three ways, and for each way whose part it is."""
    found = {}
    for way, creates in CLIENTS.items():
        progress.update(task, description=f"creates that wait, {way}")
        for whose, size in apart("waiting_creates.py", way, str(creates)).items():
            found[f"bytes of a waiting create, {way}, the {whose}'s"] = size
        progress.advance(task, 10)
    return {"bytes_per_waiting_create": max(size for name, size in found.items() if "gate" in name)} | found


def main() -> int:
    """Measure, write, print; return the exit code."""
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True) as progress:
        task = progress.add_task("decisions", total=ROUNDS + 10 * len(CLIENTS) + 20 * len(SCENARIOS) + 10)
        rod, ratios = decisions(progress, task)
        creates = waiting_creates(progress, task)
        scenarios = {}
        for scenario in SCENARIOS:
            progress.update(task, description=f"1,000,000 waiters, {scenario}")
            scenarios[scenario] = apart("waiters.py", scenario)
            progress.advance(task, 20)
        progress.update(task, description="those who look")
        looking = apart("lookers.py")
        progress.advance(task, 10)
    growth = max(s["decision_us_at_1e6_waiters"] / s["decision_us_at_1e3_waiters"] for s in scenarios.values())
    worst = {key: max(s[key] for s in scenarios.values()) for key in next(iter(scenarios.values()))}
    found = {"yardstick_us": rod} | {k: v for k, v in ratios.items() if k in BARS} | worst | creates
    extra = {k: v for k, v in ratios.items() if k not in BARS} | {"growth of a decision, 1e3 to 1e6": growth}
    deep = {key: found.pop(key) for key in list(found) if " " in key}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({key: round(value, 4) for key, value in found.items()}, indent=2) + "\n")
    return show(found, extra | deep | looking, growth)


def show(found: dict[str, float], extra: dict[str, float], growth: float) -> int:
    """Print the table; return 1 if a bar is missed."""
    table = Table(title="backoff-ctrl, the engine's costs")
    table.add_column("measure")
    table.add_column("found", justify="right")
    table.add_column("bar", justify="right")
    missed = [key for key, bar in BARS.items() if found[key] > bar]
    if growth > GROWTH_BAR:
        missed.append("growth of a decision, 1e3 to 1e6")
    bars = BARS | {"growth of a decision, 1e3 to 1e6": GROWTH_BAR}
    for key, value in (found | extra).items():
        bar = f"<= {bars[key]:g}" if key in bars else ""
        table.add_row(f"[red]{key}[/red]" if key in missed else key, f"{value:.3g}", bar)
    console = Console()
    console.print(table)
    console.print(f"written to {OUT.relative_to(HERE.parent)}")
    if missed:
        console.print(f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

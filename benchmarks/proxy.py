"""Compares `backoff-ctrl proxy` with `kubectl proxy`, in turn, before the same fast upstream on loopback.

Usage: python -m benchmarks.proxy [--rounds 5] [--seconds 2] [--connections 16] [--watches 100] [--json]
Needs Go, or fetches it as the test bed does; kubectl is the test bed's. Rows: a plain upstream, a TLS upstream, TLS on
both sides (kubectl can't serve TLS, so it stands before the TLS upstream with plain callers), and lists of a megabyte.
For each the medians of requests per second, p99 and CPU time per request, and their ratios. The load generator and the
upstream (benchmarks/proxy_load) share the machine's cores with both proxies: pin all of it with taskset to compare
machines. In the end 100 watches run at once, and the proxy's resident memory is read. Exits with 1 below a bar.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.toolchain import find_go

if TYPE_CHECKING:
    from collections.abc import Iterator

BARS: Final = {"plain": 3.0, "TLS upstream": 2.0, "TLS on both sides": 1.2, "1 MB lists": 1.0}
CPU_BAR: Final = 0.5
"""Of its CPU time per request, for the rows with small answers and a plain caller."""
MEMORY_BAR: Final = 80.0
_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Target:
    """A proxy under load."""

    address: str
    process: int
    trusted: str = ""
    rates: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def cpu(self) -> float:
        """Return the CPU seconds that the process has used."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def measure(self, load: Path, path: str, connections: int, seconds: float) -> None:
        """Load it once."""
        before = self.cpu()
        command = [str(load), "load", self.address, self.trusted, path, str(connections), str(seconds)]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        self.rates.append(found["requests"] / found["seconds"])
        self.p99s.append(found["p99_ms"])
        self.cpu_us.append((self.cpu() - before) / found["requests"] * 1e6)


@contextmanager
def started(*command: object) -> Iterator[tuple[int, str]]:
    """Run a program; yield its process id and its first line."""
    process = subprocess.Popen([str(each) for each in command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline()
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def build(folder: Path) -> Path:
    """Compile the upstream and the load generator."""
    program = folder / "load"
    go = find_go((1, 22), lambda line: print(line, file=sys.stderr))
    source = Path(__file__).with_name("proxy_load")
    subprocess.run([go, "build", "-o", program, "."], cwd=source, check=True)
    return program


def kubeconfig(folder: Path, address: str) -> Path:
    """Write one for the TLS upstream."""
    file = folder / "kubeconfig"
    cluster = {"server": f"https://{address}", "certificate-authority": str(folder / "tls.crt")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": "t"}}],  # else kubectl asks for a name
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    file.write_text(json.dumps(document))
    return file


def rows(stack: ExitStack, folder: Path, load: Path) -> dict[str, tuple[Target, Target, str]]:
    """Start everything; return for each row ours, kubectl's and the path that is asked for."""
    subprocess.run([load, "certificate", folder], check=True)
    plain, secure = stack.enter_context(started(load, "upstream", folder))[1].split()
    config = kubeconfig(folder, secure)

    def ours(*arguments: object) -> tuple[str, int]:
        command = [Path(sys.executable).with_name("backoff-ctrl"), "proxy", "--listen", "127.0.0.1:0", *arguments]
        process, line = stack.enter_context(started(*command))
        return line.strip().rpartition("/")[2], process

    def kubectl(*arguments: object) -> tuple[str, int]:
        command = [wanted().kubectl, "proxy", f"--port={free_port()}", *arguments]
        process, line = stack.enter_context(started(*command))
        return line.split()[-1], process

    ours_plain, theirs_plain = ours("--apiserver", f"http://{plain}"), kubectl("--server", f"http://{plain}")
    ours_tls, theirs_tls = ours("--kubeconfig", config), kubectl("--kubeconfig", config)
    account = folder / "account"
    for each in (account, folder / "authority", folder / "token"):
        each.mkdir()
    (folder / "token" / "token").write_text("t")
    (folder / "token" / "namespace").write_text("default")
    tls = ("--tls-authority", folder / "authority", "--tls-account", account, "--tls-token-volume", folder / "token")
    both = ours("--kubeconfig", config, *tls)
    return {
        "plain": (Target(*ours_plain), Target(*theirs_plain), "/api/v1/x"),
        "TLS upstream": (Target(*ours_tls), Target(*theirs_tls), "/api/v1/x"),
        "TLS on both sides": (Target(*both, trusted=str(account / "ca.crt")), Target(*theirs_tls), "/api/v1/x"),
        "1 MB lists": (Target(*ours_plain), Target(*theirs_plain), "/api/v1/big"),
    }


def resident_mb(process: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--watches", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        load = build(folder)
        found = rows(stack, folder, load)
        time.sleep(0.5)  # kubectl says that it serves before it does
        for _ in range(options.rounds):
            for each, other, path in found.values():
                each.measure(load, path, options.connections, options.seconds)
                other.measure(load, path, options.connections, options.seconds)
        ours = found["plain"][0]
        watch = [str(load), "watch", ours.address, "", str(options.watches)]
        watches = int(subprocess.run(watch, capture_output=True, check=True).stdout)
        memory = max(resident_mb(each.process) for each, _, _ in found.values())
        results = {row: result(each, other) for row, (each, other, _) in found.items()}
    report = {"rows": results, "watches": watches, "resident_mb": round(memory, 1)}
    if options.json:
        print(json.dumps(report))
    else:
        show(report)
    sys.exit(1 if failures(report) else 0)


def result(each: Target, other: Target) -> dict[str, float]:
    """Return the medians of both, and their ratios."""
    median = statistics.median
    return {
        "per_s": round(median(each.rates)),
        "kubectl_per_s": round(median(other.rates)),
        "rate_ratio": round(median(a / b for a, b in zip(each.rates, other.rates, strict=True)), 2),
        "p99_ratio": round(median(a / b for a, b in zip(each.p99s, other.p99s, strict=True)), 2),
        "cpu_us": round(median(each.cpu_us)),
        "cpu_ratio": round(median(a / b for a, b in zip(each.cpu_us, other.cpu_us, strict=True)), 2),
    }


def failures(report: dict[str, Any]) -> list[str]:
    """Return what is below its bar."""
    found = [row for row, bar in BARS.items() if report["rows"][row]["rate_ratio"] < bar]
    found += [f"CPU: {row}" for row in ("plain", "TLS upstream") if report["rows"][row]["cpu_ratio"] > CPU_BAR]
    found += [f"p99: {row}" for row in ("plain", "TLS upstream") if report["rows"][row]["p99_ratio"] > 1]
    return found + (["memory"] if report["resident_mb"] > MEMORY_BAR else [])


def show(report: dict[str, Any]) -> None:
    """Print it for people."""
    print(f"{'':18} {'requests/s':>11} {'kubectl':>8} {'ratio':>6} {'bar':>5} {'p99':>6} {'CPU us':>7} {'CPU':>5}")
    for row, each in report["rows"].items():
        print(
            f"{row:18} {each['per_s']:11} {each['kubectl_per_s']:8} {each['rate_ratio']:6} {BARS[row]:5} "
            f"{each['p99_ratio']:6} {each['cpu_us']:7} {each['cpu_ratio']:5}"
        )
    print(f"{report['watches']} watches at once; resident {report['resident_mb']} MB (bar {MEMORY_BAR:g})")
    for each in failures(report):
        print(f"below its bar: {each}")


if __name__ == "__main__":
    main()

"""``backoff-ctrl serve`` at a cluster of many namespaces: its memory, and how soon it answers.

It runs as a process of its own before a sandbox that has all the quotas, and is asked over HTTP, one question after the
other: nothing here is a thread of the process that is measured.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from backoff_ctrl.k8s.lab.replay.over_http import sandbox_process

HARD = {"pods": "10", "requests.cpu": "40"}
TIMES = 200


def resident_mb(pid: int) -> float:
    """Return the memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise ValueError(pid)


class Asker:
    """One kept connection."""

    def __init__(self, url: str) -> None:
        """Connect to ``url``."""
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(self, path: str) -> tuple[float, bytes, int]:
        """Return the seconds that an answer took, its body and its status."""
        began = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        return time.perf_counter() - began, body, answer.status

    def p99_ms(self, path: str) -> float:
        """Ask many times, each time about another namespace (``%d``)."""
        times = []
        for number in range(TIMES):
            took, _, status = self.ask(path % number if "%d" in path else path)
            assert status == 200, (path, status)
            times.append(took)
        return round(1e3 * sorted(times)[TIMES * 99 // 100], 2)


def serve_at(namespaces: int) -> dict[str, float]:
    """Measure ``serve`` at so many namespaces."""
    quotas = {f"team-{number}": HARD for number in range(namespaces)}
    with sandbox_process(quotas, seed=1) as url:
        command = [sys.executable, "-m", "backoff_ctrl", "serve", "--apiserver", url, "--listen", "127.0.0.1:0"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            asker = Asker(process.stdout.readline().removeprefix("listening on ").strip())
            try:
                return {"serve_namespaces": namespaces, **_figures(asker, process.pid, began)}
            finally:
                process.terminate()


def _figures(asker: Asker, pid: int, began: float) -> dict[str, float]:
    empty = resident_mb(pid)
    while asker.ask("/readyz")[2] != 200:
        time.sleep(0.05)
    ready = time.perf_counter() - began
    asker.ask("/metrics")
    scrape, text, _ = asker.ask("/metrics")
    return {
        "serve_ready_after_s": round(ready, 2),
        "serve_memory_at_start_mb": empty,
        "serve_memory_mb": resident_mb(pid),
        "serve_filtered_query_ms_p99": asker.p99_ms("/v1/ceilings?namespace=team-%d"),
        "serve_page_of_1000_ms_p99": asker.p99_ms("/v1/ceilings?limit=1000"),
        "serve_search_on_the_page_ms_p99": asker.p99_ms("/pieces/namespaces?search=team-%d"),
        "serve_scrape_s": round(scrape, 3),
        "serve_scrape_mb": round(len(text) / 1e6, 2),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(serve_at(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000), indent=1) + "\n")

"""A real Prometheus on loopback that reads gates and evaluates our rules."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.cluster.control_plane.guardian import Guardian
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster.control_plane.go_programs import GoPrograms

FOLDER: Final = Path(__file__).parents[3] / "dashboards"
RULES: Final = tuple(FOLDER / name for name in ("rules.yaml", "alerts.yaml"))
EVERY: Final = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}


@dataclass(frozen=True)
class Prometheus:
    """A running one, asked about one time; None: about now."""

    url: str
    at: int | None

    def ask(self, path: str, **query: Any) -> Any:
        """Ask its API; return the data of the answer."""
        text = urllib.parse.urlencode(query, doseq=True)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{text}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def series(self, expr: str) -> dict[str, float]:
        """Evaluate a query: values by labels, written ``a=1 b=2``."""
        when = {} if self.at is None else {"time": self.at}
        result = self.ask("query", query=expr, **when)["result"]
        return {
            " ".join(f"{name}={value}" for name, value in sorted(each["metric"].items())): float(each["value"][1])
            for each in result
        }


@contextmanager
def running(
    programs: GoPrograms,
    folder: Path,
    targets: Mapping[str, str],
    rules: Sequence[Path] = RULES,
    every: Mapping[str, str] = EVERY,
) -> Iterator[str]:
    """Run it; yield its address. ``targets``: by name, ``host:port/path`` of what it reads every two seconds.

    ``rules`` are its rule files, ``every`` how often it reads and evaluates.
    """
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_config(targets, rules, every)))
    port = _free_port()
    command = [str(programs.path("prometheus")), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with Guardian(folder / "data") as guardian:
        with (folder / "log").open("w") as words:
            process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=words, stdout=words)
        guardian.watch(process.pid)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)
            guardian.forget(process.pid)


def _config(targets: Mapping[str, str], rules: Sequence[Path], every: Mapping[str, str]) -> dict[str, Any]:
    static = []
    for name, target in targets.items():
        address, slash, path = target.partition("/")
        labels = {"instance": f"{name}:1", "__metrics_path__": slash + path, "namespace": "gates"}
        static.append({"targets": [address], "labels": labels})
    return {
        "global": dict(every),
        "scrape_configs": [{"job_name": "gates", "honor_labels": True, "static_configs": static}],
        "rule_files": [str(path) for path in rules],
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

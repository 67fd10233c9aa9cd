"""Two real gates at one quota of the sandbox, read by a real Prometheus: the boards show what is so."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.gated_creates import pod
from tests.kit.watch_script import until
from tests.monitoring.prometheus.server import Prometheus, running
from tests.status.asking import Crowd

if TYPE_CHECKING:
    import pytest

    from tests.cluster.control_plane.go_programs import GoPrograms

FOLDER = Path(__file__).parents[2] / "dashboards"
CHOSEN = {"cluster": ".*", "namespace": "team", "resourcequota": ".*", "gate": ".*"}
CHOSEN |= {"__rate_interval": "1m", "__range": "1m"}
PODS = "namespace=team resource=pods resourcequota=q"
SHOWN = {
    "How many creates wait?": [{"": 3}],
    "How many namespaces wait for quota?": [{"": 1}],
    "How many gates answer?": [{"": 2}],
    "Which namespaces are full?": [{"namespace=team": 1}],
    "Is the gate enforcing here?": [{"mode=enforce": 1}],
    "What is left of cores, devices and objects?": [{PODS: each} for each in (1, 1, 1, 0, 0, 0, 1)],
    "Why do creates wait here?": [{"reason=quota": 3}],
    "How many creates are in flight?": [{"": 0}],
    "Did a gate fail open?": [{"": 0}],
    "Are series left out?": [{"": 0}],
}
"""What boards show when one pod is in and three wait, two of them at the second gate. Of the ceilings: taken, limit,
used, held, reserved, headroom, and that creates wait for it."""


async def test_boards_show_two_gates_at_one_quota(
    programs: GoPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits is added up, the quota is not. ``test_every_panel`` has the other panels."""
    with ExitStack() as stack:
        sandbox = stack.enter_context(running_sandbox())
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "1"})
        crowds = {}
        for name in ("a", "b"):
            monkeypatch.setenv("BACKOFF_CTRL_GATE", name)
            crowds[name] = Crowd(sandbox)
            stack.callback(crowds[name].close)
        monkeypatch.setattr("threading.excepthook", lambda _: None)  # creates that are cancelled at the end
        crowds["a"].core.create_namespaced_pod("team", pod("first"))
        for gate, name in (("a", "second"), ("b", "third"), ("b", "fourth")):
            crowds[gate].wait_with(name)
        targets = {name: f"{crowd.url.removeprefix('http://')}/metrics" for name, crowd in crowds.items()}
        url = stack.enter_context(running(programs, tmp_path, targets))
        prometheus = Prometheus(url, None)
        await until(lambda: _read_twice(prometheus))
        found = {title: [prometheus.series(expr) for expr in exprs] for title, exprs in _panels()}
        assert {title: found[title] for title in SHOWN} == SHOWN
        assert prometheus.series("namespace:backoff_ctrl_waiting:sum") == {
            "__name__=namespace:backoff_ctrl_waiting:sum namespace=team": 3
        }


def _read_twice(prometheus: Prometheus) -> bool:
    try:
        counts = prometheus.series("count_over_time(backoff_ctrl_waiting[1m])")
        rules = prometheus.series("namespace:backoff_ctrl_waiting:sum")
    except OSError:  # it does not listen yet
        return False
    return bool(rules) and len(counts) == 2 and min(counts.values()) >= 3


def _panels() -> list[tuple[str, list[str]]]:
    boards = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    return [
        (panel["title"], [_chosen(target["expr"]) for target in panel["targets"]])
        for board in boards
        for panel in board["panels"]
        if panel["type"] != "row"
    ]


def _chosen(expr: str) -> str:
    """A query as Grafana sends it."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: CHOSEN[found[1]], expr)

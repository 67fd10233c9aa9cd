"""Every query of every panel, rule and variable, asked of a real Prometheus that has read two gates' metrics."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from backoff_ctrl.k8s.status.catalogue import BY_NAME
from tests.kit.patience import PATIENCE
from tests.monitoring.prometheus.exporter import Exporter, names
from tests.monitoring.prometheus.server import Prometheus, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.control_plane.go_programs import GoPrograms

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
EXPECTED = yaml.safe_load((Path(__file__).parent / "prometheus" / "answers.yaml").read_text())
"""By board, panel and letter: labels and value of each series. Worked out by hand from the exporter's script."""
CHOSEN = {
    "cluster": ".*",
    "namespace": "team",
    "resourcequota": ".*",
    "gate": ".*",
    "__rate_interval": "5m",
    "__range": "30m",
}
PANELS = [
    pytest.param(name, panel["title"], target, id=f"{name}: {panel['title']} {target['refId']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", ())
]
RULES = [
    pytest.param(rule, id=rule.get("record") or rule["alert"])
    for file in ("rules.yaml", "alerts.yaml")
    for rule in yaml.safe_load((FOLDER / file).read_text())["groups"][0]["rules"]
]
RESULTS = yaml.safe_load((Path(__file__).parent / "prometheus" / "rule-answers.yaml").read_text())
VARIABLES = {
    "cluster": [],
    "namespace": ["other", "team"],
    "resourcequota": ["paused", "q"],
    "gate": ["a", "b", "b/2"],
}


@dataclass(frozen=True)
class Asked(Prometheus):
    """Asked about one time."""

    exporter: Exporter


@pytest.fixture(scope="module")
def prometheus(programs: GoPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Prometheus on loopback, which has read both gates and evaluated the rules."""
    folder = tmp_path_factory.mktemp("prometheus")
    at = int(time.time()) + 60  # so that Prometheus' own samples, of up, are no later; it takes ten minutes ahead
    with Exporter(at) as exporter:
        targets = {"a": f"127.0.0.1:{exporter.port}/a", "b": f"127.0.0.1:{exporter.port}/b"}
        with running(programs, folder, targets) as url:
            assert exporter.read(timeout=PATIENCE), (folder / "log").read_text()
            yield Asked(url, at, exporter)


@pytest.mark.parametrize(("board", "title", "target"), PANELS)
def test_a_panel_has_the_answer_expected(board: str, title: str, target: dict[str, Any], prometheus: Asked) -> None:
    """Each series with its labels and value, and no others; none is empty."""
    namespace = "other" if title == "What would enforcing do here?" else "team"  # which is not in shadow mode
    found = prometheus.series(_chosen(target["expr"], namespace=namespace))
    expected = EXPECTED[board][title][target["refId"]]
    assert expected
    assert found == pytest.approx(expected, rel=1e-6), found


@pytest.mark.parametrize(("board", "title", "target"), PANELS)
def test_a_legend_names_labels_that_the_series_have(
    board: str, title: str, target: dict[str, Any], prometheus: Asked
) -> None:
    """And series of one panel do not share a name."""
    result = prometheus.ask("query", query=_chosen(target["expr"]), time=prometheus.at)["result"]
    wanted = re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
    names = [tuple(each["metric"][label] for label in wanted) for each in result]
    assert target.get("format") == "table" or len(set(names)) == len(names)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_the_answer_expected(rule: dict[str, Any], prometheus: Asked) -> None:
    """The query of each recording rule and of each alert, without the time that it has to last."""
    expr = rule["expr"]
    for other in RULES:
        (each,) = other.values
        assert isinstance(each, dict)
        if "record" in each:  # its samples are of Prometheus' own time
            expr = re.sub(rf"{each['record']}(\{{[^}}]*\}})?", rf"last_over_time({each['record']}\1[1h])", expr)
    name = rule.get("record") or rule["alert"]
    expected = RESULTS[name]
    found = prometheus.series(expr)
    for _ in range(10):  # the rules are evaluated every second, too
        if found or not expected:
            break
        assert prometheus.exporter.read(timeout=PATIENCE)
        found = prometheus.series(expr)
    late = 120 if name == "BackoffCtrlWaitingTooLong" else 0  # its age was recorded a minute or two before
    assert found == pytest.approx(expected, rel=1e-6, abs=late), found
    assert bool(found) == (name not in {"BackoffCtrlGateDown", "BackoffCtrlNoGates", "BackoffCtrlNobodyLeads"})


def test_prometheus_accepts_the_rules_and_evaluates_them_all(prometheus: Asked) -> None:
    """None has an error."""
    groups = prometheus.ask("rules")["groups"]
    assert {group["name"]: len(group["rules"]) for group in groups} == {
        "backoff-ctrl.rules": 14,
        "backoff-ctrl.alerts": 15,
    }
    assert {rule.get("lastError", "") for group in groups for rule in group["rules"]} == {""}


def test_the_variables_have_the_values_expected(prometheus: Asked) -> None:
    """Also for a label that no series has."""
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                query = re.fullmatch(r"label_values\((.*), (\w+)\)", _chosen(variable["query"]["query"]))
                assert query
                found = prometheus.ask(f"label/{query[2]}/values", **{"match[]": query[1]})
                assert found == VARIABLES[variable["name"]]


def test_the_labels_of_the_metrics_are_kept(prometheus: Asked) -> None:
    """With ``honor_labels``, as docs/operations.md says, although the target has a label ``namespace`` of its own."""
    text = (ROOT / "docs" / "operations.md").read_text()
    assert "honor_labels: true" in text
    assert prometheus.series("count by (namespace) (backoff_ctrl_failed_open_total)") == {"namespace=gates": 2}
    assert prometheus.series("count(backoff_ctrl_waiting{exported_namespace!=''})") == {}


def test_the_script_has_every_metric_of_the_catalogue() -> None:
    """So that no query is tried on less than a gate exposes."""
    assert names() == set(BY_NAME)


def _chosen(expr: str, **other: str) -> str:
    """A query as Grafana sends it."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: {**CHOSEN, **other}[found[1]], expr)

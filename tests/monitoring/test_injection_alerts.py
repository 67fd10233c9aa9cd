"""The chart's alerts about injection, evaluated by promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from backoff_ctrl.api.injection.counting import Counts

if TYPE_CHECKING:
    from tests.cluster.control_plane.go_programs import GoPrograms

CHART = Path(__file__).parents[2] / "helm" / "backoff-ctrl"
FILE = CHART / "files" / "injection.yaml"
WITHOUT = "backoff_ctrl_injection_pods_without_sidecar"
SERIES = {
    f'{WITHOUT}{{instance="a", namespace="team"}}': "0x5 2x20 0x40",
    f'{WITHOUT}{{instance="b", namespace="team"}}': "0x5 2x10 stale _x20",
    f'{WITHOUT}{{instance="a", namespace="well"}}': "0x60",
    'backoff_ctrl_injection_malformed_total{instance="a"}': "0x35 stale _x15 0x20",
}


def test_they_fire_and_resolve(programs: GoPrograms, tmp_path: Path) -> None:
    """Pods of one namespace, counted once though two replicas count them; then no replica at all."""
    rules = {each["alert"]: each for each in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]}

    def at(minutes: int, alert: str, fires: bool, **labels: str) -> dict[str, Any]:
        rule = rules[alert]
        told = {key: _said(text) for key, text in rule["annotations"].items()}
        expected = [{"exp_labels": {**rule["labels"], **labels}, "exp_annotations": told}] if fires else []
        return {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}

    without, away = "BackoffCtrlPodsWithoutSidecar", "BackoffCtrlInjectionAway"
    tests = [at(10, without, False), at(12, without, True, namespace="team"), at(40, without, False)]
    tests += [at(44, away, False), at(48, away, True), at(60, away, False)]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    case = {"interval": "1m", "input_series": series, "alert_rule_test": tests}
    asked = tmp_path / "test.yaml"
    asked.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [case]}))
    command = [str(programs.path("promtool")), "test", "rules", str(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _said(text: str) -> str:
    return text.replace("{{ $value }}", "2").replace("{{ $labels.namespace }}", "team").strip()


def test_they_ask_for_metrics_that_the_webhook_has_and_lead_to_a_runbook() -> None:
    """Names are those that it exposes; the headings are in the chart's README."""
    counts = Counts()
    counts.without = {"team": 1}
    page = (CHART / "README.md").read_text()
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    headings = {re.sub(r"[^a-z -]", "", each.lower()).replace(" ", "-") for each in titles}
    for rule in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]:
        for name in re.findall(r"backoff_ctrl_\w+", rule["expr"]):
            assert f"# TYPE {name} " in counts.metrics()
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (path, anchor in headings) == ("helm/backoff-ctrl/README.md", True)

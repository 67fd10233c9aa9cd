"""The chart's own alert, about the injection webhook, evaluated by promtool."""

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
SERIES = {'backoff_ctrl_injection_malformed_total{instance="a"}': "0x35 stale _x15 0x20"}


def test_it_fires_and_resolves(programs: GoPrograms, tmp_path: Path) -> None:
    """Once no replica has been seen for ten minutes."""
    rules = {each["alert"]: each for each in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]}

    def at(minutes: int, alert: str, fires: bool) -> dict[str, Any]:
        rule = rules[alert]
        expected = [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}] if fires else []
        return {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}

    away = "BackoffCtrlInjectionAway"
    tests = [at(44, away, False), at(48, away, True), at(60, away, False)]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    case = {"interval": "1m", "input_series": series, "alert_rule_test": tests}
    asked = tmp_path / "test.yaml"
    asked.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [case]}))
    command = [str(programs.path("promtool")), "test", "rules", str(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_asks_for_a_metric_that_the_webhook_has_and_leads_to_a_runbook() -> None:
    """The name is one that it exposes; the heading is in the chart's README."""
    counts = Counts()
    counts.without.by_namespace = {"team": 1}
    page = (CHART / "README.md").read_text()
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    headings = {re.sub(r"[^a-z -]", "", each.lower()).replace(" ", "-") for each in titles}
    for rule in yaml.safe_load(FILE.read_text())["groups"][0]["rules"]:
        for name in re.findall(r"backoff_ctrl_\w+", rule["expr"]):
            assert f"# TYPE {name} " in counts.metrics()
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (path, anchor in headings) == ("helm/backoff-ctrl/README.md", True)

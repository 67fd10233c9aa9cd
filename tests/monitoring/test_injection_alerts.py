"""The chart's own alerts, about webhooks that are away, evaluated by promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from backoff_ctrl.api.webhooks.counting import Counts

if TYPE_CHECKING:
    from tests.cluster.control_plane.go_programs import GoPrograms

CHART = Path(__file__).parents[2] / "helm" / "backoff-ctrl"
AWAY = {
    "injection": ("BackoffCtrlInjectionAway", "backoff_ctrl_injection_malformed_total", (44, 48)),
    "operator": ("BackoffCtrlWebhooksAway", "backoff_ctrl_suspension_malformed_total", (39, 43)),
}
"""By file: the alert, the metric that every replica has, and minutes at which it is still silent, and at which not."""


@pytest.mark.parametrize("name", AWAY)
def test_it_fires_and_resolves(programs: GoPrograms, tmp_path: Path, name: str) -> None:
    """Once no replica has been seen for ten minutes, or for five where Tasks are refused meanwhile."""
    file, (away, metric, (silent, loud)) = CHART / "files" / f"{name}.yaml", AWAY[name]
    rules = {each["alert"]: each for each in yaml.safe_load(file.read_text())["groups"][0]["rules"]}

    def at(minutes: int, alert: str, fires: bool) -> dict[str, Any]:
        rule = rules[alert]
        expected = [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}] if fires else []
        return {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}

    tests = [at(silent, away, False), at(loud, away, True), at(60, away, False)]
    series = [{"series": f'{metric}{{instance="a"}}', "values": "0x35 stale _x15 0x20"}]
    case = {"interval": "1m", "input_series": series, "alert_rule_test": tests}
    asked = tmp_path / "test.yaml"
    asked.write_text(yaml.safe_dump({"rule_files": [str(file)], "evaluation_interval": "1m", "tests": [case]}))
    command = [str(programs.path("promtool")), "test", "rules", str(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", AWAY)
def test_it_asks_for_a_metric_that_the_webhook_has_and_leads_to_a_runbook(name: str) -> None:
    """The name is one that it exposes, and the other webhooks do not; the heading is in the chart's README."""
    injects = name == "injection"
    counts, other = (Counts(pods=pods, beside_operator=not pods) for pods in (injects, not injects))
    counts.without.by_namespace = {"team": 1}
    page = (CHART / "README.md").read_text()
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    headings = {re.sub(r"[^a-z -]", "", each.lower()).replace(" ", "-") for each in titles}
    for rule in yaml.safe_load((CHART / "files" / f"{name}.yaml").read_text())["groups"][0]["rules"]:
        for metric in re.findall(r"backoff_ctrl_\w+", rule["expr"]):
            assert f"# TYPE {metric} " in counts.metrics()
            assert f"# TYPE {metric} " not in other.metrics()
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (path, anchor in headings) == ("helm/backoff-ctrl/README.md", True)

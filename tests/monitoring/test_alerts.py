"""Alerts and recording rules, evaluated by promtool: each alert fires and resolves, each rule has its value."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dashboards.alerts import ALERTS
from dashboards.files import BOARDS, files
from dashboards.recording import RECORDS
from tests.kit.pages import blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dashboards.alerts import Alert
    from tests.cluster.control_plane.go_programs import GoPrograms

ROOT = Path(__file__).parents[2]
FILES = [str(ROOT / "dashboards" / name) for name in ("rules.yaml", "alerts.yaml")]
A = 'job="gates", instance="a:1"'
B = 'job="gates", instance="b:1"'
CPU = 'namespace="team", resourcequota="q", resource="limits.cpu"'
GATE = {"job": "gates", "instance": "a:1"}
TEAM = {"namespace": "team"}
AT = {**TEAM, "resourcequota": "q", "resource": "limits.cpu"}
_LABELS = {f"{{{{ $labels.{name} }}}}": value for name, value in {**AT, **GATE}.items()}
_QUERIES = {f"{{{{ $labels.{name} | urlquery }}}}": value for name, value in AT.items()}


@dataclass(frozen=True)
class Case:
    """One alert: a sample a minute, when it does not fire yet, when it does, and when it has resolved."""

    series: Mapping[str, str]
    quiet: str
    fires: str
    resolved: str
    labels: Mapping[str, str]
    value: Mapping[str, str] = field(default_factory=dict)
    """What the templates make of the alert's value."""


CASES = {
    # Since minute 1 one waits; at minute 31 it has waited too long, and it must last five minutes.
    "BackoffCtrlWaitingTooLong": Case(
        {
            f'backoff_ctrl_oldest_waiting_timestamp_seconds{{{A}, namespace="team"}}': "60x45 _x20",
            f'backoff_ctrl_oldest_waiting_timestamp_seconds{{{B}, namespace="team"}}': "600x30",
            f'backoff_ctrl_oldest_waiting_timestamp_seconds{{{B}, namespace="other"}}': "600+60x70",
        },
        "35m",
        "37m",
        "55m",
        TEAM,
        {"{{ $value | humanizeDuration }}": "36m 0s"},
    ),
    "BackoffCtrlNeverFits": Case(
        {
            f'backoff_ctrl_waiting{{{A}, namespace="team", reason="never-fits"}}': "0x5 2x10 0x20",
            f'backoff_ctrl_waiting{{{B}, namespace="team", reason="never-fits"}}': "0x5 1x10 0x20",
            f'backoff_ctrl_waiting{{{B}, namespace="team", reason="quota"}}': "7x40",
        },
        "6m",
        "8m",
        "20m",
        {**TEAM, "reason": "never-fits"},
        {"{{ $value }}": "3"},
    ),
    "BackoffCtrlDeclined": Case(
        {
            f'backoff_ctrl_creates_total{{{A}, namespace="team", kind="pods", outcome="declined"}}': "_x20 2x60",
            f'backoff_ctrl_creates_total{{{B}, namespace="team", kind="pods", outcome="declined"}}': "7x20 22x60",
            f'backoff_ctrl_creates_total{{{A}, namespace="team", kind="pods", outcome="created"}}': "0+5x80",
        },
        "19m",
        "25m",
        "40m",
        TEAM,
        {"{{ $value | humanize }}": "18.07"},
    ),
    "BackoffCtrlQuotaAlmostFullWithWaiters": Case(
        {
            f"backoff_ctrl_ceiling_limited{{{A}, {CPU}}}": "100x60",
            f"backoff_ctrl_ceiling_used{{{A}, {CPU}}}": "70x60",
            f"backoff_ctrl_ceiling_held{{{A}, {CPU}}}": "20x60",
            f"backoff_ctrl_ceiling_reserved{{{A}, {CPU}}}": "5x60",
            f"backoff_ctrl_blocked{{{A}, {CPU}}}": "_x10 1x30 _x20",
        },
        "24m",
        "28m",
        "50m",
        AT,
        {"{{ $value | humanizePercentage }}": "95%"},
    ),
    "BackoffCtrlStaleCeilings": Case(
        {
            f"backoff_ctrl_ceiling_heard_timestamp_seconds{{{A}, {CPU}}}": "60x39 2400x10",
            f"backoff_ctrl_blocked{{{A}, {CPU}}}": "1x50",
            f"backoff_ctrl_ceiling_heard_timestamp_seconds{{{B}, {CPU}}}": "60x50",
            f"backoff_ctrl_blocked{{{B}, {CPU}}}": "1x50",
            f'backoff_ctrl_watch_healthy{{{B}, namespace="team"}}': "1x50",
        },
        "20m",
        "22m",
        "41m",
        {**AT, **GATE},
        {"{{ $value | humanizeDuration }}": "21m 0s"},
    ),
    "BackoffCtrlWatchLost": Case(
        {
            f'backoff_ctrl_watch_healthy{{{A}, namespace="team"}}': "1x5 0x20 1x20",
            f'backoff_ctrl_watch_healthy{{{A}, namespace="other"}}': "1x5 0x20 1x20",
            f'backoff_ctrl_watch_healthy{{{B}, namespace="team"}}': "1x50",
        },
        "10m",
        "12m",
        "30m",
        GATE,
        {"{{ $value }}": "2"},
    ),
    "BackoffCtrlOverload": Case(
        {
            f'backoff_ctrl_overload_paused{{{A}, flow="f", priority_level="p"}}': "0x5 1x4 0x0 1x20 0x30",
            f'backoff_ctrl_overload_paused{{{B}, flow="f", priority_level="p"}}': "0x5 1x0 0x50",
        },
        "13m",
        "30m",
        "45m",
        {**GATE, "flow": "f", "priority_level": "p"},
        {"{{ $value | humanizePercentage }}": "100%"},
    ),
    "BackoffCtrlFailedOpen": Case(
        {
            f"backoff_ctrl_failed_open_total{{{A}}}": "3x20 5x60",
            f"backoff_ctrl_failed_open_total{{{B}}}": "4x80",
        },
        "20m",
        "25m",
        "40m",
        GATE,
    ),
    "BackoffCtrlGateDown": Case(
        {
            f"up{{{A}}}": "1x10 0x20 1x20",
            'up{job="another", instance="b:1"}': "0x60",
            f'backoff_ctrl_gate_info{{{A}, gate="one", server="https://k"}}': "1x10 _x20 1x20",
            f'backoff_ctrl_gate_info{{{B}, gate="two", server="https://k"}}': "1x60",
        },
        "15m",
        "17m",
        "40m",
        GATE,
    ),
    "BackoffCtrlNoGates": Case(
        {f'backoff_ctrl_gate_info{{{A}, gate="one", server="https://k"}}': "1x10 stale _x20 1x20"},
        "20m",
        "22m",
        "40m",
        {},
    ),
    "BackoffCtrlPodsWithoutSidecar": Case(
        {
            f'backoff_ctrl_injection_pods_without_sidecar{{{A}, namespace="team"}}': "0x5 3x20 0x20",
            f'backoff_ctrl_injection_pods_without_sidecar{{{B}, namespace="team"}}': "0x5 2x20 0x20",
        },
        "9m",
        "12m",
        "40m",
        {"namespace": "team"},
        {"{{ $value }}": "3"},
    ),
    "BackoffCtrlJobsUngated": Case(
        {
            f'backoff_ctrl_suspension_ungated{{{A}, namespace="team"}}': "0x5 4x20 0x20",
            f'backoff_ctrl_suspension_ungated{{{B}, namespace="team"}}': "0x5 2x20 0x20",
        },
        "9m",
        "12m",
        "40m",
        {"namespace": "team"},
        {"{{ $value }}": "4"},
    ),
    "BackoffCtrlNobodyLeads": Case(
        {
            f"backoff_ctrl_operator_leader{{{A}}}": "1x10 0x5 stale _x20 0x25",
            f"backoff_ctrl_operator_leader{{{B}}}": "0x35 1x25",
            f"up{{{A}}}": "1x15 0x20 1x25",
            f"up{{{B}}}": "1x60",
        },
        "10m",
        "14m",
        "40m",
        {"job": "gates"},
    ),
    "BackoffCtrlCertificateEnds": Case(
        {f"backoff_ctrl_injection_certificate_expiry_timestamp_seconds{{{A}}}": "606000x100 9000000x60"},
        "78m",
        "85m",
        "115m",
        GATE,
        {"{{ $value | humanizeDuration }}": "6d 22h 55m 0s"},
    ),
    "BackoffCtrlTooManySeries": Case(
        {f"backoff_ctrl_series_left_out{{{A}}}": "0x5 12x30 0x20", f"backoff_ctrl_series_left_out{{{B}}}": "0x60"},
        "20m",
        "22m",
        "40m",
        GATE,
        {"{{ $value }}": "12"},
    ),
}
RECORDED = {
    f"backoff_ctrl_ceiling_limited{{{A}, {CPU}}}": "8x20",
    f"backoff_ctrl_ceiling_limited{{{B}, {CPU}}}": "10x20",
    f"backoff_ctrl_ceiling_used{{{A}, {CPU}}}": "4x20",
    f"backoff_ctrl_ceiling_used{{{B}, {CPU}}}": "3x20",
    f"backoff_ctrl_ceiling_held{{{A}, {CPU}}}": "1x20",
    f"backoff_ctrl_ceiling_held{{{B}, {CPU}}}": "2x20",
    f"backoff_ctrl_ceiling_reserved{{{A}, {CPU}}}": "0x20",
    f"backoff_ctrl_ceiling_reserved{{{B}, {CPU}}}": "1x20",
    f"backoff_ctrl_blocked{{{B}, {CPU}}}": "1x20",
    f'backoff_ctrl_waiting{{{A}, namespace="team", reason="quota"}}': "2x20",
    f'backoff_ctrl_waiting{{{B}, namespace="team", reason="quota"}}': "3x20",
    f'backoff_ctrl_oldest_waiting_timestamp_seconds{{{A}, namespace="team"}}': "300x20",
    f'backoff_ctrl_oldest_waiting_timestamp_seconds{{{B}, namespace="team"}}': "120x20",
    f'backoff_ctrl_creates_total{{{A}, namespace="team", kind="pods", outcome="created"}}': "0+60x20",
    f'backoff_ctrl_creates_total{{{B}, namespace="team", kind="jobs.batch", outcome="created"}}': "0+120x20",
    f"backoff_ctrl_quota_refusals_total{{{A}, {CPU}}}": "0+60x20",
    f'backoff_ctrl_calls_saved_estimate_total{{{A}, namespace="team"}}': "0+600x20",
    f'backoff_ctrl_wait_seconds_bucket{{{A}, namespace="team", le="1"}}': "0+30x20",
    f'backoff_ctrl_wait_seconds_bucket{{{B}, namespace="team", le="1"}}': "0+30x20",
}
"""Two gates, for ten minutes and more."""
VALUES = {
    "namespace_resourcequota_resource:backoff_ctrl_ceiling_limited:max": (AT, 10),
    "namespace_resourcequota_resource:backoff_ctrl_ceiling_used:max": (AT, 4),
    "namespace_resourcequota_resource:backoff_ctrl_ceiling_held:sum": (AT, 3),
    "namespace_resourcequota_resource:backoff_ctrl_ceiling_reserved:sum": (AT, 1),
    "namespace_resourcequota_resource:backoff_ctrl_ceiling_headroom": (AT, 2),
    "namespace_resourcequota_resource:backoff_ctrl_ceiling_taken:ratio": (AT, 0.8),
    "namespace_resourcequota_resource:backoff_ctrl_blocked:max": (AT, 1),
    "namespace:backoff_ctrl_waiting:sum": (TEAM, 5),
    "namespace_reason:backoff_ctrl_waiting:sum": ({**TEAM, "reason": "quota"}, 5),
    "namespace:backoff_ctrl_oldest_wait_seconds:max": (TEAM, 480),
    "namespace_outcome:backoff_ctrl_creates:rate5m": ({**TEAM, "outcome": "created"}, 3),
    "namespace_resourcequota_resource:backoff_ctrl_quota_refusals:rate5m": (AT, 1),
    "namespace:backoff_ctrl_calls_saved_estimate:rate5m": (TEAM, 10),
    "namespace_le:backoff_ctrl_wait_seconds_bucket:rate5m": ({**TEAM, "le": "1"}, 1),
}
"""What each recording rule says after ten minutes."""


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_it_fires_and_resolves(alert: Alert, programs: GoPrograms, tmp_path: Path) -> None:
    """Not before it has lasted, then with all its texts, and no longer when all is well again."""
    case = CASES[alert.name]
    labels = {"severity": alert.severity, **case.labels}
    expected = [{"exp_labels": labels, "exp_annotations": _annotations(alert, case)}]
    times: tuple[tuple[str, list[Any]], ...] = ((case.quiet, []), (case.fires, expected), (case.resolved, []))
    tests = [{"eval_time": at, "alertname": alert.name, "exp_alerts": alerts} for at, alerts in times]
    _promtool_tests(programs, tmp_path, case.series, alert_rule_test=tests)


def test_every_rule_has_the_value_expected(programs: GoPrograms, tmp_path: Path) -> None:
    """Over two gates: ceilings by max, what is held and who waits by sum."""
    assert [record.name for record in RECORDS] == list(VALUES)
    tests = [
        {"expr": name, "eval_time": "10m", "exp_samples": [{"labels": _selector(name, labels), "value": value}]}
        for name, (labels, value) in VALUES.items()
    ]
    _promtool_tests(programs, tmp_path, RECORDED, promql_expr_test=tests)


def test_a_label_cluster_is_kept(programs: GoPrograms, tmp_path: Path) -> None:
    """Two clusters with a namespace of the same name are two."""
    series = {f'backoff_ctrl_waiting{{cluster="{each}", namespace="team", reason="quota"}}': "2x20" for each in "xy"}
    name = "namespace:backoff_ctrl_waiting:sum"
    samples = [{"labels": _selector(name, {**TEAM, "cluster": each}), "value": 2} for each in "xy"]
    tests = [{"expr": name, "eval_time": "10m", "exp_samples": samples}]
    _promtool_tests(programs, tmp_path, series, promql_expr_test=tests)


def test_promtool_finds_nothing_to_mend(programs: GoPrograms) -> None:
    """No duplicates, no mistakes of form."""
    checked = subprocess.run(
        [programs.path("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *FILES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_takes_the_configuration_of_the_page(programs: GoPrograms, tmp_path: Path) -> None:
    """That of docs/operations.md, beside the files of rules that it names."""
    for name in FILES:
        shutil.copy(name, tmp_path)
    (text,) = (block.text for block in blocks("docs/operations.md", "yaml") if block.text.startswith("scrape_configs"))
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    checked = subprocess.run(
        [programs.path("promtool"), "check", "config", "prometheus.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "2 rule files found" in checked.stdout


def test_each_alert_is_tried_and_has_a_runbook() -> None:
    """A heading of docs/operations.md, with what it means, where to look and what to do."""
    page = (ROOT / "docs" / "operations.md").read_text()
    books = dict(re.findall(r"^### (BackoffCtrl\w+)\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(books) == [alert.name for alert in ALERTS] == list(CASES)
    for book in books.values():
        assert re.findall(r"^\*\*(\w+)\*\*", book, re.MULTILINE) == ["Means", "Look", "Do"]
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= {alert.anchor for alert in ALERTS}


def test_alerts_lead_to_the_panel_and_the_runbook_at_your_addresses() -> None:
    """The number in the link is the panel's; both addresses can be given."""
    made = files(grafana="https://grafana.example.com", runbooks="https://wiki.example.com/gate")
    rules = yaml.safe_load(made["alerts.yaml"])["groups"][0]["rules"]
    titles = {(board.uid, number): panel.title for board in BOARDS for number, panel in board.panels()}
    for alert, rule in zip(ALERTS, rules, strict=True):
        link = re.match(
            r"https://grafana\.example\.com/d/([a-z-]+)\?viewPanel=(\d+)", rule["annotations"]["dashboard_url"]
        )
        assert link
        assert titles[link[1], int(link[2])] == alert.panel
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example.com/gate#{alert.name.lower()}"


def test_titles_of_panels_that_the_runbooks_name_exist() -> None:
    """Questions in italics are titles of panels."""
    page = " ".join((ROOT / "docs" / "operations.md").read_text().split())
    titles = {panel.title for board in BOARDS for _, panel in board.panels()}
    named = set(re.findall(r"\*([A-Z][^*?]+\?)\*", page))
    assert len(named) >= 12
    assert named <= titles


def _annotations(alert: Alert, case: Case) -> dict[str, str]:
    """What the templates of an alert become."""
    (rule,) = (
        rule for rule in yaml.safe_load(files()["alerts.yaml"])["groups"][0]["rules"] if rule["alert"] == alert.name
    )
    texts: dict[str, str] = rule["annotations"]
    for template, text in {**_LABELS, **_QUERIES, **case.value}.items():
        texts = {name: value.replace(template, text) for name, value in texts.items()}
    assert "{{" not in str(texts)
    return texts


def _selector(name: str, labels: Mapping[str, str]) -> str:
    inside = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inside}}}"


def _promtool_tests(programs: GoPrograms, folder: Path, series: Mapping[str, str], **tests: Any) -> None:
    """Run a unit test of Prometheus' rules: a sample a minute, evaluated every minute."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, **tests}
    order = ["backoff-ctrl.rules", "backoff-ctrl.alerts"]  # else by chance, and an alert may be a minute late
    document = {"rule_files": FILES, "evaluation_interval": "1m", "group_eval_order": order, "tests": [test]}
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [programs.path("promtool"), "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

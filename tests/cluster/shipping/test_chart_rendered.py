"""What helm makes of the chart: goldens, refusals with the value's path, files that are copies, and archives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.shipping.rendering import CHART, DATA, JSON, MONITORING, ROOT, by_name, goldens, helm, rendered, sets
from tools.archives import chart_archive

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane.go_programs import GoPrograms

EVERYTHING: JSON = {
    "gateway": {"enabled": True},
    "serve": {"enabled": True},
    "monitoring": {"enabled": True, "serveToken": {"name": "t", "key": "t"}},
    "dashboards": {"enabled": True},
}


@pytest.mark.long
def test_the_chart_renders_as_recorded(helm_program: GoPrograms) -> None:
    """Sets of values against goldens: `python -m tests.cluster.shipping` writes them anew."""
    assert len(sets()) > 12
    for name, text in goldens().items():
        assert (DATA / name).read_text() == text, f"tests/data/chart/{name} is not what the chart renders"


def test_helm_lint_finds_nothing(helm_program: GoPrograms) -> None:
    """Strictly, and with everything that it can make."""
    done = helm("lint", "--strict", str(CHART), "--values=-", stdin=yaml.safe_dump(EVERYTHING))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"injektion": {}}, "at '': additional properties 'injektion' not allowed"),
        ({"injection": {"replica": 3}}, "at '/injection': additional properties 'replica' not allowed"),
        ({"injection": {"replicas": 0}}, "at '/injection/replicas': minimum: got 0, want 1"),
        ({"injection": {"failurePolicy": "Never"}}, "at '/injection/failurePolicy': value must be one of 'Ignore'"),
        ({"injection": {"sidecar": {"args": ["hold"]}}}, "at '/injection/sidecar/args/0': 'hold' does not match"),
        ({"injection": {"sidecar": {"limits": {"cpu": "a lot"}}}}, "at '/injection/sidecar/limits/cpu': 'a lot'"),
        ({"gateway": {"tls": {"extra": 1}}}, "at '/gateway/tls': additional properties 'extra' not allowed"),
        ({"gateway": {"hold": "8s"}}, "at '/gateway/hold': got string, want number"),
        ({"serve": {"gatesIn": ["Platform"]}}, "at '/serve/gatesIn/0': 'Platform' does not match pattern"),
        ({"serve": {"holders": {"core": ["secrets"]}}}, "at '/serve/holders/core/0': 'not' failed"),
        ({"serve": {"serviceAccount": {"create": False}}}, "at '/serve/serviceAccount/name': minLength"),
        ({"pods": {"node": {}}}, "at '/pods': additional properties 'node' not allowed"),
        ({"networkPolicies": {"apiServer": ["here"]}}, "at '/networkPolicies/apiServer/0': 'here' does not match"),
        ({"networkPolicies": {"enabled": True}}, "networkPolicies.apiServer must say where the API server is"),
        ({"monitoring": {"serveToken": {"name": "t"}}}, "at '/monitoring/serveToken': properties 'key' required"),
    ],
)
def test_wrong_values_are_refused_with_their_path(helm_program: GoPrograms, values: JSON, path: str) -> None:
    """Unknown keys, wrong types, and values that can't work together."""
    done = helm("template", "r", str(CHART), "--values=-", stdin=yaml.safe_dump(values))
    assert done.returncode == 1
    assert path in done.stderr


def test_no_label_or_name_is_too_long(helm_program: GoPrograms) -> None:
    """A release of 53 characters, the longest that helm takes, in a namespace of 63."""
    done = helm("template", "r" * 53, str(CHART), f"--namespace={'n' * 63}", "--values=-", MONITORING,
                stdin=yaml.safe_dump(EVERYTHING))  # fmt: skip
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout) if each]
    assert len(names) > 30
    assert max(map(len, names)) <= 63
    assert len(names) - len(set(names)) > 5  # objects of one mode share a name, whatever their kind


def test_what_needs_kinds_that_the_cluster_does_not_know_is_left_out(helm_program: GoPrograms) -> None:
    """Without the Prometheus operator there are no monitors; NOTES says so."""
    kinds = {each["kind"] for each in rendered(EVERYTHING)}
    more = {each["kind"] for each in rendered(EVERYTHING, MONITORING)}
    assert more - kinds == {"PodMonitor", "ServiceMonitor", "PrometheusRule"}


def test_rules_and_boards_are_those_of_the_repository(helm_program: GoPrograms) -> None:
    """The chart has copies, since helm reads nothing outside; `make dashboards` renews them."""
    boards = ROOT / "dashboards"
    for path in sorted([*boards.glob("*.json"), *boards.glob("*.yaml")]):
        assert (CHART / "files" / path.name).read_bytes() == path.read_bytes(), f"{path.name}: run make dashboards"
    manifests = rendered(EVERYTHING, MONITORING)
    (rules,) = [each for each in manifests if each["kind"] == "PrometheusRule"]
    names = ("rules.yaml", "alerts.yaml", "injection.yaml")
    written = [yaml.safe_load((CHART / "files" / name).read_text()) for name in names]
    assert rules["spec"]["groups"] == [group for each in written for group in each["groups"]]
    alerts = {rule.get("alert") for group in rules["spec"]["groups"] for rule in group["rules"]}
    assert {"BackoffCtrlPodsWithoutSidecar", "BackoffCtrlInjectionAway"} <= alerts
    shown = [each for each in manifests if "grafana_dashboard" in each["metadata"].get("labels", {})]
    assert len(shown) == 3
    for board in shown:
        ((name, text),) = board["data"].items()
        assert text == (boards / name).read_text()


def test_each_mode_is_scraped_where_its_metrics_are(helm_program: GoPrograms) -> None:
    """What a monitor selects is there, with a port of that name; the labels of the metrics stay as they are."""
    manifests = rendered(EVERYTHING, MONITORING)
    pods = [each["spec"]["template"] for each in manifests if each["kind"] == "Deployment"]
    services = [each for each in manifests if each["kind"] == "Service"]
    scraped = set()
    for monitor in manifests:
        if monitor["kind"] not in {"PodMonitor", "ServiceMonitor"}:
            continue
        of_pods = monitor["kind"] == "PodMonitor"
        (endpoint,) = monitor["spec"]["podMetricsEndpoints" if of_pods else "endpoints"]
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (found,) = [each for each in (pods if of_pods else services) if wanted <= each["metadata"]["labels"].items()]
        ports = found["spec"]["containers"][0]["ports"] if of_pods else found["spec"]["ports"]
        assert endpoint["port"] in {each["name"] for each in ports}
        assert endpoint["honorLabels"]
        assert endpoint.get("scheme") == ("https" if endpoint["port"] == "https" else None)
        scraped.add(found["metadata"]["labels"]["app.kubernetes.io/component"])
    assert scraped == {"injection", "gateway", "serve"}
    for template in pods:
        (container,) = template["spec"]["containers"]
        listens = {each.rpartition(":")[2] for each in container["args"] if "listen=" in each}
        assert listens == {str(each["containerPort"]) for each in container["ports"]}


def test_the_webhook_asks_as_little_as_it_can(helm_program: GoPrograms) -> None:
    """Only creates of labelled pods, never in kube-system or beside itself, nothing of its certificates."""
    found = by_name(rendered({}))
    (hook,) = found["MutatingWebhookConfiguration /backoff-ctrl-inject-gates"]["webhooks"]
    assert hook["objectSelector"] == {"matchLabels": {"backoff-ctrl.dev/inject": "true"}}
    (rule,) = hook["rules"]
    assert (rule["operations"], rule["resources"], rule["scope"]) == (["CREATE"], ["pods"], "Namespaced")
    (expression,) = hook["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "gates"])
    asked = [hook[name] for name in ("timeoutSeconds", "failurePolicy", "sideEffects", "reinvocationPolicy")]
    assert asked == [2, "Ignore", "None", "IfNeeded"]
    assert "caBundle" not in hook["clientConfig"]
    assert "data" not in found["Secret gates/backoff-ctrl-inject"]


def test_every_pod_meets_the_restricted_standard_and_asks_for_memory(helm_program: GoPrograms) -> None:
    """Numeric user, nothing writable but /tmp, no capability; requests always, since a quota may demand them."""
    found = by_name(rendered(EVERYTHING))
    specs = [each["spec"]["template"]["spec"] for each in found.values() if each["kind"] == "Deployment"]
    specs += [each["spec"] for each in found.values() if each["kind"] == "Pod"]
    assert len(specs) == 4
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert not any("hostPath" in volume for volume in spec["volumes"])


def test_each_rule_of_a_role_says_why() -> None:
    """A comment stands above each rule, and no rule has a wildcard."""
    for path in sorted((CHART / "templates").glob("access-*.yaml")):
        lines = path.read_text().splitlines()
        rules = [number for number, line in enumerate(lines) if line.strip().startswith("- apiGroups:")]
        assert rules
        assert [f"{path.name}:{number}" for number in rules if not lines[number - 1].strip().startswith("#")] == []
        assert "*" not in path.read_text().replace("/*", "").replace("*/", "")


def test_the_table_of_values_is_current() -> None:
    """The chart's README describes every value, as values.yaml does."""
    command = [sys.executable, "docs/chart_page.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_chart_has_the_version_of_the_package() -> None:
    """One release has one number."""
    text = (ROOT / "pyproject.toml").read_text()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["version"]}"' in text
    assert chart["appVersion"] == chart["version"]


def test_the_chart_s_package_is_the_same_every_time(helm_program: GoPrograms, tmp_path: Path) -> None:
    """From files of other dates; helm reads what comes out."""
    packages = []
    for name in ("one", "two"):
        chart = tmp_path / name / "backoff-ctrl"
        shutil.copytree(CHART, chart)
        if name == "two":
            for path in chart.rglob("*"):
                os.utime(path, (1, 1))
        packages.append(chart_archive(str(helm_program.path("helm")), tmp_path / name, 1_700_000_000, chart))
    assert packages[0].read_bytes() == packages[1].read_bytes()
    done = helm("template", "backoff-ctrl", str(packages[0]), "--namespace=gates")
    assert done.returncode == 0, done.stderr
    assert done.stdout == helm("template", "backoff-ctrl", str(CHART), "--namespace=gates").stdout

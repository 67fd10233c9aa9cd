"""What helm makes of the chart: goldens, refusals with the value's path, files that are copies, and archives."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from backoff_ctrl.api.commands.inject import OWN_ARGS
from backoff_ctrl.api.commands.proxy import command as proxy
from backoff_ctrl.api.webhooks.counting import LABEL
from backoff_ctrl.api.webhooks.mutation import inject, with_account
from backoff_ctrl.api.webhooks.server import SUSPEND, SUSPEND_ALL, VALIDATE_TASKS
from backoff_ctrl.api.webhooks.sidecar import SidecarSettings
from backoff_ctrl.k8s.tasks.cluster.schema import definition
from backoff_ctrl.k8s.workloads.admitting.described import described_kinds
from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS, TRUE, WAIT
from tests.admitting.trains import DESCRIPTION as TRAINS
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.shipping.installed import rights_of
from tests.cluster.shipping.rendering import (
    CHART,
    DATA,
    JSON,
    MONITORING,
    NAMESPACE,
    ROOT,
    by_name,
    goldens,
    helm,
    rendered,
    sets,
)
from tests.kit.pages import typed
from tools.archives import chart_archive

EVERYTHING: JSON = {
    "gateway": {"enabled": True},
    "serve": {"enabled": True},
    "operator": {"enabled": True},
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


@pytest.mark.parametrize("page", ["README.md", "helm/backoff-ctrl/README.md"])
def test_the_chart_installs_as_its_pages_say(
    helm_program: GoPrograms, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm takes the words, and installs an image of that repository; it asks no cluster for that."""
    (line,) = (each.command for each in typed(page) if each.command.startswith("helm "))
    line = line.replace("REGISTRY", "registry.example.com")
    monkeypatch.chdir(ROOT)
    done = helm(*line.split()[1:], "--dry-run=client")
    assert done.returncode == 0, done.stderr
    asked = re.search(r"image\.repository=(\S+)", line)
    assert f"{asked[1] if asked else 'backoff-ctrl'}:" in done.stdout


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"injektion": {}}, "at '': additional properties 'injektion' not allowed"),
        ({"injection": {"replica": 3}}, "at '/injection': additional properties 'replica' not allowed"),
        ({"injection": {"replicas": 0}}, "at '/injection/replicas': minimum: got 0, want 1"),
        ({"injection": {"failurePolicy": "Never"}}, "at '/injection/failurePolicy': value must be one of 'Ignore'"),
        ({"injection": {"sidecar": {"args": ["hold"]}}}, "at '/injection/sidecar/args/0': 'hold' does not match"),
        (
            {"injection": {"sidecar": {"args": ["--hodl=3"]}}},
            "at '/injection/sidecar/args/0': '--hodl=3' does not match",
        ),
        (
            {"injection": {"sidecar": {"limits": {"gpu": 1}}}},
            "at '/injection/sidecar/limits': additional properties 'gpu'",
        ),
        (
            {"injection": {"sidecar": {"env": {"a b": "c"}}}},
            "at '/injection/sidecar/env': additional properties 'a b' not",
        ),
        ({"image": {"repository": "a b"}}, "at '/image/repository': 'a b' does not match"),
        ({"image": {"tag": "a\nb: c"}}, "at '/image/tag': 'a\\nb: c' does not match"),
        ({"pods": {"priorityClassName": "a\nb: c"}}, "at '/pods/priorityClassName': 'a\\nb: c' does not match"),
        (
            {"gateway": {"pods": {"labels": {"app.kubernetes.io/name": "x"}}}},
            "at '/gateway/pods/labels/app.kubernetes.io~1name': false schema",
        ),
        ({"monitoring": {"labels": {"helm.sh/chart": "x"}}}, "at '/monitoring/labels/helm.sh~1chart': false schema"),
        ({"networkPolicies": {"apiServer": ["10.0.0.0/33"]}}, "at '/networkPolicies/apiServer/0': '10.0.0.0/33'"),
        ({"dashboards": {"label": "a: b"}}, "at '/dashboards/label': 'a: b' does not match"),
        ({"injection": {"sidecar": {"limits": {"cpu": "a lot"}}}}, "at '/injection/sidecar/limits/cpu': 'a lot'"),
        ({"gateway": {"tls": {"extra": 1}}}, "at '/gateway/tls': additional properties 'extra' not allowed"),
        ({"gateway": {"hold": "8s"}}, "at '/gateway/hold': got string, want number"),
        ({"serve": {"gatesIn": ["Platform"]}}, "at '/serve/gatesIn/0': 'Platform' does not match pattern"),
        ({"serve": {"holders": {"core": ["secrets"]}}}, "at '/serve/holders/core/0': 'not' failed"),
        ({"serve": {"serviceAccount": {"create": False}}}, "at '/serve/serviceAccount/name': minLength"),
        ({"pods": {"node": {}}}, "at '/pods': additional properties 'node' not allowed"),
        ({"networkPolicies": {"apiServer": ["here"]}}, "at '/networkPolicies/apiServer/0': 'here' does not match"),
        ({"networkPolicies": {"enabled": True}}, "networkPolicies.apiServer must say where the API server is"),
        ({"operator": {"namespaces": ["Team"]}}, "at '/operator/namespaces/0': 'Team' does not match pattern"),
        ({"operator": {"taskKinds": {"core": ["secrets"]}}}, "at '/operator/taskKinds/core/0': 'not' failed"),
        ({"operator": {"kinds": [{"id": "x"}]}}, "at '/operator/kinds/0': missing property 'resource'"),
        (
            {"operator": {"kinds": [{"resource": {"api-version": "v1", "kind": "Secret", "plural": "secrets"}}]}},
            "at '/operator/kinds/0/resource/api-version': 'v1' does not match pattern",
        ),
        ({"webhooks": {"enabled": True}}, "at '/webhooks': additional properties 'enabled' not allowed"),
        ({"monitoring": {"serveToken": {"name": "t"}}}, "at '/monitoring/serveToken': properties 'key' required"),
    ],
)
def test_wrong_values_are_refused_with_their_path(helm_program: GoPrograms, values: JSON, path: str) -> None:
    """Unknown keys, wrong types, and values that can't work together."""
    done = helm("template", "r", str(CHART), "--values=-", stdin=yaml.safe_dump(values))
    assert done.returncode == 1
    assert path in done.stderr


def test_arguments_of_sidecars_are_those_of_the_proxy() -> None:
    """But for what the webhook sets. The schema names each: a wrong one keeps every labelled pod from starting."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    pattern = schema["properties"]["injection"]["properties"]["sidecar"]["properties"]["args"]["items"]["pattern"]
    named = {f"--{each}" for each in pattern.removeprefix("^--(").partition(")")[0].split("|")}
    old = {"--upstream"}  # the old name of --apiserver
    assert named == ({option for each in proxy.params for option in each.opts} | old) - OWN_ARGS


def test_numbers_reach_the_sidecar_as_they_were_written(helm_program: GoPrograms) -> None:
    """Helm reads them as floats: ten millions became 1e+07, which no setting of ours understands."""
    sidecar = {"env": {"MANY": 10_000_000, "YES": True, "HALF": 0.5, "TEXT": "a b"}, "limits": {"memory": 268_435_456}}
    found = by_name(rendered({"injection": {"sidecar": sidecar}}))["Deployment gates/backoff-ctrl-inject"]
    args = found["spec"]["template"]["spec"]["containers"][0]["args"]
    told = {f"--sidecar-env={each}" for each in ("MANY=10000000", "YES=true", "HALF=0.5", "TEXT=a b")}
    assert {*told, "--limit=memory=268435456"} <= {*args}


def test_each_sidecar_is_scraped_where_its_metrics_are_if_tenants_are_trusted(helm_program: GoPrograms) -> None:
    """By the label of its pod and the name of its port, in whatever namespace."""
    values: JSON = {"monitoring": {"enabled": True, "sidecars": True}}
    monitor = by_name(rendered(values, MONITORING))["PodMonitor gates/backoff-ctrl-sidecars"]["spec"]
    assert (monitor["namespaceSelector"], monitor["selector"]) == ({"any": True}, {"matchLabels": {LABEL: "true"}})
    (endpoint,) = monitor["podMetricsEndpoints"]
    what = inject(with_account({"spec": {"containers": [{"name": "c"}]}}), SidecarSettings())
    assert what.pod is not None
    (port,) = what.pod["spec"]["initContainers"][0]["ports"]
    assert (endpoint["port"], endpoint["honorLabels"]) == (port["name"], True)


def rules(values: JSON) -> dict[str, JSON]:
    """Return the alerts of the PrometheusRule, by name."""
    whole: JSON = {**values, "monitoring": {"enabled": True, **values.get("monitoring", {})}}
    (found,) = (each for each in rendered(whole, MONITORING) if each["kind"] == "PrometheusRule")
    return {rule["alert"]: rule for group in found["spec"]["groups"] for rule in group["rules"] if "alert" in rule}


@pytest.mark.parametrize(
    ("values", "missed"),
    [
        ({}, False),
        ({"injection": {"enabled": False}, "serve": {"enabled": True}}, False),
        ({"gateway": {"enabled": True}}, True),
        ({"monitoring": {"sidecars": True}}, True),
    ],
)
def test_a_gate_is_missed_only_where_one_is_read(helm_program: GoPrograms, values: JSON, missed: bool) -> None:
    """The webhook and the page are no gates: without any the alert would fire for good."""
    assert ("BackoffCtrlNoGates" in rules(values)) == missed
    assert "BackoffCtrlGateDown" in rules(values)


def test_the_links_of_alerts_can_be_made_absolute(helm_program: GoPrograms) -> None:
    """To the runbooks and to Grafana, wherever they are."""
    given = {"runbooks": "https://git.example.com/gate/blob/main/", "grafana": "https://grafana.example.com"}
    found = rules({"monitoring": given})
    for rule in found.values():
        told = rule["annotations"]
        page, _, anchor = told["runbook_url"].removeprefix("https://git.example.com/gate/blob/main/").partition("#")
        assert ((ROOT / page).is_file(), bool(anchor)) == (True, True)
        assert told.get("dashboard_url", given["grafana"]).startswith(given["grafana"])
    assert len(found) > 10


def test_the_webhook_knows_where_it_is_not_asked(helm_program: GoPrograms) -> None:
    """Else labelled pods there would be counted as without a sidecar."""
    found = by_name(rendered({"injection": {"excludedNamespaces": ["legacy", "kube-system"]}}))
    args = found["Deployment gates/backoff-ctrl-inject"]["spec"]["template"]["spec"]["containers"][0]["args"]
    told = [each.removeprefix("--excluded=") for each in args if each.startswith("--excluded=")]
    (hook,) = (each for name, each in found.items() if name.startswith("MutatingWebhookConfiguration "))
    (expression,) = hook["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert told == expression["values"] == ["kube-system", NAMESPACE, "legacy"]


@pytest.mark.parametrize(("release", "name"), [("my.release", "my-release-backoff-ctrl-inject"), ("1st", "")])
def test_a_release_is_called_as_services_may_be(helm_program: GoPrograms, release: str, name: str) -> None:
    """With a dot in it, its Service was refused after half of the chart was there."""
    done = helm("template", release, str(CHART))
    if name:
        assert {each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Service"} == {
            name
        }
    else:
        assert "fullnameOverride must be set: release 1st begins with a digit" in done.stderr


def test_releases_in_namespaces_with_long_names_share_nothing(helm_program: GoPrograms) -> None:
    """Cut at 63 characters, their webhooks had one name."""
    names = set()
    for end in "ab":
        manifests = [*yaml.safe_load_all(helm("template", "r" * 53, str(CHART), f"--namespace={'n' * 62}{end}").stdout)]
        names |= {each["metadata"]["name"] for each in manifests if each and each["kind"].startswith("Mutating")}
    assert len(names) == 2


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
    names = ("rules.yaml", "alerts.yaml", "injection.yaml", "operator.yaml")
    written = [yaml.safe_load((CHART / "files" / name).read_text()) for name in names]
    assert rules["spec"]["groups"] == [group for each in written for group in each["groups"]]
    alerts = {rule.get("alert") for group in rules["spec"]["groups"] for rule in group["rules"]}
    assert {"BackoffCtrlPodsWithoutSidecar", "BackoffCtrlInjectionAway", "BackoffCtrlWebhooksAway"} <= alerts
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
    assert scraped == {"injection", "gateway", "serve", "operator", "webhooks"}
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
    specs += [each["spec"]["template"]["spec"] for each in found.values() if each["kind"] == "Job"]
    assert len(specs) == 8
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
        assert not any("hostPath" in volume for volume in spec.get("volumes", ()))


def test_described_kinds_wait_in_every_part_of_the_chart(helm_program: GoPrograms, tmp_path: Path) -> None:
    """The operator, the webhooks and the hook before deletion read one file; each has its rights on these kinds."""
    train = yaml.safe_load(TRAINS)
    plane = {**train, "id": "plane", "resource": {"api-version": "example.com/v2", "kind": "Plane", "plural": "planes"}}
    found = by_name(rendered({"operator": {"enabled": True, "kinds": [train, plane]}}))
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text(found["ConfigMap gates/backoff-ctrl-operator"]["data"]["kinds.yaml"])
    described = described_kinds([kinds])[len(KINDS) :]
    assert [each.resource for each in described] == ["trains.example.com", "planes.example.com"]
    for hook in found["MutatingWebhookConfiguration /backoff-ctrl-webhooks-gates"]["webhooks"]:
        named = [(*rule["apiGroups"], *rule["apiVersions"], *rule["resources"]) for rule in hook["rules"][-2:]]
        assert named == [("example.com", "v1", "trains"), ("example.com", "v2", "planes")]
    for name in ("Deployment gates/backoff-ctrl-operator", "Deployment gates/backoff-ctrl-webhooks"):
        assert "--kinds=/config/kinds.yaml" in found[name]["spec"]["template"]["spec"]["containers"][0]["args"]
    uninstall = found["Job gates/backoff-ctrl-uninstall"]["spec"]["template"]["spec"]
    assert "--kinds=/config" in uninstall["containers"][0]["args"]
    (volume,) = uninstall["volumes"]
    assert volume["configMap"] == {
        "name": "backoff-ctrl-operator",
        "items": [{"key": "kinds.yaml", "path": "kinds.yaml"}],
        "optional": True,
    }
    for role, verbs in (
        ("operator-gates-work", "get list watch patch"),
        ("webhooks-gates", "list"),
        ("operator-gates-uninstall", "get list patch"),
    ):
        rights = rights_of(found[f"ClusterRole /backoff-ctrl-{role}"]["rules"])
        assert {f"{verb} {each.resource}" for each in described for verb in verbs.split()} <= rights


@pytest.mark.parametrize(
    ("values", "words", "events"),
    [
        ({"operator": {"enabled": True}}, (), "pre-delete,pre-upgrade,pre-rollback"),
        ({}, (), "pre-upgrade,pre-rollback"),
        ({}, ("--is-upgrade",), "pre-upgrade,pre-rollback"),
        ({"injection": {"enabled": False}}, (), "pre-upgrade,pre-rollback"),
        ({"operator": {"enabled": True, "releaseOnUninstall": False}}, (), ""),
        ({"operator": {"releaseOnUninstall": False}}, (), ""),
    ],
)
def test_whatever_takes_the_operator_away_lets_go_first(
    helm_program: GoPrograms, values: JSON, words: tuple[str, ...], events: str
) -> None:
    """Each revision has the hook: a rollback runs those of its target. Without an operator it ends at once."""
    found = by_name(rendered(values, *words))
    parts = [each for name, each in found.items() if name.endswith("uninstall") and each["kind"] != "Job"]
    assert len(parts) == (5 if events else 0)
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in parts} == ({events} if events else set())
    jobs = [each for each in found.values() if each["kind"] == "Job"]
    assert ",".join(each["metadata"]["annotations"]["helm.sh/hook"] for each in reversed(jobs)) == events
    for each in jobs:
        args = each["spec"]["template"]["spec"]["containers"][0]["args"]
        before_deletion = each["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
        assert ("--if-installed" in args) == (not before_deletion)
        assert ("--narrow" in args) == (len(jobs) == 2 and not before_deletion)


def test_an_operator_that_goes_on_keeps_what_its_values_name(helm_program: GoPrograms) -> None:
    """Its namespaces, also those of more arguments, and the kinds that it describes."""
    kind = yaml.safe_load(TRAINS)
    given = {"enabled": True, "namespaces": ["a", "b"], "kinds": [kind], "extraArgs": ["--namespace=c"]}
    work = by_name(rendered({"operator": given}))["Job gates/backoff-ctrl-narrow"]
    args = work["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [each for each in args if each.startswith("--keep")] == [
        *(f"--keep-namespace={each}" for each in "abc"),
        "--keep-kind=trains.example.com",
    ]


@pytest.mark.parametrize("mode", ["webhooks", "injection"])
def test_the_authority_of_api_servers_is_a_file_of_the_webhooks(helm_program: GoPrograms, mode: str) -> None:
    values = {"operator": {"enabled": True}, mode: {"clientCA": {"configMap": "callers", "key": "bundle.pem"}}}
    found = by_name(rendered(values))
    name = {"webhooks": "webhooks", "injection": "inject"}[mode]
    spec = found[f"Deployment gates/backoff-ctrl-{name}"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "--client-ca=/client-ca/ca.crt" in container["args"]
    assert {"name": "client-ca", "mountPath": "/client-ca", "readOnly": True} in container["volumeMounts"]
    items = [{"key": "bundle.pem", "path": "ca.crt"}]
    assert {"name": "client-ca", "configMap": {"name": "callers", "items": items}} in spec["volumes"]


def test_jobs_are_suspended_where_the_operator_lets_them_in(helm_program: GoPrograms) -> None:
    """The kinds are those of the table; one webhook for labelled objects, one for all others of labelled namespaces."""
    found = by_name(rendered({"operator": {"enabled": True, "namespaces": ["team-a"]}}))
    labelled, others = found["MutatingWebhookConfiguration /backoff-ctrl-webhooks-gates"]["webhooks"]
    for hook in (labelled, others):
        named = {
            f"{group}/{version} {resource}"
            for rule in hook["rules"]
            for group in rule["apiGroups"]
            for version in rule["apiVersions"]
            for resource in rule["resources"]
        }
        assert {f"{each.api_version} {each.plural}" for each in KINDS} <= named
        assert {"NotIn kube-system,gates", "In team-a"} == {
            f"{each['operator']} {','.join(each['values'])}" for each in hook["namespaceSelector"]["matchExpressions"]
        }
        assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "None")
    assert [each["clientConfig"]["service"]["path"] for each in (labelled, others)] == [SUSPEND, SUSPEND_ALL]
    assert labelled["objectSelector"]["matchLabels"] == {WAIT: TRUE}
    assert others["namespaceSelector"]["matchLabels"] == {WAIT: TRUE}
    for role, verb in (
        ("operator-gates-work", "patch"),
        ("webhooks-gates", "list"),
        ("operator-gates-uninstall", "patch"),
    ):
        rights = rights_of(found[f"ClusterRole /backoff-ctrl-{role}"]["rules"])
        assert {f"{verb} {each.resource}" for each in KINDS} <= rights


def test_only_tasks_are_refused_while_their_webhook_is_away(helm_program: GoPrograms) -> None:
    """And only when they are created, or their spec changes: in all namespaces."""
    found = by_name(rendered({"operator": {"enabled": True, "namespaces": ["team-a"]}}))
    (hook,) = found["ValidatingWebhookConfiguration /backoff-ctrl-webhooks-gates"]["webhooks"]
    (rule,) = hook["rules"]
    assert (hook["failurePolicy"], rule["resources"], rule["operations"]) == ("Fail", ["tasks"], ["CREATE", "UPDATE"])
    assert hook["clientConfig"]["service"]["path"] == VALIDATE_TASKS
    assert "namespaceSelector" not in hook
    kept = found["CustomResourceDefinition /tasks.backoff-ctrl.dev"]
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert kept["spec"] == definition()["spec"]


def test_each_rule_of_a_role_says_why() -> None:
    """A comment stands above each rule, and no rule has a wildcard."""
    for path in sorted((CHART / "templates").glob("access-*.yaml")):
        lines = path.read_text().splitlines()
        rules = [number for number, line in enumerate(lines) if line.strip().startswith("- apiGroups:")]
        assert rules
        assert [f"{path.name}:{number}" for number in rules if not lines[number - 1].strip().startswith("#")] == []
        assert "*" not in path.read_text().replace("/*", "").replace("*/", "")


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

"""What helm makes of the chart, and what goldens keep of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.shipping.helm.programs import HELM
from tests.kit.patience import PATIENCE

JSON = dict[str, Any]

ROOT: Final = Path(__file__).parents[3]
CHART: Final = ROOT / "helm" / "backoff-ctrl"
DATA: Final = ROOT / "tests" / "data" / "chart"
MONITORING: Final = "--api-versions=monitoring.coreos.com/v1"
NAMESPACE: Final = "gates"
_CERTIFICATES: Final = frozenset({"ca.crt", "tls.crt", "tls.key"})


def sets() -> dict[str, JSON]:
    found: dict[str, JSON] = yaml.safe_load((DATA / "sets.yaml").read_text())
    return found


def helm(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "", "HOME": "/nonexistent", **environment}
    command = [str(HELM.path("helm")), *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE, env=variables
    )


def rendered(values: JSON, *words: str, namespace: str = NAMESPACE) -> list[JSON]:
    """Return the manifests for these values, hooks included."""
    command = ("template", "backoff-ctrl", str(CHART), "--namespace", namespace, "--kube-version=1.36.0", "--values=-")
    done = helm(*command, *words, stdin=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def by_name(manifests: list[JSON]) -> dict[str, JSON]:
    """Return the manifests by kind, namespace and name, without what is random, or a copy of a file."""
    found = {}
    for each in manifests:
        metadata = each["metadata"]
        data = each.get("data") or {}
        for key in data:
            if key in _CERTIFICATES or key.endswith(".json"):
                data[key] = "..."
        if each["kind"] == "PrometheusRule":
            each["spec"]["groups"] = [group["name"] for group in each["spec"]["groups"]]
        found[f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = each
    return found


def differences(base: dict[str, JSON], other: dict[str, JSON]) -> JSON:
    """Return what differs: objects that are missing, that are more, and which fields have which other values."""
    changed: JSON = {}
    for name in base.keys() & other.keys():
        was, now = dict(_fields(base[name], "")), dict(_fields(other[name], ""))
        fields = {path: now.get(path, "(gone)") for path in was.keys() | now.keys() if was.get(path) != now.get(path)}
        if fields:
            changed[name] = fields
    missing = sorted(base.keys() - other.keys())
    more = {name: other[name] for name in other.keys() - base.keys()}
    return {key: value for key, value in {"missing": missing, "changed": changed, "more": more}.items() if value}


def _fields(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, each in value.items() for leaf in _fields(each, f"{path}/{key}")]
    if isinstance(value, list) and value:
        return [leaf for index, each in enumerate(value) for leaf in _fields(each, f"{path}/{index}")]
    return [(path, value)]


def goldens() -> dict[str, str]:
    """Return the texts of the golden files, by name, as the chart is now."""
    found = {name: by_name(rendered(values, MONITORING)) for name, values in sets().items()}
    base = found.pop("base")
    rest = {name: differences(base, each) for name, each in found.items()}
    return {"base.yaml": _text(base), "differences.yaml": _text(rest)}


def _text(document: JSON) -> str:
    head = "# Written by `python -m tests.cluster.shipping`: read what has changed before you commit it.\n"
    return head + yaml.safe_dump(document, width=120)

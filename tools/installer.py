"""Render the chart as one file for those without helm: ``python -m tools.installer --helm PROGRAM --out FILE``.

What helm alone understands is left out: test hooks, and the labels that name helm and the chart. The namespace comes
first, so that ``kubectl apply -f`` works on an empty cluster; kustomize may change everything, also the namespace.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[1] / "helm" / "backoff-ctrl"
NAMESPACE: Final = "backoff-ctrl"
_RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
_HELMS: Final = ("helm.sh/chart", "app.kubernetes.io/managed-by")
_ORDER: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "Lease",
    "ConfigMap",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "MutatingWebhookConfiguration",
)


class InstallerError(Exception):
    """The chart can't be rendered; the message is helm's."""


def installer(helm: str, *values: str) -> str:
    """Return the text of install.yaml; ``values`` are words for helm, such as ``--set=...``. Raises InstallerError."""
    command = [helm, "template", "backoff-ctrl", str(CHART), f"--namespace={NAMESPACE}", "--no-hooks", *values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the caller's helm
    if done.returncode:
        raise InstallerError(done.stderr.strip())
    manifests = [each for each in yaml.safe_load_all(done.stdout) if each]
    manifests.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": _RESTRICTED}})
    for each in manifests:
        _without_helm(each)
    manifests.sort(key=lambda each: (_place(each["kind"]), each["kind"], each["metadata"]["name"]))
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    head = f"# backoff-ctrl {version}, rendered from its Helm chart: kubectl apply -f install.yaml\n"
    return head + yaml.safe_dump_all(manifests, sort_keys=False, width=120)


def _place(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _without_helm(manifest: dict[str, Any]) -> None:
    """Take away what names helm, in the object and in the pods that it makes."""
    metadata = [manifest["metadata"], manifest.get("spec", {}).get("template", {}).get("metadata", {})]
    for each in metadata:
        for name in _HELMS:
            each.get("labels", {}).pop(name, None)


def main() -> int:
    """Do as the command line says. Returns the exit code."""
    reader = argparse.ArgumentParser(prog="python -m tools.installer", description=__doc__)
    reader.add_argument("--helm", default="helm", help="the program")
    reader.add_argument("--out", type=Path, default=Path("build/install.yaml"))
    asked, values = reader.parse_known_args()
    try:
        text = installer(asked.helm, *values)
    except (InstallerError, OSError) as error:
        sys.stderr.write(f"install.yaml can't be rendered: {error}\n")
        return 1
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{asked.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""install.yaml, as `make installer` renders it: applied to a real Kubernetes, twice, and through kustomize."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.shipping.helm.programs import HELM
from tests.kit.patience import PATIENCE
from tools.installer import InstallerError, installer

KUSTOMIZATION = {
    "resources": ["install.yaml"],
    "namespace": "elsewhere",
    "images": [{"name": "ghcr.io/backoff-ctrl/backoff-ctrl", "newName": "registry.example/gate", "newTag": "7"}],
    "replicas": [{"name": "backoff-ctrl-inject", "count": 3}],
}


def run(kubectl: Path, *words: str) -> str:
    done = subprocess.run([kubectl, *words], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_it_is_applied_to_an_empty_cluster_and_again(
    kubernetes: Server, binaries: Binaries, helm_program: GoPrograms, tmp_path: Path
) -> None:
    """The namespace comes first; the second time nothing changes; what it made goes with it.

    Of disruption budgets kubectl says "configured" each time: their selector is patched as a whole.
    """
    file = tmp_path / "install.yaml"
    file.write_text(installer(str(HELM.path("helm"))))
    account = ("--kubeconfig", str(kubernetes.kubeconfig("admin")))
    created = run(binaries.kubectl, *account, "apply", "-f", str(file)).splitlines()
    assert created[0] == "namespace/backoff-ctrl created"
    assert "deployment.apps/backoff-ctrl-inject created" in created
    again = run(binaries.kubectl, *account, "apply", "-f", str(file)).splitlines()
    changed = [line for line in again if not line.endswith(" unchanged")]
    assert changed in ([], ["poddisruptionbudget.policy/backoff-ctrl-inject configured"])
    gone = run(binaries.kubectl, *account, "delete", "--wait=false", "-f", str(file)).splitlines()
    assert len(gone) == len(created)


def test_kustomize_changes_namespace_image_and_replicas(
    binaries: Binaries, helm_program: GoPrograms, tmp_path: Path
) -> None:
    """Everything follows: the webhook's Service, the bindings' accounts; and nothing names helm."""
    text = installer(str(HELM.path("helm")))
    assert "elm" not in text.partition("\n")[2]
    (tmp_path / "install.yaml").write_text(text)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(KUSTOMIZATION))
    manifests = [*yaml.safe_load_all(run(binaries.kubectl, "kustomize", str(tmp_path)))]
    found = {each["kind"]: each for each in manifests}
    deployment = found["Deployment"]
    assert (deployment["metadata"]["namespace"], deployment["spec"]["replicas"]) == ("elsewhere", 3)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/gate:7"
    assert not any("--namespace" in each for each in container["args"])  # the pod's own
    (hook,) = found["MutatingWebhookConfiguration"]["webhooks"]
    assert hook["clientConfig"]["service"]["namespace"] == "elsewhere"
    assert found["ClusterRoleBinding"]["subjects"][0]["namespace"] == "elsewhere"
    assert found["Namespace"]["metadata"]["name"] == "elsewhere"


def test_what_helm_refuses_is_said(helm_program: GoPrograms) -> None:
    """With helm's own words."""
    with pytest.raises(InstallerError, match="additional properties 'x' not allowed"):
        installer(str(HELM.path("helm")), "--set=x=1")

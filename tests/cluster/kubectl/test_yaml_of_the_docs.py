"""The manifests of the pages: Kubernetes takes them; those of docs/operations.md for gates in pods fit the code."""

from __future__ import annotations

import asyncio
import fnmatch
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.api.commands.proxy import command as proxy
from backoff_ctrl.api.commands.serve import command
from backoff_ctrl.api.status.gates_found import LABEL, gates_of
from backoff_ctrl.k8s.status.endpoints import URLS
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.kit.pages import KUBERNETES, PAGES, blocks, typed
from tests.kit.patience import PATIENCE

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def text_of_the_page() -> str:
    return PAGE.read_text().partition("<!-- gates in pods -->\n```yaml\n")[2].partition("```")[0]


def found(kind: str, name: str) -> Any:
    (one,) = [
        each
        for each in yaml.safe_load_all(text_of_the_page())
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return one


def manifests(page: str, namespace: str) -> list[Any]:
    """What a page shows of Kubernetes' own kinds, and of pods' specs, put into this namespace."""
    texts = [each.text for each in blocks(page, "yaml")]
    texts += [each.printed for each in typed(page) if each.command.startswith("cat ")]
    found: list[Any] = []
    for each in (each for text in texts for each in yaml.safe_load_all(text)):
        if set(each) == {"spec"}:
            containers = [*each["spec"].get("initContainers", ()), *each["spec"]["containers"]]
            for container in containers:
                container.setdefault("image", "busybox")
            spec = {"serviceAccountName": "default", **each["spec"]}  # as the server's own plugin sets it
            shown: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shown"}, "spec": spec}
            found.append(shown)
        elif KUBERNETES.fullmatch(each.get("apiVersion", "")):
            found.append(each)
    for each in found:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = namespace
        for subject in each.get("subjects", ()):
            subject["namespace"] = namespace
        each.pop("status", None)
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if manifests(page, "")])
async def test_kubernetes_takes_every_manifest(
    kubernetes: Server, binaries: Binaries, real_namespace: str, page: str
) -> None:
    """By a dry run that refuses unknown fields."""
    text = yaml.safe_dump_all(manifests(page, real_namespace))
    words = ["create", "--dry-run=server", "--validate=strict", "-n", real_namespace, "-f", "-"]
    kubectl = [str(binaries.kubectl), f"--kubeconfig={kubernetes.kubeconfig('admin')}"]
    done = await asyncio.to_thread(
        subprocess.run, [*kubectl, *words], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(manifests(page, real_namespace))
    assert not done.stderr


def test_the_pages_with_manifests_are_these() -> None:
    """Eight objects in operations.md."""
    numbers = {page: len(found) for page in PAGES if (found := manifests(page, ""))}
    assert numbers == {
        "docs/how-to/go-operator.md": 1,
        "docs/how-to/jobs-that-wait.md": 1,
        "docs/how-to/run-a-task.md": 1,
        "docs/how-to/write-a-plugin.md": 1,
        "docs/operations.md": 8,
        "docs/sidecar.md": 1,
        "helm/backoff-ctrl/README.md": 1,
    }


def test_the_sidecar_of_the_page_is_started_with_options_that_there_are() -> None:
    """Of docs/sidecar.md, in TLS mode."""
    (pod,) = manifests("docs/sidecar.md", "")
    (sidecar,) = pod["spec"]["initContainers"]
    name, *words = sidecar["args"]
    assert name == "proxy"
    given = proxy.make_context(name, words).params
    assert (given["tls_authority"], given["tls_account"]) == (Path("/authority"), Path("/account"))


def test_serve_finds_the_gate_and_knows_its_options() -> None:
    """Label, annotations and port are those that it looks for."""
    template = found("Deployment", "my-platform")["spec"]["template"]
    assert template["metadata"]["labels"][LABEL] == "true"
    metadata = {**template["metadata"], "namespace": "platform", "name": "p"}
    pod = {"metadata": metadata, "status": {"phase": "Running", "podIP": "10.1.2.3"}}
    assert [url for url, _ in gates_of([pod])] == ["https://10.1.2.3:8443"]
    (container,) = found("Deployment", "backoff-ctrl-serve")["spec"]["template"]["spec"]["containers"]
    given = command.make_context("serve", container["command"][2:]).params
    assert (given["gates_in"], given["gate_ca"], given["gate_token_file"]) == (
        ("platform",), "/ca/ca.crt", "/token/token",
    )  # fmt: skip


def test_the_proxy_passes_on_all_that_is_looked_at_and_no_action() -> None:
    """A path of its list stands for one segment of a path, as in a shell."""
    proxy = found("Deployment", "my-platform")["spec"]["template"]["spec"]["containers"][1]
    (listed,) = [each.partition("=")[2].split(",") for each in proxy["args"] if each.startswith("--allow-paths=")]
    passed = {path for path in [*URLS, "/metrics"] if any(fnmatch.fnmatch(path, each) for each in listed)}
    assert passed == {*URLS, "/metrics"} - {"/v1/actions/{action}"}

"""The manifests of docs/operations.md for gates in pods: Kubernetes takes them, and they fit the code."""

from __future__ import annotations

import asyncio
import fnmatch
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from backoff_ctrl.api.status.command import command
from backoff_ctrl.api.status.connected.finding import LABEL, gates_of
from backoff_ctrl.k8s.status.shapes.urls import URLS

if TYPE_CHECKING:
    from tests.cluster.control_plane.servers import Server

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def text_of_the_page() -> str:
    """The YAML behind its mark."""
    return PAGE.read_text().partition("<!-- gates in pods -->\n```yaml\n")[2].partition("```")[0]


def found(kind: str, name: str) -> Any:
    """One object of the page."""
    (one,) = [
        each
        for each in yaml.safe_load_all(text_of_the_page())
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return one


async def test_kubernetes_takes_every_manifest(kubernetes: Server, real_namespace: str) -> None:
    """By a dry run that refuses unknown fields."""
    text = text_of_the_page().replace("namespace: platform", f"namespace: {real_namespace}")
    words = ["create", "--dry-run=server", "--validate=strict", "-f", "-"]
    kubectl = [str(kubernetes.binaries.kubectl), f"--kubeconfig={kubernetes.kubeconfig('admin')}"]
    done = await asyncio.to_thread(
        subprocess.run, [*kubectl, *words], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(yaml.safe_load_all(text))) == 8
    assert not done.stderr


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

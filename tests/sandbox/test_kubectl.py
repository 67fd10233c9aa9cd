"""A real kubectl against ``backoff-ctrl sandbox``; where there is none, say so: its requests are tested anyway."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from k8s.sandbox import BackgroundSandbox, running_sandbox
from tests.sandbox.talking import pod, quota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Kubectl = Callable[..., str]

BINARY = os.environ.get("KUBECTL") or shutil.which("kubectl")

pytestmark = pytest.mark.skipif(
    BINARY is None,
    reason="no kubectl on PATH or in $KUBECTL: only its recorded requests were tested (test_kubectl_requests)",
)


@pytest.fixture
def server() -> Iterator[BackgroundSandbox]:
    """A sandbox in a thread, with the namespace ``team``."""
    with running_sandbox(seed=5) as running:
        running.create_namespace("team")
        yield running


@pytest.fixture
def kubectl(server: BackgroundSandbox, tmp_path: Path) -> Kubectl:
    """Run kubectl with its own home; a failure raises with what it said."""
    environment = {"HOME": str(tmp_path), "KUBECACHEDIR": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}

    def run(*arguments: str, stdin: object = None, fails: bool = False) -> str:
        command = [str(BINARY), "--server", server.url, "--namespace", "team", *arguments]
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=30, env=environment, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return run


def full(name: str, **more: object) -> dict[str, object]:
    """A pod with its kind, as a file has it."""
    return {"apiVersion": "v1", "kind": "Pod", **pod(name), **more}


def test_kubectl_creates_gets_describes_and_deletes(kubectl: Kubectl) -> None:
    """Tables, plain output, a description with everything in it."""
    assert kubectl("create", "-f", "-", stdin=full("one")) == "pod/one created\n"

    assert kubectl("get", "pods", "--no-headers").split()[:3] == ["one", "0/1", "Pending"]
    assert json.loads(kubectl("get", "pod", "one", "-o", "json"))["metadata"]["name"] == "one"
    assert kubectl("get", "pods", "-o", "name", "-A") == "pod/one\n"
    described = kubectl("describe", "pod", "one")
    assert ["QoS", "Class:", "BestEffort"] in [line.split() for line in described.splitlines()]
    assert kubectl("delete", "pod", "one", "--timeout=10s").startswith('pod "one" deleted')
    assert "NotFound" in kubectl("get", "pod", "one", fails=True)


def test_kubectl_prints_the_quota_refusal(server: BackgroundSandbox, kubectl: Kubectl) -> None:
    """With the server's own words."""
    server.create_quota("team", "q", {"pods": "0"})

    assert kubectl("create", "-f", "-", stdin=full("one"), fails=True) == (
        'Error from server (Forbidden): error when creating "STDIN": pods "one" is forbidden: exceeded quota: q, '
        "requested: pods=1, used: pods=0, limited: pods=0\n"
    )


def test_kubectl_creates_from_flags(kubectl: Kubectl) -> None:
    """Those commands send protobuf."""
    assert kubectl("create", "namespace", "other") == "namespace/other created\n"
    kubectl("create", "quota", "q", "--hard=pods=5,requests.cpu=2")
    kubectl("create", "configmap", "m", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    kubectl("create", "job", "j", "--image=busybox", "--", "true")
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2")

    assert json.loads(kubectl("get", "quota", "q", "-o", "json"))["spec"] == {
        "hard": {"pods": "5", "requests.cpu": "2"}
    }
    assert json.loads(kubectl("get", "configmap", "m", "-o", "json"))["data"] == {"a": "b"}
    assert json.loads(kubectl("get", "secret", "s", "-o", "json"))["data"] == {"a": "Yg=="}
    job = json.loads(kubectl("get", "job", "j", "-o", "json"))["spec"]["template"]["spec"]
    assert (job["restartPolicy"], job["containers"][0]["command"]) == ("Never", ["true"])
    assert json.loads(kubectl("get", "deployment", "d", "-o", "json"))["spec"]["replicas"] == 2


def test_kubectl_applies_in_both_ways(kubectl: Kubectl) -> None:
    """Client-side and server-side, again without change, and with a field gone."""
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}}
    less = {**one, "data": {"a": "3"}}
    assert kubectl("apply", "-f", "-", stdin=one) == "configmap/m created\n"
    assert kubectl("apply", "-f", "-", stdin=one) == "configmap/m unchanged\n"
    assert kubectl("apply", "-f", "-", stdin=less) == "configmap/m configured\n"
    assert json.loads(kubectl("get", "cm", "m", "-o", "json"))["data"] == {"a": "3"}

    other = {**one, "metadata": {"name": "n"}}
    assert kubectl("apply", "--server-side", "-f", "-", stdin=other) == "configmap/n serverside-applied\n"
    kubectl("apply", "--server-side", "-f", "-", stdin={**less, "metadata": {"name": "n"}})
    assert json.loads(kubectl("get", "cm", "n", "-o", "json"))["data"] == {"a": "3"}
    conflict = kubectl(
        "apply", "--server-side", "--field-manager=else", "-f", "-", stdin={**other, "data": {"a": "9"}}, fails=True
    )
    assert 'conflict with "kubectl"' in conflict
    assert ".data.a" in conflict


def test_kubectl_labels_annotates_and_patches(kubectl: Kubectl) -> None:
    """Strategic, merge and JSON patches."""
    kubectl("create", "-f", "-", stdin=full("one"))
    kubectl("label", "pod", "one", "app=x")
    kubectl("annotate", "pod", "one", "note=y")
    kubectl("patch", "pod", "one", "-p", '{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}')
    kubectl("patch", "pod", "one", "--type=merge", "-p", '{"metadata":{"labels":{"more":"z"}}}')
    kubectl("patch", "pod", "one", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/app"}]')

    (found,) = json.loads(kubectl("get", "pods", "-l", "more=z", "-o", "json"))["items"]
    assert found["metadata"]["labels"] == {"more": "z"}
    assert found["metadata"]["annotations"] == {"note": "y"}
    assert found["spec"]["containers"][0]["image"] == "busybox:2"


def test_kubectl_waits_and_watches(kubectl: Kubectl) -> None:
    """For a condition, for a field, for an end; and sees it happen."""
    kubectl("create", "-f", "-", stdin=full("one"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kubectl("patch", "pod", "one", "--subresource=status", "-p", json.dumps({"status": status}))

    assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=10s")
    assert "condition met" in kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/one", "--timeout=10s")
    assert "one" in kubectl("get", "pods", "-w", "--request-timeout=1s")
    kubectl("delete", "pod", "one", "--wait=false")
    kubectl("wait", "--for=delete", "pod/one", "--timeout=10s")


def test_kubectl_lists_what_is_served(kubectl: Kubectl) -> None:
    """From discovery; and may do everything."""
    served = kubectl("api-resources", "--no-headers", "-o", "name").split()
    assert {"pods", "resourcequotas", "jobs.batch", "rayclusters.ray.io", "sparkapplications.sparkoperator.k8s.io"} <= {
        *served
    }
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "v1.36" in kubectl("version")


def test_kubectl_describes_a_quota(kubectl: Kubectl) -> None:
    """Used and hard side by side."""
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "ResourceQuota", **quota("q", {"pods": "3"})})
    kubectl("wait", "--for=jsonpath={.status.hard.pods}=3", "resourcequota/q", "--timeout=10s")
    kubectl("create", "-f", "-", stdin=full("one"))

    assert ["pods", "1", "3"] in [line.split() for line in kubectl("describe", "quota", "q").splitlines()]

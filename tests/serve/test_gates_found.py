"""Gates that ``serve`` finds in the cluster: running pods with the label, in the namespaces that it was given."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from backoff_ctrl.api.status.gate import Gate, Ways
from backoff_ctrl.api.status.gates_found import gates_of
from tests.kit.gated_creates import pod
from tests.serve.serving import fails, serving, until
from tests.status.asking import Crowd, ask

if TYPE_CHECKING:
    from pathlib import Path

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

RUNNING: dict[str, Any] = {
    "metadata": {"namespace": "platform", "name": "p", "annotations": {"backoff-ctrl.dev/status-port": "9095"}},
    "status": {"phase": "Running", "podIP": "10.1.2.3"},
}


def changed(**more: Any) -> dict[str, Any]:
    """The pod, with other metadata or another status."""
    return {name: {**RUNNING[name], **more.get(name, {})} for name in RUNNING}


@pytest.mark.parametrize(
    ("item", "url"),
    [
        (RUNNING, "http://10.1.2.3:9095"),
        (changed(metadata={"annotations": None}), "http://10.1.2.3:9095"),
        (changed(metadata={"annotations": {"backoff-ctrl.dev/status-scheme": "https"}}), "https://10.1.2.3:9095"),
        (changed(status={"podIP": "fd00::7"}), "http://[fd00::7]:9095"),
        (changed(status={"phase": "Pending"}), None),
        (changed(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), None),
        (changed(status={"podIP": "evil.example"}), None),
        (changed(status={"podIP": None}), None),
        (changed(metadata={"annotations": {"backoff-ctrl.dev/status-port": "70000"}}), None),
        (changed(metadata={"annotations": {"backoff-ctrl.dev/status-port": "1@evil.example"}}), None),
        (changed(metadata={"annotations": {"backoff-ctrl.dev/status-scheme": "file"}}), None),
        ({"metadata": 5, "status": []}, None),
        (None, None),
    ],
)
def test_a_pod_says_where_its_gate_is(item: Any, url: str | None) -> None:
    """By an address of the cluster's and annotations that are checked: nothing else is ever asked."""
    assert [found for found, _ in gates_of([item])] == ([] if url is None else [url])


@pytest.mark.long
def test_gates_come_and_go_with_their_pods(filled: BackgroundSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of another namespace, or without the label, is not heard."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the create that is cancelled at the end
    filled.create_namespace("platform")
    gate = Crowd(filled)

    def place(namespace: str, name: str, labels: dict[str, str]) -> None:
        port = str(urlsplit(gate.url).port)
        annotations = {"backoff-ctrl.dev/status-port": port}
        body = {**pod(name), "metadata": {"name": name, "labels": labels, "annotations": annotations}}
        path = f"/api/v1/namespaces/{namespace}/pods"
        made = ask(filled.url, path, method="POST", body=json.dumps(body).encode(), Content_Type="application/json")
        assert made.status == 201, made
        status = {"status": {"phase": "Running", "podIP": "127.0.0.1"}}
        merge = "application/merge-patch+json"
        patched = ask(
            filled.url, f"{path}/{name}/status", method="PATCH", body=json.dumps(status).encode(), Content_Type=merge
        )
        assert patched.status == 200, patched

    gate.wait_with("found", namespace="team")
    place("roomy", "elsewhere", {"backoff-ctrl.dev/gate": "true"})
    place("platform", "unlabelled", {})
    with serving("--apiserver", filled.url, "--gates-in", "platform") as url:
        until(lambda: ask(url, "/readyz").status == 200)
        assert ask(url, "/v1/waiting").json["note"].startswith("no gate connected")
        place("platform", "gate", {"backoff-ctrl.dev/gate": "true"})
        until(lambda: ask(url, "/v1/waiting").json["note"] is None)
        until(lambda: [each["name"] for each in ask(url, "/v1/waiting").json["items"]] == ["found"])
        gone = ask(filled.url, "/api/v1/namespaces/platform/pods/gate?gracePeriodSeconds=0", method="DELETE")
        assert gone.status == 200, gone
        until(lambda: ask(url, "/v1/waiting").json["note"] is not None)
    gate.close()


def test_a_token_for_gates_goes_over_tls_alone(tmp_path: Path) -> None:
    """And is read anew each time; a gate in a pod is asked as its own machine would ask it."""
    token = tmp_path / "token"
    ways = Ways(None, token)
    behind, plain = Gate(0, "https://10.0.0.1:8443", "platform/p"), Gate(1, "http://10.0.0.2:9095", "platform/q")
    for text in ("first", "second"):
        token.write_text(f"{text}\n")
        assert ways.options(behind)["headers"] == {"Host": "localhost:8443", "Authorization": f"Bearer {text}"}
        assert ways.options(plain)["headers"] == {"Host": "localhost:9095"}
    given = Gate(2, "http://127.0.0.1:9096")
    assert ways.options(given) == {"headers": {}, "allow_redirects": False}


@pytest.mark.long
def test_wrong_use_is_one_sentence(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    here = ("--apiserver", "http://127.0.0.1:9", "--listen", "127.0.0.1:0")
    assert "--gates-in" in fails(*here, "--gates-in", "Not A Name")
    absent = str(tmp_path / "absent")
    assert "can't be read: No such file" in fails(*here, "--gate-ca", absent)
    assert "can't be read: No such file" in fails(*here, "--gate-token-file", absent)
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    assert "holds no certificate" in fails(*here, "--gate-ca", str(broken))

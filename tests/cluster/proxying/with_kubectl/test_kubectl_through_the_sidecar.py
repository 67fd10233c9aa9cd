"""Unmodified clients through `backoff-ctrl proxy` before a real API server: kubectl, and the official Python client."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client, watch

from tests.cluster.control_plane.bed import API, Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.kubectl.terminals import manifest, pod
from tests.kit.patience import PATIENCE

BIG: Final = {f"key-{number}": "x" * 1000 for number in range(500)}


class Sidecar:
    """A proxy with TLS towards creators, and kubectl as one of them."""

    def __init__(self, server: Server, kubectl: Path, folder: Path, port: str) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.trusted = str(folder / "account" / "ca.crt")
        self.token = server.token("tester")
        self.kubectl = [
            *(str(kubectl), "--kubeconfig=/dev/null", f"--cache-dir={folder / 'cache'}"),
            *(f"--server={self.url}", f"--certificate-authority={self.trusted}", f"--token={self.token}"),
        ]

    def __call__(self, *arguments: str, stdin: Any = None, code: int = 0) -> str:
        """Run kubectl; return what it prints, stderr if it failed."""
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(
            [*self.kubectl, *arguments], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr


@contextmanager
def _sidecar(server: Server, kubectl: Path, folder: Path) -> Iterator[Sidecar]:
    real = folder / "real"
    real.mkdir()
    (real / "token").write_text(server.token("tester"))
    (real / "namespace").write_text("default")
    command = [sys.executable, "-m", "backoff_ctrl", "proxy", "--listen=127.0.0.1:0", "--drain=5"]
    command += [f"--kubeconfig={server.kubeconfig('tester')}", f"--tls-authority={folder / 'authority'}"]
    command += [f"--tls-account={folder / 'account'}", f"--tls-token-volume={real}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line.startswith("listening on https://127.0.0.1:")
            yield Sidecar(server, kubectl, folder, line.rpartition(":")[2])
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.long
def test_kubectl_works_unchanged(kubernetes: Server, binaries: Binaries, real_namespace: str, tmp_path: Path) -> None:
    """create, apply both ways, get in every form, a large object, a log that is not there, delete; wait by watch."""
    with _sidecar(kubernetes, binaries.kubectl, tmp_path) as sidecar:
        here = f"--namespace={real_namespace}"
        assert "created" in sidecar("create", "-f", "-", here, stdin=pod("one"))
        assert "created" in sidecar("apply", "-f", "-", here, stdin=manifest("ConfigMap", "m", data={"a": "1"}))
        assert "configured" in sidecar("apply", "-f", "-", here, stdin=manifest("ConfigMap", "m", data={"a": "2"}))
        applied = manifest("ConfigMap", "s", data=BIG)
        assert "serverside-applied" in sidecar("apply", "--server-side", "-f", "-", here, stdin=applied)
        assert json.loads(sidecar("get", "configmap", "s", "-o", "json", here))["data"] == BIG
        assert "one" in sidecar("get", "pods", here)
        assert "one" in sidecar("describe", "pod", "one", here)
        assert sidecar("logs", "one", here) == ""  # it runs nowhere
        assert "NotFound" in sidecar("logs", "nobody", here, code=1)
        assert "does not have a host assigned" in sidecar("exec", "one", here, "--", "true", code=1)
        assert "forbidden" in sidecar("get", "pods", here, "--as=nobody-at-all", code=1)
        assert "deleted" in sidecar("delete", "pod", "one", here)  # waits for its end, by a watch
        assert "NotFound" in sidecar("get", "pod", "one", here, code=1)


@pytest.mark.long
def test_a_watch_streams_and_can_be_broken_off(
    kubernetes: Server, binaries: Binaries, real_namespace: str, tmp_path: Path
) -> None:
    """By the Python client, over TLS: events come as they happen; then the proxy has no connection left for it."""
    with _sidecar(kubernetes, binaries.kubectl, tmp_path) as sidecar:
        configuration = client.Configuration(host=sidecar.url)
        configuration.ssl_ca_cert = sidecar.trusted
        configuration.api_key = {"authorization": f"Bearer {sidecar.token}"}
        with client.ApiClient(configuration) as made:
            core: Any = client.CoreV1Api(made)
            core.create_namespaced_config_map(real_namespace, {"metadata": {"name": "a"}})
            seen = []
            watching = watch.Watch()
            for event in watching.stream(core.list_namespaced_config_map, real_namespace, timeout_seconds=60):
                name = event["object"].metadata.name
                if name == "a":
                    core.create_namespaced_config_map(real_namespace, {"metadata": {"name": "b"}})
                seen.append(name)
                if name == "b":
                    watching.stop()
            assert seen[-1] == "b"
            created = core.create_namespaced_pod(real_namespace, pod("two"))
            assert core.read_namespaced_pod("two", real_namespace).metadata.uid == created.metadata.uid


@pytest.mark.long
def test_an_upstream_that_restarts_is_survived(breakable: Bed, tmp_path: Path) -> None:
    """The proxy says 503 with Retry-After while nobody answers, which kubectl repeats; then all goes on."""
    with _sidecar(breakable.server, breakable.binaries.kubectl, tmp_path) as sidecar:
        assert "default" in sidecar("get", "namespaces")
        breakable.stop(API)
        host, port = sidecar.url.removeprefix("https://").split(":")
        asked = HTTPSConnection(
            host, int(port), context=ssl.create_default_context(cafile=sidecar.trusted), timeout=PATIENCE
        )
        asked.request("GET", "/api", headers={"Authorization": f"Bearer {sidecar.token}"})
        answer = asked.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert b"was not sent" in answer.read()
        asked.close()
        breakable.start(API)
        assert "default" in sidecar("get", "namespaces")

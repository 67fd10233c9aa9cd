"""The programs that the tests of dashboards and alerts run: gates, and the injection webhook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from kubernetes import client

from backoff_ctrl.k8s.sidecar.authority import new_authority
from tests.kit.gated_creates import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.monitoring.prometheus.server import Prometheus

PROGRAM = Path(__file__).parent / "gate_program.py"
EVERY = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}


class Program:
    """A gate's program: killed and started again at the same port."""

    def __init__(self, name: str, **settings: Any) -> None:
        """Start it. ``settings`` are those of the program."""
        self._name = name
        self._settings = {"listen": "127.0.0.1:0", **settings}
        self.start()

    def start(self, **environment: str) -> None:
        """Run it until it says where its status is."""
        command = [sys.executable, str(PROGRAM), json.dumps(self._settings)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "BACKOFF_CTRL_GATE": self._name, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip().removeprefix("http://")
        self._settings["listen"] = self.address

    def order(self, **order: Any) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def create(self, namespace: str, name: str, cpu: str | None = None) -> None:
        """Let it create a pod."""
        self.order(create=pod(name, cpu), namespace=namespace)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def gate(name: str, **settings: Any) -> Iterator[Program]:
    """Run a gate's program."""
    program = Program(name, **settings)
    try:
        yield program
    finally:
        program.kill()


def certify(file: Path, life: timedelta = timedelta(days=90)) -> None:
    """Write a certificate for the webhook, with its key."""
    now = datetime.now(UTC)
    file.write_bytes(new_authority(now).issue(["localhost"], now, life).pem)


@contextmanager
def injecting(server: str, folder: Path, *more: str) -> Iterator[tuple[str, str]]:
    """Run the injection webhook with ``tls.pem``; yield where its metrics are, and where it answers itself.

    ``more`` are arguments. No API server calls it: the sandbox has no webhooks.
    """
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        probes = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        sys.executable, "-m", "backoff_ctrl", "inject", "--listen=127.0.0.1:0", f"--probe-listen={probes}",
        f"--tls-cert={folder / 'tls.pem'}", f"--tls-key={folder / 'tls.pem'}", f"--apiserver={server}",
        *more,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on https://")
            yield probes, line.split()[2].removeprefix("https://")
        finally:
            process.terminate()


@contextmanager
def operating(server: str, address: str) -> Iterator[None]:
    """Run a replica of the operator, whose metrics are at ``address``."""
    command = [
        sys.executable, "-m", "backoff_ctrl", "operator", f"--apiserver={server}", "--lease-namespace=default",
        f"--probe-listen={address}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def pods_of(sandbox: BackgroundSandbox) -> Any:
    """Return the official client for the sandbox."""
    return client.CoreV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))


def raise_quota(sandbox: BackgroundSandbox, namespace: str, hard: dict[str, str]) -> None:
    """Give a quota other limits, as kubectl would."""
    pods_of(sandbox).patch_namespaced_resource_quota("q", namespace, {"spec": {"hard": hard}})


def reads(prometheus: Prometheus, count: int, expr: str = "up == 1") -> bool:
    """Say whether a query has so many series."""
    try:
        return len(prometheus.series(expr)) == count
    except OSError:  # it does not listen yet
        return False

"""Fixtures: a sandbox whose pods end after a moment, and ``backoff-ctrl task`` in processes of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from backoff_ctrl.k8s.tasks.documents import item
from backoff_ctrl.k8s.tasks.tables import Tables
from tests.kit.patience import PATIENCE
from tests.tasks.tasks_written import NAMESPACE, manifest

COMMAND = [sys.executable, "-m", "backoff_ctrl", "task"]


@dataclass
class Desk:
    """A sandbox with one namespace of two pods, a store, and files of tasks."""

    sandbox: BackgroundSandbox
    folder: Path
    core: client.CoreV1Api

    @property
    def store(self) -> Path:
        return self.folder / "tasks.db"

    def write(self, *manifests: dict[str, Any]) -> str:
        file = self.folder / "tasks.yaml"
        file.write_text(yaml.safe_dump_all(manifests), encoding="utf-8")
        return str(file)

    def words(self, verb: str, *arguments: str) -> list[str]:
        """The command line for this store and this cluster."""
        cluster = ["--apiserver", self.sandbox.url] if verb in ("run", "abort", "logs") else []
        return [*COMMAND, verb, "--store", str(self.store), *cluster, *arguments]

    def task(self, verb: str, *arguments: str, code: int = 0) -> str:
        """Run a command to its end; return what it printed."""
        done = subprocess.run(
            self.words(verb, *arguments), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, done
        return done.stdout if code != 2 else done.stderr

    def failing(self, verb: str, *arguments: str, code: int = 1) -> str:
        """Run a command that fails; return its error."""
        done = subprocess.run(
            self.words(verb, *arguments), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, done
        return done.stderr

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run ``task run`` beside the block; it is killed at the end if it still runs."""
        with subprocess.Popen(
            self.words("run", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def listed(self) -> dict[str, dict[str, Any]]:
        """All tasks by name, as ``list --json`` tells them; read from the store, which is quicker than a process."""
        tables = Tables(self.store)
        try:
            return {task.name: asdict(item(task)) for task in tables.list()}
        finally:
            tables.close()

    def pods(self) -> list[Any]:
        return list(self.core.list_namespaced_pod(NAMESPACE).items)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A quota of two pods, which run for a third of a second."""
    with running_sandbox() as sandbox, kubelet(sandbox.url, 0.3):
        yield made(sandbox, tmp_path)


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Desk]:
    """A quota of two pods, which run until somebody ends them."""
    with running_sandbox() as sandbox, kubelet(sandbox.url, None):
        yield made(sandbox, tmp_path)


@contextmanager
def kubelet(url: str, finish_after: float | None) -> Iterator[None]:
    """Run pods in a thread, until the end of the block."""
    ends = threading.Event()

    async def run() -> None:
        async with Kubelet(Server(url), finish_after=finish_after):
            await asyncio.to_thread(ends.wait)

    thread = threading.Thread(target=asyncio.run, args=[run()])
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def made(sandbox: BackgroundSandbox, folder: Path) -> Desk:
    sandbox.create_namespace(NAMESPACE)
    sandbox.create_quota(NAMESPACE, "q", {"pods": "2"})
    return Desk(sandbox, folder, client.CoreV1Api(client.ApiClient(client.Configuration(host=sandbox.url))))


def several(count: int, **spec: Any) -> list[dict[str, Any]]:
    return [manifest(f"t{number}", **spec) for number in range(count)]

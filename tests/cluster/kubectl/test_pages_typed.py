"""What the pages say of kubectl, typed as it stands: by an unmodified kubectl, on the sandbox or a real Kubernetes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.kit.pages import PAGES, blocks, spans, typed, typed_in
from tests.kit.patience import PATIENCE

ELSEWHERE: Final = ("make install", "source ", "export ", "kubectl delete pod a")
"""Typed lines that the fixture does, or that come while another command waits."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Terminals:
    """Runs the page's commands with ports that are free here in place of the page's."""

    def __init__(self, folder: Path, kubectl: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in ("8080", "8001", "9095")}
        self._programs = {"backoff-ctrl": [sys.executable, "-m", "backoff_ctrl"], "kubectl": [str(kubectl)]}
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(folder / "sandbox.kubeconfig"),
            "BACKOFF_CTRL_STATUS": f"127.0.0.1:{self._ports['9095']}",  # `waiting` asks 9095 by default
        }

    def here(self, text: str) -> str:
        """Return a text of the page with the ports that they are here."""
        for port, here in self._ports.items():
            text = text.replace(port, here)
        return text

    def start(self, command: str, *, asked: bool = False) -> subprocess.Popen[str]:
        """Start a command. Only what asks a gate is told the port: a gate would serve at it."""
        name, *words = self.here(command).split()
        environment = dict(self._environment)
        if not asked:
            del environment["BACKOFF_CTRL_STATUS"]
        return subprocess.Popen(
            [*self._programs[name], *words],
            cwd=self._folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, command: str) -> str:
        """Run a command to its end; return what it printed."""
        return self.start(command, asked=command.startswith("backoff-ctrl")).communicate(timeout=PATIENCE)[0]

    @contextmanager
    def running(self, command: str, said: str) -> Iterator[None]:
        """Run a server: wait until it says this, and end it by Ctrl-C."""
        with self.start(command) as server:
            assert server.stdout is not None
            for line in server.stdout:
                if said in line:
                    break
            try:
                yield
            finally:
                server.send_signal(signal.SIGINT)
                server.communicate(timeout=PATIENCE)


def test_the_quick_start_does_what_it_says(tmp_path: Path, binaries: Binaries) -> None:
    """Each command prints what the page shows; the third pod is refused, waits, and is in once there is room."""
    terminals = Terminals(tmp_path, binaries.kubectl)
    waits: subprocess.Popen[str] | None = None
    with ExitStack() as servers:
        for command, said in ((each.command, each.printed) for each in typed("docs/quick-start.md")):
            if command.startswith("backoff-ctrl sandbox"):
                servers.enter_context(terminals.running(command, "Ctrl-C"))
            elif command.startswith("backoff-ctrl proxy"):
                servers.enter_context(terminals.running(command, "listening on"))
            elif command.startswith("kubectl --server"):
                waits = terminals.start(command)
            elif command == "backoff-ctrl waiting":
                assert_same_table(shown_by(terminals, command, "pods/c"), said)
                terminals.run("kubectl delete pod a")
                assert waits is not None, "the page has kubectl wait before it asks who waits"
                assert waits.communicate(timeout=PATIENCE)[0] == "pod/c created\n"
            elif not command.startswith(ELSEWHERE):
                assert terminals.run(command) == said


def test_the_sidecar_at_a_terminal_does_what_it_says(tmp_path: Path, binaries: Binaries) -> None:
    """docs/sidecar.md begins with it: the proxy listens where it says, kubectl waits, and is seen to wait."""
    terminals = Terminals(tmp_path, binaries.kubectl)
    block, *_ = blocks("docs/sidecar.md", "console")
    install, proxy, create, waiting = typed_in(block)
    assert install.command.startswith("pip install")
    sandbox = "backoff-ctrl sandbox --port 8080 --kubeconfig sandbox.kubeconfig"
    with terminals.running(sandbox, "Ctrl-C"), terminals.running(proxy.command, terminals.here(proxy.printed).strip()):
        terminals.run("kubectl create quota team --hard=pods=1")
        terminals.run("kubectl run first --image=busybox --restart=Never")
        waits = terminals.start(create.command)
        assert "team pods: asked 1, left 0" in shown_by(terminals, waiting.command, "pods/job")
        terminals.run("kubectl delete pod first")
        assert waits.communicate(timeout=PATIENCE)[0] == "pod/job created\n"


def test_a_job_waits_as_its_page_says(tmp_path: Path, binaries: Binaries) -> None:
    """docs/how-to/jobs-that-wait.md: it waits for four pods while three are left, and is let in once there is room."""
    page = "docs/how-to/jobs-that-wait.md"
    (tmp_path / "job.yaml").write_text(blocks(page, "yaml")[0].text)
    terminals = Terminals(tmp_path, binaries.kubectl)
    with ExitStack() as servers:
        for each in (each for block in blocks(page, "console") for each in typed_in(block)):
            if each.command.startswith("backoff-ctrl sandbox"):
                servers.enter_context(terminals.running(each.command, "Ctrl-C"))
            elif each.command == "backoff-ctrl operator":
                servers.enter_context(terminals.running(each.command, "leads"))
            elif each.command == "backoff-ctrl jobs list":
                assert_same_table(shown_by(terminals, each.command, "team pods: asked"), each.printed)
            elif each.command == "kubectl delete pod a":
                terminals.run(each.command)
                terminals.run("kubectl wait --for=jsonpath={.status.active}=4 job/train --timeout=60s")
                assert len(terminals.run("kubectl get pods -o name").split()) == 4
            elif not each.command.startswith("export "):
                assert terminals.run(each.command) == each.printed


@pytest.mark.parametrize("page", PAGES)
def test_kubectl_knows_the_options_of_its_commands(binaries: Binaries, page: str) -> None:
    """Also where a page only mentions one: kubectl reads all options before it prints its help."""
    said = [*(each.command for each in typed(page)), *spans(page)]
    found = [part for each in said for part in each.split(" | ") if re.match(r"kubectl (?!backoff)[a-z-]", part)]
    for each in found:
        words, *inner = (list(group) for end, group in groupby(shlex.split(each)[1:], "--".__eq__) if not end)
        done = subprocess.run([binaries.kubectl, *words, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (each, done.stderr)
        assert f"kubectl {words[0]}" in done.stdout or words[0].startswith("-"), (each, done.stdout)
        assert all(word[0] in {"run", "backoff-ctrl"} for word in inner), each


async def test_kubernetes_takes_what_is_typed_on_a_cluster(
    kubernetes: Server, binaries: Binaries, real_namespace: str, tmp_path: Path
) -> None:
    """Of the README after the chart is installed, of the chart's README, and of docs/how-to/dask.md."""
    base = [str(binaries.kubectl), f"--kubeconfig={kubernetes.kubeconfig('admin')}", "-n", real_namespace]
    container = "{name: main, image: busybox}"
    (tmp_path / "pod.yaml").write_text(
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{containers: [{container}]}}}}"
    )

    def do(line: str) -> str:
        given = None
        for part in line.split(" | "):
            words = shlex.split(
                part.replace("-n dask-operator ", "").replace("default:default", f"{real_namespace}:default")
            )
            done = subprocess.run(
                [*base, *words[1:]], cwd=tmp_path, input=given, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (part, done.stderr)
            given = done.stdout
        return str(given)

    def of(page: str) -> list[str]:
        return [each.command for each in typed(page) if each.command.startswith("kubectl")]

    quota, rights, creator = of("README.md")
    assert do(quota) == "resourcequota/team created\n"
    assert do(rights) == "rolebinding.rbac.authorization.k8s.io/creator created\n"
    assert do(creator) == "pod/creator created\n"
    assert do("kubectl get pod creator -o jsonpath={.metadata.labels}") == '{"backoff-ctrl.dev/inject":"true"}'
    assert do("kubectl auth can-i create pods --as=system:serviceaccount:" + f"{real_namespace}:default") == "yes\n"

    (labelled,) = of("helm/backoff-ctrl/README.md")
    assert do(labelled) == "pod/a created\n"
    assert do("kubectl get pod a -o jsonpath={.metadata.labels}") == '{"backoff-ctrl.dev/inject":"true"}'

    (patch,) = of("docs/how-to/dask.md")
    do("kubectl create deployment dask-kubernetes-operator --image=busybox")
    assert do(patch) == "deployment.apps/dask-kubernetes-operator patched\n"


def shown_by(terminals: Terminals, command: str, name: str) -> str:
    """Return what the command shows once this one waits: kubectl may not have come that far."""
    until = time.monotonic() + PATIENCE
    while name not in (shown := terminals.run(command)):
        assert time.monotonic() < until, shown
    return shown


def assert_same_table(shown: str, said: str) -> None:
    """Compare two tables but for the seconds waited."""
    assert [re.sub(r"\d+s", "Ns", line).split() for line in shown.splitlines()] == [
        re.sub(r"\d+s", "Ns", line).split() for line in said.splitlines()
    ]

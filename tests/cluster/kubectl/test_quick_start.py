"""The quick start, typed as it stands: four terminals, the sandbox, and an unmodified kubectl."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.control_plane.binaries import Binaries

PAGE: Final = Path(__file__).parents[3] / "docs" / "quick-start.md"
PATIENCE: Final = 60.0
ELSEWHERE: Final = ("make install", "source ", "export ", "kubectl delete pod a")
"""Typed lines that the fixture does, or that come while another command waits."""


def typed() -> list[tuple[str, str]]:
    """Return each typed command of the page, with what the page says that it prints."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    commands = [each for block in blocks for each in re.split(r"^\$ ", block, flags=re.MULTILINE) if each]
    return [(line.partition("  #")[0].strip(), said) for line, _, said in (each.partition("\n") for each in commands)]


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

    def start(self, command: str, *, asked: bool = False) -> subprocess.Popen[str]:
        """Start a command. Only what asks a gate is told the port: a gate would serve at it."""
        for port, here in self._ports.items():
            command = command.replace(port, here)
        name, *words = command.split()
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
        for command, said in typed():
            if command.startswith("backoff-ctrl sandbox"):
                servers.enter_context(terminals.running(command, "Ctrl-C"))
            elif command.startswith("backoff-ctrl proxy"):
                servers.enter_context(terminals.running(command, "listening on"))
            elif command.startswith("kubectl --server"):
                waits = terminals.start(command)
            elif command == "backoff-ctrl waiting":
                assert_same_table(shown_by(terminals, command), said)
                terminals.run("kubectl delete pod a")
                assert waits is not None, "the page has kubectl wait before it asks who waits"
                assert waits.communicate(timeout=PATIENCE)[0] == "pod/c created\n"
            elif not command.startswith(ELSEWHERE):
                assert terminals.run(command) == said


def shown_by(terminals: Terminals, command: str) -> str:
    """Return what the command shows once somebody waits: kubectl may not have come that far."""
    until = time.monotonic() + PATIENCE
    while "pods/c" not in (shown := terminals.run(command)):
        assert time.monotonic() < until, shown
    return shown


def assert_same_table(shown: str, said: str) -> None:
    """Compare two tables but for the seconds waited."""
    assert [re.sub(r"\d+s", "Ns", line).split() for line in shown.splitlines()] == [
        re.sub(r"\d+s", "Ns", line).split() for line in said.splitlines()
    ]

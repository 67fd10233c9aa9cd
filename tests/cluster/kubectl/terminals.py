"""Terminals: the same kubectl commands on the sandbox and on a real Kubernetes, whose output must be the same."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.control_plane.servers import Server
from tests.kit.patience import PATIENCE

Lines = Callable[[int], list[str]]


_AGE: Final = r"(?:\d+[smhdy]){1,2}"
"""An age as kubectl prints it; a quantity such as 100m looks the same."""

_CELL: Final = re.compile(rf"(?<!\S){_AGE}(?!\S)")

_AGES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(rf"\({_AGE} ago\)"), "(AGE ago)"),  # since the last restart of a container
    (re.compile(rf"(?<=\S )\(x(\d+) over {_AGE}\)"), r"(x\1 over AGE)"),  # of a repeated event
    (re.compile(rf"^(\s*Age:\s+){_AGE}$", re.MULTILINE), r"\1AGE"),
    (re.compile(rf"^(.*\s\d+/\d+ +\S+ +\d+(?: \(AGE ago\))? +){_AGE}(?=\s|$)", re.MULTILINE), r"\1AGE"),
)
"""Ages that can be recognised by the text around them; the last is a pod's row, which has no header in a watch."""

_AGE_COLUMNS: Final = frozenset({"AGE", "LAST SEEN", "FIRST SEEN", "DURATION", "Age"})
"""The columns of tables that hold ages; the last is for the events in the output of ``kubectl describe``."""

_LOGGED: Final = r"^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+"
"""The start of a line of kubectl's own log: the level, the time and the process id."""

_DIFFERENT: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(
            rf"{_LOGGED} reflector\.go:\d+\] .*\b(very short watch: |context deadline exceeded).*\n", re.MULTILINE
        ),
        "",
    ),  # either server may cause it by chance: a watch that ends at once, or just as --timeout expires
    (re.compile(_LOGGED, re.MULTILINE), r"\1 LOG"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "DATE"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r'((?:resourceVersion"?: |Resource Version: +)"?)\d+'), r"\1VERSION"),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "URL"),
    (re.compile(r"\b(LIVE|MERGED)-\d+"), r"\1"),
    (re.compile(r"(/v1\.\S+)\t.*"), r"\1"),  # the time of a file that `kubectl diff` compares
    (re.compile(r"(?<=\S)[ \t]+(?=\S)"), " "),  # the width of a column depends on its content
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


@dataclass(frozen=True)
class Said:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    def plain(self) -> str:
        """All output without what differs from run to run: times, ages, uids, versions, widths."""
        text = f"exit code {self.code}\n{self.out}\n--- on stderr:\n{self.err}"
        return plain(text)


def plain(text: str) -> str:
    """A text without what differs from run to run."""
    text = _without_ages(text)  # first, while the columns still stand where they were
    for pattern, word in _DIFFERENT:
        text = pattern.sub(word, text)
    return text


def _without_ages(text: str) -> str:
    """A text with each age replaced by AGE, and with quantities and timeouts unchanged."""
    lines, starts = [], list[int]()
    for line in text.split("\n"):
        starts = (_starts_of_ages(line) or starts) if line else []  # a table ends with an empty line
        lines.append(_without_cells(line, starts))
    text = "\n".join(lines)
    for pattern, word in _AGES:
        text = pattern.sub(word, text)
    return text


def _starts_of_ages(line: str) -> list[int]:
    """Where the columns of ages start, if the line is a table header that has some."""
    cells = list(re.finditer(r"\S+(?: \S+)*", line))
    return [cell.start() for cell in cells if cell[0] in _AGE_COLUMNS] if len(cells) > 1 else []


def _without_cells(line: str, starts: list[int]) -> str:
    """A table row with AGE for the ages that start at these positions."""
    for start in reversed(starts):
        if age := _CELL.match(line, start):
            line = f"{line[:start]}AGE{line[age.end() :]}"
    return line


class Terminal:
    """kubectl as one user of one server, in one namespace."""

    def __init__(self, server: Server, kubectl: Path, namespace: str, user: str = "tester") -> None:
        self.server = server
        home = server.folder / "home"
        home.mkdir(exist_ok=True)
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"], "KUBECONFIG": str(server.kubeconfig(user))}
        self._command = [str(kubectl), "--namespace", namespace]

    def run(self, *arguments: str, stdin: str | None = None) -> Said:
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self._environment,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def follow(self, *arguments: str) -> Iterator[Lines]:
        """Start a command that runs until it is stopped; the yielded function reads its next lines."""
        with subprocess.Popen(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        ) as process:
            watchdog = threading.Timer(PATIENCE, process.kill)
            watchdog.start()
            out = process.stdout
            assert out is not None
            try:
                yield lambda count: [plain(out.readline().rstrip("\n")) for _ in range(count)]
            finally:
                watchdog.cancel()
                process.terminate()


class Terminals:
    """Two terminals side by side: each command runs in both, and both must print the same."""

    def __init__(self, sandbox: Terminal, kubernetes: Terminal, namespace: str) -> None:
        """Use these terminals, whose namespaces have the same name."""
        self.namespace = namespace
        self.sandbox = sandbox
        self.kubernetes = kubernetes

    @property
    def same_release(self) -> bool:
        """Whether the real server is of the release that the sandbox implements."""
        return self.sandbox.server.minor == self.kubernetes.server.minor

    def __call__(self, *arguments: str, stdin: Any = None, code: int = 0, exactly: bool = True) -> str:
        """Run a command on both servers, demand the same output and this exit code, and return the output.

        An object as ``stdin`` is sent as JSON. Without ``exactly`` only the exit codes must agree. Returned is stdout,
        together with stderr if stdout is empty or the command failed, without times, ages, uids, versions and the
        widths of columns.
        """
        text = stdin if stdin is None or isinstance(stdin, str) else json.dumps(stdin)
        with ThreadPoolExecutor(2) as pool:
            ours = pool.submit(self.sandbox.run, *arguments, stdin=text)
            real = self.kubernetes.run(*arguments, stdin=text)
        told = f"kubectl {' '.join(arguments)}"
        assert_same(real.plain(), ours.result().plain() if exactly else real.plain(), told)
        assert ours.result().code == code, f"{told}, in the sandbox: {ours.result().plain()}"
        assert real.code == code, f"{told}: {real.plain()}"
        return plain(real.out + real.err if real.code or not real.out else real.out)

    def each(self, *arguments: str, stdin: Any = None) -> tuple[Said, Said]:
        """Run a command on both servers; returns the real one's output and the sandbox's, without comparing them."""
        text = stdin if stdin is None or isinstance(stdin, str) else json.dumps(stdin)
        return self.kubernetes.run(*arguments, stdin=text), self.sandbox.run(*arguments, stdin=text)

    @contextmanager
    def follow(self, *arguments: str) -> Iterator[Lines]:
        """Start a command on both servers; the yielded function reads lines from each, which must be the same."""
        with ExitStack() as stack:
            real = stack.enter_context(self.kubernetes.follow(*arguments))
            ours = stack.enter_context(self.sandbox.follow(*arguments))

            def lines(count: int) -> list[str]:
                found = real(count)
                assert_same("\n".join(found), "\n".join(ours(count)), f"kubectl {' '.join(arguments)}")
                return found

            yield lines


def assert_same(real: str, ours: str, told: str) -> None:
    """Demand that both texts are the same; otherwise show the difference."""
    parted = difflib.unified_diff(real.splitlines(), ours.splitlines(), "kubernetes", "sandbox", lineterm="")
    assert real == ours, "\n".join([f"{told}:", *parted])


def manifest(kind: str, name: str, spec: Any = None, *, api: str = "v1", **more: Any) -> dict[str, Any]:
    """An object as in a manifest file; ``metadata`` extends its metadata."""
    metadata = {"name": name, **more.pop("metadata", {})}
    found = {"apiVersion": api, "kind": kind, "metadata": metadata, **more}
    return found if spec is None else {**found, "spec": spec}


def pod(name: str, *, cpu: str = "100m", **metadata: Any) -> dict[str, Any]:
    """A pod with one container that requests CPU."""
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": cpu}}}
    return manifest("Pod", name, {"containers": [container]}, metadata=metadata)

"""What needs an extra says which, in one line, where the wheel is installed without it; with it, it goes on."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.go

ROOT = Path(__file__).parents[2]
COMMAND = ["-m", "backoff_ctrl"]
COLLECTOR = [
    "-c",
    "import backoff_ctrl as b\ntry: b.status_collector()\nexcept ImportError as error: raise SystemExit(str(error))",
]


def installed(folder: Path, extra: str = "") -> Path:
    """Return a folder with what pip would install: the requirements of the package, and those of one extra."""
    found: set[tuple[str, str]] = set()
    left = [("backoff-ctrl", extra)]
    while left:
        name, with_extra = left.pop()
        if (name, with_extra) in found:
            continue
        found.add((name, with_extra))
        for each in map(Requirement, distribution(name).requires or ()):
            if each.marker is None or each.marker.evaluate({"extra": with_extra}):
                left += [(each.name.lower(), own) for own in each.extras or {""}]
    folder.mkdir()
    for name in {name for name, _ in found} - {"backoff-ctrl"}:
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(str(distribution(name).locate_file(top)))
    (folder / "backoff_ctrl").symlink_to(ROOT / "backoff_ctrl")
    return folder


def run(folder: Path, command: list[str], terminal: int = subprocess.DEVNULL) -> tuple[int, str]:
    """Run Python with these packages alone; return the exit code, and what it said on stderr."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("BACKOFF_CTRL", "PYTHON"))}
    variables = {**ours, "PYTHONPATH": str(folder), "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-S", *command], cwd=folder.parent, env=variables, stderr=subprocess.PIPE, text=True,
        check=False, timeout=PATIENCE, stdin=terminal, stdout=terminal,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
    (folder / "pod.json").write_text(json.dumps(pod))
    return installed(folder / "site")


NEEDS = [
    ("proxy", [*COMMAND, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig", "none"]),
    ("proxy", [*COMMAND, "inject", "--apiserver", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"]),
    ("serve", [*COMMAND, "serve", "--kubeconfig", "none"]),
    ("tasks", [*COMMAND, "phase", "-f", "none.json"]),
    ("tasks", [*COMMAND, "task", "run", "-f", "none.json"]),
    ("metrics", COLLECTOR),
]


@pytest.mark.long
@pytest.mark.parametrize(("extra", "command"), NEEDS, ids=[" ".join(command[2:3]) or "metrics" for _, command in NEEDS])
def test_what_needs_an_extra_says_which(bare: Path, tmp_path: Path, extra: str, command: list[str]) -> None:
    """One line on stderr, and an exit code that is not that of success; with the extra another line, or none."""
    code, said = run(bare, command)
    assert f"pip install 'backoff-ctrl[{extra}]'" in said
    assert (said.count("\n"), code > 0) == (1, True), said
    code, said = run(installed(tmp_path / "site", extra), command)
    assert "pip install" not in said
    assert "Traceback" not in said


def test_a_page_for_a_terminal_says_that_it_needs_its_extra(bare: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        code, said = run(bare, [*COMMAND, "top"], theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (code, said.count("\n")) == (2, 1)
    assert "pip install 'backoff-ctrl[top]'" in said


@pytest.mark.parametrize("command", ["inject -f pod.json", "footprint pod.json", "completion bash", "task --help"])
def test_what_needs_no_extra_works_without_any(bare: Path, command: str) -> None:
    code, said = run(bare, [*COMMAND, *command.split()])
    assert (code, "pip install" in said) == (0, False), said


def test_a_webhook_with_given_certificates_needs_no_extra(bare: Path) -> None:
    """Its server is asked for certificates that are not there, and says so."""
    given = ["--tls-cert", "none.pem", "--tls-key", "none.key"]
    code, said = run(
        bare, [*COMMAND, "inject", "--apiserver", "http://127.0.0.1:1", "--listen", "127.0.0.1:70000", *given]
    )
    assert (code, "Traceback" in said, "pip install" in said) == (2, False, False), said
    code, said = run(
        bare, ["-c", "import backoff_ctrl.api.webhooks.server, sys; assert 'cryptography' not in sys.modules"]
    )
    assert (code, said) == (0, "")


def test_every_public_name_is_there_without_any_extra(bare: Path) -> None:
    code, said = run(
        bare, ["-c", "import backoff_ctrl as b, backoff_ctrl.plugins as p\n[getattr(b, n) for n in b.__all__]"]
    )
    assert (code, said) == (0, "")

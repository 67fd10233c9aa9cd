"""How a run of tests builds what it needs: beside the tests that need nothing, and within the time limit of none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SAMPLE = "tests/cluster/control_plane/builds_sample.py"
COMPILER = """\
#!/bin/sh
# A compiler that begins once it is let go on, and then writes what it was asked for.
if [ "$1" = version ]; then echo "go version go99.1.2 linux/amd64"; exit; fi
while [ "$1" != -o ]; do shift; done
%s
echo "#!/bin/sh" > "$2"
"""


def run(folder: Path, then: str) -> Iterator[str]:
    """Run the sample in a worker, with an empty cache and a compiler that does ``then``; yield what is printed."""
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(COMPILER % then)
    go.chmod(0o755)
    environment = {**os.environ, "PATH": f"{go.parent}:/usr/bin:/bin", "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("BACKOFF_TEST_BINARIES", None)
    command = [sys.executable, "-m", "pytest", "-v", "-n", "1", "--dist", "loadgroup", "--no-loadscope-reorder"]
    with subprocess.Popen(
        [*command, "--timeout", "60", "--no-cov", "-p", "no:cacheprovider", SAMPLE],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield from process.stdout


@pytest.mark.long
def test_what_needs_no_build_runs_beside_it(tmp_path: Path) -> None:
    """The first build waits until the test that needs nothing has passed; then the other one runs as well."""
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    said = []
    with ExitStack() as opened:
        for line in run(tmp_path, f"timeout 50 sh -c ': < {go_on}'"):
            said.append(line)
            if "PASSED" in line and "test_that_runs_nothing" in line:
                opened.enter_context(go_on.open("rb+", buffering=0))
    text = "".join(said)
    assert "2 passed" in text, text
    assert text.index("built etcd") > text.index("PASSED"), text


@pytest.mark.long
def test_a_build_that_fails_ends_the_run_and_says_why(tmp_path: Path) -> None:
    """With the compiler's own words, and what can be run without it."""
    said = "".join(run(tmp_path, "echo no room; exit 1"))
    assert "etcd of Kubernetes" in said
    assert "can't be built: `go build` says:\nno room\n(`make test-quick` runs what needs no Kubernetes server)" in said
    assert "test_that_runs_kubectl PASSED" not in said

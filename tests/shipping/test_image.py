"""The image, without a container engine: the Dockerfile's steps run into a folder, and its programs start there.

They start as user 65532 with no other right, in a tree in which nothing may be written.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PINS: Final = ROOT / "tools" / "pins"
USER: Final = 65532
TARGET: Final = "/opt/backoff-ctrl"


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile, with its ARGs filled in."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    instructions = [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]
    base = next(value.partition("=")[2] for word, value in instructions if word == "ARG" and value.startswith("BASE="))
    found: list[list[tuple[str, str]]] = []
    for word, value in instructions:
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, value.replace("${BASE}", base)))
    return found


def interpreter() -> str:
    """Return a Python that everybody may run: a home folder may be closed to others."""
    for path in (sys._base_executable, "/usr/local/bin/python3", "/usr/bin/python3"):  # type: ignore[attr-defined]
        found = Path(path)
        if found.exists() and all(each.stat().st_mode & 0o001 for each in [found.resolve(), *found.resolve().parents]):
            said = subprocess.run([found, "-c", "import sys, ensurepip; print(sys.version_info >= (3, 11))"],
                                  capture_output=True, text=True, check=False)  # fmt: skip
            if said.stdout.strip() == "True":
                return path
    raise AssertionError("no Python 3.11 that other users may run: install one at /usr/bin/python3, with venv")


def wheels(python: str) -> Path:
    """Return a folder with all wheels of the image: fetched once per machine, and again when what is wanted changes."""
    inputs = [path.read_bytes() for path in (ROOT / "pyproject.toml", *sorted(PINS.iterdir()))]
    said = subprocess.run([python, "--version"], capture_output=True, check=True).stdout
    key = hashlib.sha256(b"\0".join([*inputs, said, platform.machine().encode()])).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backoff-ctrl" / f"wheels-{key}"
    if cache.is_dir():
        return cache
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as made:
        subprocess.run([python, "-m", "venv", f"{made}/venv"], check=True)
        command = [f"{made}/venv/bin/pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
                   "--require-hashes", "-d", f"{made}/wheels"]  # fmt: skip
        for each in PINS.iterdir():
            subprocess.run([*command, "-r", str(each)], check=True)
        try:
            Path(made, "wheels").rename(cache)
        except OSError:  # another run was quicker
            assert cache.is_dir()
    return cache


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """Run the COPY and RUN steps of the first stage; yields what the last one copies from it, read-only."""
    python = interpreter()
    folder = Path(tempfile.mkdtemp(prefix="backoff-ctrl-image-"))  # not pytest's own: that is closed to others
    folder.chmod(0o755)
    source, target = folder / "src", folder / "opt"
    source.mkdir()
    environment = {**os.environ, "PYTHON": python, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels(python))}
    for name in ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"):  # of the tests
        environment.pop(name, None)
    try:
        for word, value in stages()[0]:
            if word == "COPY":
                *names, place = value.split()
                for name in names:
                    _copy(ROOT / name, source / place / Path(name).name if place.endswith("/") else source / place)
            if word == "RUN":
                command = [each.replace(TARGET, str(target)) for each in shlex.split(value)]
                done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
        shutil.rmtree(source)
        for path in [target, *target.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)
        yield target
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # thousands of files: a third of rmtree's time


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def started(tree: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """Start a program of the image as the image does."""
    (environment,) = [value for word, value in stages()[1] if word == "ENV"]
    variables = dict(each.split("=", 1) for each in shlex.split(environment.replace(TARGET, str(tree))))
    others: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
    program = shutil.which(words[0], path=variables["PATH"])
    assert program is not None
    assert Path(program).is_relative_to(tree)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([program, *words[1:]], cwd="/", env=variables, **{**pipes, **others, **options})


def said(tree: Path, *words: str, stdin: str = "") -> str:
    """Run a program of the image to its end; return what it prints."""
    with started(tree, *words) as process:
        out, error = process.communicate(stdin, timeout=PATIENCE)
    assert process.returncode == 0, error
    return out


def test_the_dockerfile_promises_what_a_platform_wants() -> None:
    """A pinned base, no root, no compiler, nothing run in the last stage, labels; every file that it copies exists."""
    first, last = stages()
    for stage in (first, last):
        assert re.match(r"docker\.io/library/python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}\b", stage[0][1])
    words = [word for word, _ in last]
    assert "RUN" not in words
    assert dict(last)["USER"] == f"{USER}:{USER}"
    assert dict(last)["ENTRYPOINT"] == '["backoff-ctrl"]'
    labels = " ".join(value for word, value in last if word == "LABEL")
    for name in ("title", "description", "licenses", "version", "revision", "base.name", "base.digest"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert not re.search(r"apt|gcc|build-essential|:latest", str(stages()))
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for word, value in first:
        if word == "COPY":
            for name in value.split()[:-1]:
                assert (ROOT / name).exists()
                assert f"!{name}" in ignored


def pinned(name: str) -> dict[str, tuple[str, int]]:
    """The distributions of a file of hashes: their versions, and how many hashes each has."""
    lines = (PINS / name).read_text().replace("\\\n", " ").splitlines()[1:]
    found = (line.partition(" ") for line in lines)
    return {
        pin.partition("==")[0]: (pin.partition("==")[2], hashes.count("--hash=sha256:")) for pin, _, hashes in found
    }


def test_the_hashes_are_of_what_is_shipped_in_the_versions_that_are_tested(tmp_path: Path) -> None:
    """`make pins` writes them anew; pip installs nothing without one into the image."""
    subprocess.run([sys.executable, "-m", "tools.shipped", "--pins", tmp_path / "shipped.txt"], cwd=ROOT, check=True)
    shipped = dict(line.split("==") for line in (tmp_path / "shipped.txt").read_text().split())
    assert {name: version for name, (version, _) in pinned("image.txt").items()} == shipped
    constraints = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert "hatchling" in pinned("build.txt")
    for name in ("image.txt", "build.txt"):
        for distribution, (version, hashes) in pinned(name).items():
            assert constraints[distribution] == version
            assert hashes > 0
    installs = [line for line in (ROOT / "tools" / "image_tree.sh").read_text().splitlines() if 'pip" install' in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line or '--no-deps "$wheel' in line for line in installs)


def test_the_chart_runs_the_user_and_programs_of_the_image() -> None:
    """The number that the chart asks for is that of the Dockerfile."""
    values = yaml.safe_load((ROOT / "helm" / "backoff-ctrl" / "values.yaml").read_text())
    assert values["pods"]["securityContext"]["runAsUser"] == USER


@pytest.mark.long
@pytest.mark.go
def test_every_mode_starts_as_nobody_in_a_tree_that_nobody_can_write(tree: Path) -> None:
    """Each with all that it needs: the sidecar, the webhook, the page, tasks, and the command of `helm test`."""
    _holds_no_tools(tree)
    assert said(tree, "backoff-ctrl", "--version").startswith("backoff-ctrl 0.")
    assert said(tree, "python", "-c", "import os; print(os.geteuid())").strip() == str(os.geteuid() or USER)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    injected = yaml.safe_load(said(tree, "backoff-ctrl", "inject", "-f", "-", stdin=yaml.safe_dump(pod)))
    assert injected["spec"]["initContainers"][0]["name"] == "backoff-ctrl"
    said(
        tree,
        "python",
        "-c",
        "import backoff_ctrl.api.commands.phase, backoff_ctrl.k8s.tasks.plugins, pydantic_settings, jsonpath",
    )
    with running_sandbox() as sandbox:
        for words, path in (
            (["proxy", "--listen=127.0.0.1:0", f"--apiserver={sandbox.url}"], "/api"),
            (["serve", "--listen=127.0.0.1:0", f"--apiserver={sandbox.url}"], "/version"),
        ):
            with started(tree, "backoff-ctrl", *words) as process:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith("listening on http://127.0.0.1:"), process.communicate(timeout=PATIENCE)
                with urllib.request.urlopen(line.split()[-1] + path, timeout=PATIENCE) as answer:
                    assert answer.status == 200
                process.terminate()
                out, error = process.communicate(timeout=PATIENCE)
                assert (process.returncode, out, "Traceback" in error) == (0, "", False), error


def _holds_no_tools(tree: Path) -> None:
    """No pip, no setuptools, nothing of the tests; bytecode for all, since it can't be written later."""
    packages = {path.name for path in (tree / "lib").glob("python3*/site-packages/*")}
    assert not {"pip", "setuptools", "pytest", "hatchling", "mypy"} & packages
    assert {"backoff_ctrl", "kubernetes", "cryptography", "fastapi"} <= packages
    assert not [path.name for path in (tree / "bin").iterdir() if path.name.startswith(("pip", "activate"))]
    sources = {path for path in tree.rglob("*.py") if "site-packages/backoff_ctrl" in str(path)}
    compiled = {path.parent.parent / f"{path.name.partition('.')[0]}.py" for path in tree.rglob("__pycache__/*.pyc")}
    assert sources
    assert sources <= compiled
    with started(tree, "python", "-c", f"open({str(tree / 'lib' / 'x')!r}, 'w')") as process:
        _, error = process.communicate(timeout=PATIENCE)
    assert "PermissionError" in error or os.geteuid() != 0

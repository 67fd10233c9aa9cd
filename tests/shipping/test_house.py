"""What the checkout promises: one package with one name, its licence, and pinned versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from itertools import product
from pathlib import Path

import pytest
import yaml
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[2]
ROOMS = ("backoff_ctrl", "k8s", "api")
ALL = ("test", "test-go", "test-scheduled")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_rooms_are_one_package_with_one_name() -> None:
    """In a checkout, the package contains the other two rooms as symbolic links."""
    for room in ("k8s", "api"):
        link = ROOT / "backoff_ctrl" / room
        assert link.is_symlink()
        assert link.readlink() == Path("..") / room
    assert (ROOT / "backoff_ctrl" / "py.typed").is_file()


@pytest.mark.parametrize("name", ["k8s", "api", "k8s.kube.answers.answer", "api.main"])
def test_no_module_can_be_imported_under_two_names(name: str) -> None:
    """``import k8s`` in the checkout finds our folder, and fails with the name to import instead."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"ImportError: import backoff_ctrl.{name[:3]}: {name[:3]} is only the folder it lies in" in done.stderr


def test_test_folders_are_no_packages_and_shadow_no_room() -> None:
    """pytest runs in importlib mode: no __init__.py, and no folder with the name of a room."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert not folders & set(ROOMS)
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_licence_is_the_whole_apache_licence() -> None:
    """LICENSE is the unchanged text of apache.org, and the package metadata names it."""
    digest = sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"


def test_constraints_hold_names_and_versions_only() -> None:
    """constraints.txt contains no index URL and pins every dependency."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(lines, key=lambda line: line.partition("==")[0])
    assert all(re.fullmatch(r"[a-z0-9-]+==([0-9]+!)?[0-9A-Za-z.]+", line) for line in lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *project["optional-dependencies"]["dev"],
        *project["optional-dependencies"]["demo"],
        *project["optional-dependencies"]["dashboards"],
    ]
    names = {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in wanted} - {"backoff-ctrl"}
    assert names <= {line.partition("==")[0] for line in lines}


def test_the_documented_make_targets_exist() -> None:
    """The Makefile has the well-known targets, and continuous integration runs check and test."""
    assert {
        "help",
        "demo",
        "run",
        "test",
        "test-quick",
        "test-oldest",
        "cluster",
        "check",
        "bench",
        "figures",
    } <= TARGETS


def test_the_readme_is_short() -> None:
    """It fits on three screens, begins with the two commands, and its figures are those of the page that has all."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 90, "move details to a page of docs/"
    for command in ("$ make demo ", "$ make test "):
        assert f"\n{command}" in text.partition("## Use it")[0], command
    whole = _figures((ROOT / "docs" / "operations.md").read_text(encoding="utf-8"))
    short = _figures(text)
    assert len(short) > 1
    assert {client: {column: whole[client][column] for column in row} for client, row in short.items()} == short


def _figures(page: str) -> dict[str, dict[str, str]]:
    """Return the table of clients below the heading Figures: for each, what each column says."""
    (table,) = re.findall(r"^## Figures\n.*?^(\| client .*?)\n\n", page, re.DOTALL | re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_what_one_target_leaves_out_another_runs() -> None:
    """Whatever marks a test has; what `.ci/run` does not run the scheduled workflow does."""
    made = (ROOT / "Makefile").read_text()
    found = re.findall(r"^(test[a-z-]*):.*\n.*pytest -m (?:'([a-z ]+)'|([a-z]+)) ", made, re.MULTILINE)
    chosen = {target: Expression.compile(several or one) for target, several, one in found}
    marks = ("go", "real", "long", "scheduled")
    for each in product((True, False), repeat=len(marks)):
        has = dict(zip(marks, each, strict=True))
        assert any(chosen[target].evaluate(lambda name, /, **_: has.get(name, False)) for target in ALL), has  # noqa: B023
    for target, expression in chosen.items():
        assert not expression.evaluate(lambda name, /, **_: name == "node"), f"{target} runs what needs a node"
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "scheduled.yml").read_text())
    steps = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    made_by = [re.findall(r"\bmake ([a-z-]+)", each) for each in steps]
    assert [target for found in made_by for target in found] == ["test-bare", "test-scheduled", "node"]


def test_random_days_are_played_every_night() -> None:
    """So many that a fault in a thousand days is found; the workflow's step is a target that exists."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    (step,) = [step["run"] for step in workflow["jobs"]["days"]["steps"] if "run" in step]
    assert step == 'make days ARGS="--seeds 20000"'
    assert re.search(
        r"^days: .*\n.*python -m tests\.engine\.days \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )


def test_everybody_runs_the_same_checks() -> None:
    """The CI script, the workflow of the code host and the git hook lead to the same targets."""
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().endswith("make browser\nexec make check test test-go\n")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = workflow["jobs"]["check-and-test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["bash .ci/run"]
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make check"]

"""A test that runs a program, and does not wait until it is built, fails to be collected: also where it is built."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.patience import PATIENCE
from tests.kit.reaching import lacking
from tests.running import reaching_sample as sample

SAMPLE = Path(sample.__file__)
ROOT = SAMPLE.parents[2]


def test_its_module_fails_with_a_sentence() -> None:
    """The sentence names the test, the way to the program, and the fixture that it lacks."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(SAMPLE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done
    said = "test_on_the_sandbox does not wait until a program is built that it reaches for (test_on_the_sandbox)"
    assert said in done.stdout
    assert "let it ask for the fixture `binaries`" in done.stdout


@pytest.mark.parametrize(
    ("function", "way", "fixture"),
    [
        (sample.shell, ["shell", "Shell.__init__"], "binaries"),
        (sample.through_a_module, ["through_a_module"], "binaries"),
        (sample.with_another_set, ["with_another_set"], "helm_program"),
        (sample.at_run_time, ["at_run_time"], "binaries"),
    ],
)
def test_helpers_and_modules_are_followed(function: Callable[..., Any], way: list[str], fixture: str) -> None:
    """Nothing is lacking where its fixture is asked for; another one does not help."""
    found = lacking(function, {"sandbox", "programs"})
    assert found is not None
    assert ([each.__qualname__ for each in found[0]], found[1]) == (way, fixture)
    assert lacking(function, {fixture}) is None
    assert lacking(function, {"kubernetes"}) == (None if fixture == "binaries" else found)

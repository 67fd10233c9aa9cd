"""The command line where a stream is not as usual: closed by the caller, on a full disk, with nobody reading."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = f"{sys.executable} -m backoff_ctrl"
ANSWER = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'


def shell(line: str) -> tuple[int, str, str]:
    """Run a line of shell: exit code, stdout, stderr."""
    done = subprocess.run(["bash", "-c", line], input=ANSWER, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"), [("classify", "stdin is empty"), ("footprint -f -", "stdin: contains no manifest")]
)
def test_a_closed_stdin_is_an_empty_one(arguments: str, sentence: str) -> None:
    """As cron and some supervisors leave it: a sentence and 2."""
    code, out, err = shell(f"{COMMAND} {arguments} <&-")
    assert (code, out) == (2, "")
    assert err.startswith(f"backoff-ctrl: {sentence}")
    assert len(err.splitlines()) == 1


def test_a_closed_stdout_loses_the_answer_only() -> None:
    """Nobody wants to read it: no traceback."""
    assert shell(f"{COMMAND} classify >&-") == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("option", ["", "--json"])
def test_a_full_disk_is_said(option: str) -> None:
    """A script must not take half an answer for a whole one: a sentence and 1."""
    assert shell(f"{COMMAND} classify {option} >/dev/full") == (
        1,
        "",
        "backoff-ctrl: the answer can't be written: No space left on device\n",
    )


def test_stdout_of_json_is_one_document_whatever_the_environment() -> None:
    """No home, the plainest locale, a narrow terminal."""
    code, out, err = shell(f"env -i LANG=C PYTHONIOENCODING=ascii COLUMNS=20 {COMMAND} classify --json")
    assert (code, err) == (0, "")
    assert json.loads(out)["quota"] == "q"

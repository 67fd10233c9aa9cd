"""The command line with unusual streams: closed by the caller, on a full disk, without a reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = f"{sys.executable} -m backoff_ctrl"
ANSWER = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'


def shell(line: str) -> tuple[int, str, str]:
    """Run a shell command; return exit code, stdout and stderr."""
    done = subprocess.run(["bash", "-c", line], input=ANSWER, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"), [("classify", "stdin is empty"), ("footprint -f -", "stdin: contains no manifest")]
)
def test_a_closed_stdin_counts_as_empty(arguments: str, sentence: str) -> None:
    """Cron and some supervisors close stdin: one line on stderr, exit code 2."""
    code, out, err = shell(f"{COMMAND} {arguments} <&-")
    assert (code, out) == (2, "")
    assert err.startswith(f"backoff-ctrl: {sentence}")
    assert len(err.splitlines()) == 1


def test_a_closed_stdout_is_no_error() -> None:
    """The output is lost, but there is no traceback."""
    assert shell(f"{COMMAND} classify >&-") == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full exists only on Linux")
@pytest.mark.parametrize("option", ["", "--json"])
def test_a_full_disk_is_reported(option: str) -> None:
    """A script must not take partial output for the whole: one line on stderr, exit code 1."""
    assert shell(f"{COMMAND} classify {option} >/dev/full") == (
        1,
        "",
        "backoff-ctrl: cannot write the output: No space left on device\n",
    )


def test_stdout_of_json_is_one_document_whatever_the_environment() -> None:
    """No home directory, the C locale, a narrow terminal."""
    code, out, err = shell(f"env -i LANG=C PYTHONIOENCODING=ascii COLUMNS=20 {COMMAND} classify --json")
    assert (code, err) == (0, "")
    assert json.loads(out)["quota"] == "q"

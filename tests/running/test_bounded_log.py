"""What users have a command log fills no disk: lines of one kind are bounded, and lines of other kinds stay."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest

from backoff_ctrl.api.commands.bounded_log import AT_ONCE, LENGTH_MAX, BoundedLog
from tests.kit.patience import PATIENCE

FLOOD = 10 * AT_ONCE


class Log:
    """A log in virtual time."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.now = 0.0
        self._capsys = capsys
        self._handler = BoundedLog(lambda: self.now)
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self._handler.setStream(sys.stderr)

    def write(self, message: str, line: int = 1, level: int = logging.INFO) -> list[str]:
        """Write a message from a place in the code; return what is in the log of it."""
        self._handler.handle(logging.LogRecord("backoff_ctrl", level, "a.py", line, message, (), None))
        return self._capsys.readouterr().err.splitlines()


def test_a_flood_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(capsys)
    written = [line for number in range(FLOOD) for line in log.write(f"owner {number}")]
    assert written[: AT_ONCE - 1] == [f"owner {number}" for number in range(AT_ONCE - 1)]
    assert written[AT_ONCE - 1 :] == [f"owner {AT_ONCE - 1} (further such lines: at most 1 a second)"]
    log.now += 1
    assert log.write("one more") == [f"one more ({FLOOD - AT_ONCE} such lines were left out before this one)"]
    assert log.write("and one") == []


def test_a_flood_that_goes_on_has_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    log, written = Log(capsys), 0
    for number in range(600):
        log.now = number / 10
        written += sum(len(log.write("owner")) for _ in range(10))
    assert written == AT_ONCE + 59


def test_lines_of_other_kinds_stay_and_what_is_quiet_again_is_written_in_full(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = Log(capsys)
    for _ in range(FLOOD):
        log.write("owner")
    assert log.write("it leads no more", line=2) == ["it leads no more"]
    log.now += AT_ONCE + 1
    assert log.write("owner") == [f"owner ({FLOOD - AT_ONCE} such lines were left out before this one)"]
    assert log.write("owner") == ["owner"]


def test_who_asks_for_all_lines_gets_them(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(capsys)
    assert sum(len(log.write("detail", level=logging.DEBUG)) for _ in range(FLOOD)) == FLOOD


def test_a_line_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = Log(capsys).write("a" * 10**6 + "z")
    assert len(line) < LENGTH_MAX + 100
    assert line.endswith("z")
    assert f"a ... {10**6 + 1 - LENGTH_MAX} characters are left out ... a" in line


COMMANDS = """
import logging, sys
from backoff_ctrl.api.commands.options import log_to_stderr
log_to_stderr(logging.INFO)
for number in range(1000):
    logging.getLogger("backoff_ctrl.any").info("owner %s", number)
"""


def test_commands_log_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    lines = done.stderr.splitlines()
    assert AT_ONCE <= len(lines) < 2 * AT_ONCE
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO owner 0", lines[0])

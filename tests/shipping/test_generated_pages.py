"""Generated pages are what the code, the tests and the chart say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.pages import reliability, sandbox, tables
from tools.pages.__main__ import WRITTEN

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_is_current(name: str) -> None:
    """`make pages` would change nothing."""
    present = (ROOT / name).read_text(encoding="utf-8")
    assert WRITTEN[name](present) == present


@pytest.mark.parametrize("name", tables.PAGES)
def test_only_what_stands_between_the_marks_is_written(name: str) -> None:
    """What a hand changed there is put right."""
    present = (ROOT / name).read_text(encoding="utf-8")
    first, mark, rest = present.partition("<!-- end: ")
    assert WRITTEN[name](f"A line.\n{first}a row by hand\n{mark}{rest}") == f"A line.\n{present}"


def test_a_value_that_nothing_describes_is_an_error() -> None:
    """The chart's README would not have it."""
    with pytest.raises(ValueError, match=r"^one\.two in values\.yaml has no comment"):
        tables.described("one:\n  two: 3\n")


@pytest.mark.long
def test_the_sandbox_promises_cases_of_each_kind() -> None:
    """Plain HTTP, kubectl, informers."""
    for line in ("Get shows pods as a table.", "Informers see the same sequence.", "## What it does not promise"):
        assert line in sandbox.page()


def test_the_page_of_faults_has_a_row_for_each_and_no_other() -> None:
    """With its test's words; none shows a create that was made twice or left waiting."""
    assert reliability.wrong((ROOT / reliability.PAGE).read_text(encoding="utf-8")) == []


def test_a_missing_fault_is_named() -> None:
    """So is a row that shows a doubled create."""
    present = (ROOT / reliability.PAGE).read_text(encoding="utf-8")
    (row,) = (
        line for line in present.splitlines() if line.startswith("| The API server is killed and started again |")
    )
    (missing,) = reliability.wrong(present.replace(row, ""))
    assert "no row for 'The API server is killed and started again'" in missing
    cells = row.split(" | ")
    (doubled,) = reliability.wrong(present.replace(row, " | ".join([*cells[:2], "1", *cells[3:]])))
    assert doubled == "'The API server is killed and started again': 1 twice, 0 left waiting"


def test_a_page_of_faults_is_written_from_their_records() -> None:
    """It has then what is asked of it."""
    run = {"machine": "two cores", "date": "2026-11-21", "sent": 300, "seconds": 9.0, "recovery": 0.5, "noted": ""}
    counts = {"refused": {"quota": 7}, "once": 300, "creates": 300, "twice": 0, "lost": 0, "forgotten": 0}
    written = reliability.page({name: {**run, **counts} for name in reliability.faults()})
    assert reliability.wrong(written) == []
    assert "| 300 of 300 | 0 | 0 | 0 | 0.50 s | 9.0 s | 7 | - |" in written

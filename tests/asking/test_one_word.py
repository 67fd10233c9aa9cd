"""One word for one thing where people read it: what is not taken of a quota is *left*; amounts have one rounding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.commands import ceilings, jobs
from backoff_ctrl.api.commands.tasks.showing import waits_for
from backoff_ctrl.api.commands.top_screen import GREY, LEGEND, bars
from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.status.amounts import percent
from backoff_ctrl.k8s.tasks.model import TaskWait
from backoff_ctrl.k8s.workloads.admitting.jobs import WaitingJob
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB
from tests.asking.test_names_of_options import COMMANDS
from tests.asking.test_top import ceiling

ROOT = Path(__file__).parents[2]
AT = datetime(2026, 11, 22, 10, tzinfo=UTC)
OTHER = re.compile(r"headroom", re.IGNORECASE)
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("helm/**/*.md"), *ROOT.glob("helm/**/*.txt")]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_pages_call_it_left(file: Path) -> None:
    """Names of metrics and keys stay as they are: they are written as code."""
    text = re.sub(r"```.*?```", "", file.read_text("utf-8"), flags=re.DOTALL)
    assert not OTHER.search(re.sub(r"`[^`]*`", "", text))


def words_of(board: Any) -> Iterator[str]:
    """What a dashboard shows: titles, descriptions, names of columns; no queries."""
    if isinstance(board, list):
        for each in board:
            yield from words_of(each)
    elif isinstance(board, dict):
        for key, value in board.items():
            if key in {"title", "description", "displayName", "legendFormat", "text"} and isinstance(value, str):
                yield value
            elif key == "renameByName":
                yield from value.values()
            else:
                yield from words_of(value)


@pytest.mark.parametrize("file", sorted(ROOT.glob("dashboards/*.json")), ids=lambda file: file.stem)
def test_dashboards_call_it_left(file: Path) -> None:
    words = [*words_of(json.loads(file.read_text("utf-8")))]
    assert words
    assert not [each for each in words if OTHER.search(each)]


def test_tables_and_the_page_call_it_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither free, nor headroom, in a head, a legend or a help."""
    for head in (ceilings.HEAD, jobs.WIDE):
        assert "left" in head
        assert not {"free", "headroom", "remaining"} & {*head}
    for path in COMMANDS:
        assert run([*path.split(), "--help"]) == 0
        assert not OTHER.search(capsys.readouterr().out), path
    for file in ROOT.glob("api/status/files/*.html"):
        shown = re.sub(r"{[{%].*?[%}]}|<[^>]*>", " ", file.read_text("utf-8"))
        assert not re.search(r"\b(free|headroom)\b", shown), file.name


# -- the bars ---------


def test_bars_have_the_marks_and_colours_of_their_legend() -> None:
    """What is held is grey in a full quota, too."""
    for used in ("1", "9", "10"):
        drawn = bars([ceiling(used, "10", held="2" if used != "10" else "0")], 80, AT)
        styles = {drawn.plain[span.start]: str(span.style) for span in drawn.spans if drawn.plain[span.start] in "█▒·"}
        assert styles.keys() <= {*LEGEND}
        assert styles.get("▒", GREY) == GREY
        assert styles["█"] != GREY


def test_bars_of_the_page_have_the_colours_of_its_legend() -> None:
    """Each part has one colour, that of its swatch, however full the quota is."""
    style = (ROOT / "api/status/files/page.css").read_text("utf-8")
    for part in ("used", "reserved", "free"):
        assert {fill for _, fill in re.findall(rf"([^{{}}]*rect\.{part}) {{ fill: ([^;]+);", style)} == {
            f"var(--{part})"
        }
        swatch = r"\.swatch" if part == "used" else rf"\.swatch\.{part}"
        assert re.search(rf"{swatch} {{[^}}]*background: var\(--{part}\)", style)


# -- rounding ---------


@pytest.mark.parametrize(
    ("part", "whole", "written"),
    [(0, 5, "0%"), (1, 3, "33%"), (2, 3, "66%"), (999, 1000, "99%"), (1, 1000, "<1%"), (1, 1, "100%"), (17, 10, "170%"),
     (0, 0, "-"), (Fraction(199, 200), 1, "99%"), (-1, 2, "-50%")],
)  # fmt: skip
def test_a_share_is_rounded_down_so_that_nothing_looks_full_that_is_not(part: int, whole: int, written: str) -> None:
    assert percent(part, whole) == written


@pytest.mark.long
def test_commands_write_one_amount_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """`holders` and `ceilings`: in the unit of the limit, as many digits, and the same share of it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": "1535Mi"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"requests.memory": "4Gi"})
        sandbox.call(lambda inner: inner.create(inner.kind("pods"), "team", pod))
        where = ["--apiserver", sandbox.url, "-n", "team"]
        assert run(["ceilings", *where]) == 0
        row = capsys.readouterr().out.splitlines()[1].split()
        assert run(["holders", *where]) == 0
        page = capsys.readouterr().out
    assert row[3:7] == ["1.49Gi", "4Gi", "2.5Gi", "37%"]
    assert f"requests.memory: {row[3]} of {row[4]} used ({row[6]})" in page
    assert re.search(r"Pod/a +1 +1\.49Gi +100%", page)
    assert f"at {row[6]}." in page


def test_what_waits_is_written_with_the_same_rounding() -> None:
    """Tasks and suspended Jobs, whose stores have exact amounts."""
    wait = TaskWait("quota", "q", "requests.memory", asked="1535Mi", left="1073741825", limited="4Gi")
    assert waits_for(wait) == "quota q: requests.memory asks 1.49Gi, 1Gi of 4Gi left"
    said = {"quota": "q", "resource": "requests.memory", "asked": "1535Mi", "left": "0"}
    job = WaitingJob(JOB, {}, "team", "train", "2026-11-22T10:00:00Z", said)
    assert jobs.row_of(job, ("asked", "left", "waits for")).cells == (
        "1.4Gi",
        "0",
        "q requests.memory: asked 1.4Gi, left 0",
    )
    odd = WaitingJob(JOB, {}, "team", "train", "", {**said, "asked": "much"})
    assert jobs.row_of(odd, ("asked",)).cells == ("much",)

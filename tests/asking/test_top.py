"""``backoff-ctrl top`` at a real gate: its screen, driven by keys, and its JSON document."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import DataTable, RichLog, Static

from backoff_ctrl.api.commands.top_look import look
from backoff_ctrl.api.commands.top_screen import Heard, Lost, Seen, Top, bars, decision_line
from backoff_ctrl.api.commands.waiting import cells
from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.status.client import Instance, read_url
from backoff_ctrl.k8s.status.shapes import Block, Ceiling, Decision, Waiting
from tests.kit import scripted_server as scripts
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.status.asking import Crowd

AT = datetime(2026, 11, 22, 10, tzinfo=UTC)


def ceiling(used: str, limited: str, held: str = "0", block: Block | None = None) -> Ceiling:
    """A ceiling of pods."""
    return Ceiling(
        "team", "q", "pods", limited, used, held, "0", headroom="?", unsettled="0", kept=False, source="observed",
        heard_at="2026-11-22T09:59:00Z", block=block,
    )  # fmt: skip


def instance(url: str) -> Instance:
    """Ask there."""
    return Instance(read_url(url), 30)


async def until(holds: Callable[[], bool], pilot: Any) -> None:
    """Let the screen take in what its threads tell, until it shows that."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await pilot.pause(0.02)


def text_of(widget: RichLog) -> str:
    """What the stream of decisions shows."""
    return "\n".join(line.text for line in widget.lines)


@pytest.mark.long
async def test_the_screen_shows_ceilings_waiters_and_decisions_as_they_change(crowd: Crowd) -> None:
    """A create that waits has its row; once it is in, the row is gone and the stream says so."""
    await asyncio.to_thread(crowd.wait_with, "second")
    asked = instance(crowd.url)
    top = Top(asked, None, 0.2, await asyncio.to_thread(look, asked, None))
    async with top.run_test(size=(120, 40)) as pilot:
        table: DataTable[Any] = top.query_one("#waiting", DataTable)
        drawn = str(top.query_one("#bars", Static).content)
        assert "team/q pods" in drawn
        assert "100%" in drawn
        assert "1 of 1" in drawn
        assert [str(cell) for cell in table.get_row_at(0)][:3] == ["1", "team", "pods/second"]
        log = top.query_one("#decisions", RichLog)
        await until(lambda: "waits" in text_of(log), pilot)  # told before it looked
        await asyncio.to_thread(crowd.make_room, "first")
        await until(lambda: table.row_count == 0, pilot)
        await until(lambda: "created     team pods/second" in text_of(log), pilot)
        assert str(top.query_one("#head", Static).content).startswith(f"{crowd.url}   0 waiting")


@pytest.mark.long
async def test_keys_freeze_enlarge_and_quit(crowd: Crowd) -> None:
    """A frozen picture keeps what it shows, and says that it is frozen."""
    asked = instance(crowd.url)
    top = Top(asked, "team", 0.2, await asyncio.to_thread(look, asked, "team"))
    async with top.run_test(size=(120, 40)) as pilot:
        log = top.query_one("#decisions", RichLog)
        await until(lambda: "created     team pods/first" in text_of(log), pilot)
        await pilot.press("space")
        await asyncio.to_thread(crowd.wait_with, "second")
        seen = len(crowd.get("/v1/waiting?namespace=team")["items"])
        top.post_message(Seen(await asyncio.to_thread(look, asked, "team")))
        await pilot.pause()
        assert (seen, top.query_one("#waiting", DataTable).row_count) == (1, 0)
        assert "frozen" in str(top.query_one("#head", Static).content)
        await pilot.press("space")
        await until(lambda: top.query_one("#waiting", DataTable).row_count == 1, pilot)
        await pilot.press("tab", "enter")
        assert [pane.id for pane in top.query(".large")] == [top.focused.id if top.focused else None]
        await pilot.press("q")
    assert not top.is_running


@pytest.mark.long
async def test_an_instance_that_is_gone_is_said_on_the_screen(crowd: Crowd) -> None:
    """What was seen stays; the head says that it is old."""
    await asyncio.to_thread(crowd.wait_with, "second")
    asked = instance(crowd.url)
    top = Top(asked, None, 0.2, await asyncio.to_thread(look, asked, None))
    async with top.run_test(size=(160, 40)) as pilot:
        await asyncio.to_thread(crowd.service.close)
        await until(lambda: "nothing listens at" in str(top.query_one("#head", Static).content), pilot)
        assert "team/q pods" in str(top.query_one("#bars", Static).content)


@pytest.mark.long
async def test_news_that_come_while_the_screen_closes_are_dropped(crowd: Crowd) -> None:
    """The last screen stays as it was, and its user sees no traceback."""
    await asyncio.to_thread(crowd.wait_with, "second")
    asked = instance(crowd.url)
    seen, seen_late = [await asyncio.to_thread(look, asked, None) for _ in range(2)]
    top = Top(asked, None, 60.0, seen)
    async with top.run_test(size=(160, 40)):
        pass
    told_late = Decision(1, "2026-11-22T10:00:30Z", "g", "waits", "1", "team", "Pod", "p")
    top.on_seen(Seen(seen_late))
    top.on_lost(Lost("gone"))
    top.on_heard(Heard(told_late))
    assert top._shown is seen


def test_a_bar_tells_used_held_and_free_apart() -> None:
    """Whatever is held shows, and nothing is longer than the bar."""
    (line,) = bars([ceiling("5", "10", held="1")], 80, AT).plain.splitlines()
    name, _, rest = line.partition("  ")
    assert name == "team/q pods"
    bar = rest.split()[0]
    half = len(bar) // 2
    assert bar[:half] == "█" * half
    assert bar.count("▒") == -(-len(bar) // 10)
    assert bar.count("█") + bar.count("▒") + bar.count("·") == len(bar)
    assert rest.split()[1:] == ["60%", "5", "+", "1", "held", "of", "10"]
    crowded = bars([ceiling("14", "10", held="3")], 80, AT).plain.split()
    assert set(crowded[2]) == {"█"}
    assert crowded[3] == "170%"


def test_a_limit_of_0_is_paused_where_creates_ask_for_it_and_what_blocks_is_said() -> None:
    """No division by its limit."""
    block = Block("shut", 2, "2026-11-22T10:00:30Z")
    assert bars([ceiling("0", "0")], 80, AT).plain.split()[3] == "none"
    assert bars([ceiling("0", "0", block=block)], 80, AT).plain.split()[3] == "paused"
    assert bars([ceiling("2", "0")], 80, AT).plain.split()[3] == "paused"
    blocked = ceiling("1", "1", block=block)
    assert bars([blocked], 80, AT).plain.endswith("waits for room, or a probe in 30s")
    assert "No ceilings are known yet" in bars([], 80, AT).plain


def test_the_time_of_a_decision_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the API, in logs and on the page, wherever the terminal is."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        line = decision_line(Decision(1, "2026-11-22T11:00:30+02:00", "g", "waits", "1", "team", "pods", "p")).plain
    finally:
        monkeypatch.undo()
        time.tzset()
    assert line.split()[0] == "09:00:30Z"


def test_nothing_that_is_drawn_moves_the_cursor() -> None:
    """Names come from manifests that nobody has checked yet."""
    evil = "a\x1b[2J\nb[red]"
    waiting = Waiting(
        "1", "g", evil, "pods", evil, None, {}, None, 0, "2026-11-22T09:00:00Z", 1, "quota", [], None, None
    )
    assert [cells(waiting, AT, ["place"], several_gates=each) for each in (False, True)] == [("1",), ("1 at g",)]
    assert cells(waiting, AT, ["namespace", "name"], several_gates=False) == ("a?[2J?b[red]", "pods/a?[2J?b[red]")
    decision = Decision(1, "2026-11-22T09:00:00Z", "g", "waits", "1", evil, "pods", evil)
    assert decision_line(decision).plain.endswith("a?[2J?b[red] pods/a?[2J?b[red]")
    every = ceiling("1", "2")
    every.namespace = evil
    assert "\x1b" not in bars([every], 80, AT).plain


def test_the_json_is_one_document_with_all_three(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """Ceilings, who waits, and the decisions that the gate keeps, oldest first."""
    crowd.wait_with("second")
    crowd.wait_with("third")
    assert run(["top", "--json", "--gate", crowd.url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["as_of", "ceilings", "waiting", "decisions", "more"]
    assert [each["resource"] for each in found["ceilings"]] == ["pods"]
    assert [each["name"] for each in found["waiting"]] == ["second", "third"]
    told_of = [(each["event"], each["name"]) for each in found["decisions"]]
    assert told_of[0] == ("created", "first")
    assert ("waits", "second") in told_of
    assert run(["top", "--json", "--gate", crowd.url, "--limit", "1", "-n", "team"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["waiting"]), len(found["decisions"])) == (1, 1)
    assert found["more"] == {"ceilings": 0, "waiting": 1}


def test_without_a_terminal_or_an_instance_one_sentence_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert run(["top"]) == 2
    assert "top needs a terminal to draw on: use --json" in capsys.readouterr().err
    assert run(["top", "--json", "--gate", "http://127.0.0.1:1"]) == 2
    assert "nothing listens at http://127.0.0.1:1" in capsys.readouterr().err
    with scripts.scripted_server(_no_decisions) as script:
        assert run(["top", "--json", "--gate", script.url]) == 2
        assert "can't be followed (404 instead of a stream of events)" in capsys.readouterr().err


def _no_decisions(seen: scripts.Seen) -> Any:
    if seen.path.startswith("/v1/decisions"):
        return 404, {}
    return 200, {"as_of": "2026-11-22T10:00:00Z", "items": [], "next": None}


def test_top_names_the_extra_that_it_needs() -> None:
    """Where textual is not installed; on a terminal."""
    script = (
        "import importlib.util as util, sys; real = util.find_spec;"
        "util.find_spec = lambda name, *more: None if name == 'textual' else real(name, *more);"
        "from backoff_ctrl.api.main import run; sys.exit(run(['top']))"
    )
    here, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(here)
        os.close(terminal)
    assert (done.returncode, "pip install 'backoff-ctrl[top]'" in done.stderr) == (2, True)


def test_help_loads_no_screen() -> None:
    """textual takes half a second."""
    script = (
        "import sys; from backoff_ctrl.api.main import run; run(['top', '-h']); run(['completion', '-h']);"
        "print(sorted({'kubernetes', 'aiohttp', 'asyncio', 'rich', 'yaml', 'textual'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"

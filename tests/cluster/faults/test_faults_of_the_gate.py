"""Faults of the gate itself: its process is killed and started again, and its clock jumps."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backoff_ctrl.k8s.gate.aio import AsyncGate
from tests.cluster.control_plane.bed import Bed
from tests.cluster.faults.fault_record import record
from tests.cluster.faults.storm import CREATES, Account, Storm, stored_rows
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long


ROOT = Path(__file__).parents[3]
AT_A_TIME = 40
AT_FIRST = 120
"""Pods that the quota allows: more than exist when the process is killed, so that creates are in flight then."""
HOUR = 3600.0
MINUTES = 4 * PATIENCE


async def test_the_process_is_killed_and_started_again_with_keys(bed: Bed, tmp_path: Path) -> None:
    """It sends every create that has no answer yet, with the same keys: each exists exactly once."""
    began = time.monotonic()
    async with Storm(bed.server, "keyed", hard=AT_FIRST) as storm:
        killed = await killed_midway(storm, tmp_path / "book", keyed=True)
        left = [row for row in range(CREATES) if row not in killed.answered]
        recovery = await started_again(storm, tmp_path / "again", left, keyed=True) - killed.at
        account = await account_of(storm, began)
    record("test_the_process_is_killed_and_started_again_with_keys", account, recovery=recovery)

    account.must_be_whole()
    assert len(killed.answered) < CREATES


@pytest.mark.scheduled
async def test_the_process_is_killed_and_started_again_without_keys(bed: Bed, tmp_path: Path) -> None:
    """It continues with creates that were not started before: no create exists twice, and the lost ones are known."""
    began = time.monotonic()
    async with Storm(bed.server, "unkeyed", hard=AT_FIRST) as storm:
        killed = await killed_midway(storm, tmp_path / "book", keyed=False)
        left = [row for row in range(CREATES) if row not in killed.begun]
        recovery = await started_again(storm, tmp_path / "again", left, keyed=False) - killed.at
        account = await account_of(storm, began)
    unheard = killed.begun - killed.answered - set(account.lost)
    noted = f"lost: rows {account.lost}; {len(unheard)} more existed without an answer"
    record("test_the_process_is_killed_and_started_again_without_keys", account, recovery=recovery, noted=noted)

    assert account.twice == []
    assert set(account.lost) <= killed.begun - killed.answered
    assert 0 < len(account.lost) <= AT_A_TIME
    assert len(killed.begun) < CREATES


@pytest.mark.scheduled
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
async def test_the_clock_jumps(bed: Bed, jump: float) -> None:
    """An hour ahead, or back: no create is given up, or waits for the hour to pass."""
    offset = 0.0
    name = "test_the_clock_jumps_" + ("ahead" if jump > 0 else "back")
    gate = AsyncGate(clock=lambda: time.monotonic() + offset)
    async with Storm(bed.server, name.removeprefix("test_the_clock_").replace("_", "-"), gate=gate) as storm:
        storm.begin()
        await storm.until_in(60)
        offset = jump
        recovery = await storm.recovered(time.monotonic())
        account = await storm.account()
    record(name, account, recovery=recovery)

    account.must_be_whole()


@dataclass
class Killed:
    """What a killed process leaves: the time, the rows that it had started, and those that had an answer."""

    at: float
    begun: set[int]
    answered: set[int]


async def killed_midway(storm: Storm, book: Path, *, keyed: bool) -> Killed:
    """Run a process that starts all creates and is killed once a hundred have succeeded."""
    async with creating(storm, book, range(CREATES), keyed=keyed, dies_after=100) as process, asyncio.timeout(MINUTES):
        assert await process.wait() == -signal.SIGKILL
    noted = entries(book)
    begun, answered = ({row for word, row in noted if word == wanted} for wanted in ("begun", "in"))
    return Killed(time.monotonic(), begun, answered)


async def started_again(storm: Storm, book: Path, rows: list[int], *, keyed: bool) -> float:
    """Run a new process for the remaining rows to its end; returns when the first of them had succeeded."""
    async with creating(storm, book, rows, keyed=keyed) as process:
        await enough(book, 1)
        first = time.monotonic()
        assert await process.wait() == 0
    return first


async def account_of(storm: Storm, began: float) -> Account:
    """Count what the server has; the counts of the gates were lost with their processes."""
    stored = await stored_rows(storm.admin, storm.namespace)
    return Account(CREATES, stored, Counter(), 0, time.monotonic() - began, {})


@asynccontextmanager
async def creating(
    storm: Storm, book: Path, rows: Iterable[int], *, keyed: bool, dies_after: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process that creates these rows, and end it; after ``dies_after`` successes it kills itself."""
    asked = {
        "kubeconfig": str(storm.server.kubeconfig("creator")),
        "namespace": storm.namespace,
        "rows": list(rows),
        "keyed": keyed,
        "at_a_time": AT_A_TIME,
        "book": str(book),
        "dies_after": dies_after,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cluster.faults.storm_process", json.dumps(asked), cwd=ROOT, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def enough(book: Path, creates: int) -> None:
    """Wait until the log of the process shows this many successes."""
    async with asyncio.timeout(PATIENCE):
        while sum(1 for word, _ in entries(book) if word == "in") < creates:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.01)


def entries(book: Path) -> list[tuple[str, int]]:
    """The lines that the process has logged; an incomplete last line is dropped, since it may have been killed."""
    if not book.exists():
        return []
    lines = book.read_text().split("\n")[:-1]
    return [(word, int(row)) for word, row in (line.split(" ") for line in lines)]

"""A disk that is full, and a kill at any moment: what was stored is there, and the next write goes on."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import StoreError
from backoff_ctrl.k8s.tasks.tables import Tables, Write
from tests.tasks.reconciling.running import all_over, reconciling
from tests.tasks.reconciling.small_cluster import SmallCluster
from tests.tasks.tasks_written import until, wish

WRITING = """
import pathlib, sys
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.tables import Tables, Write
tables = Tables(pathlib.Path(sys.argv[1]))
tasks = tables.list()
for number in range(10**9):
    status = TaskStatus(phase="Running", reason=str(number))
    assert list(tables.set_statuses([Write(t.uid, number, status, True) for t in tasks])) == [number + 1] * len(tasks)
    if number == 50:
        print("writing", flush=True)
"""


@pytest.fixture
def largest_file() -> Iterator[object]:
    """Sets how large a file of this process may become: beyond it the disk is full, as far as it is concerned."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[0] if size is None else size, before[1]))

    yield limit
    limit(None)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path, largest_file) -> None:  # type: ignore[no-untyped-def]
    """The error names the file and says what to do; with room again the same write succeeds."""
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish()])
    large = TaskStatus(phase="Running", reason="x" * 400_000)
    largest_file(200_000)
    with pytest.raises(StoreError, match=r"t\.db can't be written .* make room on its disk"):
        tables.set_statuses([Write(task.uid, 0, large, True)])
    with pytest.raises(StoreError, match="can't be written"):
        tables.create([wish("large", container={"image": "x" * 400_000})])
    assert [(each.name, each.version) for each in tables.list()] == [("train", 0)]
    largest_file(None)
    assert list(tables.set_statuses([Write(task.uid, 0, large, True)])) == [1]
    tables.check()
    tables.close()


async def test_the_manager_outlasts_a_full_disk(tmp_path: Path, largest_file) -> None:  # type: ignore[no-untyped-def]
    """It says so, makes no further step of a task before the last one is stored, and goes on when there is room."""
    cluster = SmallCluster()
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish(f"t{number}", env=[{"name": "A", "value": "x" * 5000}]) for number in range(30)])
        with closing(sqlite3.connect(tmp_path / "t.db")) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        largest_file(8_192)  # less than the log of one write
        async with reconciling(store, cluster) as reconciler:

            async def troubled() -> bool:
                return "can't be written" in reconciler.trouble

            await until(troubled)
            assert len(cluster.made) <= 30
            assert reconciler.counts.writes == 0
            largest_file(None)
            over = await all_over(store)
    assert {task.status.phase for task in over} == {"Success"}
    assert set(cluster.made.values()) == {1}


@pytest.mark.long
def test_a_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    """Again and again: all tasks have the same version, since each transaction wrote all of them, and no damage."""
    file = tmp_path / "t.db"
    tables = Tables(file)
    tables.create([wish(f"t{number}") for number in range(20)])
    versions = []
    for _ in range(3):
        made = tables.list()
        tables.set_statuses([Write(task.uid, task.version, TaskStatus(), True) for task in made])
        base = made[0].version + 1
        program = WRITING.replace("range(10**9)", f"range({base}, 10**9)").replace("== 50", f"== {base + 50}")
        with subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            writer.kill()
        found = {task.version for task in tables.list()}
        assert len(found) == 1
        versions.append(found.pop())
    assert versions == sorted(set(versions))
    assert versions[0] > 50
    tables.check()
    tables.close()


async def test_a_store_that_others_lock_is_waited_for(tmp_path: Path) -> None:
    """Another process writes for a while: whoever wants to write waits, and nobody's event loop stands still."""
    other = Tables(tmp_path / "t.db")
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish()])
        with other.writing():
            writing = asyncio.create_task(store.set_status(task.uid, 0, TaskStatus(phase="Running"), open_=True))
            beats = 0
            for _ in range(20):
                await asyncio.sleep(0.01)
                beats += 1
            assert not writing.done()
        assert await writing == 1
        assert beats == 20
    other.close()

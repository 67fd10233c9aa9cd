"""The status of the watch: states for pages, counters for metrics, and few lines in the log."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.replay.virtual_time import run_virtual
from backoff_ctrl.k8s.watching.status import EVERYWHERE, Seeing, Sight, WatchBook
from tests.watch_script import ScriptedServer, elapse, observed

if TYPE_CHECKING:
    import pytest


def test_each_change_of_state_is_reported_with_its_time_and_reason() -> None:
    """For metrics and pages: the hook is called for changes only, not for every attempt."""
    told: list[tuple[str, Sight]] = []

    async def main() -> None:
        book = WatchBook(on_change=lambda place, sight: told.append((place, sight)))
        server = ScriptedServer()
        server.quota()
        server.forbidden = {("pods", "team")}
        async with observed(server, book=book):
            await elapse(100)
            server.down = True
            server.cut()
            await elapse(1000)
            server.down = False
            await elapse(100)
            server.forbidden = {("resourcequotas", "team")}
            server.cut()
            await elapse(1000)

    run_virtual(main())

    states = [(place, sight.state) for place, sight in told]
    quotas, pods, learning = ("team", Seeing.QUOTAS), ("team", Seeing.PODS), ("team", Seeing.LEARNING)
    assert states[:5] == [quotas, learning, quotas, learning, pods]
    lost = told[1][1]
    assert 100 <= lost.since < 101
    assert lost.why == "connection reset; 403: may not list pods"
    assert told[4][1].why == "403: may not list resourcequotas"


def test_what_is_counted() -> None:
    """Lists, resumed streams, reconnects, refusals and changes each have a counter."""

    async def main() -> None:
        server = ScriptedServer()
        server.quota()
        async with observed(server) as seen:
            counts = seen.book.counts
            for hard in "345":
                server.quota(hard=hard)
            await elapse(30)
            server.end()
            await elapse(30)
            server.cut()
            await elapse(30)

            assert (counts.relists, counts.resumed, counts.reconnects, counts.events) == (3, 1, 1, 3)
            assert (counts.forbidden, counts.expired, counts.failures, counts.ignored) == (0, 0, 0, {})

    run_virtual(main())


def test_a_thousand_namespaces_lost_at_once_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Ten lines; the next one gives the number suppressed. Each namespace still has its own status."""
    caplog.set_level(logging.INFO, logger="backoff_ctrl.k8s")

    async def main() -> None:
        book = WatchBook(patience=5)
        for number in range(1000):
            book.quotas(f"n{number}", seen=True)
        for number in range(1000):
            book.quotas(f"n{number}", seen=False, why="connection reset", patient=True)
        await elapse(60)
        assert {sight.state for sight in book.status().values()} == {Seeing.LEARNING}
        book.quotas("n0", seen=False, why="forbidden")
        book.quotas("n1", seen=True)

    run_virtual(main())

    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert len(lines) == 11
    assert lines[-1] == "watching quotas of namespace n1 (990 similar lines suppressed)"


def test_the_watch_of_all_stands_for_each_namespace_only_while_it_is_healthy() -> None:
    """Otherwise the namespace's own state counts, or that of the watch of all if it has none."""

    async def main() -> None:
        book = WatchBook()
        assert book.of("team") is None
        book.quotas(EVERYWHERE, seen=True)
        assert book.of("team") == book.status()[EVERYWHERE]
        book.quotas(EVERYWHERE, seen=False, why="403")
        book.pods("team", seen=True)

        team, other = book.of("team"), book.of("other")
        assert team is not None
        assert other is not None
        assert (team.state, other.state) == (Seeing.PODS, Seeing.LEARNING)
        book.close("team")
        assert book.of("team") == other

    run_virtual(main())


async def test_the_status_may_be_read_from_any_thread_while_it_changes() -> None:
    """Pages are served by other threads than the watching one."""
    book = WatchBook()
    stop = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        while not stop.is_set():
            try:
                sights = book.status()
                assert all(sight.why == "" for sight in sights.values() if sight.state is Seeing.QUOTAS)
            except Exception as error:  # noqa: BLE001 - it is the finding
                errors.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(3000):
        book.quotas(f"n{number % 50}", seen=number % 2 == 0, why="gone", patient=True)
        if number % 7 == 0:
            book.close(f"n{number % 50}")
        if number % 100 == 0:
            await asyncio.sleep(0)
    stop.set()
    thread.join(45)

    assert not errors

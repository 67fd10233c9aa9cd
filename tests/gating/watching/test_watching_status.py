"""The status of the watch: states for pages, counters for metrics, and few lines in the log."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.kube.watching.status import EVERYWHERE, WatchRecord, WatchState, WatchStatus
from tests.kit.patience import PATIENCE
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import ScriptedServer, elapse, observed

if TYPE_CHECKING:
    import pytest


@in_virtual_time
async def test_each_state_is_shown_with_its_time_and_reason() -> None:
    """For metrics and pages."""
    server = ScriptedServer()
    server.quota()
    server.forbidden = {("pods", "team")}
    async with observed(server) as seen:

        def status() -> WatchStatus:
            return seen.record.status()["team"]

        await elapse(100)
        assert (status().state, status().why) == (WatchState.QUOTAS, "")
        server.down = True
        server.cut()
        await elapse(0.001)
        assert (status().state, status().lost) == (WatchState.LEARNING, True)
        assert status().why == "connection reset; 403: may not list pods"
        await elapse(1000)
        assert status().state is WatchState.LEARNING
        assert 100 <= status().since < 101
        server.down = False
        await elapse(100)
        assert status().state is WatchState.QUOTAS
        server.forbidden = {("resourcequotas", "team")}
        server.cut()
        await elapse(1000)
        assert status().state is WatchState.PODS
        assert status().why == "403: may not list resourcequotas"


@in_virtual_time
async def test_what_is_counted() -> None:
    """Lists, resumed streams, reconnects, refusals and changes each have a counter."""
    server = ScriptedServer()
    server.quota()
    async with observed(server) as seen:
        counts = seen.record.counts
        for hard in "345":
            server.quota(hard=hard)
        await elapse(30)
        server.end()
        await elapse(30)
        server.cut()
        await elapse(30)

        assert (counts.relists, counts.resumed, counts.reconnects, counts.events) == (3, 1, 1, 3)
        assert (counts.forbidden, counts.expired, counts.failures, counts.ignored) == (0, 0, 0, {})


@in_virtual_time
async def test_a_thousand_namespaces_lost_at_once_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Ten lines; the next one gives the number suppressed. Each namespace still has its own status."""
    caplog.set_level(logging.INFO, logger="backoff_ctrl.k8s")
    record = WatchRecord(patience=5)
    for number in range(1000):
        record.quotas(f"n{number}", seen=True)
    for number in range(1000):
        record.quotas(f"n{number}", seen=False, why="connection reset", patient=True)
    await elapse(60)
    assert {status.state for status in record.status().values()} == {WatchState.LEARNING}
    record.quotas("n0", seen=False, why="forbidden")
    record.quotas("n1", seen=True)

    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert len(lines) == 11
    assert lines[-1] == "watching quotas of namespace n1 (990 similar lines suppressed)"


@in_virtual_time
async def test_a_watch_that_ended_with_its_client_is_no_loss_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Its status says that it was stopped; no line says later that the gate learns from refusals instead."""
    server = ScriptedServer()
    server.quota()
    async with observed(server) as seen:
        await elapse(100)
    await elapse(100)
    status = seen.record.status()["team"]
    assert (status.state, status.why.split(";")[0]) == (WatchState.LEARNING, "stopped")

    assert "cannot watch" not in caplog.text


@in_virtual_time
async def test_the_watch_of_all_stands_for_each_namespace_only_while_it_is_healthy() -> None:
    """Otherwise the namespace's own state counts, or that of the watch of all if it has none."""
    record = WatchRecord()
    assert record.of("team") is None
    record.quotas(EVERYWHERE, seen=True)
    assert record.of("team") == record.status()[EVERYWHERE]
    record.quotas(EVERYWHERE, seen=False, why="403")
    record.pods("team", seen=True)

    team, other = record.of("team"), record.of("other")
    assert team is not None
    assert other is not None
    assert (team.state, other.state) == (WatchState.PODS, WatchState.LEARNING)
    record.close("team")
    assert record.of("team") == other


async def test_the_status_may_be_read_from_any_thread_while_it_changes() -> None:
    """Pages are served by other threads than the watching one."""
    record = WatchRecord()
    stop = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        while not stop.is_set():
            try:
                statuses = record.status()
                assert all(status.why == "" for status in statuses.values() if status.state is WatchState.QUOTAS)
            except Exception as error:  # noqa: BLE001 - it is the finding
                errors.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(3000):
        record.quotas(f"n{number % 50}", seen=number % 2 == 0, why="gone", patient=True)
        if number % 7 == 0:
            record.close(f"n{number % 50}")
        if number % 100 == 0:
            await asyncio.sleep(0)
    stop.set()
    thread.join(PATIENCE)

    assert not errors

"""A replica that can't go on ends: its process after a limit, and `/livez` says so before."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from backoff_ctrl.k8s.kube.cluster.election import Election, Terms
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import until

ENDLESS = """
import asyncio, logging
from backoff_ctrl.api.operator.leaving import end_in_time

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def main():
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    end_in_time(0.2)

logging.basicConfig()
asyncio.run(main())
"""


def test_a_process_ends_although_a_task_does_not() -> None:
    """What can't be cancelled keeps the event loop for ever; its name is in the log."""
    ended = subprocess.run(
        (sys.executable, "-c", ENDLESS), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 1
    assert "stubborn" in ended.stderr


async def test_a_candidate_is_stuck_once_it_tries_no_more_but_not_while_the_server_is_away() -> None:
    now = [0.0]
    configuration = find_place("http://127.0.0.1:9", None, None, None).configuration
    async with ClusterSession(configuration) as session, asyncio.timeout(PATIENCE):
        terms = Terms(duration=10, deadline=7, retry=0.01)
        election = Election(session, "team", "operator", "me", terms=terms, clock=lambda: now[0])
        assert election.stuck() == ""  # not begun
        running = asyncio.create_task(election.run(asyncio.Event().wait))  # type: ignore[arg-type]
        for now[0] in range(0, 100, 20):
            await until(lambda: election._turned == now[0])
            assert election.stuck() == ""
        running.cancel()
        await asyncio.wait({running})
        now[0] += 31
        assert "31 s" in election.stuck()

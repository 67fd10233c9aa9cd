"""The clock of an operator may differ from the API server's, or be set: what is noted on objects is by the server's."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.lab.sandbox import Sandbox
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.again import OFTEN
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB
from tests.cluster.admitting.jobs_at_work import job
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NEAR = timedelta(minutes=1)


@asynccontextmanager
async def server(date: str) -> AsyncIterator[str]:
    """Serve anything, with this time."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({}, headers={"Date": date})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as running:
        yield str(running.make_url("")).rstrip("/")


@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_time_is_the_servers_as_its_last_answer_told_it(hours: int) -> None:
    told = datetime.now(UTC) + timedelta(hours=hours)
    async with (
        server(format_datetime(told, usegmt=True)) as url,
        ClusterSession(find_place(url, None, None, "team").configuration) as session,
    ):
        assert abs(session.now() - datetime.now(UTC)) < NEAR
        await session.ask("GET", "/", timeout=PATIENCE)
        assert abs(session.now() - told) < NEAR


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Jan 2026 00:00:00 GMT"])
async def test_a_server_that_tells_no_time_is_believed_to_have_ours(date: str) -> None:
    async with server(date) as url, ClusterSession(find_place(url, None, None, "team").configuration) as session:
        await session.ask("GET", "/", timeout=PATIENCE)
        assert abs(session.now() - datetime.now(UTC)) < NEAR


@pytest.mark.parametrize(
    ("ahead", "passes", "counted"),
    [pytest.param(3600, 1, [0, 1, 2], id="ours is late"), pytest.param(-3600, 1200, [0, 0, 0], id="ours is early")],
)
async def test_whether_a_job_is_suspended_soon_again_is_by_the_clock_of_the_server(
    ahead: float, passes: float, counted: list[int]
) -> None:
    """Each time a second after it was let in, or twenty minutes, though the clocks differ by an hour."""
    async with Sandbox() as sandbox:
        sandbox._core.clock = lambda: time.time() + ahead
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"requests.cpu": "4"})
        sandbox.create(sandbox.kind("jobs", "batch"), "team", job("loop"))
        place = find_place(sandbox.url, None, None, "team")
        path = "/apis/batch/v1/namespaces/team/jobs/loop"
        async with (
            ClusterSession(place.configuration) as session,
            Admitting(place.configuration, namespaces=("team",), kinds=(JOB,), events=False) as admitting,
        ):

            async def let_in(number: int) -> int:
                """Wait until it was let in so often, or will not be again; return how often in a row that was soon."""
                while True:
                    found = (await session.ask("GET", path, timeout=PATIENCE)).json() or {}
                    said = json.loads((found["metadata"].get("annotations") or {}).get(ADMITTED, "{}"))
                    times: int = said.get("times", 0)
                    if times == OFTEN or (admitting.counts.admitted.total() == number and not found["spec"]["suspend"]):
                        return times
                    await asyncio.sleep(0.02)

            leading = asyncio.create_task(admitting.lead())
            async with asyncio.timeout(PATIENCE):
                for number, times in enumerate(counted, 1):
                    assert await let_in(number) == times
                    ahead += passes
                    headers = {"Content-Type": "application/merge-patch+json"}
                    await session.ask("PATCH", path, {"spec": {"suspend": True}}, headers=headers, timeout=PATIENCE)
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

"""A service that tasks name is its tenant's: whatever it answers, tasks of other services go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from backoff_ctrl.k8s.tasks.plugins.web_protocol import PluginConfig, RemoteError
from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from backoff_ctrl.k8s.tasks.services.webapi.origins import Origins
from backoff_ctrl.k8s.tasks.services.webapi.pacing import Kind
from backoff_ctrl.k8s.tasks.services.webapi.settings import read_section, settings_of
from tests.kit.patience import PATIENCE
from tests.kit.virtual_tests import in_virtual_time
from tests.tasks.webapi.rest.jobs_service import LEAST, JobsService, described, running_service, task
from tests.tasks.webapi.web_bench import WebBench, web_bench

HERE = {"parameters": {**LEAST["parameters"], "url": {"type": "string"}}, "task_url": "$.custom.url"}


@asynccontextmanager
async def managed(service: JobsService) -> AsyncIterator[WebBench]:
    config = described(**HERE)
    section = {"url": service.url, "allowedHosts": ["127.0.0.1"], "caching": {"resyncInterval": "5s"}}
    async with web_bench(service.url, section=section, entry_now=lambda: entry_of(config)) as bench:
        yield bench


async def shut(_: web.Request) -> web.Response:
    return web.Response(status=429, headers={"Retry-After": "99999999"})


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("how", ["shut", "slow"])
async def test_a_server_of_one_tenant_makes_no_task_of_others_wait(method: str, how: str) -> None:
    """By asking to wait for years, or by no answer to as many calls as are made at a time."""
    over, asked = asyncio.Event(), asyncio.Event()

    async def bad(request: web.Request) -> web.StreamResponse:
        asked.set()
        if how == "slow":
            await over.wait()
        return await shut(request)

    async with (
        running_service() as own,
        running_service() as theirs,
        running_service() as bad_one,
        managed(own) as bench,
    ):
        bad_one.instead[method] = bad
        for service in (own, theirs):
            service.says("GET", json={"id": "j1", "state": "done"})
        standing = [
            asyncio.create_task(bench.end(task(f"bad-{each}", custom={"url": bad_one.url}))) for each in range(30)
        ]
        await asyncio.wait_for(asked.wait(), PATIENCE)
        for name, custom in (("own", {}), ("theirs", {"url": theirs.url})):
            assert (await bench.end(task(name, custom=custom))).info.phase.title == "Success"
        assert not any(each.done() for each in standing)
        for each in standing:
            each.cancel()
        over.set()
        await asyncio.gather(*standing, return_exceptions=True)


@in_virtual_time
async def test_a_server_that_tasks_name_has_a_share_and_asks_for_a_minute_at_most() -> None:
    settings = settings_of(read_section("jobs", {}, frozenset()), PluginConfig())
    origins = Origins(lambda: settings, lambda _: None)
    try:
        clock = asyncio.get_running_loop().time
        one, began = origins.at("team", "https://a"), clock()
        for _ in range(50):
            (await one.pacer.enter(Kind.WRITE)).end()
        assert clock() == began
        (await one.pacer.enter(Kind.WRITE)).end(RemoteError(429, "", 10.0**9))
        (await origins.own.pacer.enter(Kind.WRITE)).end()
        assert clock() - began <= 1  # its share of the rate is used up, not that of others
        (await one.pacer.enter(Kind.WRITE)).end()
        assert clock() - began <= 65  # a minute, and the jitter
    finally:
        await origins.aclose()

"""Described services under the web manager: one job a task, whatever is answered and whenever it is killed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from tests.kit.patience import PATIENCE
from tests.tasks.webapi.rest.jobs_service import FINDING, GIVEN, LEAST, JobsService, described, running_service, task
from tests.tasks.webapi.web_bench import WebBench, web_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backoff_ctrl.k8s.tasks.plugins.core import Handled
    from backoff_ctrl.k8s.tasks.services.rest.service_config import ServiceConfig

JSON = dict[str, Any]


@asynccontextmanager
async def managed(
    service: JobsService, config: ServiceConfig | list[ServiceConfig], store: Any = None, **section: Any
) -> AsyncIterator[WebBench]:
    """A manager of this service. A list of descriptions is followed: the last one is in force."""
    configs = config if isinstance(config, list) else [config]
    settings = {"url": service.url, "caching": {"resyncInterval": "5s", "maxSystemFailures": 0}, **section}
    async with web_bench(service.url, store=store, section=settings, entry_now=lambda: entry_of(configs[-1])) as bench:
        yield bench


def is_sent(service: JobsService) -> Any:
    return lambda _: service.count("POST") > 0


def said(handled: Handled) -> tuple[str, str]:
    """The phase, and the code of a failure."""
    return handled.info.phase.title, handled.info.error.code if handled.info.error else ""


async def test_a_task_ends_as_its_job_does() -> None:
    """With its outputs and links."""
    config = described(outputs={"rounds": "$.rounds"}, logs=[{"name": "page", "url": "{$.url}/{$.id}"}])
    async with running_service() as service, managed(service, config) as bench:
        service.says("GET", json={"id": "j1", "state": "done", "rounds": 3})
        ended = await bench.end(task(custom={"rounds": 3}))
        assert said(ended) == ("Success", "")
        assert ended.info.outputs == {"rounds": 3}
        assert [each.uri for each in ended.info.logs] == [f"{service.url}/j1"]


@pytest.mark.parametrize("change", [GIVEN, FINDING], ids=["given id", "look-up"])
async def test_a_kill_before_the_answer_makes_no_second_job(change: JSON) -> None:
    """The service has made the job; the next manager finds it."""
    async with running_service() as service:
        arrived, over = asyncio.Event(), asyncio.Event()

        async def never(_: web.Request) -> web.Response:
            arrived.set()
            await over.wait()
            return web.Response()

        service.instead["POST"] = never
        async with managed(service, described(**change)) as bench:
            await bench.until(task(), lambda each: (each.state or {})["stage"] == "CreateRequested")
            store = dict(bench.store)
            await bench.step(task())
            await asyncio.wait_for(arrived.wait(), PATIENCE)
            service.instead.clear()
            over.set()  # the answer comes, and is not stored
        for job in service.jobs.values():
            job["state"] = "done"
        async with managed(service, described(**change), store) as bench:
            assert said(await bench.end(task())) == ("Success", "")
        assert (len(service.jobs), service.count("POST")) == (1, 1)


@pytest.mark.parametrize("change", [GIVEN, FINDING], ids=["given id", "look-up"])
@pytest.mark.parametrize(
    "answer",
    [{"text": "<html>", "content_type": "text/html"}, {"body": b""}, {"json": {"id": "another", "tag": "another"}}],
)
async def test_a_create_whose_answer_makes_no_sense_makes_no_second_job(change: JSON, answer: JSON) -> None:
    """It is looked up, and goes on."""
    async with running_service() as service, managed(service, described(**change)) as bench:
        service.says("POST", **answer)
        handled = await bench.until(
            task(), lambda each: each.info.phase.title == "Queued" and bool(service.count("GET"))
        )
        assert said(handled) == ("Queued", "")
        assert (len(service.jobs), service.count("POST")) == (1, 1)


async def test_a_create_in_doubt_is_not_repeated_where_it_would_double() -> None:
    """One sentence says so, with what the service answered."""
    async with running_service() as service, managed(service, described()) as bench:
        service.says("POST", text="<html>", content_type="text/html")
        ended = await bench.end(task())
        assert said(ended) == ("PermanentFailure", "CreateInDoubt")
        assert "create of uid-train-0: the answer makes no sense: it is an HTML page and no JSON" in ended.info.reason
        assert service.count("POST") == 1


async def test_reads_that_make_no_sense_end_the_attempt_with_their_sentence() -> None:
    """And other tasks go on."""
    async with running_service() as service, managed(service, described()) as bench:

        async def one_is_bad(request: web.Request) -> web.Response:
            if request.path == "/jobs/j1":
                return web.json_response({"id": "j2", "state": "done"})
            return web.json_response({"id": "j2", "state": "done"})

        service.instead["GET"] = one_is_bad
        ended = await bench.end(task("one"))
        assert said(ended) == ("RetryableFailure", "RefreshFailed")
        assert (
            "get of uid-one-0: the answer makes no sense: it is about another job: $.id is 'j2' instead of 'j1'"
            in ended.info.reason
        )
        assert said(await bench.end(task("two"))) == ("Success", "")


@pytest.mark.long
async def test_a_changed_description_needs_no_restart() -> None:
    """A job that is followed is read by the new one."""
    configs = [described()]
    async with running_service() as service, managed(service, configs) as bench:
        service.says("GET", json={"id": "j1", "state": "finished"})
        handled = await bench.until(task(), lambda each: "finished" in each.info.reason)
        assert said(handled) == ("Running", "")
        configs.append(described(states={**LEAST["states"], "finished": {"phase": "Success"}}))
        assert said(await bench.end(task())) == ("Success", "")


async def test_an_address_that_is_not_set_is_waited_for() -> None:
    """Nothing is in doubt, it costs no retry, and the reason names the setting."""
    settings: JSON = {}
    async with (
        running_service() as service,
        web_bench("", section=lambda: settings, entry_now=lambda: entry_of(described())) as bench,
    ):
        said_so: list[str] = []

        def says_it_twice(handled: Handled) -> bool:
            assert not handled.info.phase.is_terminal
            if "plugins.jobs.url: the address of the service is not set; it is tried again" in handled.info.reason:
                said_so.append(handled.info.reason)
            return len(said_so) > 1

        await bench.until(task(), says_it_twice)
        settings["url"] = service.url
        service.says("GET", json={"id": "j1", "state": "done"})
        assert said(await bench.end(task())) == ("Success", "")


async def test_an_abort_cancels_the_job() -> None:
    """By the request of the description."""
    async with running_service() as service, managed(service, described()) as bench:
        await bench.until(task(), is_sent(service))
        aborted = await bench.abort(task())
        assert said(aborted) == ("Aborted", "")
        assert service.jobs["j1"]["state"] == "cancelled"

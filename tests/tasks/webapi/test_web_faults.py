"""A plugin or a service that does wrong things: no job is doubled or leaked, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from backoff_ctrl.k8s.tasks.plugins.phases import TaskLog, aborted, failed, running, waiting
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_protocol import PluginConfig, PluginSetup, RateLimit, RemoteError
from backoff_ctrl.k8s.tasks.services.webapi.service import Service, WebCounts
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import until

from .jobs_service import FindingPlugin, JobsPlugin, JobsService
from .web_bench import WebBench, context, web_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backoff_ctrl.k8s.tasks.plugins.core import Handled


@pytest.fixture
async def service() -> JobsService:
    return JobsService()


@pytest.fixture
async def url(service: JobsService) -> AsyncIterator[str]:
    async with service.running() as url:
        yield url


def is_running(said: Handled) -> bool:
    return said.info.phase.title == "Running"


async def staged(bench: WebBench, task: Any, stage: str = "ResourcesCreated") -> None:
    """Make steps until the attempt is in this stage."""
    await bench.until(task, lambda each: (each.state or {})["stage"] == stage)


async def test_an_unknown_state_in_the_answer_to_a_create_keeps_the_job(service: JobsService, url: str) -> None:
    """It was created, so it is followed, and deleted by an abort."""
    async with web_bench(url) as bench:
        task = context(custom={"state": "UPGRADING", "shows": True})
        await bench.until(task, lambda each: "UPGRADING" in each.info.reason)
        service.become("RUNNING")
        await bench.until(task, lambda each: each.info.phase.title == "Running")
        await bench.abort(task)
    assert service.jobs == {}
    assert service.calls["POST"] == 1


@pytest.mark.parametrize("after", [float("nan"), float("inf"), -5.0, "soon"])
async def test_a_retry_after_of_nonsense_is_none(service: JobsService, url: str, after: Any) -> None:
    """The job is read again."""

    class Odd(JobsPlugin):
        async def get(self, context: Any, meta: Any) -> Any:
            found = await super().get(context, meta)
            if found["state"] == "BUSY":
                service.become("RUNNING")
                raise RemoteError(503, "busy", after)
            return found

    async with web_bench(url, Odd) as bench:
        task = context(custom={"state": "BUSY"})
        await bench.until(task, lambda each: each.info.phase.title == "Running")


async def test_a_read_that_cancels_itself_is_made_again(service: JobsService, url: str) -> None:
    """As one of gRPC does whose channel was closed."""

    class Cancelling(JobsPlugin):
        async def get(self, context: Any, meta: Any) -> Any:
            found = await super().get(context, meta)
            if found["state"] == "PENDING":
                service.become("RUNNING")
                raise asyncio.CancelledError
            return found

    async with web_bench(url, Cancelling) as bench:
        await bench.until(context(), lambda each: each.info.phase.title == "Running")


async def test_a_finalize_does_not_wait_for_a_delete_that_keeps_failing(service: JobsService, url: str) -> None:
    """It holds a worker of the reconciler. It raises, and is made again at news of the delete."""
    section = {"caching": {"maxSystemFailures": 0, "resyncInterval": "5s"}}
    async with web_bench(url, section=section) as bench:
        task = context(custom={"state": "RUNNING"})
        await staged(bench, task)
        service.answer = lambda *_: web.Response(status=500, text="broken")
        ended = await bench.until(task, lambda each: each.info.phase.is_terminal)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(RuntimeError, match="its job can't be deleted now: 500: broken"):
                await bench.plugin.finalize(task, ended.state)
        service.answer = lambda *_: None
        bench.woken["a", 0].clear()
        await bench.news(("a", 0))
        while service.jobs:
            await bench.news(("a", 0))
        await bench.plugin.finalize(task, ended.state)
    assert service.jobs == {}


async def test_a_failed_attempt_that_does_not_know_it_is_aborted_by_its_finalize(
    service: JobsService, url: str
) -> None:
    """As after steps that kept failing: the state is that before the end."""
    async with web_bench(url) as bench:
        task = context(custom={"state": "RUNNING"})
        await staged(bench, task)
        await bench.plugin.finalize(task, bench.store["a", 0][1])
    assert service.jobs == {}


async def test_an_abort_does_not_wait_for_a_service_that_hangs(service: JobsService, url: str) -> None:
    """It says so; the answer, when it comes, is what ends the job."""
    service.hold = asyncio.Event()
    async with web_bench(url, section={"callTimeout": "1h"}) as bench:
        task = context()
        await staged(bench, task, "CreateRequested")
        await bench.step(task)
        await service.held.wait()
        async with asyncio.timeout(PATIENCE):
            said = await bench.plugin.abort(task, bench.store["a", 0][1])
        assert not said.info.phase.is_terminal
        service.hold.set()
        assert (await bench.abort(task)).info.phase.title == "Aborted"
    assert service.jobs == {}
    assert service.calls["POST"] == 1


async def test_an_abort_that_is_repeated_does_not_begin_its_look_up_anew(service: JobsService, url: str) -> None:
    """The reconciler comes each second; a look-up may take longer."""
    async with web_bench(url, FindingPlugin) as bench:
        task = context()
        await staged(bench, task, "CreateRequested")
        store = dict(bench.store)
    service.jobs["a/0"] = {"id": "a/0", "state": "RUNNING"}
    service.hold = asyncio.Event()
    async with web_bench(url, FindingPlugin, store=store) as bench:
        await bench.plugin.abort(task, bench.store["a", 0][1])
        await until(lambda: service.calls["GET"])
        for _ in range(2):
            await bench.plugin.abort(task, bench.store["a", 0][1])
        service.hold.set()
        assert (await bench.abort(task)).info.phase.title == "Aborted"
    assert service.calls["GET"] == 1
    assert service.jobs == {}
    assert service.calls["POST"] == 0


async def test_an_abort_whose_look_up_finds_nothing_creates_nothing(service: JobsService, url: str) -> None:
    async with web_bench(url, FindingPlugin) as bench:
        task = context()
        await staged(bench, task, "CreateRequested")
        store = dict(bench.store)
    async with web_bench(url, FindingPlugin, store=store) as bench:
        assert (await bench.abort(task)).info.phase.title == "Aborted"
    assert service.calls["POST"] == 0


class Misreading(JobsPlugin):
    """One that fails after the service has made the job."""

    async def create(self, context: Any) -> Any:
        await super().create(context)
        raise KeyError("jobId")


class MisreadingFinder(Misreading, FindingPlugin):
    pass


async def test_a_create_whose_answer_is_misread_is_not_made_as_another_attempt(service: JobsService, url: str) -> None:
    """Its job may exist; a further attempt would have another key, and double it."""
    async with web_bench(url, Misreading) as bench:
        ended = await bench.end(context())
    assert ended.info.phase.title == "PermanentFailure"
    assert "plugin jobs failed in create: KeyError: 'jobId'" in ended.info.reason
    assert service.calls["POST"] == 1


async def test_a_create_whose_answer_is_misread_is_looked_up(service: JobsService, url: str) -> None:
    async with web_bench(url, MisreadingFinder) as bench:
        await staged(bench, context())
    assert service.calls["POST"] == 1


async def test_a_refusal_of_a_repeated_create_is_no_reason_for_another_attempt(service: JobsService, url: str) -> None:
    """The first create was sent and not answered: its job may exist."""
    answers = [web.Response(status=401, text="expired"), web.Response(status=500, text="?")]
    service.answer = lambda *_: answers.pop() if answers else None
    async with web_bench(url) as bench:
        ended = await bench.end(context())
    assert ended.info.error is not None
    assert (ended.info.phase.title, ended.info.error.code) == ("PermanentFailure", "CreateInDoubt")
    assert "401: expired" in ended.info.reason


@pytest.mark.parametrize("said", [waiting("no room there"), aborted("cancelled there")])
async def test_a_phase_that_is_not_a_services_to_say_is_a_bug(url: str, said: Any) -> None:
    """A task that waits may be given up, and one that was aborted had a user who asked for it."""

    class Odd(JobsPlugin):
        def status(self, context: Any, resource: Any) -> Any:
            return said

    async with web_bench(url, Odd) as bench:
        told = await bench.until(context(), lambda each: "failed in status" in each.info.reason)
    assert told.info.phase.title == "Queued"


@pytest.mark.parametrize(
    "config",
    [
        PluginConfig(read_rate_limiter=RateLimit(0, 0)),
        PluginConfig(write_rate_limiter=RateLimit(float("nan"), 5)),
        PluginConfig(resource_quotas={"default": -1}),
        PluginConfig(project="many"),  # type: ignore[arg-type]
        PluginConfig(read_rate_limiter=None),  # type: ignore[arg-type]
    ],
)
async def test_a_plugin_with_impossible_defaults_is_not_loaded(url: str, config: PluginConfig) -> None:
    class Odd(JobsPlugin):
        def get_config(self) -> PluginConfig:
            return config

    async with web_bench(url, Odd) as bench:
        ended = await bench.end(context())
    assert ended.info.reason.startswith("plugin jobs can't be loaded: ")


async def test_an_overloaded_service_fails_no_job_by_its_reads(service: JobsService, url: str) -> None:
    """A 429 or 503 says nothing about the job, as a network fault does not."""
    async with web_bench(url, section={"caching": {"maxSystemFailures": 0}}) as bench:
        task = context(custom={"state": "RUNNING"})
        await staged(bench, task)
        service.answer = lambda *_: web.Response(status=503, text="restarting")
        told = await bench.until(task, lambda each: "restarting" in each.info.reason)
        assert not told.info.phase.is_terminal
        service.answer = lambda *_: None
        await bench.until(task, lambda each: each.info.phase.title == "Running")


async def test_an_unreadable_state_survives_an_abort(url: str) -> None:
    """It is all that is known of the job; and the message says that the job may live."""
    async with web_bench(url) as bench:
        newer = {"version": 2, "stage": "ResourcesCreated", "meta": {"id": "a/0"}}
        ended = await bench.plugin.abort(context(), newer)
    assert ended.state == newer
    assert "its job may still run" in ended.info.reason


async def test_who_waits_for_a_followed_job_to_end_goes_on_at_once(service: JobsService, url: str) -> None:
    """Without a wake it would wait until it is looked at anyway, half a minute later."""
    async with web_bench(url, section={"caching": {"size": 10}}) as bench:
        for number in range(5):  # as many as they leave free
            await staged(bench, context(f"job-{number}", custom={"state": "RUNNING"}))
        late = context("late")
        await bench.until(late, lambda each: "10 may be followed (plugins.jobs.caching.size)" in each.info.reason)
        bench.woken["late", 0].clear()
        await bench.abort(context("job-3"))
        async with asyncio.timeout(PATIENCE):
            await bench.news(("late", 0))
        await staged(bench, late)


async def test_a_namespace_whose_jobs_go_on_leaves_room_for_the_jobs_of_others(url: str) -> None:
    """Its jobs were followed before any other's, and those of all others waited until one of them ended."""
    async with web_bench(url, section={"caching": {"size": 10}}) as bench:
        greedy = [context(f"job-{number}", custom={"state": "RUNNING"}) for number in range(30)]
        steps = [asyncio.create_task(bench.until(each, is_running)) for each in greedy]
        for tenant in ("a", "b", "c"):  # each has at least one of those that the others leave free
            one = context(f"job-{tenant}", namespace=tenant, custom={"state": "RUNNING"})
            await bench.until(one, is_running)
        assert sum(each.done() for each in steps) == 5
        for each in steps:
            each.cancel()
        await asyncio.gather(*steps, return_exceptions=True)


async def test_jobs_that_exist_already_are_followed_whatever_room_there_is(url: str) -> None:
    """Else a restart with another size would leave them unread, and no other may come instead of them."""
    tasks = [context(f"job-{number}", custom={"state": "RUNNING"}) for number in range(20)]
    async with web_bench(url, section={"caching": {"size": 100}}) as bench:
        for each in tasks:
            await bench.until(each, is_running)
    async with web_bench(url, section={"caching": {"size": 10}}, store=bench.store) as again:
        for each in tasks:
            await again.until(each, is_running)
        late = context("late", namespace="other")
        await again.until(late, lambda each: "10 may be followed (plugins.jobs.caching.size)" in each.info.reason)
        for each in tasks[:10]:
            await again.abort(each)
            assert again.store["late", 0][1]["stage"] == "AllocationTokenAcquired"
            assert (await again.step(late)).info.phase.title == "Queued"
        await again.abort(tasks[10])
        await staged(again, late)


async def test_a_larger_size_lets_those_that_wait_in(url: str) -> None:
    section: dict[str, Any] = {"caching": {"size": 10}}
    async with web_bench(url, section=lambda: section) as bench:
        tasks = [context(f"job-{number}", custom={"state": "RUNNING"}) for number in range(8)]
        for each in tasks[:5]:
            await staged(bench, each)
        for each in tasks[5:]:
            await bench.until(each, lambda said: "may be followed" in said.info.reason)
        section = {"caching": {"size": 20}}
        for each in tasks:
            await bench.until(each, is_running)


async def test_settings_that_are_the_same_are_not_adopted_anew() -> None:
    """Of a plugin without a section each call returns another empty one, and every step asks."""
    service = Service(WebPluginEntry("jobs", ("job",), lambda setup: JobsPlugin(setup, "")), dict, WebCounts(), print)
    service.load()
    adopted = service.follow_settings()
    await service.aclose()
    assert not adopted


async def test_a_job_that_ran_runs_on_while_another_manager_has_not_read_it(service: JobsService, url: str) -> None:
    """It is not queued again: its history and its time would begin anew with each restart."""
    async with web_bench(url) as bench:
        task = context(custom={"state": "RUNNING"})
        await bench.until(task, lambda each: each.info.phase.title == "Running")
    service.answer = lambda *_: web.Response(status=503, text="away")
    async with web_bench(url, store=bench.store) as again:
        told = await again.until(task, lambda each: "away" in each.info.reason)
    assert told.info.phase.title == "Running"


async def test_a_services_text_is_one_line_of_the_log(
    service: JobsService, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with web_bench(url) as bench:
        task = context()
        await staged(bench, task)
        left = [1, 2, 3]
        service.answer = lambda *_: (
            web.Response(status=500, text="a\nINFO all is well") if left and left.pop() else None
        )
        await bench.abort(task)
    (said,) = [each.getMessage() for each in caplog.records if "can't be deleted" in each.getMessage()]
    assert "500: a?INFO all is well" in said


def test_a_code_is_cut() -> None:
    """It is stored, shown and a label of metrics; and a service may write any length."""
    error = failed("x" * 10_000, "no").error
    assert error is not None
    assert error.code == "x" * 200


async def test_a_text_that_is_no_text_is_stored_all_the_same(service: JobsService, url: str) -> None:
    """JSON may escape half of a surrogate pair; no store takes it, and the step would fail for ever."""

    class Odd(JobsPlugin):
        async def create(self, context: Any) -> Any:
            raise RemoteError(400, "no \ud800")

    async with web_bench(url, Odd) as bench:
        ended = await bench.end(context())
    assert ended.info.reason.endswith("400: no ?")
    assert ended.info.error is not None
    ended.info.error.message.encode()
    json.dumps(ended.state, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"logs": None},
        {"logs": (TaskLog("log", 5),)},  # type: ignore[arg-type]
        {"logs": (TaskLog("log", "\ud800"),)},
        {"next_try_at": "soon"},
        {"wait": "for ever"},
    ],
    ids=str,
)
async def test_a_phase_that_can_not_be_stored_is_a_bug(url: str, wrong: Any) -> None:
    class Odd(JobsPlugin):
        def status(self, context: Any, resource: Any) -> Any:
            return replace(running(), **wrong)

    async with web_bench(url, Odd) as bench:
        await bench.until(context(custom={"shows": True}), lambda each: "failed in status" in each.info.reason)


async def test_a_plugin_that_was_replaced_is_closed_with_the_one_that_follows() -> None:
    """Not before: calls may be under way through it."""
    closed: list[int] = []

    class Closing(JobsPlugin):
        def __init__(self, setup: PluginSetup, number: int) -> None:
            super().__init__(setup, "")
            self._number = number

        async def aclose(self) -> None:
            closed.append(self._number)

    def made_of(number: int) -> WebPluginEntry:
        return WebPluginEntry("jobs", ("job",), lambda setup: Closing(setup, number), made_of=number)

    service = Service(made_of(1), dict, WebCounts(), print)
    service.load()
    service.follow_entry(made_of(1))
    service.follow_entry(made_of(2))
    assert closed == []
    await service.aclose()
    assert closed == [1, 2]

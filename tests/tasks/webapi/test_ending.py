"""A job that its service does not end is given up: its task says what may still run, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import CoreSetup
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_protocol import Created, RemoteError, SecretError
from backoff_ctrl.k8s.tasks.services.webapi.ending import Ending, Patience, is_hopeless
from backoff_ctrl.k8s.tasks.services.webapi.manager import WebManager
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.kit.virtual_tests import in_virtual_time
from tests.tasks.tasks_written import NAMESPACE, until, wish
from tests.tasks.webapi.jobs_service import FindingPlugin, JobsPlugin, JobsService
from tests.tasks.webapi.web_bench import WebBench, context, web_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backoff_ctrl.k8s.tasks.store import Stored

ONCE = datetime(2026, 1, 1, tzinfo=UTC)
SOON = Patience(hopeless=0.1, failing=0.2)
BUSY = RemoteError(500, "no")
REFUSED = RemoteError(405, "no")
LOST = SecretError("spec.secrets.TOKEN: secret team/token does not exist")
CREATED = {"version": 1, "core": "webapi", "plugin": "jobs", "stage": "ResourcesCreated", "phase": 3, "meta": {"id": 1}}


@pytest.mark.parametrize(
    ("error", "hopeless"),
    [
        *((RemoteError(status, ""), True) for status in (302, 400, 401, 403, 405, 422, 501)),
        *((RemoteError(status, ""), False) for status in (408, 409, 423, 425, 429, 500, 502, 503, 504)),
        (LOST, True),
        (TaskSpecError("spec.custom", "none"), True),
        (aiohttp.ClientError(), False),
        (TimeoutError(), False),
        (ConnectionRefusedError(), False),
        (ValueError("a bug"), False),
    ],
)
def test_what_another_try_would_not_change(error: Exception, hopeless: bool) -> None:
    assert is_hopeless(error) is hopeless


@pytest.mark.parametrize(
    ("errors", "every", "since", "ends"),
    [
        ([REFUSED], 1, 0, 60),
        ([REFUSED], 40, 0, 80),  # three tries at least
        ([BUSY], 1, 0, 600),
        ([BUSY] * 59 + [REFUSED], 1, 0, 600),  # one refusal among failures says little
        ([BUSY] * 100 + [REFUSED] * 1000, 1, 0, 160),  # a minute of nothing else
        ([BUSY], 1, -590, 60),  # the end was asked for in another process: a minute of tries here
        ([BUSY], 1, -300, 300),
        ([BUSY], 1, 10**9, 600),  # a time that has been written by others, or by a clock that was set back
    ],
)
def test_how_long_a_job_is_tried_to_be_ended(errors: list[Exception], every: int, since: float, ends: int) -> None:
    time = 0.0
    ending = Ending(Patience(), -since, lambda: time)
    for number in range(2000):
        time = number * every
        ending.failed(errors[number % len(errors)])
        if ending.is_given_up:
            break
    assert time == ends


class Endless(JobsPlugin):
    """A plugin whose service can't be asked for anything but errors."""

    error: Exception = BUSY

    async def create(self, context: Any) -> Created:
        raise self.error

    async def delete(self, context: Any, meta: Any, reason: str) -> None:
        raise self.error


class EndlessLooks(Endless):
    """One that can't even look its jobs up."""

    async def find(self, context: Any) -> Created | None:
        raise self.error


class Unloadable(JobsPlugin):
    """One whose settings are wrong, say."""

    def __init__(self, *_: Any) -> None:
        raise self.error

    error: Exception


def raising(error: Exception, plugin: type[JobsPlugin] = Endless) -> type[JobsPlugin]:
    return type("Raising", (plugin,), {"error": error})


def virtual_now() -> datetime:
    return ONCE + timedelta(seconds=asyncio.get_running_loop().time())


async def seconds_of(doing: Callable[[], Any]) -> tuple[Any, float]:
    began = asyncio.get_running_loop().time()
    done = await doing()
    return done, asyncio.get_running_loop().time() - began


async def finalized(bench: WebBench, task: Any) -> str:
    """Finalize as the reconciler does, again and again."""
    while True:
        try:
            return await bench.plugin.finalize(task, bench.store["a", 0][1]) or ""
        except RuntimeError:
            await asyncio.sleep(1)


async def aborted_again_and_again(bench: WebBench, task: Any) -> str:
    """Abort as the reconciler does where no news comes."""
    while not (ended := await bench.plugin.abort(task, bench.store["a", 0][1])).info.phase.is_terminal:
        assert ended.state is not None
        bench.store["a", 0] = task, ended.state
        await asyncio.sleep(1)
    return ended.left


@pytest.mark.parametrize("how", ["abort", "finalize"])
@pytest.mark.parametrize(
    ("error", "seconds"), [(REFUSED, 60), (LOST, 60), (RemoteError(403, "no"), 60), (BUSY, 600), (TimeoutError(), 600)]
)
@in_virtual_time
async def test_a_job_is_given_up(error: Exception, seconds: int, how: str) -> None:
    """At the end of an attempt that was aborted, and of one that failed; with what may still run, and why."""
    task, state = context(), CREATED
    if how == "finalize":
        state = {**CREATED, "phase": 8, "cleanup": True, "error": {"code": "RefreshFailed", "message": ""}}
    async with web_bench("", raising(error), store={("a", 0): (task, state)}, now=virtual_now) as bench:
        if how == "abort":
            ended, took = await seconds_of(lambda: bench.abort(task, 1e6))
            assert ended.info.phase.title == "Aborted"
            assert ended.left in ended.info.reason
            left = ended.left
        else:
            left, took = await seconds_of(lambda: finalized(bench, task))
    assert seconds <= took <= seconds + 31
    assert 'job {"id": 1} of plugin jobs may still run: ending it failed ' in left
    assert str(error) in left


@pytest.mark.parametrize("hours", [-1, 1])
@in_virtual_time
async def test_the_time_for_an_end_is_no_other_where_the_clock_is_set_meanwhile(hours: int) -> None:
    def now() -> datetime:
        return virtual_now() + timedelta(hours=hours if asyncio.get_running_loop().time() > 10 else 0)

    task = context()
    async with web_bench("", raising(BUSY), store={("a", 0): (task, CREATED)}, now=now) as bench:
        _, took = await seconds_of(lambda: bench.abort(task, 1e6))
    assert 600 <= took <= 631


@in_virtual_time
async def test_a_restart_does_not_begin_the_time_anew_but_tries_for_a_minute() -> None:
    task = context()
    store = {("a", 0): (task, CREATED)}
    async with web_bench("", raising(BUSY), store=store, now=virtual_now) as bench:
        with suppress(TimeoutError):
            await bench.abort(task, 590)
    await asyncio.sleep(3600)
    async with web_bench("", raising(BUSY), store=store, now=virtual_now) as bench:
        _, took = await seconds_of(lambda: bench.abort(task, 1e6))
    assert 60 <= took <= 91


@in_virtual_time
async def test_a_failed_attempt_has_the_time_of_its_end_in_its_state() -> None:
    """Finalize stores nothing, so a manager that is started again would begin the time anew."""

    class Broken(JobsPlugin):
        async def get(self, context: Any, meta: Any) -> Any:
            raise RemoteError(400, "broken")

    task = context()
    section = {"caching": {"maxSystemFailures": 0}}
    async with web_bench("", Broken, store={("a", 0): (task, CREATED)}, now=virtual_now, section=section) as bench:
        ended = await bench.until(task, lambda each: each.info.phase.is_terminal)
        assert ended.info.cleanup_on_failure
        assert ended.state is not None
        assert ended.state["ending"] == virtual_now().timestamp()


@pytest.mark.parametrize("plugin", [Endless, EndlessLooks])
@pytest.mark.parametrize(("error", "seconds"), [(LOST, 60), (BUSY, 600)])
@in_virtual_time
async def test_a_create_in_doubt_is_given_up(plugin: type[JobsPlugin], error: Exception, seconds: int) -> None:
    """A killed manager may have sent it; whether there is a job can't be looked up, or only by another create."""
    task = context()
    store = {("a", 0): (task, {**CREATED, "stage": "CreateRequested", "meta": None})}
    async with web_bench("", raising(error, plugin), store=store, now=virtual_now) as bench:
        ended, took = await seconds_of(lambda: bench.abort(task, 1e6))
    assert ended.info.phase.title == "Aborted"
    if plugin is Endless and error is LOST:
        assert took < 60  # such a create ends by itself
        return
    assert seconds <= took <= seconds + 31
    assert "a job with the key a/0 of plugin jobs may still run" in ended.left
    assert ended.state is not None
    assert ended.state["doubt"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["abort", "finalize"])
@in_virtual_time
async def test_a_plugin_that_can_not_be_loaded_keeps_no_task_for_ever(how: str) -> None:
    task = context()
    broken = raising(ValueError("no such setting"), Unloadable)
    async with web_bench("", broken, store={("a", 0): (task, CREATED)}, now=virtual_now) as bench:
        if how == "finalize":
            left, took = await seconds_of(lambda: finalized(bench, task))
        else:
            left, took = await seconds_of(lambda: aborted_again_and_again(bench, task))
    assert 600 <= took <= 602
    assert "no such setting" in left


@pytest.mark.parametrize("how", ["abort", "finalize"])
@in_virtual_time
async def test_a_plugin_that_is_gone_keeps_no_task_for_ever(how: str) -> None:
    """It was disabled, or its name serves other tasks now; a status that somebody wrote names it, too."""

    def none() -> WebPluginEntry:
        raise PluginError("plugin jobs, which runs this task, is not enabled: enable it")

    task, state = context(), CREATED
    if how == "finalize":
        state = {**CREATED, "phase": 8, "cleanup": True, "error": {"code": "RefreshFailed", "message": ""}}
    async with web_bench("", store={("a", 0): (task, state)}, now=virtual_now, entry_now=none) as bench:
        if how == "finalize":
            left, took = await seconds_of(lambda: finalized(bench, task))
        else:
            left, took = await seconds_of(lambda: aborted_again_and_again(bench, task))
    assert 600 <= took <= 602
    assert 'job {"id": 1} of plugin jobs may still run: ending it failed ' in left
    assert "is not enabled" in left


@in_virtual_time
async def test_a_service_that_is_mended_in_time_ends_the_job() -> None:
    class Mended(JobsPlugin):
        async def delete(self, context: Any, meta: Any, reason: str) -> None:
            if asyncio.get_running_loop().time() < 500:
                raise BUSY

    task = context()
    async with web_bench("", Mended, store={("a", 0): (task, CREATED)}, now=virtual_now) as bench:
        ended, took = await seconds_of(lambda: bench.abort(task, 1e6))
    assert (ended.info.reason, ended.left) == ("aborted: its job was deleted", "")
    assert 500 <= took <= 531


@in_virtual_time
async def test_nothing_is_tried_once_a_job_is_given_up() -> None:
    tried = list[float]()

    class Counted(JobsPlugin):
        async def delete(self, context: Any, meta: Any, reason: str) -> None:
            tried.append(asyncio.get_running_loop().time())
            raise REFUSED

    task = context()
    async with web_bench("", Counted, store={("a", 0): (task, CREATED)}, now=virtual_now) as bench:
        await bench.abort(task, 1e6)
        before = len(tried)
        await asyncio.sleep(1000)
    assert len(tried) == before


@asynccontextmanager
async def managed(store: SqliteStore, url: str, plugin: type[JobsPlugin]) -> AsyncIterator[None]:
    """Carry the tasks of a store outside a cluster out, with little patience."""
    entry = WebPluginEntry("jobs", ("job",), lambda setup: plugin(setup, url))
    section = {"caching": {"maxSystemFailures": 0}}

    def make(store: str, wake: Any, may_create: Any, unfinished: Any) -> WebManager:
        setup = CoreSetup(store, wake, may_create, unfinished, configuration=None, settings=lambda _: section)
        return WebManager(lambda *_: entry, setup, patience=SOON)

    work = asyncio.create_task(Manager(store, make, K8sPluginConfig).run())
    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


@pytest.mark.long
@pytest.mark.parametrize("how", ["aborted", "failed"])
async def test_a_task_outside_the_cluster_says_what_may_still_run(tmp_path: Path, how: str) -> None:
    """An aborted one, and one that failed: that has no further attempt, which would run beside the first."""
    service = JobsService()
    service.answer = lambda method, _: web.Response(status=405, text="no") if method == "DELETE" else None
    state = "RUNNING" if how == "aborted" else "GONE"  # which its plugin does not know
    async with service.running() as url, SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("one", type="job", container=None, custom={"state": state})])

        async def stored() -> Stored:
            return await store.get(NAMESPACE, "one")

        async def has_begun() -> bool:
            return (await stored()).status.phase in ("Running", "RetryableFailure", "PermanentFailure")

        async def is_over() -> bool:
            return not (await stored()).open

        async with managed(store, url, FindingPlugin):
            await until(has_begun)
            if how == "aborted":
                await store.request_abort(NAMESPACE, "one")
            await until(is_over)
        status = (await stored()).status
    assert (status.phase, status.attempt) == ("Aborted" if how == "aborted" else "PermanentFailure", 0)
    assert "of plugin jobs may still run: ending it failed" in status.reason
    assert "405: no" in status.reason
    assert len(service.jobs) == 1

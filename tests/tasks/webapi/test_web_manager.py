"""The life of an attempt at a web API plugin: once, whatever is killed; whose failure; the end of its job."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, success
from backoff_ctrl.k8s.tasks.plugins.web_protocol import PluginConfig, SyncPlugin
from backoff_ctrl.k8s.tasks.services.webapi.hosts import is_allowed

from .jobs_service import FindingPlugin, JobsPlugin, JobsService, OncePlugin
from .web_bench import WebBench, context, web_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FAST = {"caching": {"resyncInterval": "5s"}}


@pytest.fixture
async def service() -> JobsService:
    return JobsService()


@pytest.fixture
async def url(service: JobsService) -> AsyncIterator[str]:
    async with service.running() as url:
        yield url


async def created(bench: WebBench, task: Any) -> None:
    """Make steps until the job exists and is known."""
    await bench.until(task, lambda each: (each.state or {})["stage"] == "ResourcesCreated")


async def test_a_job_is_created_once_read_and_its_end_is_the_tasks(service: JobsService, url: str) -> None:
    """With the outputs that the plugin reports; its job stays where it is."""
    async with web_bench(url) as bench:
        task = context(custom={"shows": True})
        await created(bench, task)
        service.become("SUCCEEDED")
        await bench.plugin.finalize(context("other"), None)
        async with web_bench(url, store=bench.store) as again:  # another manager reads it at once
            ended = await again.end(task)
    assert ended.info.outputs == {"id": "a/0"}
    assert (service.calls["POST"], service.calls["DELETE"]) == (1, 0)
    assert bench.phases["a", 0] == ["Queued"]
    assert ended.state is not None
    assert ended.state["stage"] == "Succeeded"


@pytest.mark.parametrize(
    ("state", "phase", "stage"),
    [
        ("SUCCEEDED", "Success", "Succeeded"),
        ("FAILED", "PermanentFailure", "UserFailure"),
        ("LOST", "RetryableFailure", "SystemFailure"),
    ],
)
async def test_a_state_in_the_answer_to_the_create_counts_at_once(url: str, state: str, phase: str, stage: str) -> None:
    async with web_bench(url) as bench:
        ended = await bench.end(context(custom={"state": state, "shows": True}))
    assert (ended.info.phase.title, (ended.state or {})["stage"]) == (phase, stage)


@pytest.mark.parametrize("shows", [True, False])
async def test_a_job_that_begins_is_said_to_run_long_before_the_next_interval(
    service: JobsService, url: str, shows: bool
) -> None:
    """Whether or not the answer to its create had a state; until then its sentence is about the job that there is."""
    async with web_bench(url, section={"caching": {"resyncInterval": "1h"}}) as bench:
        task = context(custom={"shows": shows})
        await created(bench, task)
        waits = await bench.step(task)
        assert (waits.info.phase.title, "about to be created" in waits.info.reason) == ("Queued", False)
        service.become("RUNNING")
        begun = await bench.until(task, lambda each: each.info.phase.title == "Running")
    assert begun.info.reason == "runs there"


async def test_a_phase_without_a_reason_has_one_until_the_job_runs(service: JobsService, url: str) -> None:
    """The sentence of the step before would be shown, and be wrong."""

    class Silent(JobsPlugin):
        def status(self, context: Any, resource: Any) -> PhaseInfo:
            return replace(super().status(context, resource), reason="")

    async with web_bench(url, Silent) as bench:
        task = context(custom={"shows": True})
        await created(bench, task)
        assert (await bench.step(task)).info.reason == "its job was created, and has not begun yet"
        service.become("RUNNING")
        begun = await bench.until(task, lambda each: each.info.phase.title == "Running")
    assert begun.info.reason == ""


async def test_the_create_is_stored_before_it_is_sent(service: JobsService, url: str) -> None:
    """The stage that says so is returned, and nothing is sent before the manager comes back with it."""
    async with web_bench(url) as bench:
        task = context()
        await bench.until(task, lambda each: (each.state or {})["stage"] == "CreateRequested")
        assert service.calls["POST"] == 0
        await created(bench, task)
    assert service.calls["POST"] == 1


async def killed_in_the_create(service: JobsService, url: str, plugin: type[JobsPlugin], *, stored: bool) -> Any:
    """Return the store of a manager that was killed after it had sent a create; ``stored``: the service has the job."""
    task = context()
    async with web_bench(url, plugin) as bench:
        await bench.until(task, lambda each: (each.state or {})["stage"] == "CreateRequested")
        store = dict(bench.store)
    if stored:
        service.jobs["a/0"] = {"id": "a/0", "state": "RUNNING"}
    service.calls.clear()
    return store


@pytest.mark.parametrize("stored", [True, False])
async def test_after_a_kill_a_create_that_may_be_repeated_is_repeated(
    service: JobsService, url: str, stored: bool
) -> None:
    store = await killed_in_the_create(service, url, JobsPlugin, stored=stored)
    async with web_bench(url, store=store) as bench:
        await created(bench, context())
    assert service.calls["POST"] == 1
    assert list(service.jobs) == ["a/0"]


@pytest.mark.parametrize("stored", [True, False])
async def test_after_a_kill_a_plugin_that_can_look_finds_its_job(service: JobsService, url: str, stored: bool) -> None:
    store = await killed_in_the_create(service, url, FindingPlugin, stored=stored)
    async with web_bench(url, FindingPlugin, store=store) as bench:
        await created(bench, context())
    assert service.calls["POST"] == (0 if stored else 1)
    assert list(service.jobs) == ["a/0"]


async def test_after_a_kill_a_create_that_would_double_ends_in_doubt(service: JobsService, url: str) -> None:
    store = await killed_in_the_create(service, url, OncePlugin, stored=True)
    async with web_bench(url, OncePlugin, store=store) as bench:
        ended = await bench.end(context())
    assert ended.info.error is not None
    assert (ended.info.error.code, ended.info.error.kind, ended.info.phase.title) == (
        "CreateInDoubt", "SYSTEM", "PermanentFailure",
    )  # fmt: skip
    assert service.calls["POST"] == 0


@pytest.mark.parametrize(
    ("status", "code", "kind", "phase"),
    [
        (400, "BadRequest", "USER", "PermanentFailure"),
        (422, "BadRequest", "USER", "PermanentFailure"),
        (404, "NotFound", "USER", "PermanentFailure"),
        (409, "Conflict", "USER", "PermanentFailure"),
        (401, "Unauthenticated", "SYSTEM", "RetryableFailure"),
        (403, "PermissionDenied", "SYSTEM", "RetryableFailure"),
    ],
)
async def test_the_answer_to_the_create_decides_whose_failure_it_is(
    service: JobsService, url: str, status: int, code: str, kind: str, phase: str
) -> None:
    service.answer = lambda *_: web.Response(status=status, text="no")
    async with web_bench(url) as bench:
        ended = await bench.end(context())
    assert ended.info.error is not None
    assert (ended.info.error.code, ended.info.error.kind, ended.info.phase.title) == (code, kind, phase)
    assert f"{status}: no" in ended.info.reason


@pytest.mark.parametrize("status", [429, 503, 500, 408])
async def test_a_service_that_is_overloaded_or_broken_costs_no_retry(
    service: JobsService, url: str, status: int
) -> None:
    left = [1]
    service.answer = lambda *_: web.Response(status=status, text="later") if left and left.pop() else None
    async with web_bench(url) as bench:
        await created(bench, context())
    assert service.calls["POST"] == 2


async def test_a_service_that_is_away_is_waited_for(service: JobsService) -> None:
    """Nothing fails: what can't be reached is tried again, and says so."""
    async with service.running() as url:
        port = url.rpartition(":")[2]
    async with web_bench(url) as bench:
        said = await bench.until(context(), lambda each: "can't be reached" in each.info.reason)
        assert not said.info.phase.is_terminal
        assert port in said.info.reason


async def test_reads_that_fail_too_often_end_the_attempt_even_after_a_good_one(service: JobsService, url: str) -> None:
    """Flyte would report the last good state for ever. The job may live, so it is deleted."""
    async with web_bench(url, section={"caching": {"maxSystemFailures": 0, "resyncInterval": "5s"}}) as bench:
        task = context(custom={"state": "RUNNING"})
        await bench.until(task, lambda each: each.info.phase.title == "Running")
        service.answer = lambda method, _: web.Response(status=500, text="broken") if method == "GET" else None
        ended = await bench.end(task, 20)
    assert ended.info.error is not None
    assert ended.info.error.code == "RefreshFailed"
    assert service.jobs == {}
    assert service.calls["DELETE"] == 1


async def test_an_abort_deletes_the_job_until_that_is_done(service: JobsService, url: str) -> None:
    left = [500, 429]
    service.answer = lambda method, _: (
        web.Response(status=left.pop(), text="later") if method == "DELETE" and left else None
    )
    async with web_bench(url) as bench:
        task = context()
        await created(bench, task)
        ended = await bench.abort(task)
        assert ended.info.phase.title == "Aborted"
        assert service.jobs == {}
        again = await bench.abort(task)
    assert again.info.phase.title == "Aborted"
    assert service.calls["DELETE"] == 3


async def test_a_job_that_is_gone_is_deleted(service: JobsService, url: str) -> None:
    async with web_bench(url) as bench:
        task = context()
        await created(bench, task)
        service.jobs.clear()
        assert (await bench.abort(task)).info.phase.title == "Aborted"


@pytest.mark.parametrize("plugin", [JobsPlugin, FindingPlugin])
async def test_the_job_of_a_create_in_doubt_is_found_and_deleted_by_an_abort(
    service: JobsService, url: str, plugin: type[JobsPlugin]
) -> None:
    store = await killed_in_the_create(service, url, plugin, stored=True)
    async with web_bench(url, plugin, store=store) as bench:
        ended = await bench.abort(context())
    assert ended.info.phase.title == "Aborted"
    assert service.jobs == {}


async def test_an_abort_waits_for_the_answer_to_a_create_that_was_sent(service: JobsService, url: str) -> None:
    """Else the job would live on without its task."""
    service.hold = asyncio.Event()
    async with web_bench(url) as bench:
        task = context()
        await bench.until(task, lambda each: (each.state or {})["stage"] == "CreateRequested")
        await bench.step(task)
        await service.held.wait()
        aborting = asyncio.create_task(bench.abort(task))
        await asyncio.sleep(0)
        service.hold.set()
        assert (await aborting).info.phase.title == "Aborted"
    assert service.jobs == {}


async def test_nothing_is_sent_while_another_manager_may_have_the_store(service: JobsService, url: str) -> None:
    mine = [False]
    async with web_bench(url, may_create=lambda: mine[0]) as bench:
        task = context()
        await bench.until(task, lambda each: "another manager" in each.info.reason)
        assert service.calls["POST"] == 0
        mine[0] = True
        await created(bench, task)


# -- pools ---------


async def test_a_token_is_had_from_the_grant_to_the_end_of_the_job(service: JobsService, url: str) -> None:
    """The second task waits as for quota, with its place; it is the first one's end that lets it in."""
    async with web_bench(url, section={**FAST, "resourceQuotas": {"default": 1}}) as bench:
        first, second = context("a", custom={"state": "RUNNING"}), context("b")
        await created(bench, first)
        waits = await bench.step(second)
        assert waits.info.phase.title == "WaitingForResources"
        assert waits.info.wait is not None
        assert waits.info.wait.place == 1
        service.become("SUCCEEDED")
        await bench.end(first, 20)
        await created(bench, second)
        assert (await bench.abort(second)).info.phase.title == "Aborted"
        third = context("c")
        await created(bench, third)


async def test_tokens_are_counted_anew_from_the_store(url: str) -> None:
    """A manager that was killed leaves none behind, and none is given away twice."""
    section = {"resourceQuotas": {"default": 1}}
    async with web_bench(url, section=section) as bench:
        await created(bench, context("a"))
        store = dict(bench.store)
    async with web_bench(url, section=section, store=store) as bench:
        assert (await bench.step(context("b"))).info.phase.title == "WaitingForResources"
        await bench.abort(context("a"))
        await created(bench, context("b"))


async def test_a_task_that_may_wait_only_so_long_for_a_token_fails(url: str) -> None:
    """As one whose create waits for quota; and it is out of the line."""
    async with web_bench(url, section={"resourceQuotas": {"default": 1}}) as bench:
        await created(bench, context("a"))
        hurried = context("b")
        hurried = replace(hurried, metadata=replace(hurried.metadata, timeout=0.1))
        ended = await bench.end(hurried)
        await bench.abort(context("a"))
        await created(bench, context("c"))
    assert ended.info.error is not None
    assert (ended.info.error.code, ended.info.phase.title) == ("QuotaTimeout", "PermanentFailure")
    assert "gave up waiting for tokens pool.jobs/team/task-b-0 after 0.1 s" in ended.info.error.message


async def test_a_larger_pool_lets_in_at_once_who_waits(url: str) -> None:
    """Settings are live: any step adopts them for all."""
    sections = [{"resourceQuotas": {"default": 1}}]
    async with web_bench(url, section=lambda: sections[-1]) as bench:
        first, second = context("a"), context("b")
        await created(bench, first)
        await bench.step(second)
        sections.append({"resourceQuotas": {"default": 2}})
        await bench.step(first)
        await bench.news(("b", 0))
        await created(bench, second)


async def test_settings_out_of_range_change_nothing(url: str, caplog: pytest.LogCaptureFixture) -> None:
    sections: list[dict[str, Any]] = [{}]
    async with web_bench(url, section=lambda: sections[-1]) as bench:
        await created(bench, context("a"))
        sections.append({"caching": {"workers": 0}})
        for _ in range(3):
            await bench.step(context("a"))
        await created(bench, context("b"))
    (said,) = [each.message for each in caplog.records if "workers" in each.message]
    assert said.startswith("plugins.jobs.caching.workers: 0 is not possible: ")
    assert said.endswith("; the settings stay as they were")


async def test_a_pool_that_does_not_exist_is_named(url: str) -> None:
    async with web_bench(url, section={"resourceQuotas": {"default": 1}}) as bench:
        ended = await bench.end(context(custom={"pool": "gpu"}))
    assert ended.info.error is not None
    assert ended.info.error.code == "PoolNotFound"
    assert "set plugins.jobs.resourceQuotas.gpu" in ended.info.reason


# -- plugins that are wrong ---------


async def test_a_loader_that_raises_fails_its_tasks_and_nothing_else(url: str) -> None:
    def loader(_: object) -> Any:
        raise RuntimeError("no licence")

    async with web_bench(url, loader=loader) as bench:
        ended = await bench.end(context())
    assert ended.info.reason == "plugin jobs can't be loaded: RuntimeError: no licence"
    assert ended.info.phase.title == "RetryableFailure"


async def test_a_state_that_the_plugin_does_not_know_is_its_bug(service: JobsService, url: str) -> None:
    """It counts as a failed read, so that a new state that passes costs nothing."""
    async with web_bench(url) as bench:
        task = context(custom={"state": "UPGRADING"})
        said = await bench.until(task, lambda each: "UPGRADING" in each.info.reason)
        assert "plugin jobs failed in status" in said.info.reason
        service.become("RUNNING")
        await bench.until(task, lambda each: each.info.phase.title == "Running")


class Lazy(JobsPlugin):
    async def create(self, context: Any) -> Any:
        return "job-1"


async def test_a_create_that_returns_nonsense_is_the_plugins_bug(url: str) -> None:
    async with web_bench(url, Lazy) as bench:
        ended = await bench.end(context())
    assert ended.info.error is not None
    assert ended.info.error.code == "PluginFailed"
    assert "it returned str instead of Created" in ended.info.reason


@pytest.mark.parametrize(
    "text", ["<html>busy</html>", "", "x" * 10 * 2**20, '{"id": "another/0", "state": "NEW"}'],
    ids=["HTML", "nothing", "10 MiB", "another task's id"],
)  # fmt: skip
async def test_a_read_of_nonsense_delays_nothing_and_doubles_nothing(service: JobsService, url: str, text: str) -> None:
    """The job is read again; other jobs go on."""
    async with web_bench(url) as bench:
        bad, good = context("a", custom={"state": "RUNNING"}), context("b", custom={"state": "SUCCEEDED"})
        service.answer = lambda method, name: (
            web.Response(text=text, content_type="text/html") if method == "GET" and name == "a/0" else None
        )
        await bench.until(bad, lambda each: "can't be read now" in each.info.reason)
        assert (await bench.end(good)).info.phase.title == "Success"
        service.answer = lambda *_: None
        await bench.until(bad, lambda each: each.info.phase.title == "Running")
    assert service.calls["POST"] == 2


async def test_a_slow_read_delays_no_other(service: JobsService, url: str) -> None:
    async with web_bench(url, section={"caching": {"workers": 2}}) as bench:
        slow, quick = context("a", custom={"state": "RUNNING"}), context("b", custom={"state": "SUCCEEDED"})
        await created(bench, slow)
        await created(bench, quick)
        assert (await bench.end(quick)).info.phase.title == "Success"


async def test_a_redirect_is_not_followed(service: JobsService, url: str) -> None:
    service.answer = lambda *_: web.Response(status=302, headers={"Location": "http://169.254.169.254/"})
    async with web_bench(url) as bench:
        said = await bench.until(context(), lambda each: "redirects" in each.info.reason)
    assert "which is not followed" in said.info.reason


async def test_only_allowed_hosts_are_reached(service: JobsService, url: str) -> None:
    async with web_bench(url, section={"allowedHosts": ["jobs.example.com"]}) as bench:
        ended = await bench.end(context())
    assert "127.0.0.1 is not in plugins.jobs.allowedHosts (jobs.example.com)" in ended.info.reason
    assert service.calls.total() == 0


@pytest.mark.parametrize(
    ("allowed", "host", "port", "may"),
    [
        ((), "jobs.example.com", 80, True),
        ((), "169.254.169.254", 80, False),
        ((), "fe80::1%eth0", 80, False),
        ((), "::ffff:169.254.169.254", 80, False),
        (("*",), "169.254.169.254", 80, False),
        (("169.254.169.254:80",), "169.254.169.254", 80, True),
        (("169.254.169.254:80",), "169.254.169.254", 8080, False),
        (("*.example.com",), "jobs.example.com", 8443, True),
        (("*.example.com:443",), "Jobs.example.com", 443, True),
        (("*.example.com:443",), "jobs.example.com", 6443, False),
        (("::1",), "::1", 80, True),
        (("[::1]:8080",), "::1", 8080, True),
        (("[::1]:8080",), "::1", 80, False),
        (("[FD00::1]",), "fd00::1", 443, True),
        (("[fd00::1]",), "fd00::2", 443, False),
    ],
)
def test_hosts_are_listed_with_or_without_ports(allowed: tuple[str, ...], host: str, port: int, may: bool) -> None:
    assert is_allowed(allowed, host, port) is may


# -- synchronous plugins ---------


class Doing(SyncPlugin):
    """A plugin whose answer is the result."""

    def __init__(self, setup: Any, url: str) -> None:
        self._session, self._url = setup.session, url

    def get_config(self) -> PluginConfig:
        return PluginConfig()

    async def do(self, context: Any) -> Any:
        async with self._session.post(f"{self._url}/jobs", json={"key": context.key}) as answer:
            return success("done", outputs=await answer.json())


async def test_a_synchronous_plugin_ends_with_its_answer(service: JobsService, url: str) -> None:
    async with web_bench(url, Doing) as bench:  # type: ignore[arg-type]
        ended = await bench.end(context())
    assert ended.info.outputs is not None
    assert ended.info.outputs["id"] == "a/0"
    assert service.calls["POST"] == 1

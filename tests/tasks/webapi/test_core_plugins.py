"""Which core plugin carries a task out; and ``sleep``, the smallest one, through the whole of a store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client import Configuration

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.executing import check
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import CoreEntry, CoreSetup, Handled
from backoff_ctrl.k8s.tasks.plugins.phases import not_ready, running, success
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskContext, TaskMetadata, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from backoff_ctrl.k8s.tasks.plugins.sleep import Sleeper, sleep_of
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.services.webapi.ending import Patience
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.through_plugins import PATIENCE as PATIENCE_OF_ENDS
from backoff_ctrl.k8s.tasks.through_plugins import ThroughPlugins, UnavailableError, through_plugins
from tests.kit.patience import PATIENCE
from tests.tasks.tasks_written import NAMESPACE, until, wish

from .jobs_service import JobsService, OncePlugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOWHERE = Configuration(host="http://127.0.0.1:1")


def sleep(name: str = "nap", **custom: Any) -> Any:
    """A task that sleeps."""
    return wish(name, type="sleep", container=None, custom=custom)


def context(type_: str = "sleep", **custom: Any) -> TaskContext:
    about = TaskMetadata(NAMESPACE, "nap", "u1", 0, "nap-u1-0")
    return TaskContext(about, type_, {"type": type_, "custom": custom}, K8sPluginConfig())


@asynccontextmanager
async def managed(store: SqliteStore, plugins: Registry) -> AsyncIterator[None]:
    """Carry the tasks of a store out, without a cluster."""
    work = asyncio.create_task(Manager(store, through_plugins(plugins, NOWHERE), K8sPluginConfig).run())
    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def ended(store: SqliteStore, name: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        since = await store.revision()
        while (task := await store.get(NAMESPACE, name)).open:
            async for changes in store.watch(since):
                since = changes[-1].revision
                break
    return task.status


async def test_tasks_that_sleep_end_as_they_were_told(tmp_path: Path) -> None:
    """With outputs, with retries, and aborted: no cluster is asked."""
    async with SqliteStore(tmp_path / "t.db") as store, managed(store, registry()):
        await store.create([
            sleep("good", seconds=0),
            sleep("user", seconds=0, fail={"code": "Why", "retryable": False}),
            sleep("long", seconds=1000),
            wish("retried", type="sleep", container=None, retries={"user": 2},
                 custom={"seconds": 0, "fail": {"attempts": 2}}),
        ])  # fmt: skip
        good, user, retried = [await ended(store, name) for name in ("good", "user", "retried")]
        await store.request_abort(NAMESPACE, "long")
        long = await ended(store, "long")
    assert (good.phase, good.outputs, good.plugin) == ("Success", {"seconds": 0.0}, "sleep")
    assert (user.phase, user.code, user.kind) == ("PermanentFailure", "Why", "USER")
    assert (retried.phase, retried.retried.user, retried.attempt) == ("Success", 2, 2)
    assert long.phase == "Aborted"


async def test_a_sleep_goes_on_where_an_earlier_manager_left_it() -> None:
    now = [1000.0]
    first = await Sleeper(lambda _: None, lambda: now[0]).handle(context(seconds=60), None)
    now[0] += 61
    again = await Sleeper(lambda _: None, lambda: now[0]).handle(context(seconds=60), first.state)
    assert (first.info.phase.title, again.info.phase.title) == ("Running", "Success")


@pytest.mark.parametrize(
    ("custom", "path"),
    [({"seconds": -1}, "spec.custom.seconds"), ({"second": 1}, "spec.custom.second"),
     ({"fail": {"kind": "NOBODY"}}, "spec.custom.fail.kind")],
)  # fmt: skip
def test_a_wrong_sleep_is_refused_before_it_is_stored(custom: dict[str, Any], path: str) -> None:
    with pytest.raises(TaskSpecError) as caught:
        check(sleep(**custom), registry(), K8sPluginConfig())
    assert caught.value.path == path
    with pytest.raises(TaskSpecError):
        sleep_of(context(**custom))


class Recorder:
    """A core plugin that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def handle(self, task: TaskContext, state: Any) -> Handled:
        self.calls.append("handle")
        return Handled(running() if state is None else success(), {"n": 1})

    async def abort(self, task: TaskContext, state: Any) -> Handled:
        self.calls.append("abort")
        return Handled(not_ready(""), state)

    async def sweep(self, task: TaskContext, state: Any) -> None:
        self.calls.append("sweep")

    async def finalize(self, task: TaskContext, state: Any) -> None:
        self.calls.append("finalize")


@asynccontextmanager
async def dispatcher(plugins: Registry, patience: Patience = PATIENCE_OF_ENDS) -> AsyncIterator[ThroughPlugins]:
    async def nothing() -> AsyncIterator[Any]:
        return
        yield

    setup = CoreSetup("store", lambda _: None, lambda: True, nothing, NOWHERE)
    async with ThroughPlugins(plugins, setup, patience) as through:
        yield through


def loading(plugin: Recorder) -> Any:
    @asynccontextmanager
    async def load(_: CoreSetup) -> AsyncIterator[Recorder]:
        plugin.calls.append("open")
        yield plugin
        plugin.calls.append("close")

    return load


async def test_an_attempt_stays_with_the_plugin_that_began_it() -> None:
    """It is opened at its first task, once, whatever its type resolves to later; and closed at the end."""
    one, two = Recorder(), Recorder()
    plugins = Registry([CoreEntry("one", ("sleep",), loading(one)), CoreEntry("two", ("other",), loading(two))])
    async with dispatcher(plugins) as through:
        first = await through.handle(context(), None)
        assert first.state == {"n": 1, "core": "one", "plugin": "one"}
        plugins.become(Registry([CoreEntry("one", ("x",), loading(one)), CoreEntry("two", ("sleep",), loading(two))]))
        assert (await through.handle(context(), first.state)).info.phase.title == "Success"
        await through.abort(context(), first.state)
        await through.sweep(context(), first.state)
        await through.finalize(context(), first.state)
    assert one.calls == ["open", "handle", "handle", "abort", "sweep", "finalize", "close"]
    assert two.calls == []


async def test_a_plugin_that_is_no_longer_enabled_keeps_its_attempts_waiting() -> None:
    async with dispatcher(Registry([CoreEntry("two", ("sleep",), loading(Recorder()))])) as through:
        handled = await through.handle(context(), {"n": 1, "core": "one", "plugin": "one"})
    assert handled.info.phase.title == "NotReady"
    assert "plugin one, which runs this task, is not enabled" in handled.info.reason
    assert handled.state == {"n": 1, "core": "one", "plugin": "one"}


async def test_a_plugin_that_can_not_be_opened_fails_what_it_would_have_begun_and_nothing_else() -> None:
    @asynccontextmanager
    async def load(_: CoreSetup) -> AsyncIterator[Any]:
        raise RuntimeError("no disk")
        yield

    good = Recorder()
    plugins = Registry([CoreEntry("bad", ("bad",), load), CoreEntry("good", ("sleep",), loading(good))])
    async with dispatcher(plugins) as through:
        failed = await through.handle(context("bad"), None)
        held = await through.handle(context("bad"), {"core": "bad"})
        begun = await through.abort(context("bad"), {"core": "bad"})
        never = await through.abort(context("bad"), None)
        assert (await through.handle(context(), None)).info.phase.title == "Running"
        await through.finalize(context("bad"), failed.state)
    assert failed.info.reason == "plugin bad can't be loaded: RuntimeError: no disk"
    assert (failed.info.phase.title, held.info.phase.title) == ("RetryableFailure", "NotReady")
    assert (begun.info.phase.title, never.info.phase.title) == ("NotReady", "Aborted")


@pytest.mark.parametrize("how", ["abort", "finalize"])
async def test_the_end_of_what_a_plugin_that_can_not_be_opened_has_begun_is_given_up(how: str) -> None:
    """It was tried for ever: the task did not end, and its namespace could not be deleted."""

    @asynccontextmanager
    async def load(_: CoreSetup) -> AsyncIterator[Any]:
        raise RuntimeError("no disk")
        yield

    left, state = "", {"core": "bad", "plugin": "bad"}

    async def is_given_up() -> bool:
        nonlocal left
        if how == "abort":
            ended = await through.abort(context("bad"), state)
            left = ended.left
            return ended.info.phase.title == "Aborted"
        with suppress(UnavailableError):
            left = await through.finalize(context("bad"), state) or ""
        return bool(left)

    async with dispatcher(Registry([CoreEntry("bad", ("bad",), load)]), Patience(0.1, 0.2)) as through:
        assert not await is_given_up()
        await until(is_given_up)
    assert left.startswith("what plugin bad has begun may still run: ending it failed ")
    assert left.endswith(" times (plugin bad can't be loaded: RuntimeError: no disk)")


async def test_a_type_that_no_plugin_serves_fails_as_it_always_did() -> None:
    async with dispatcher(Registry([])) as through:
        handled = await through.handle(context("unknown"), None)
        assert (await through.abort(context("unknown"), None)).info.phase.title == "Aborted"
        await through.finalize(context("unknown"), handled.state)
    assert handled.info.error is not None
    assert handled.info.error.code == "PluginNotFound"


def test_a_core_plugin_is_chosen_as_any_other() -> None:
    """By its type, by the settings, as the default."""
    entry = CoreEntry("one", ("x",), loading(Recorder()), is_default=True)
    assert Registry([entry]).resolve("anything") is entry
    with pytest.raises(PluginError, match="without an id"):
        CoreEntry(" ", ("x",), loading(Recorder()))
    with pytest.raises(PluginError, match="no task types"):
        CoreEntry("one", (), loading(Recorder()))
    with pytest.raises(PluginError, match="the name of the manager of web APIs"):
        CoreEntry("webapi", ("x",), loading(Recorder()))


async def test_a_manager_that_ends_keeps_the_answers_to_creates_that_it_has_sent(tmp_path: Path) -> None:
    """The next one finds the job, and sends nothing again; nor does a create that must not be repeated end in doubt."""
    service = JobsService()
    service.hold = asyncio.Event()
    async with service.running() as url, SqliteStore(tmp_path / "t.db") as store:
        plugins = Registry([WebPluginEntry("jobs", ("job",), lambda setup: OncePlugin(setup, url))])
        await store.create([wish("one", type="job", container=None, custom={"state": "RUNNING"})])
        async with managed(store, plugins):
            await service.held.wait()
            asyncio.get_running_loop().call_later(0.2, service.hold.set)
        stored = await store.get(NAMESPACE, "one")
        assert stored.status.plugin_state is not None
        assert stored.status.plugin_state["stage"] == "ResourcesCreated"
        service.become("SUCCEEDED")
        async with managed(store, plugins):
            assert (await ended(store, "one")).phase == "Success"
    assert service.calls["POST"] == 1

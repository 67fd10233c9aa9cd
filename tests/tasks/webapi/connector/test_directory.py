"""Which connector serves which task type, as connectors come, go and change, and what the registry makes of it."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import yaml
from flyteidl.admin import agent_pb2 as messages

from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.plugins.config_file import ConfigError
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskSpecError
from backoff_ctrl.k8s.tasks.services.connector import directory as directory_module
from backoff_ctrl.k8s.tasks.services.connector.directory import Directory
from backoff_ctrl.k8s.tasks.services.connector.entry import entry_of
from backoff_ctrl.k8s.tasks.services.connector.settings import TaskType
from tests.kit.patience import PATIENCE

from .scripted import Scripted, agent, refusing, section, served, task

if TYPE_CHECKING:
    from pathlib import Path


def at(port: int, **more: Any) -> dict[str, Any]:
    """One named connector."""
    return {"endpoint": f"127.0.0.1:{port}", "insecure": True, **more}


async def asked(directory: Directory) -> bool:
    """Ask; the server is on this loop."""
    return await asyncio.to_thread(directory.ask)


async def test_types_are_those_that_connectors_tell_and_stay_known_while_one_is_down() -> None:
    scripted, directory = Scripted(), Directory()
    async with served(scripted) as port:
        directory.configure(section(port))
        assert "defaultConnector at 127.0.0.1" in directory.missing
        assert await asked(directory)
        assert (directory.types(), directory.missing) == (("hook", "sleep_job"), "")
        hook = directory.find(TaskType(" HOOK "))
        assert hook is not None
        assert (hook.is_sync, hook.type, hook.connector) == (True, TaskType("hook"), "defaultConnector")
        assert not await asked(directory)
        scripted.agents = [agent("other", "new", version=2)]
        assert await asked(directory)
        assert directory.types() == ("new",)
        assert directory.find(TaskType("new")) is None
        assert directory.find(TaskType("new", 2)) is not None
    assert not await asked(directory)
    assert (directory.types(), directory.missing) == (("new",), "")


async def test_a_connector_that_is_down_is_told_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    scripted, directory = Scripted(), Directory()
    scripted.listing = refusing(grpc.StatusCode.UNAVAILABLE, "starting")
    async with served(scripted) as port:
        directory.configure(section(port))
        with caplog.at_level(logging.WARNING):
            assert not await asked(directory)
            await asked(directory)
        (said,) = [each.getMessage() for each in caplog.records]
        assert "plugins.connector, defaultConnector at 127.0.0.1" in said
        assert "UNAVAILABLE: starting" in said
        assert "UNAVAILABLE: starting" in directory.missing
        scripted.listing = lambda *_: messages.ListAgentsResponse(agents=scripted.agents)
        assert await asked(directory)
        assert directory.missing == ""


async def test_connectors_are_not_asked_again_at_once_if_the_caller_says_so() -> None:
    """A hundred tasks of an unknown type cost one question."""
    scripted, directory = Scripted(), Directory()
    questions: list[Any] = []

    def listing(request: Any, _: Any) -> Any:
        questions.append(request)
        return messages.ListAgentsResponse(agents=scripted.agents)

    scripted.listing = listing
    async with served(scripted) as port:
        directory.configure(section(port))
        for _ in range(3):
            await asyncio.to_thread(directory.ask, 60)
        assert len(questions) == 1
        await asked(directory)
        assert len(questions) == 2


async def test_an_older_connector_names_types_alone_or_lists_none() -> None:
    """The latter serves whatever the settings give to it, and as the default one everything else."""
    scripted, directory = Scripted(), Directory()
    scripted.agents = [messages.Agent(name="old", supported_task_types=["a", " "])]
    async with served(scripted) as port:
        directory.configure(section(port))
        await asked(directory)
        assert directory.types() == ("a",)
        scripted.listing = refusing(grpc.StatusCode.UNIMPLEMENTED)
        directory.configure({**section(port), "supportedTaskTypes": ["b"]})
        await asked(directory)
        assert (directory.types(), directory.missing) == (("b",), "")
        anything = directory.find(TaskType("anything", 7))
        assert anything is not None
        assert (anything.connector, anything.type, anything.is_sync) == ("defaultConnector", ("anything", 7), False)


async def test_of_two_connectors_with_one_type_the_settings_choose(caplog: pytest.LogCaptureFixture) -> None:
    """Else the first by its name, and the default one last; a warning says so."""
    one, two, directory = Scripted(), Scripted(), Directory()
    one.agents = two.agents = [agent("a", "t", is_sync=True)]
    async with served(one) as first, served(two) as second:
        both = {"connectors": {"b": at(first)}, **section(second)}
        directory.configure(both)
        with caplog.at_level(logging.WARNING):
            await asked(directory)
        assert "b serves it as well, and is used; connectorForTaskTypes decides" in caplog.text
        assert (found := directory.find(TaskType("t"))) is not None
        assert found.connector == "b"
        directory.configure({**both, "connectorForTaskTypes": {"t": "defaultConnector", "u": "b"}})
        assert (found := directory.find(TaskType("t"))) is not None
        assert (found.connector, found.is_sync) == ("defaultConnector", True)
        assert (found := directory.find(TaskType("u"))) is not None
        assert found.connector == "b"


async def test_new_settings_forget_only_connectors_that_are_gone() -> None:
    one, two, directory = Scripted(), Scripted(), Directory()
    two.agents = [agent("a", "far")]
    async with served(one) as first, served(two) as second:
        directory.configure({"connectors": {"b": at(first), "c": at(second)}})
        await asked(directory)
        assert directory.types() == ("far", "hook", "sleep_job")
        directory.configure({"connectors": {"renamed": at(second, defaultTimeout="3s")}})
        assert (directory.types(), directory.missing) == (("far",), "")


# -- the registry and the platform ---------


def settings_file(folder: Path, connector: Any, **chosen: Any) -> Path:
    """Write the settings."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"plugins": {"connector": connector}, "tasks": {"task-plugins": chosen}}))
    return path


async def test_the_registry_follows_what_connectors_tell(tmp_path: Path) -> None:
    """Until all have answered, a type that nobody serves may be one of theirs; then it is an error."""
    scripted = Scripted()
    async with served(scripted) as port:
        platform = Platform(str(settings_file(tmp_path, section(port))))
        assert platform.registry.resolve("sleep_job").id == "connector"
        assert platform.registry.resolve("typo").id == "connector"
        await asyncio.to_thread(platform.ask)
        assert platform.registry.resolve("SLEEP_job").id == "connector"
        with pytest.raises(PluginError, match=r"no plugin serves the task type 'typo': .*sleep_job"):
            platform.registry.resolve("typo")
        scripted.agents = [agent("a", "new")]
        platform._connectors._asked = 0.0
        await asyncio.to_thread(platform.ask)
        assert platform.registry.resolve("new").id == "connector"
        assert platform.section("connector") == section(port)


@pytest.mark.long
async def test_connectors_are_asked_again_in_every_interval(tmp_path: Path) -> None:
    """While a manager runs: what the second answer says is in force when the third is asked for."""
    scripted, third = Scripted(), asyncio.Event()
    answers = iter([[agent("a", "one")], [agent("a", "two")]])

    def listing(request: Any, _: Any) -> Any:
        agents = next(answers, None)
        if agents is None:
            third.set()
        return messages.ListAgentsResponse(agents=agents or [])

    scripted.listing = listing
    async with served(scripted) as port, asyncio.timeout(PATIENCE):
        platform = Platform(str(settings_file(tmp_path, {**section(port), "pollInterval": "1s"})))
        following = asyncio.create_task(platform.follow())
        await third.wait()
        assert platform.registry.resolve("two").id == "connector"
        with pytest.raises(PluginError):
            platform.registry.resolve("one")
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following


async def test_types_of_other_plugins_stay_theirs_unless_the_settings_say_so(tmp_path: Path) -> None:
    """Also before the connector has told that it has the type."""
    scripted = Scripted()
    scripted.agents = [agent("a", "spark", "job")]
    async with served(scripted) as port:
        chosen = {"default-for-task-types": {"spark": "connector", "ray": "connector"}}
        platform = Platform(str(settings_file(tmp_path, section(port), **chosen)))
        assert platform.registry.resolve("spark").id == "connector"
        await asyncio.to_thread(platform.ask)
        assert [platform.registry.resolve(each).id for each in ("spark", "ray", "job")] == [
            "connector", "connector", "job",
        ]  # fmt: skip


def test_without_settings_there_is_only_the_type_connector() -> None:
    platform = Platform(None)
    platform.ask()
    assert platform.registry.resolve("connector").id == "connector"
    with pytest.raises(PluginError):
        platform.registry.resolve("webhook")


def test_wrong_settings_are_refused_with_their_key_and_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"config.yaml: plugins.connector.connectors.a.endpoint: it is missing"):
        Platform(str(settings_file(tmp_path, {"connectors": {"a": {}}})))
    platform = Platform(str(settings_file(tmp_path, {"connectors": {"a": {"endpoint": "a:1"}}})))
    before = platform.section("connector")
    settings_file(tmp_path, {"connectors": {"a": {}}})
    platform.poll()
    settings_file(tmp_path, {"connectors": {"b": {"endpoint": "b:1"}}}, **{"enabled-plugins": ["nothing"]})
    platform.poll()
    assert platform.section("connector") == before
    assert caplog.text.count("the settings stay as they were") == 2


def test_a_section_with_flytes_name_is_the_plugins_section(tmp_path: Path) -> None:
    """In its present spelling, and the same object until it changes: the manager reads it anew only then."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"plugins": {"agent-service": {"defaultAgent": {"endpoint": "a:1"}}}}))
    platform = Platform(str(path))
    assert platform.section("connector") == {"defaultConnector": {"endpoint": "a:1"}}
    assert platform.section("connector") is platform.section("connector")


def test_without_the_extra_one_line_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where connectors are configured, or a task is for one; everything else works without."""
    real = importlib.util.find_spec
    monkeypatch.setattr(directory_module, "find_spec", lambda name: None if name == "flyteidl" else real(name))
    assert Platform(None).registry.resolve("container").id == "container"
    with pytest.raises(ConfigError, match=r"plugins.connector: .*pip install 'backoff-ctrl\[connector\]'"):
        Platform(str(settings_file(tmp_path, {"connectors": {"a": {"endpoint": "a:1"}}})))
    with pytest.raises(TaskSpecError, match=r"pip install 'backoff-ctrl\[connector\]'"):
        entry_of(Directory()).check(task())


def test_a_task_is_checked_before_it_is_stored() -> None:
    entry = entry_of(Directory())
    entry.check(task(custom={"seconds": 1}))
    with pytest.raises(TaskSpecError, match=r"spec\.custom: must be an object"):
        entry.check(task(custom=3))
    assert Right.on("use", "webplugins.backoff-ctrl.dev", "connector") in entry.rights("create", {"type": "connector"})

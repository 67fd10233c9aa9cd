"""Which plugins there are follows the settings while a manager runs: enabled ones, and described operators."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.plugins.config_file import ConfigError
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task
from tests.tasks.webapi.rest.jobs_service import LEAST

THING: dict[str, Any] = {
    "id": "thing",
    "task-types": ["thing"],
    "resource": {"api-version": "example.com/v1", "kind": "Thing", "plural": "things"},
    "state": {"path": "$.status.state"},
    "states": {"Done": {"phase": "Success"}},
}


def write(folder: Path, *, enabled: list[str] | None = None, generic: list[Any] | None = None) -> Path:
    path = folder / "config.yaml"
    plugins = {"generic": generic} if generic else {}
    path.write_text(yaml.safe_dump({"plugins": plugins, "tasks": {"task-plugins": {"enabled-plugins": enabled or []}}}))
    return path


def ids(platform: Platform) -> set[str]:
    return {entry.id for entry in platform.registry.entries()}


def test_plugins_are_enabled_and_disabled_while_it_runs(tmp_path: Path) -> None:
    """Whoever holds the registry sees it."""
    platform = Platform(str(write(tmp_path, enabled=["container"])))
    held = platform.registry
    with pytest.raises(PluginError):
        held.resolve("job")
    write(tmp_path, enabled=["container", "job"])
    assert platform.poll() == ["tasks.task-plugins.enabled-plugins: ['container'] -> ['container', 'job']"]
    assert held.resolve("job").id == "job"
    write(tmp_path, enabled=["job"])
    platform.poll()
    assert held.get("container") is None
    assert ids(platform) == {"job"}


def test_operators_come_and_change_with_the_files_that_describe_them(tmp_path: Path) -> None:
    """Written into the settings, or into a file beside them."""
    platform = Platform(str(write(tmp_path)))
    (tmp_path / "thing.yaml").write_text(yaml.safe_dump(THING))
    write(tmp_path, generic=["thing.yaml"])
    assert platform.poll() == ["plugins.generic: None -> ['thing.yaml']"]
    assert platform.registry.resolve("thing").id == "thing"
    assert platform.poll() == []  # the file was read with the settings that name it
    (tmp_path / "thing.yaml").write_text(yaml.safe_dump({**THING, "task-types": ["thing", "other"]}))
    assert platform.poll() == [f"the file {tmp_path / 'thing.yaml'}"]
    assert platform.registry.resolve("other").id == "thing"
    assert platform.poll() == []
    (tmp_path / "thing.yaml").unlink()
    assert platform.poll() == []
    assert platform.registry.resolve("other").id == "thing"
    write(tmp_path)
    assert platform.poll() == ["plugins.generic: ['thing.yaml'] -> None"]
    assert "thing" not in ids(platform)


def test_services_come_and_change_with_the_files_that_describe_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As operators do; a wrong description, or a wrong setting of one, changes nothing."""
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump(LEAST))
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"plugins": {"rest": ["jobs.yaml"], "jobs": {"url": "http://jobs"}}}))
    platform = Platform(str(path))
    assert platform.registry.resolve("job-there").id == "jobs"
    assert platform.section("jobs") == {"url": "http://jobs"}
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump({**LEAST, "task-types": ["job-elsewhere"]}))
    assert platform.poll() == [f"the file {tmp_path / 'jobs.yaml'}"]
    assert platform.registry.resolve("job-elsewhere").id == "jobs"
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump({**LEAST, "state": "state"}))
    path.write_text(yaml.safe_dump({"plugins": {"rest": ["jobs.yaml"], "jobs": {"ur": "http://jobs"}}}))
    assert platform.poll() == []
    assert "jobs.yaml: state: 'state' is not a JSONPath" in caplog.text
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump(LEAST))
    assert platform.poll() == []
    assert "plugins.jobs.ur: unknown key: did you mean url?" in caplog.text
    assert platform.registry.resolve("job-elsewhere").id == "jobs"


@pytest.mark.parametrize(
    ("section", "meant"), [("k8", "k8s"), ("K8S-", "k8s"), ("generics", "generic"), ("conector", "connector")]
)
def test_a_misspelt_section_is_refused(section: str, meant: str, tmp_path: Path) -> None:
    """Further sections of ``plugins`` may be for plugins that are installed."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"plugins": {section: {"default-cpus": 1}}}))
    with pytest.raises(ConfigError, match=rf"plugins\.{section}: no plugin has this section: did you mean {meant}\?"):
        Platform(str(path))
    with pytest.raises(ConfigError, match=rf"plugins\.{section}: no plugin has this section"):
        Platform(None, [f"plugins.{section}.default-cpus=1"])


def test_sections_that_no_plugin_reads_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """People bring Flyte's file as it is."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"plugins": {"logs": {}, "athena": {}, "k8s": {}}, "propeller": {}, "admin": {}}))
    Platform(str(path))
    assert [each.getMessage() for each in caplog.records] == [
        f"{path}: no plugin reads plugins.athena, plugins.logs",
        f"{path}: this program reads plugins and tasks alone, not admin, propeller",
    ]


def test_what_can_not_work_changes_nothing_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the plugins nor the other settings of that file."""
    path = write(tmp_path, enabled=["container"])
    platform = Platform(str(path))
    said = []
    for change in ({"enabled": ["containers"]}, {"generic": [{**THING, "states": {}}]}, {"generic": ["gone.yaml"]}):
        caplog.clear()
        write(tmp_path, **change)
        assert (platform.poll(), platform.poll()) == ([], [])
        (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        said.append(record.getMessage())
        assert ids(platform) == {"container"}
    assert "enabled-plugins names 'containers', which is not a plugin" in said[0]
    assert all(each.startswith(str(tmp_path)) for each in said)
    assert all(each.endswith("; the settings stay as they were") for each in said)


async def test_a_manager_at_work_has_the_plugins_of_now(tmp_path: Path) -> None:
    """A task that no plugin served is served after the change; one whose plugin is gone waits until it is back."""
    platform = Platform(str(write(tmp_path, enabled=["job"])))
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        async with Bench(sandbox.url) as bench:
            bench.manager.registry = platform.registry
            one = task("one", spec={"container": {"image": "busybox:1"}})
            refused = await bench.manager.handle(one, None)
            assert (refused.info.error and refused.info.error.code) == "PluginNotFound"
            write(tmp_path, enabled=["container"])
            platform.poll()
            await bench.until(one, Phase.QUEUED, Phase.INITIALIZING)
            write(tmp_path, enabled=["job"])
            platform.poll()
            info = await bench.step(one)
            assert (info.phase, "is not enabled: enable it" in info.reason) == (Phase.NOT_READY, True)
            write(tmp_path)
            platform.poll()
            await bench.until(one, Phase.QUEUED, Phase.INITIALIZING)

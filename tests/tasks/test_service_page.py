"""docs/how-to/describe-a-service.md: its files work as it says, and it names every key that there is."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError
from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from backoff_ctrl.k8s.tasks.services.rest.service_config import (
    SERVICES,
    Cancel,
    Create,
    Find,
    JobId,
    Limits,
    LogLink,
    Parameter,
    ServiceConfig,
)
from backoff_ctrl.k8s.tasks.services.rest.templates import root_of
from tests.kit.pages import blocks, text_of, typed
from tests.tasks.webapi.rest.jobs_service import task

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

NAME = "docs/how-to/describe-a-service.md"
PAGE = text_of(NAME)
ANSWER, *YAML = [block.text for block in blocks(NAME, "yaml")]
COMMAND, SECRET, RUN = (shlex.split(each.command)[1:] for each in typed(NAME))
TASK: Final = next(found for text in YAML if (found := yaml.safe_load(text)).get("kind") == "Task")
PRINTED = [block.text for block in blocks(NAME, "")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new user's folder, with the files that the page says to save."""
    for name, text in zip(("answer.json", "airflow.yaml", "settings.yaml"), (ANSWER, *YAML), strict=False):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_does_what_it_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its command prints the lines of the page."""
    assert run(COMMAND) == 0
    assert capsys.readouterr().out == PRINTED[0]


def test_an_undescribed_state_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the page says of newer services."""
    (folder / "answer.json").write_text(ANSWER.replace("failed", "deferred"))
    assert run(COMMAND) == 0
    assert "phase: Running  (plugin airflow)\n  reason: in state deferred\n" in capsys.readouterr().out


def test_the_task_of_the_page_is_accepted() -> None:
    """By the description of the page."""
    entry_of(SERVICES.read(yaml.safe_load(YAML[0]), "page")).check(task(**TASK["spec"]))


def test_the_secret_of_the_page_is_that_of_its_task() -> None:
    """By its namespace, name and key; the command after it runs the file that the page says to save, with its settings."""
    ((_, secret),) = TASK["spec"]["secrets"].items()
    where, name, key = TASK["metadata"]["namespace"], secret["secret"], secret["key"]
    assert ["create", "secret", "generic", name, "-n", where, f"--from-literal={key}=TOKEN"] == SECRET
    assert RUN == ["task", "run", "-f", "task.yaml", "--config", "settings.yaml"]
    assert "Save it as `task.yaml`" in PAGE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("failed: {phase: RetryableFailure", "failed: {phase: Broken"),
        ("conf: $.custom.conf", "conf: $.custom.rounds"),
        ('dagRuns/{$.id}"}\ncancel', '{$.secrets.AIRFLOW_TOKEN}"}\ncancel'),
    ],
)
def test_the_errors_of_the_page_are_those_that_are_told(old: str, new: str) -> None:
    """Each line of its last block, and for each a mistake that brings it about."""
    assert old in YAML[0]
    with pytest.raises(DescriptionError) as raised:
        SERVICES.read(yaml.safe_load(YAML[0].replace(old, new)), "airflow.yaml")
    assert str(raised.value) in PRINTED[-1].splitlines()


@pytest.mark.parametrize(
    "model", [ServiceConfig, Create, Cancel, Find, JobId, Limits, LogLink, Parameter], ids=lambda model: model.__name__
)
def test_the_page_names_every_key(model: type[BaseModel]) -> None:
    """Each in code marks."""
    keys = {name.replace("_", "-") for name in model.model_fields}
    assert keys <= set(re.findall(r"`([a-z-]+)[:`]", PAGE))


def test_the_page_names_every_value_that_templates_know() -> None:
    """As the errors list them, with those that only some templates know."""
    told = {root_of(path)[0] for path in re.findall(r"`(\$\.[a-z]+)`", PAGE)}
    config = SERVICES.read(yaml.safe_load(YAML[0]), "page")
    assert told == {root for _, _, known in config._paths() for root in known}


def test_the_examples_of_parts_can_be_used() -> None:
    """The parts of the page make whole descriptions."""
    airflow: dict[str, Any] = yaml.safe_load(YAML[0])
    parts = [yaml.safe_load(text) for text in YAML if not {"id", "plugins", "kind"} & set(yaml.safe_load(text))]
    assert [sorted(each) for each in parts] == [["create"], ["find", "ours"]]
    parameters = {**airflow["parameters"], "runtimeEnv": {"type": "object"}}
    for part in parts:
        SERVICES.read({**airflow, "parameters": parameters, **part}, "page")

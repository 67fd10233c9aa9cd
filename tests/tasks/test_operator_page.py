"""docs/how-to/describe-an-operator.md: its files work as it says, and it names every key that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError
from backoff_ctrl.k8s.kube.operators.meanings import Case, StateMeaning
from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS, ManagedBy, OperatorConfig, PodsMade, Started
from tests.kit.pages import blocks, text_of, typed

NAME = "docs/how-to/describe-an-operator.md"
PAGE = text_of(NAME)
YAML = [block.text for block in blocks(NAME, "yaml")]
COMMANDS = [shlex.split(each.command)[1:] for each in typed(NAME)]
PRINTED = [block.text for block in blocks(NAME, "")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new user's folder, with the files that the page says to save."""
    for name, text in zip(("workflow.yaml", "argo.yaml", "settings.yaml"), YAML, strict=False):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_does_what_it_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first command fails for want of a description; the second prints the lines of the page."""
    unknown, known = COMMANDS
    assert run(unknown) == 2
    said = capsys.readouterr().err
    promised = re.findall(r"`(workflow\.yaml: no plugin .*?) \.\.\.`", PAGE)
    assert [each in said for each in promised] == [True]
    assert run(known) == 0
    assert capsys.readouterr().out == PRINTED[0]


def test_an_undescribed_state_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the page says of newer operators."""
    (folder / "workflow.yaml").write_text(YAML[0].replace("phase: Failed", "phase: Backfilling"))
    assert run(COMMANDS[1]) == 0
    assert "phase: Running  (plugin argo)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Failed: {phase: RetryableFailure", "Failed: {phase: Broken"),
        ("message: $.status", "message: status"),
        ("Succeeded: {phase: Success}", "Succeeded: {phase: Running}"),
    ],
)
def test_the_errors_of_the_page_are_those_that_are_told(old: str, new: str) -> None:
    """Each line of its last block, and for each a mistake that brings it about."""
    assert old in YAML[1]
    with pytest.raises(DescriptionError) as raised:
        OPERATORS.read(yaml.safe_load(YAML[1].replace(old, new)), "argo.yaml")
    assert str(raised.value) in PRINTED[-1].splitlines()


@pytest.mark.parametrize(
    "model", [OperatorConfig, ManagedBy, StateMeaning, Case, PodsMade, Started], ids=lambda model: model.__name__
)
def test_the_page_names_every_key(model: type[BaseModel]) -> None:
    """Each in code marks."""
    keys = {name.replace("_", "-") for name in model.model_fields}
    assert keys <= set(re.findall(r"`([a-z-]+)`", PAGE))
    assert not {field for field in model.model_fields if field.startswith("_")}


def test_the_examples_of_parts_can_be_used() -> None:
    """The case and the pods of the page make a whole description."""
    argo = yaml.safe_load(YAML[1])
    made = next(text for text in YAML if text.startswith("pods-made"))
    case = next(text for text in YAML if text.startswith("Failed"))
    config = OPERATORS.read(
        {**argo, **yaml.safe_load(made), "states": {**argo["states"], **yaml.safe_load(case)}}, "page"
    )
    assert [each.default_replicas for each in config.pods_made] == [1, 0]
    assert [each.kind for each in config.states["Failed"].cases] == ["USER"]

"""Tasks for a service are checked before they are stored: a wrong field is named, with what is right."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from backoff_ctrl.k8s.tasks.services.rest.parameters import document_of
from tests.tasks.webapi.rest.jobs_service import LEAST, described, task

JSON = dict[str, Any]
SECRET = {"secret": "s", "key": "k"}
CONFIG = described(
    parameters={
        "text": {"type": "string", "required": True, "about": "any text"},
        "number": {"type": "number"},
        "whole": {"type": "integer"},
        "flag": {"type": "boolean"},
        "list": {"type": "array"},
        "object": {"type": "object"},
        "any": {},
    },
    create={"path": "/jobs/{$.custom.text}", "body": {"env": "$.env", "all": "$.custom.any"}},
    headers={"Authorization": "{$.secrets.TOKEN}"},
)
RIGHT: JSON = {"text": "x", "number": 1.5, "whole": 2, "flag": False, "list": [], "object": {}, "any": 0}

WRONG: dict[str, tuple[JSON, str]] = {
    "nothing": ({}, "spec.custom.text: jobs needs it: any text"),
    "no object": ({"custom": [1]}, "spec.custom: must be an object, not list"),
    "an unknown parameter": (
        {"custom": {"text": "x", "txt": 1}},
        "spec.custom.txt: jobs has no such parameter; it has text, number",
    ),
    "a number for a text": ({"custom": {"text": 1}}, "spec.custom.text: must be of the type string"),
    "a flag for a number": ({"custom": {"text": "x", "whole": True}}, "spec.custom.whole: must be of the type integer"),
    "a fraction": ({"custom": {"text": "x", "whole": 1.5}}, "spec.custom.whole: must be of the type integer"),
    "a number for a flag": ({"custom": {"text": "x", "flag": 1}}, "spec.custom.flag: must be of the type boolean"),
    "a container": ({"custom": RIGHT, "container": {"image": "x"}}, "spec.container: jobs runs no pod: leave it out"),
    "resources": ({"custom": RIGHT, "resources": {"limits": {}}}, "spec.resources: jobs runs no pod"),
    "an unused secret": (
        {"custom": RIGHT, "secrets": {"TOKN": SECRET}},
        "spec.secrets.TOKN: no header of jobs has it; it has TOKEN",
    ),
    "a variable from elsewhere": (
        {"custom": RIGHT, "env": [{"name": "A", "valueFrom": {}}]},
        "spec.env[0]: must have a name and a value",
    ),
    "a step upwards": ({"custom": {"text": ".."}}, "spec.custom.text: '..' would be another path"),
    "no word": ({"custom": {"text": ""}}, "spec.custom.text: the path /jobs/{$.custom.text} needs it"),
}


@pytest.mark.parametrize(("spec", "says"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_task_is_refused_with_its_field(spec: JSON, says: str) -> None:
    """By the entry's check, before it is stored."""
    with pytest.raises(TaskSpecError) as raised:
        entry_of(CONFIG).check(task(**spec))
    assert str(raised.value).startswith(says)


def test_a_right_task_is_accepted() -> None:
    """With each type of parameter."""
    entry_of(CONFIG).check(task(custom=RIGHT, env=[{"name": "A", "value": "1"}], secrets={"TOKEN": SECRET}))


def test_variables_that_no_request_has_are_refused() -> None:
    """They would be lost."""
    with pytest.raises(TaskSpecError, match=r"spec\.env: jobs passes no variables"):
        entry_of(described()).check(task(env=[{"name": "A", "value": "1"}]))


def test_a_service_without_parameters_has_none() -> None:
    """Also none by mistake."""
    config = described(parameters={}, create={**LEAST["create"], "body": None})
    with pytest.raises(TaskSpecError, match=r"spec\.custom\.rounds: jobs has no such parameter; it has none"):
        entry_of(config).check(task(custom={"rounds": 1}))


def test_templates_know_the_task() -> None:
    """What it does not have is not there; the key can be an id anywhere."""
    found = document_of(task(custom={"a": 1}, env=[{"name": "A", "value": "1"}]), "uid/0 ä")
    assert found == {
        "name": "train", "namespace": "team-a", "project": "p", "type": "job-there", "attempt": 0, "key": "uid-0--",
        "priority": 0, "labels": {"team": "blue"}, "custom": {"a": 1}, "env": {"A": "1"},
    }  # fmt: skip

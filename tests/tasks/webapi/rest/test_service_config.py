"""Descriptions of services: what can be said, and what is refused with its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from backoff_ctrl.k8s.tasks.services.rest.service_config import SERVICES, checked_url
from tests.tasks.webapi.rest.jobs_service import FINDING, GIVEN, LEAST, described

JSON = dict[str, Any]

WRONG: dict[str, tuple[JSON, str]] = {
    "no state": ({"state": None}, "here: state: must be a JSONPath"),
    "a path that is none": ({"state": "state"}, "here: state: 'state' is not a JSONPath"),
    "an unknown key": (
        {"gett": {}},
        "here: gett: unknown key: did you mean get?; docs/how-to/describe-a-service.md explains them",
    ),
    "no success": ({"states": {"x": {"phase": "Running"}}}, "here: states: no state means Success"),
    "others that end": ({"other": {"phase": "Success"}}, "here: other: an undescribed state"),
    "gone that goes on": ({"gone": {"phase": "Running"}}, "here: gone: a job that its service does not know has ended"),
    "no address": ({"url": "jobs.example.com"}, "here: url: 'jobs.example.com' is not the address of a service"),
    "a relative path": ({"get": {"path": "jobs/{$.id}"}}, "here: get.path: 'jobs/{$.id}' must begin with a slash"),
    "a query in a path": ({"get": {"path": "/jobs?id={$.id}"}}, "here: get.path: '/jobs?id={$.id}' must begin with"),
    "another method": ({"get": {"path": "/", "method": "HEAD"}}, "here: get.method: Input should be"),
    "a template that is none": ({"get": {"path": ["/jobs"]}}, "here: get.path: must be a text"),
    "a placeholder that is none": ({"get": {"path": "/{$.x[}"}}, "here: get.path: '$.x[' is not a JSONPath"),
    "an unknown value": (
        {"get": {"path": "/{$.nmae}"}},
        "here: get: $.nmae is not known there: choose from annotations",
    ),
    "a path without a name": ({"get": {"path": "/{$['id']}"}}, """here: get: "$['id']" names no value"""),
    "an unknown parameter": (
        {"create": {"path": "/", "body": ["{$.custom.x}"]}},
        "here: create: $.custom.x is no parameter",
    ),
    "an id too early": ({"create": {"path": "/{$.id}"}}, "here: create: $.id is not known there"),
    "a secret in a body": (
        {"create": {"path": "/", "body": "$.secrets.X"}},
        "here: create: $.secrets.X is not known there",
    ),
    "no id": ({"job-id": {}}, "here: job-id: name path, where the answer has the id, or given"),
    "a list of anybody's jobs": (
        {"find": {"path": "/", "items": "$.x"}},
        "here: find.items: no key tells the task's job",
    ),
    "a long time": ({"timeout": "2h"}, "here: timeout: Input should be less than or equal to"),
    "a good status that is an error": (
        {"create": {"path": "/", "exists": {"statuses": [200]}}},
        "here: create.exists.statuses.0",
    ),
    "a small answer": ({"answer-max": 1}, "here: answer-max: Input should be greater than or equal to 1024"),
    "a slow rate": ({"limits": {"reads": {"qps": 0, "burst": 5}}}, "here: limits.reads.qps: Input should be"),
}


@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_description_is_one_sentence_with_its_key(change: JSON, says: str) -> None:
    """Before any task begins."""
    with pytest.raises(DescriptionError) as raised:
        SERVICES.read({**LEAST, **change}, "here")
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["", "x", "http://", "http://a:b", "http://u@a", "http://a?b", "http://a#b", "http://a\nb"]
)
def test_an_address_is_scheme_host_and_path(text: str) -> None:
    """Credentials belong into headers, and are refused."""
    with pytest.raises(ValueError, match="is not the address of a service"):
        checked_url(text)
    assert checked_url("https://[::1]:8443/api/") == "https://[::1]:8443/api"


def test_a_service_can_find_jobs_by_a_look_up_or_a_given_id() -> None:
    """Only then is the manager offered to look."""
    assert not described().looks_up
    assert described(**FINDING).looks_up
    assert described(**GIVEN).looks_up


def test_an_entry_serves_the_described_types() -> None:
    """Its url is a setting of its own."""
    entry = entry_of(described())
    assert (entry.id, entry.supported_task_types, entry.own_keys) == ("jobs", ("job-there",), frozenset({"url"}))


def test_the_shipped_services_are_read_like_any_other() -> None:
    """One per file, each under its file's name; the registry has them."""
    folder = Path(__file__).parents[4] / "k8s" / "tasks" / "services" / "rest" / "services"
    shipped = {each.id: each for each in SERVICES.shipped()}
    assert shipped == {path.stem: SERVICES.read_file(path) for path in folder.iterdir()}
    assert isinstance(registry().resolve("ray-job"), WebPluginEntry)

"""A task in Flyte's words: template, inputs and the metadata of the attempt."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format

from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.services.connector.requests import request_of

from .scripted import UID, task


def shown(message: Any) -> Any:
    """Return a message as JSON."""
    return json_format.MessageToDict(message)


def test_the_short_form_has_the_custom_fields_of_the_connector() -> None:
    request = request_of(task("webhook", custom={"url": "http://a", "headers": {"a": "b"}, "timeout_sec": 10}))
    assert shown(request.template) == {
        "id": {"resourceType": "TASK", "project": "p", "domain": "d", "name": "train", "version": UID},
        "type": "webhook",
        "custom": {"url": "http://a", "headers": {"a": "b"}, "timeout_sec": 10.0},
    }
    assert (request.type, request.output_prefix) == (("webhook", 0), "")


def test_the_long_form_is_flytes_own_template_with_inputs_and_where_outputs_go() -> None:
    template = {
        "type": "bigquery_query_job_task",
        "taskTypeVersion": 2,
        "metadata": {"retries": {"retries": 1}, "discoverable": True},
        "interface": {"inputs": {"variables": {"n": {"type": {"simple": "INTEGER"}}}}},
        "config": {"Location": "EU"},
        "sql": {"statement": "select 1", "dialect": "ANSI"},
        "id": {"resourceType": "TASK", "project": "x", "domain": "y", "name": "query", "version": "v1"},
    }
    about = task("connector", template={**template, "inputs": {"n": 3}, "outputPrefix": "s3://b/here"})
    request = request_of(about, outputs_below="s3://b/others")
    assert shown(request.template) == template
    assert shown(request.inputs)["literals"]["n"] == {"scalar": {"primitive": {"integer": "3"}}}
    assert (request.type, request.output_prefix) == (("bigquery_query_job_task", 2), "s3://b/here")


def test_a_container_of_kubernetes_is_written_in_flytes_form() -> None:
    container = {
        "image": "busybox:1",
        "command": ["sh"],
        "args": ["-c", "true"],
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 2, "memory": "1Gi"}},
    }
    assert shown(request_of(task(container=container)).template.container) == {
        "image": "busybox:1",
        "command": ["sh"],
        "args": ["-c", "true"],
        "env": [{"key": "A", "value": "1"}],
        "ports": [{"containerPort": 80}],
        "resources": {
            "requests": [{"name": "CPU", "value": "1"}],
            "limits": [{"name": "GPU", "value": "2"}, {"name": "MEMORY", "value": "1Gi"}],
        },
    }


def test_the_attempt_is_described_as_flyte_does() -> None:
    """A connector can name its job by it: it is the same for a create that is repeated, another for a new attempt."""
    about = task(attempt=2, env=[{"name": "A", "value": "1"}], retries={"user": 4}, interruptible=True)
    request = request_of(about, {"TOKEN": "hush"}, "s3://b/")
    assert shown(request.metadata) == {
        "taskExecutionId": {
            "taskId": {"resourceType": "TASK", "project": "p", "domain": "d", "name": "train", "version": UID},
            "nodeExecutionId": {
                "nodeId": "train",
                "executionId": {"project": "p", "domain": "d", "name": "train-5f0c8a1e"},
            },
            "retryAttempt": 2,
        },
        "namespace": "team",
        "labels": {
            "team": "red",
            "backoff-ctrl.dev/task-uid": UID,
            "backoff-ctrl.dev/attempt": "2",
            "backoff-ctrl.dev/store": "st",
        },
        "annotations": {"why": "test"},
        "k8sServiceAccount": "runner",
        "environmentVariables": {"A": "1", "TOKEN": "hush"},
        "maxAttempts": 5,
        "identity": {"k8sServiceAccount": "runner"},
    }
    assert request.output_prefix == f"s3://b/team/train/{UID}/2"


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("t", {"podTemplate": {}}, "spec.podTemplate: a connector does not read it: write a pod as spec.template.k8sPod"),
    ("t", {"primaryContainer": "a"}, "spec.primaryContainer: a connector does not read it"),
    ("t", {"resources": {}}, "spec.resources: a connector does not read it"),
    ("t", {"accelerator": {}}, "spec.accelerator: a connector does not read it"),
    ("t", {"template": []}, "spec.template: must be an object, not a list"),
    ("t", {"template": {"kustom": {}}}, 'spec.template: it is not a TaskTemplate: .*has no field named "kustom"'),
    ("t", {"template": {"custom": [1]}}, "spec.template: it is not a TaskTemplate"),
    ("t", {"template": {"inputs": 3}}, "spec.template.inputs: must be an object"),
    ("t", {"template": {"outputPrefix": 3}}, "spec.template.outputPrefix: must be a text"),
    ("t", {"template": {"type": "other"}}, "spec.template.type: it is 'other', and spec.type is 't': leave one out"),
    ("connector", {}, "spec.template.type: a task of type connector says here which task type it is"),
    ("t", {"custom": 3}, "spec.custom: must be an object, not a whole number"),
    ("t", {"custom": {}, "template": {"custom": {}}}, "spec.custom: it is in spec.template.custom as well"),
    ("t", {"container": {}, "template": {"container": {}}}, "spec.container: it is in spec.template.container as well"),
    ("t", {"container": {"args": "a"}}, "spec.container.args: must be a list, not a text"),
    ("t", {"container": {"args": [1]}}, r"spec.container.args\[0\]: must be a text"),
    (
        "t",
        {"container": {"args": ["{{.input}}"]}},
        r"container.args\[0\]: '{{.input}}' names what Flyte alone fills in",
    ),
    ("t", {"container": {"resources": {"limits": {"pods": 1}}}}, "spec.container.resources.limits.pods: Flyte knows"),
    ("t", {"env": [{"name": "A", "valueFrom": {}}]}, r"spec.env\[0\].valueFrom: a connector gets values alone"),
    ("t", {"container": {"env": [{"name": "A", "valueFrom": {}}]}}, r"spec.container.env\[0\].valueFrom"),
]


@pytest.mark.parametrize(("type_", "spec", "said"), BAD, ids=[each[2][:40] for each in BAD])
def test_a_task_that_can_not_be_sent_is_refused_with_its_field(type_: str, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskSpecError, match=said):
        request_of(task(type_, **spec))


def test_objects_deeper_than_protobuf_allows_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}
    with pytest.raises(TaskSpecError, match=r"spec.custom: can't be sent"):
        request_of(task(custom=deep))

"""The URLs below ``/v1/tasks``, with what OpenAPI says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.api.status.examples import AT
from backoff_ctrl.api.status.routing import Function, add_endpoint
from backoff_ctrl.k8s.status.endpoints import Endpoint, Nothing, OfNamespace
from backoff_ctrl.k8s.status.shapes.documents import Page
from backoff_ctrl.k8s.tasks.documents import TaskDocument, TaskItem, TaskObject, TaskWait

from .endpoints import OfLog, OfTask, TaskEndpoints

if TYPE_CHECKING:
    from fastapi import FastAPI

    from backoff_ctrl.api.status.access import Access

TASK: Final[dict[str, Any]] = {
    "apiVersion": "backoff-ctrl.dev/v1alpha1",
    "kind": "Task",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {
        "type": "container",
        "container": {"image": "busybox", "command": ["true"], "resources": {"requests": {"cpu": "1"}}},
    },
}
_COMMON: Final[dict[str, Any]] = {
    "namespace": "team", "name": "train", "uid": "9f3b2c52-6f0e-4a44-9f0e-1f2d8c1b7a55", "type": "container",
    "plugin": "container", "phase": "WaitingForResources", "version": 2, "reason": "quota", "code": None, "kind": None,
    "attempt": 0, "object": TaskObject("v1", "Pod", "train-9f3b2c52-0", ""),
    "wait": TaskWait("quota", "compute", "requests.cpu", "1", "500m", "10", 1, None, None), "created_at": AT,
    "ended_at": None, "since": AT, "next_attempt_at": None, "abort": False, "unfinished": True,
}  # fmt: skip
ITEM: Final = TaskItem(**_COMMON)
DOCUMENT: Final = TaskDocument(**_COMMON, as_of=AT, spec=TASK["spec"])


def add_tasks(app: FastAPI, answers: TaskEndpoints, access: Access) -> None:
    """Add the URLs to an application."""

    def add(path: str, query: type, function: Function, shape: Any, example: Any, **more: Any) -> None:
        endpoint = Endpoint(path, function.__name__, query, "document", shape, more.pop("method", "GET"))
        add_endpoint(app, endpoint, function, access, shape=shape, example=example, **more)

    page = {"as_of": AT, "items": [ITEM], "next": None}
    add("/v1/tasks", OfNamespace, answers.list, Page[TaskItem], page)
    add("/v1/tasks", Nothing, answers.create, TaskDocument, DOCUMENT, method="POST", codes=(200, 201), body=TASK)
    one = "/v1/tasks/{namespace}/{name}"
    add(one, OfTask, answers.show, TaskDocument, DOCUMENT)
    add(one, OfTask, answers.delete, TaskDocument, DOCUMENT, method="DELETE")
    add(f"{one}/abort", OfTask, answers.abort, TaskDocument, DOCUMENT, method="POST")
    add(f"{one}/log", OfLog, answers.log, None, None, words={200: "The log."})

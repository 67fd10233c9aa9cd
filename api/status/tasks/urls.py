"""The URLs below ``/v1/tasks``, with what OpenAPI says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from backoff_ctrl.api.status.answers import PROBLEMS, parameters
from backoff_ctrl.api.status.examples import AT
from backoff_ctrl.k8s.status.asked import VALUE_MAX
from backoff_ctrl.k8s.status.explaining.bodies import JSON_TYPES, YAML_TYPES
from backoff_ctrl.k8s.status.shapes.documents import Page
from backoff_ctrl.k8s.tasks.documents import TaskDocument, TaskItem, TaskObject, TaskWait

if TYPE_CHECKING:
    from fastapi import FastAPI

    from .endpoints import TaskEndpoints

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
_IN_PATH: Final = [
    {"name": name, "in": "path", "required": True, "description": words, "schema": {"type": "string", "minLength": 1}}
    for name, words in (("namespace", "The namespace of the task."), ("name", "The name of the task."))
]

_OF_LOG: Final = [
    {"name": "container", "in": "query", "description": "The container; by default the task's main container.",
     "schema": {"type": "string", "maxLength": VALUE_MAX}},
    {"name": "follow", "in": "query", "description": "Whether to go on, as it is written, until the task has ended.",
     "schema": {"type": "boolean", "default": False}},
]  # fmt: skip


def add_tasks(app: FastAPI, answers: TaskEndpoints) -> None:
    """Add the URLs to an application."""

    def add(path: str, handler: Any, shape: Any, example: Any, method: str, *codes: int, **more: Any) -> None:
        content = {"application/json": {"example": example}}
        told: dict[int | str, Any] = {
            code: {"model": shape, "content": content, "description": "The document."} for code in codes
        }
        if method == "GET":
            told[304] = {"description": "Nothing has changed since the ETag."}
        app.add_api_route(
            path, handler, methods=[method], responses={**told, **PROBLEMS}, openapi_extra=more, response_class=Response
        )

    page = {"as_of": AT, "items": [ITEM], "next": None}
    query = parameters("namespace", "limit", "after")
    add("/v1/tasks", answers.list, Page[TaskItem], page, "GET", 200, parameters=query)
    manifest = {"schema": {"type": "object"}, "example": TASK}
    body = {"required": True, "content": {JSON_TYPES[0]: manifest, YAML_TYPES[0]: manifest}}
    add("/v1/tasks", answers.create, TaskDocument, DOCUMENT, "POST", 200, 201, requestBody=body)
    one = "/v1/tasks/{namespace}/{name}"
    add(one, answers.show, TaskDocument, DOCUMENT, "GET", 200, parameters=_IN_PATH)
    add(one, answers.delete, TaskDocument, DOCUMENT, "DELETE", 200, parameters=_IN_PATH)
    add(f"{one}/abort", answers.abort, TaskDocument, DOCUMENT, "POST", 200, parameters=_IN_PATH)
    text: dict[int | str, Any] = {200: {"content": {"text/plain": {"example": "trained\n"}}, "description": "The log."}}
    app.add_api_route(
        f"{one}/log", answers.log, methods=["GET"], responses={**text, **PROBLEMS}, response_class=Response,
        openapi_extra={"parameters": [*_IN_PATH, *_OF_LOG]},
    )  # fmt: skip

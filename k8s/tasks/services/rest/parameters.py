"""A task for a service: its parameters are checked, and it becomes the document that templates read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from backoff_ctrl.k8s.kube.answers.fields import mapping
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.operators.paths import Text
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskSpecError, object_at, objects_at

from .service_config import CUSTOM, ENV, ID, Parameter, Request, ServiceConfig, checked_url
from .templates import filled, root_of

_OF_PODS: Final = ("container", "podTemplate", "primaryContainer", "template", "resources", "accelerator")
"""The parts of a spec that describe what runs in a pod."""
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "any": (object,),
}


def checked(config: ServiceConfig, task: TaskContext) -> None:
    """Check what of a task can be checked before it begins. Raises ``TaskSpecError``."""
    for part in _OF_PODS:
        if task.spec.get(part):
            raise TaskSpecError(f"spec.{part}", f"{config.id} runs no pod: leave it out, and use spec.custom")
    if task.spec.get(ENV) and not config.reads(ENV):
        raise TaskSpecError("spec.env", f"{config.id} passes no variables to the service: leave it out")
    for name in mapping(task.spec.get("secrets")):
        if name not in config.secrets:
            used = ", ".join(sorted(config.secrets)) or "none"
            raise TaskSpecError(f"spec.secrets.{name}", f"no header of {config.id} has it; it has {used}")
    _check_parameters(config, task)
    document = document_of(task, "key")
    own_address(config, document)
    given = config.job_id.given
    for request in (config.create, config.get, *filter(None, (config.find, config.cancel))):
        written(request, {**document, ID: (given and given.of(document)) or "id"})


def document_of(task: TaskContext, key: str, **more: Any) -> JSON:
    """Return what templates know of a task, and ``more``. Raises ``TaskSpecError``.

    ``key`` has only letters, digits and ``._-``, so that it can be an id everywhere.
    """
    about = task.metadata
    known = {
        "name": about.name,
        "namespace": about.namespace,
        "project": about.project,
        "domain": about.domain,
        "type": task.type,
        "attempt": about.attempt,
        "key": _NOT_PLAIN.sub("-", key),
        "priority": about.priority,
        "labels": dict(about.labels),
        "annotations": dict(about.annotations),
        CUSTOM: object_at(task.spec, CUSTOM, "spec"),
        ENV: _variables(task),
        **more,
    }
    return {name: value for name, value in known.items() if value not in ("", None, {})}


def own_address(config: ServiceConfig, document: JSON) -> str:
    """Return the address that the task names, or an empty text. Raises ``TaskSpecError`` if it is no address."""
    found = None if config.task_url is None else config.task_url.first(document)
    if found is None:
        return ""
    try:
        return checked_url(str(found))
    except ValueError as error:
        raise TaskSpecError(_place_of(str(config.task_url)), str(error)) from None


def written(request: Request, document: JSON) -> tuple[str, dict[str, str], Any]:
    """Return the path, the query and the body of a request. Raises ``TaskSpecError`` if its path lacks a value."""
    lacking = request.path.lacking(document)
    if lacking:
        raise TaskSpecError(_place_of(lacking), f"the path {request.path} needs it")
    query = {name: text for name, each in request.query.items() if (text := each.of(document)) is not None}
    return _path(request.path, document), query, filled(request.body, document)


def _path(template: Text, document: JSON) -> str:
    def segment(word: str) -> str:
        if word in (".", ".."):
            raise TaskSpecError(_place_of(template.paths[0]), f"{word!r} would be another path")
        return quote(word, safe="")

    return template.of(document, segment) or "/"


def _check_parameters(config: ServiceConfig, task: TaskContext) -> None:
    found = object_at(task.spec, CUSTOM, "spec")
    for name in found:
        if name not in config.parameters:
            known = ", ".join(config.parameters) or "none"
            raise TaskSpecError(f"spec.custom.{name}", f"{config.id} has no such parameter; it has {known}")
    for name, parameter in config.parameters.items():
        value = found.get(name)
        if value is None and parameter.required:
            about = f": {parameter.about}" if parameter.about else ""
            raise TaskSpecError(f"spec.custom.{name}", f"{config.id} needs it{about}")
        if value is not None and not _is_of(value, parameter):
            raise TaskSpecError(f"spec.custom.{name}", f"must be of the type {parameter.type}")


def _is_of(value: object, parameter: Parameter) -> bool:
    if isinstance(value, bool):
        return parameter.type in ("boolean", "any")
    return isinstance(value, _TYPES[parameter.type])


def _variables(task: TaskContext) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, each in enumerate(objects_at(task.spec, ENV, "spec")):
        name, value = each.get("name"), each.get("value", "")
        if not isinstance(name, str) or not name or not isinstance(value, str) or "valueFrom" in each:
            raise TaskSpecError(f"spec.env[{index}]", "must have a name and a value: a service can't read a valueFrom")
        found[name] = value
    return found


def _place_of(path: str) -> str:
    """Return where a task has the value at a path of its document."""
    root, _ = root_of(path)
    below = path.removeprefix("$.")
    return f"spec.{below}" if root in (CUSTOM, ENV, "project", "domain", "priority") else f"metadata.{below}"

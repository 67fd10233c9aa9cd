"""A task's ``template``: the object that a plugin creates, as its user wrote it, checked and copied. Pure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .pods.building import pod_of_template
from .protocol import TaskSpecError

if TYPE_CHECKING:
    from .protocol import JSON, Kind, TaskContext

TEMPLATE: Final = "spec.template"
"""Where a task holds its object: what errors begin with."""
_RUN: Final = ("resources", "env", "accelerator")
"""What a run may change of a task's pods."""
_KEPT: Final = ("labels", "annotations")
"""The metadata that an object keeps; its name and namespace are the task's."""


def object_of(task: TaskContext, kind: Kind) -> JSON:
    """Return the object that the task describes, without name and status. Raises ``TaskSpecError``."""
    template = task.spec.get("template")
    if not isinstance(template, dict):
        raise TaskSpecError(TEMPLATE, f"must be the {kind.kind} to create, with apiVersion, kind and spec")
    for key, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if template.get(key, expected) != expected:
            raise TaskSpecError(
                f"{TEMPLATE}.{key}", f"must be {expected} for a task of type {task.type}, not {template[key]!r}"
            )
    spec = template.get("spec")
    if not isinstance(spec, dict):
        raise TaskSpecError(f"{TEMPLATE}.spec", f"must be an object: the spec of the {kind.kind}")
    metadata = _metadata(template)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": deepcopy(spec)}


def pod_template_at(template: Any, path: str, task: TaskContext) -> JSON:
    """Return a pod template of the object with the platform's defaults in it. Raises ``TaskSpecError``.

    Its restart policy stays as it is: operators have rules of their own for it.
    """
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise TaskSpecError(f"{path}.spec", "must be an object: the spec of a pod")
    run = {key: task.spec[key] for key in _RUN if key in task.spec}
    try:
        pod = pod_of_template(replace(task, spec={**run, "podTemplate": template}), needs_primary=False)
    except TaskSpecError as error:
        place = error.path.replace("spec.podTemplate", path, 1)
        raise TaskSpecError(place, str(error).removeprefix(f"{error.path}: ")) from None
    if "restartPolicy" not in template["spec"]:
        del pod["spec"]["restartPolicy"]
    metadata = {**(template.get("metadata") or {}), **pod["metadata"]}
    return {**template, **({"metadata": metadata} if metadata else {}), "spec": pod["spec"]}


def _metadata(template: JSON) -> JSON:
    metadata = template.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise TaskSpecError(f"{TEMPLATE}.metadata", "must be an object")
    return {key: dict(metadata[key]) for key in _KEPT if isinstance(metadata.get(key), dict)}

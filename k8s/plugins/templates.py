"""A task's ``template``: the object that a plugin creates, as its user wrote it, checked and copied. Pure.

Plugins of other packages find these functions in ``backoff_ctrl.plugins``.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .pods.building import pod_of_template
from .pods.checked import objects_at
from .pods.containers import finish_container
from .pods.scheduling import schedule
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


def pod_template(task: TaskContext, template: Any, path: str, *, primary: str = "") -> JSON:
    """Return a pod template of an object with all that the platform and the run add to a task's pod.

    ``template`` is what the task says, with ``metadata`` and ``spec``; ``path`` is where, for errors. The result is a
    copy with resources, environment, pull policy and security of its containers, tolerations, node selector, affinity
    (those of interruptible tasks and of ``spec.accelerator`` too), service account, scheduler and the like.

    ``primary`` names the container that the run's ``spec.resources`` and ``spec.env`` are about, and that gets the
    default requests and limits; by default the only one. Other containers ask for what they say themselves. A restart
    policy is not added: operators have rules of their own for it. Raises ``TaskSpecError``.
    """
    made = pod(task, template, path, primary=primary)
    if "restartPolicy" not in template["spec"]:
        del made["spec"]["restartPolicy"]
    metadata = {**(template.get("metadata") or {}), **made["metadata"]}
    return {**template, **({"metadata": metadata} if metadata else {}), "spec": made["spec"]}


def pod(task: TaskContext, template: Any, path: str, *, primary: str = "") -> JSON:
    """Return a whole pod of a template: as ``pod_template`` does, and its restart policy is ``Never`` if it names none.

    Name and namespace are the manager's to add. Raises ``TaskSpecError``.
    """
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise TaskSpecError(f"{path}.spec", "must be an object: the spec of a pod")
    run = {key: task.spec[key] for key in _RUN if key in task.spec}
    about = {"podTemplate": template, **({"primaryContainer": primary} if primary else {})}
    try:
        return pod_of_template(replace(task, spec={**run, **about}), needs_primary=False)
    except TaskSpecError as error:
        place = error.path.replace("spec.podTemplate", path, 1)
        raise TaskSpecError(place, str(error).removeprefix(f"{error.path}: ")) from None


def container(task: TaskContext, template: Any, path: str) -> JSON:
    """Return one container as a task's primary one would be created, for objects that have containers but no pod.

    ``template`` is the container, ``path`` where the task says it. What the platform's limits lowered is told by a pod
    and a pod template alone, in an annotation. Raises ``TaskSpecError``.
    """
    if not isinstance(template, dict):
        raise TaskSpecError(path, "must be an object: a container")
    made = deepcopy(template)
    finish_container(made, task, path)
    return made


def scheduling(task: TaskContext, containers: Any, path: str) -> JSON:
    """Return what a pod's spec says of where it may run, for objects that keep that outside of a pod template.

    ``containers`` are those of the pod: what they ask for decides on tolerations, and ``spec.accelerator`` needs a GPU
    of one of them. The keys are ``tolerations``, ``nodeSelector``, ``affinity`` and ``schedulerName``, as far as there
    is anything to say. Raises ``TaskSpecError``.
    """
    spec: JSON = {"containers": objects_at({"containers": containers}, "containers", path)}
    schedule(spec, task, path)
    if task.config.scheduler_name:
        spec["schedulerName"] = task.config.scheduler_name
    del spec["containers"]
    return spec


def _metadata(template: JSON) -> JSON:
    metadata = template.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise TaskSpecError(f"{TEMPLATE}.metadata", "must be an object")
    return {key: dict(metadata[key]) for key in _KEPT if isinstance(metadata.get(key), dict)}

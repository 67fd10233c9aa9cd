"""A task's pod: from one container, or from a pod template; then what the platform and the run add to it."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

from .accelerators import accelerator_of
from .checked import object_at, objects_at, refuse_custom, text_at
from .containers import finish_containers
from .scheduling import schedule
from .status import ADJUSTED, PRIMARY_CONTAINER
from .template import on_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
RAW_CONTAINER: Final = "raw-container"


def pod_of_container(task: TaskContext) -> JSON:
    """Return the pod of a task that is one container, ``spec.container``. Raises ``TaskSpecError``."""
    refuse_custom(task)
    if task.spec.get("container") is None:
        raise TaskSpecError(
            "spec.container", f"a task of type {task.type} needs a container: give it an image at least"
        )
    container = deepcopy(object_at(task.spec, "container", "spec"))
    generated = task.metadata.generated_name
    container.setdefault("name", generated if _LABEL.fullmatch(generated) else "main")
    _check_container(container, "spec.container")
    if not isinstance(container.get("image"), str) or not container["image"]:
        raise TaskSpecError("spec.container.image", "name the image to run")
    annotations = {} if task.type == RAW_CONTAINER else {PRIMARY_CONTAINER: container["name"]}
    return _pod({"containers": [container]}, {"annotations": annotations}, container["name"], task, "spec.container")


def pod_of_template(task: TaskContext, *, needs_primary: bool) -> JSON:
    """Return the pod of a task with a pod template; ``needs_primary``: its end is that of one of its containers.

    Raises ``TaskSpecError``.
    """
    refuse_custom(task)
    if task.spec.get("podTemplate") is None:
        raise TaskSpecError("spec.podTemplate", f"a task of type {task.type} needs a pod template: metadata and spec")
    template = deepcopy(object_at(task.spec, "podTemplate", "spec"))
    path = "spec.podTemplate.spec"
    spec = object_at(template, "spec", "spec.podTemplate")
    names = _checked_names(spec, path)
    primary = _primary(task, names, needs_primary=needs_primary)
    metadata = object_at(template, "metadata", "spec.podTemplate")
    kept = {key: object_at(metadata, key, "spec.podTemplate.metadata") for key in ("labels", "annotations")}
    if primary:
        kept["annotations"][PRIMARY_CONTAINER] = primary
    return _pod(spec, kept, primary, task, path)


def _checked_names(spec: JSON, path: str) -> list[str]:
    """Return the containers' names. Raises ``TaskSpecError`` for a spec that makes no pod."""
    for key in ("initContainers", "containers"):
        spec[key] = objects_at(spec, key, path, "must be an object with a name and an image")
        for index, container in enumerate(spec[key]):
            _check_container(container, f"{path}.{key}[{index}]")
    if not spec["containers"]:
        raise TaskSpecError(f"{path}.containers", "a pod needs at least one container")
    if not spec["initContainers"]:
        del spec["initContainers"]
    return [container["name"] for container in spec["containers"]]


def _check_container(container: Mapping[str, Any], path: str) -> None:
    name = container.get("name")
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        rule = "at most 63 of a-z, 0-9 and -, with a letter or digit at both ends"
        raise TaskSpecError(f"{path}.name", f"a container needs a name: {rule}")


def _primary(task: TaskContext, names: list[str], *, needs_primary: bool) -> str:
    """Return the container whose end is the task's; empty: all have to succeed."""
    named = text_at(task.spec, "primaryContainer", "spec")
    if named and named not in names:
        raise TaskSpecError("spec.primaryContainer", f"there is no container {named}: choose one of {', '.join(names)}")
    if not named and needs_primary and len(names) > 1:
        raise TaskSpecError(
            "spec.primaryContainer", f"name the container whose end is the task's, one of {', '.join(names)}"
        )
    return named or (names[0] if len(names) == 1 else "")


def _pod(spec: JSON, metadata: JSON, primary: str, task: TaskContext, path: str) -> JSON:
    """Return the pod with all that the platform and the run add."""
    config = task.config
    below = accelerator_of(task).pod_template
    if below is not None:
        spec, metadata = on_template(spec, metadata, primary, below)
    if task.pod_template is not None:
        spec, metadata = on_template(spec, metadata, primary, task.pod_template)
    lowered = finish_containers(spec, primary, task, path)
    if lowered:
        metadata["annotations"][ADJUSTED] = "; ".join(lowered)
    schedule(spec, task, path)
    spec.setdefault("restartPolicy", "Never")
    if task.metadata.service_account and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = task.metadata.service_account
    if config.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = config.scheduler_name
    if config.default_pod_security_context is not None and spec.get("securityContext") is None:
        spec["securityContext"] = deepcopy(config.default_pod_security_context)
    if config.default_pod_dns_config is not None and spec.get("dnsConfig") is None:
        spec["dnsConfig"] = deepcopy(config.default_pod_dns_config)
    if config.enable_host_networking_pod is not None:
        spec["hostNetwork"] = config.enable_host_networking_pod
    kept = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}

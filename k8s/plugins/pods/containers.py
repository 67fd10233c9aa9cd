"""A task's containers as they will be created: environment, image pulls, security and resources."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

from .accelerators import accelerator_of
from .checked import object_at, objects_at
from .resources import Asked, Bounds, ask, bounds_of, keep_within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext


def finish_containers(spec: JSON, primary: str, task: TaskContext, path: str) -> list[str]:
    """Set, in place, what the platform and the run add to a pod's containers; ``primary`` is what the run is about.

    Returns what the platform's limits lowered, a sentence each. Raises ``TaskSpecError``.
    """
    bounds = bounds_of(task.metadata, task.config, accelerator_of(task).resource)
    if object_at(task.spec, "resources", "spec") and not primary:
        raise TaskSpecError("spec.resources", "no container is the primary one: write them to the pod template's own")
    lowered = _whole_pod(spec, bounds, path)
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or []):
            at = _path(path, key, index)
            is_primary = key == "containers" and container["name"] == primary
            asked = _finish(container, task, at, bounds, is_primary=is_primary)
            lowered += [f"container {container['name']}: {each}" for each in asked.lowered]
            _set_environment(container, task, at, of_run=is_primary or (key == "containers" and not primary))
    return lowered


def finish_container(container: JSON, task: TaskContext, path: str) -> list[str]:
    """Do the same for one container that the run is about, wherever an object has it."""
    asked = _finish(
        container, task, path, bounds_of(task.metadata, task.config, accelerator_of(task).resource), is_primary=True
    )
    _set_environment(container, task, path, of_run=True)
    return asked.lowered


def _finish(container: JSON, task: TaskContext, path: str, bounds: Bounds, *, is_primary: bool) -> Asked:
    own, resources = object_at(container, "resources", path), f"{path}.resources"
    run = object_at(task.spec, "resources", "spec")
    asked = ask(own, run, bounds, resources) if is_primary else keep_within(own, bounds, resources)
    if asked.manifest or own:
        container["resources"] = {**own, **asked.manifest}
    _set_defaults(container, task.config, is_primary=is_primary)
    return asked


def _whole_pod(spec: JSON, bounds: Bounds, path: str) -> list[str]:
    """Keep a pod's own resources, which its containers share, within the limits as well."""
    own = object_at(spec, "resources", path)
    if not own:
        return []
    asked = keep_within(own, bounds, f"{path}.resources")
    spec["resources"] = {**own, **asked.manifest}
    return [f"the pod: {each}" for each in asked.lowered]


def _path(path: str, key: str, index: int) -> str:
    """Return where a container stands in the task: one task type has exactly one, without a list."""
    return path if path == "spec.container" else f"{path}.{key}[{index}]"


def _set_environment(container: JSON, task: TaskContext, path: str, *, of_run: bool) -> None:
    """Set the environment: defaults give way to the container's own words, those to the run's.

    The run's variables are for the primary container; where all have to succeed, for each of them.
    """
    config = task.config
    variables: dict[str, JSON] = {
        name: {"name": name, "value": value} for name, value in config.default_env_vars.items()
    }
    layers = [(container, path)] + ([(task.spec, "spec")] if of_run else [])
    own = [variable for parent, at in layers for variable in _variables(parent, at)]
    for variable in own:  # one that was set before stays where it was first: others may refer to it
        variables[variable["name"]] = variable
    if variables:
        container["env"] = list(variables.values())
    sources = objects_at(container, "envFrom", path)
    sources += [{"secretRef": {"name": name, "optional": True}} for name in config.default_env_from_secrets]
    sources += [{"configMapRef": {"name": name, "optional": True}} for name in config.default_env_from_configmaps]
    if sources:
        container["envFrom"] = sources


def _variables(parent: Mapping[str, Any], path: str) -> list[JSON]:
    """Return a list of environment variables. Raises ``TaskSpecError`` for what is none."""
    right = "must be an object with a name, and a value or valueFrom"
    found = objects_at(parent, "env", path, right)
    for index, variable in enumerate(found):
        if not isinstance(variable.get("name"), str) or not variable["name"]:
            raise TaskSpecError(f"{path}.env[{index}]", right)
    return deepcopy(found)


def _set_defaults(container: JSON, config: K8sPluginConfig, *, is_primary: bool) -> None:
    """Set what neither the task nor the run says; a sidecar's security is its user's affair, as in Flyte."""
    if config.image_pull_policy:
        container.setdefault("imagePullPolicy", config.image_pull_policy)
    if is_primary and config.default_security_context is not None:
        container.setdefault("securityContext", deepcopy(config.default_security_context))
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # why it failed is told with the phase

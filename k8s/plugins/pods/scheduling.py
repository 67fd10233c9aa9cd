"""Where a task's pod may run: tolerations, node selector, affinity; interruptible tasks and accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import JSON


def schedule(spec: JSON, config: K8sPluginConfig, accelerator: Any, *, interruptible: bool) -> None:
    """Set, in place, where a pod of this spec may run. What the spec says itself is kept."""
    names = sorted({name for container in _all(spec) for name in _resources(container)})
    tolerations = [each for name in names for each in config.resource_tolerations.get(name, [])]
    if interruptible:
        tolerations += config.interruptible_tolerations
    tolerations += config.default_tolerations
    tolerations += _of_extended_resources(names, config)
    tolerations += spec.get("tolerations") or []
    selector = {**config.default_node_selector, **(spec.get("nodeSelector") or {})}
    if interruptible:
        selector |= config.interruptible_node_selector
    if spec.get("affinity") is None and config.default_affinity is not None:
        spec["affinity"] = deepcopy(config.default_affinity)
    requirement = (
        config.interruptible_node_selector_requirement
        if interruptible
        else config.non_interruptible_node_selector_requirement
    )
    _require(spec, requirement)
    tolerations += _accelerate(spec, config, accelerator)
    if tolerations:
        spec["tolerations"] = [
            deepcopy(each) for index, each in enumerate(tolerations) if each not in tolerations[:index]
        ]
    if selector:
        spec["nodeSelector"] = selector


def _all(spec: JSON) -> list[JSON]:
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def _resources(container: JSON) -> set[str]:
    resources = container.get("resources") or {}
    return {name for key in ("requests", "limits") for name in resources.get(key) or {}}


def _of_extended_resources(names: list[str], config: K8sPluginConfig) -> list[JSON]:
    """Return a toleration for each extended resource whose nodes are kept apart by a taint of the same name."""
    return [
        {"key": name, "operator": "Exists", "effect": "NoSchedule"}
        for name in names
        if name in config.add_tolerations_for_extended_resources
    ]


def _require(spec: JSON, requirement: Mapping[str, Any] | None) -> None:
    """Add a requirement to every term of the node affinity: terms are alternatives, so each must have it."""
    if requirement is None:
        return
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    node = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (node.get(key) or {}).get("nodeSelectorTerms") or [{}]
    node[key] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or []), deepcopy(dict(requirement))]}
            for term in terms
        ]
    }


def _accelerate(spec: JSON, config: K8sPluginConfig, accelerator: Any) -> list[JSON]:
    """Choose nodes by the GPU that a task asks for, and return the tolerations that they need.

    ``accelerator``: ``device``, and of a GPU that can be divided ``partitionSize`` or ``unpartitioned: true``.
    """
    if accelerator is None:
        return []
    if not isinstance(accelerator, Mapping) or not isinstance(accelerator.get("device", ""), str):
        raise TaskSpecError("spec.accelerator", "must name a device, such as {device: nvidia-tesla-a100}")
    if not any(config.gpu_resource_name in _resources(container) for container in spec["containers"]):
        raise TaskSpecError(
            "spec.accelerator", f"no container asks for a GPU: set its limit of {config.gpu_resource_name}"
        )
    tolerations = []
    if device := accelerator.get("device"):
        tolerations.append(_of_label(spec, config.gpu_device_node_label, device))
    if accelerator.get("unpartitioned") is True:
        absent = {"key": config.gpu_partition_size_node_label, "operator": "DoesNotExist"}
        _require(spec, config.gpu_unpartitioned_node_selector_requirement or absent)
        if config.gpu_unpartitioned_toleration is not None:
            tolerations.append(config.gpu_unpartitioned_toleration)
    elif size := accelerator.get("partitionSize"):
        tolerations.append(_of_label(spec, config.gpu_partition_size_node_label, size))
    return tolerations


def _of_label(spec: JSON, label: str, value: str) -> JSON:
    """Require a label of the node, and return the toleration of the taint of the same name."""
    _require(spec, {"key": label, "operator": "In", "values": [value]})
    return {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}

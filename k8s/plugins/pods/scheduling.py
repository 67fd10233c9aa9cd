"""Where a task's pod may run: tolerations, node selector, affinity; interruptible tasks and accelerators."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

from .accelerators import PATH, accelerator_of
from .checked import object_at, objects_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext

    from .accelerators import Accelerator

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def schedule(spec: JSON, task: TaskContext, path: str) -> None:
    """Set, in place, where a pod of this spec may run. What the spec says itself is kept. Raises ``TaskSpecError``."""
    config, interruptible = task.config, task.metadata.interruptible
    _check(spec, path)
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
    required, others = (
        config.interruptible_node_selector_requirement,
        config.non_interruptible_node_selector_requirement,
    )
    _require(spec, required if interruptible else others)
    if task.spec.get("accelerator") is not None:
        tolerations += _accelerate(spec, accelerator_of(task))
    if tolerations:
        spec["tolerations"] = [
            deepcopy(each) for index, each in enumerate(tolerations) if each not in tolerations[:index]
        ]
    if selector:
        spec["nodeSelector"] = selector


def _check(spec: JSON, path: str) -> None:
    """Raise ``TaskSpecError`` for fields that can't be added to."""
    objects_at(spec, "tolerations", path)
    object_at(spec, "nodeSelector", path)
    at = f"{path}.affinity.nodeAffinity.{_REQUIRED}"
    node = object_at(object_at(spec, "affinity", path), "nodeAffinity", f"{path}.affinity")
    required = object_at(node, _REQUIRED, f"{path}.affinity.nodeAffinity")
    for index, term in enumerate(objects_at(required, "nodeSelectorTerms", at)):
        objects_at(term, "matchExpressions", f"{at}.nodeSelectorTerms[{index}]")


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
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    node[_REQUIRED] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or []), deepcopy(dict(requirement))]}
            for term in terms
        ]
    }


def _accelerate(spec: JSON, wanted: Accelerator) -> list[JSON]:
    """Choose nodes by the accelerator that a task asks for, and return the tolerations that they need."""
    if not any(wanted.resource in _resources(container) for container in spec["containers"]):
        raise TaskSpecError(PATH, f"no container asks for a GPU: set its limit of {wanted.resource}")
    tolerations = []
    if wanted.device:
        tolerations.append(_of_label(spec, wanted.device_label, wanted.device))
    if wanted.unpartitioned:
        _require(spec, wanted.whole)
        if wanted.toleration is not None:
            tolerations.append(dict(wanted.toleration))
    elif wanted.partition_size:
        tolerations.append(_of_label(spec, wanted.partition_label, wanted.partition_size))
    return tolerations


def _of_label(spec: JSON, label: str, value: str) -> JSON:
    """Require a label of the node, and return the toleration of the taint of the same name."""
    _require(spec, {"key": label, "operator": "In", "values": [value]})
    return {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}

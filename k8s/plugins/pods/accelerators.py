"""The accelerator that a task asks for, ``spec.accelerator``: a GPU as the platform labels it, or one of its classes.

``device`` names the model. ``deviceClass`` chooses among ``accelerator-device-classes``; without it the keys
``gpu-...`` count. Of a device that can be divided ``partitionSize`` is a part, and ``unpartitioned: true`` asks for a
whole one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.plugins.config.settings import ACCELERATOR_CLASSES
from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

from .checked import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.config.settings import AcceleratorClass, K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import TaskContext

PATH = "spec.accelerator"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """How its nodes are found. ``resource`` is what ``gpu`` stands for in the task; ``device`` the label's value."""

    resource: str
    device_label: str
    partition_label: str
    device: str = ""
    partition_size: str = ""
    unpartitioned: bool = False
    whole: Mapping[str, Any] | None = None
    """The requirement on nodes of a whole device."""
    toleration: Mapping[str, Any] | None = None
    """The toleration of a whole device."""
    pod_template: Mapping[str, Any] | None = None


def accelerator_of(task: TaskContext) -> Accelerator:
    """Return the accelerator of a task, or what ``gpu`` means to one that asks for none. Raises ``TaskSpecError``."""
    config = task.config
    asked = object_at(task.spec, "accelerator", "spec")
    device, size, name = (text_at(asked, key, PATH) for key in ("device", "partitionSize", "deviceClass"))
    known = _class(name, config) if name else None
    partition = (known and known.partition_size_node_label) or config.gpu_partition_size_node_label
    whole = (
        known.unpartitioned_node_selector_requirement if known else config.gpu_unpartitioned_node_selector_requirement
    )
    return Accelerator(
        (known and known.resource_name) or config.gpu_resource_name,
        (known and known.device_node_label) or config.gpu_device_node_label,
        partition,
        _value(device, config),
        size,
        asked.get("unpartitioned") is True,
        whole or {"key": partition, "operator": "DoesNotExist"},
        known.unpartitioned_toleration if known else config.gpu_unpartitioned_toleration,
        known.pod_template if known else None,
    )


def _class(name: str, config: K8sPluginConfig) -> AcceleratorClass:
    classes = {**ACCELERATOR_CLASSES, **{key.upper(): each for key, each in config.accelerator_device_classes.items()}}
    found = classes.get(name.upper())  # Flyte reads its keys in lower case, and means capitals
    if found is None:
        raise TaskSpecError(
            f"{PATH}.deviceClass", f"there is no class {name!r}: choose one of {', '.join(sorted(classes))}"
        )
    return found


def _value(device: str, config: K8sPluginConfig) -> str:
    """Return what the node's label says for a device."""
    names = {key.upper(): value for key, value in config.accelerator_devices.items()}
    return names.get(device.upper(), device)

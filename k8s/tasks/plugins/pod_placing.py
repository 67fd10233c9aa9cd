"""What a task's containers request, and where its pod may run: resources, tolerations, affinity, accelerators.

Levels of resources, from the weakest: ``default-cpus`` and ``default-memory``, the platform's defaults, the project's,
the task's container, the run. An unset request is the limit, else the default; an unset limit is the request. In
``spec.accelerator``, ``device`` names the model, and ``deviceClass`` chooses among ``accelerator-device-classes``;
without it the keys ``gpu-...`` apply. ``partitionSize`` is a part of a divisible device, and ``unpartitioned: true``
requests a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.cluster.kinds import JSON

from .config import ACCELERATOR_CLASSES, AcceleratorClass, K8sPluginConfig
from .field_names import unknown_resource
from .protocol import TaskContext, TaskMetadata, TaskSpecError, insist_on_fields, object_at, objects_at, refuse, text_at

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PATH: Final = "spec.accelerator"
_FIELDS: Final = ("device", "deviceClass", "partitionSize", "unpartitioned")
_GPU: Final = "gpu"
_ALWAYS: Final = ("cpu", "memory")
"""Resources that every task's container gets, since quotas and limits require them."""

Amounts = dict[str, Any]
"""Quantities by resource name, as texts."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Defaults and limits of one task, by resource name. ``refuses``: an amount above a limit is an error."""

    defaults: Mapping[str, str]
    limits: Mapping[str, str]
    gpu: str
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What a task's run, its accelerator and the platform say of its pods: read once for all of their containers."""

    resources: Mapping[str, Any]
    env: Sequence[JSON]
    """The run's variables, with those of the secrets that it names."""
    accelerator: AcceleratorClass
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Asked:
    """A container's resources as they will be created, and a sentence for each lowered amount."""

    requests: Amounts
    limits: Amounts
    lowered: list[str] = field(default_factory=list)

    @property
    def manifest(self) -> dict[str, Amounts]:
        return {key: each for key, each in (("requests", self.requests), ("limits", self.limits)) if each}


def bounds_of(task: TaskMetadata, config: K8sPluginConfig, gpu: str) -> Bounds:
    """Return the defaults and limits for a task: the platform's, changed by its project's and its domain's.

    ``gpu`` is the resource that the short name of one stands for.
    """
    platform = config.task_resources
    defaults = {"cpu": config.default_cpus, "memory": config.default_memory, **platform.defaults}
    limits = dict(platform.limits)
    fitting = [each for each in platform.projects if each.project == task.project and each.domain in ("", task.domain)]
    for project in sorted(fitting, key=lambda each: bool(each.domain)):  # a domain's values come last
        defaults |= project.defaults
        limits |= project.limits
    return Bounds(_named(defaults, gpu), _named(limits, gpu), gpu, platform.above_limits == "refuse")


def ask(own: Mapping[str, Any], run: Mapping[str, Any], bounds: Bounds, path: str) -> Asked:
    """Return the resources of the task's main container. Raises ``TaskSpecError`` with the path of a wrong field."""
    asked = Asked({}, {})
    for resources, at in ((own, path), (run, "spec.resources")):
        if not resources:
            continue
        part = keep_within(resources, bounds, at)
        asked.requests.update({name: value for name, value in part.requests.items() if parse_quantity(value)})
        asked.limits.update({name: value for name, value in part.limits.items() if parse_quantity(value)})
        asked.lowered.extend(part.lowered)
    for name in dict.fromkeys((*_ALWAYS, *asked.requests, *asked.limits)):
        if name not in asked.requests:
            asked.requests[name] = asked.limits.get(name) or _default(name, bounds)
        asked.limits.setdefault(name, asked.requests[name])
    return _below_own_limits(asked)


def keep_within(own: Mapping[str, Any], bounds: Bounds, path: str) -> Asked:
    """Return the resources of any other container: without defaults, within the platform's limits."""
    asked = Asked(_read(own, "requests", path, bounds), _read(own, "limits", path, bounds))
    for key, amounts in (("requests", asked.requests), ("limits", asked.limits)):
        for name, value in amounts.items():
            most = bounds.limits.get(name)
            if most is None or not _is_above(value, most):
                continue
            if bounds.refuses:
                what = f"{value} is above the platform's limit: ask for {most} or less"
                raise TaskSpecError(f"{path}.{key}.{name}", what)
            asked.lowered.append(f"{key}.{name} lowered from {value} to {most}, the platform's limit")
            amounts[name] = most
    return asked


def _default(name: str, bounds: Bounds) -> str:
    """Return the default request, at most the platform's limit."""
    default, most = bounds.defaults[name], bounds.limits.get(name)
    return most if most is not None and _is_above(default, most) else default


def _below_own_limits(asked: Asked) -> Asked:
    """Lower requests to the container's own limits: the API server would refuse the pod."""
    for name, value in asked.requests.items():
        most = asked.limits[name]
        if value != most and _is_above(value, most):
            asked.lowered.append(f"requests.{name} lowered from {value} to {most}, the container's own limit")
            asked.requests[name] = most
    return asked


def _is_above(value: Any, most: Any) -> bool:
    """Whether an amount is above a limit. 0 means no limit."""
    return parse_quantity(value) > parse_quantity(most) > 0


def _read(resources: Mapping[str, Any], key: str, path: str, bounds: Bounds) -> Amounts:
    """Return checked amounts. ``gpu`` is the short name of the platform's GPU."""
    amounts = resources.get(key)
    if amounts is None:
        return {}
    if not isinstance(amounts, Mapping):
        raise TaskSpecError(f"{path}.{key}", "must be an object of quantities, such as {cpu: 500m, memory: 1Gi}")
    for name, value in amounts.items():
        refuse(unknown_resource(str(name), f"{path}.{key}", (_GPU,)))
        try:
            amount = parse_quantity(value)
        except QuantityError as error:
            raise TaskSpecError(f"{path}.{key}.{name}", str(error)) from None
        if amount < 0:
            raise TaskSpecError(f"{path}.{key}.{name}", f"{value} is negative: ask for 0 or more")
    return _named({str(name): value for name, value in amounts.items()}, bounds.gpu)


def _named(amounts: Mapping[str, Any], gpu: str) -> Amounts:
    return {gpu if name == _GPU else name: value for name, value in amounts.items()}


def schedule(spec: JSON, task: TaskContext, accelerator: AcceleratorClass, path: str) -> None:
    """Set, in place, where a pod of this spec may run; the spec's own values stay. Raises ``TaskSpecError``."""
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
        tolerations += _accelerate(spec, task, accelerator)
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
    affinity = object_at(spec, "affinity", path)
    if affinity:
        _check_affinity(affinity, path)


def _check_affinity(affinity: JSON, path: str) -> None:
    at = f"{path}.affinity.nodeAffinity.{_REQUIRED}"
    node = object_at(affinity, "nodeAffinity", f"{path}.affinity")
    required = object_at(node, _REQUIRED, f"{path}.affinity.nodeAffinity")
    for index, term in enumerate(objects_at(required, "nodeSelectorTerms", at)):
        objects_at(term, "matchExpressions", f"{at}.nodeSelectorTerms[{index}]")


def _all(spec: JSON) -> list[JSON]:
    return [*(spec.get("initContainers") or []), *spec["containers"]]


def _resources(container: JSON) -> set[str]:
    resources = container.get("resources") or {}
    return {name for key in ("requests", "limits") for name in resources.get(key) or {}}


def _of_extended_resources(names: list[str], config: K8sPluginConfig) -> list[JSON]:
    """Return a toleration for each extended resource whose nodes have a taint of the same name."""
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


def _accelerate(spec: JSON, task: TaskContext, known: AcceleratorClass) -> list[JSON]:
    """Choose nodes by the accelerator that a task requests, and return the tolerations that they need."""
    asked = object_at(task.spec, "accelerator", "spec")
    device, size = text_at(asked, "device", PATH), text_at(asked, "partitionSize", PATH)
    if not any(known.resource_name in _resources(container) for container in spec["containers"]):
        raise TaskSpecError(PATH, f"no container asks for a GPU: set its limit of {known.resource_name}")
    tolerations = []
    if device:
        tolerations.append(_of_label(spec, known.device_node_label, _value(device, task.config)))
    if asked.get("unpartitioned") is True:
        _require(spec, known.unpartitioned_node_selector_requirement)
        if known.unpartitioned_toleration is not None:
            tolerations.append(dict(known.unpartitioned_toleration))
    elif size:
        tolerations.append(_of_label(spec, known.partition_size_node_label, size))
    return tolerations


def _of_label(spec: JSON, label: str, value: str) -> JSON:
    """Require a label of the node, and return the toleration of the taint of the same name."""
    _require(spec, {"key": label, "operator": "In", "values": [value]})
    return {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def accelerator_of(task: TaskContext) -> AcceleratorClass:
    """Return how nodes of a task's accelerator are found, or what ``gpu`` means for a task without an accelerator.

    Raises ``TaskSpecError``.
    """
    config = task.config
    name, asked = "", object_at(task.spec, "accelerator", "spec")
    if asked:
        insist_on_fields(asked, _FIELDS, PATH)
        name = text_at(asked, "deviceClass", PATH)
    if name:
        found = _class(name, config)
    else:
        found = AcceleratorClass(
            unpartitioned_node_selector_requirement=config.gpu_unpartitioned_node_selector_requirement,
            unpartitioned_toleration=config.gpu_unpartitioned_toleration,
        )
    label = found.partition_size_node_label or config.gpu_partition_size_node_label
    whole = found.unpartitioned_node_selector_requirement or {"key": label, "operator": "DoesNotExist"}
    return found.model_copy(
        update={
            "resource_name": found.resource_name or config.gpu_resource_name,
            "device_node_label": found.device_node_label or config.gpu_device_node_label,
            "partition_size_node_label": label,
            "unpartitioned_node_selector_requirement": whole,
        }
    )


def _class(name: str, config: K8sPluginConfig) -> AcceleratorClass:
    classes = {**ACCELERATOR_CLASSES, **{key.upper(): each for key, each in config.accelerator_device_classes.items()}}
    found = classes.get(name.upper())  # Flyte's keys are read in lower case, and mean capitals
    if found is None:
        raise TaskSpecError(
            f"{PATH}.deviceClass", f"unknown class {name!r}: choose one of {', '.join(sorted(classes))}"
        )
    return found


def _value(device: str, config: K8sPluginConfig) -> str:
    names = {key.upper(): value for key, value in config.accelerator_devices.items()}
    return names.get(device.upper(), device)

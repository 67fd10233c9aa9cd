"""What a container of a task asks for: the task's own words, those of the run, defaults, and the platform's limits.

The levels, weakest first: ``default-cpus`` and ``default-memory``, the platform's defaults, the project's, the task's
container, the run. A request that is not set is the limit, else the default; a limit that is not set is the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import TaskMetadata

_GPU: Final = "gpu"
_ALWAYS: Final = ("cpu", "memory")
"""Resources that every task's container gets, as quotas and limits ask for them."""

Amounts = dict[str, Any]
"""Quantities by resource name, as they are written."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What applies to one task: defaults and limits by resource name; ``refuses`` what is above a limit."""

    defaults: Mapping[str, str]
    limits: Mapping[str, str]
    gpu: str
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A container's resources as they will be created, and what was lowered, a sentence each."""

    requests: Amounts
    limits: Amounts
    lowered: list[str] = field(default_factory=list)

    @property
    def manifest(self) -> dict[str, Amounts]:
        """The container's ``resources``."""
        return {key: each for key, each in (("requests", self.requests), ("limits", self.limits)) if each}


def bounds_of(task: TaskMetadata, config: K8sPluginConfig, gpu: str) -> Bounds:
    """Return the defaults and limits for a task: the platform's, changed by its project's and its domain's.

    ``gpu`` is the resource that the short name of one stands for.
    """
    platform = config.task_resources
    defaults = {"cpu": config.default_cpus, "memory": config.default_memory, **platform.defaults}
    limits = dict(platform.limits)
    fitting = [each for each in platform.projects if each.project == task.project and each.domain in ("", task.domain)]
    for project in sorted(fitting, key=lambda each: bool(each.domain)):  # a domain's words come last
        defaults |= project.defaults
        limits |= project.limits
    return Bounds(_named(defaults, gpu), _named(limits, gpu), gpu, platform.above_limits == "refuse")


def ask(own: Mapping[str, Any], run: Mapping[str, Any], bounds: Bounds, path: str) -> Asked:
    """Return what the task's main container asks for. Raises ``TaskSpecError`` with the path of a wrong field."""
    asked = Asked({}, {})
    for resources, at in ((own, path), (run, "spec.resources")):
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
    """Return what any other container asks for: nothing is added, the platform's limits hold."""
    asked = Asked(_read(own, "requests", path, bounds), _read(own, "limits", path, bounds))
    for key, amounts in (("requests", asked.requests), ("limits", asked.limits)):
        for name, value in amounts.items():
            most = bounds.limits.get(name, "0")
            if not _is_above(value, most):
                continue
            if bounds.refuses:
                what = f"{value} is above the platform's limit: ask for {most} or less"
                raise TaskSpecError(f"{path}.{key}.{name}", what)
            asked.lowered.append(f"{key}.{name} lowered from {value} to {most}, the platform's limit")
            amounts[name] = most
    return asked


def _default(name: str, bounds: Bounds) -> str:
    """Return what is requested where a task says nothing: no more than the platform's limit."""
    default, most = bounds.defaults[name], bounds.limits.get(name, "0")
    return most if _is_above(default, most) else default


def _below_own_limits(asked: Asked) -> Asked:
    """Lower requests to the container's own limits: the API server would refuse the pod."""
    for name, value in asked.requests.items():
        most = asked.limits[name]
        if _is_above(value, most):
            asked.lowered.append(f"requests.{name} lowered from {value} to {most}, the container's own limit")
            asked.requests[name] = most
    return asked


def _is_above(value: Any, most: Any) -> bool:
    """Whether an amount is above a limit. A limit of 0 is none."""
    return parse_quantity(value) > parse_quantity(most) > 0


def _read(resources: Mapping[str, Any], key: str, path: str, bounds: Bounds) -> Amounts:
    """Return checked amounts. ``gpu`` is the short name of the platform's GPU."""
    amounts = resources.get(key)
    if amounts is None:
        return {}
    if not isinstance(amounts, Mapping):
        raise TaskSpecError(f"{path}.{key}", "must be an object of quantities, such as {cpu: 500m, memory: 1Gi}")
    for name, value in amounts.items():
        try:
            amount = parse_quantity(value)
        except QuantityError as error:
            raise TaskSpecError(f"{path}.{key}.{name}", str(error)) from None
        if amount < 0:
            raise TaskSpecError(f"{path}.{key}.{name}", f"{value} is less than nothing: ask for 0 or more")
    return _named({str(name): value for name, value in amounts.items()}, bounds.gpu)


def _named(amounts: Mapping[str, Any], gpu: str) -> Amounts:
    return {gpu if name == _GPU else name: value for name, value in amounts.items()}

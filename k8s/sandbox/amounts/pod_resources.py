"""The total resources of a pod: all containers, pod-level resources and overhead.

Source: ``k8s.io/component-helpers/resource/helpers.go`` (1.36), ``PodRequests`` and ``PodLimits``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .amounts import Amount, amounts_of
from .resource_name_rules import HUGE_PAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Amounts = dict[str, Amount]


def containers_of(spec: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The containers, then the init containers."""
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """The requests of the whole pod, overhead included."""
    total = container_total(spec, "requests")
    pod_level = amounts_of((spec.get("resources") or {}).get("requests"))
    total.update({name: amount for name, amount in pod_level.items() if for_whole_pods(name)})
    add_to(total, amounts_of(spec.get("overhead")))
    return total


def pod_limits(spec: Mapping[str, Any]) -> Amounts:
    """The limits of the whole pod; overhead is added only to resources that have a limit."""
    total = container_total(spec, "limits")
    pod_level = amounts_of((spec.get("resources") or {}).get("limits"))
    total.update({name: amount for name, amount in pod_level.items() if for_whole_pods(name)})
    for name, amount in amounts_of(spec.get("overhead")).items():
        if name in total and total[name].nano:
            total[name] = total[name].plus(amount)
    return total


def container_total(spec: Mapping[str, Any], side: str) -> Amounts:
    """The larger of what all containers need together and what each init container needs while it runs.

    A sidecar (an init container with ``restartPolicy: Always``) keeps running beside all containers after it.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add_to(total, asked(container, side))
    beside: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        amounts = asked(container, side)
        if container.get("restartPolicy") == "Always":
            add_to(total, amounts)
            add_to(beside, amounts)
            _raise_to(starting, beside)
        else:
            add_to(amounts, beside)
            _raise_to(starting, amounts)
    _raise_to(total, starting)
    return total


def asked(container: Mapping[str, Any], side: str) -> Amounts:
    """The requests or the limits of one container; ``side`` is "requests" or "limits"."""
    return amounts_of((container.get("resources") or {}).get(side))


def for_whole_pods(name: str) -> bool:
    """Whether a resource may be set at pod level."""
    return name in {"cpu", "memory"} or name.startswith(HUGE_PAGES)


def has_pod_level(spec: Mapping[str, Any]) -> bool:
    """Whether the pod sets pod-level requests or limits."""
    resources = spec.get("resources") or {}
    return any(for_whole_pods(name) for side in ("requests", "limits") for name in resources.get(side) or ())


def add_to(total: Amounts, more: Mapping[str, Amount]) -> None:
    """Add ``more`` to ``total`` in place."""
    for name, amount in more.items():
        total[name] = total[name].plus(amount) if name in total else amount


def _raise_to(total: Amounts, other: Mapping[str, Amount]) -> None:
    for name, amount in other.items():
        if name not in total or amount.nano > total[name].nano:
            total[name] = amount

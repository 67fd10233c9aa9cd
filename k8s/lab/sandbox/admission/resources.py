"""Resource names, and the total resources of a pod: all containers, pod-level resources and overhead.

Sources, of Kubernetes 1.36: ``pkg/apis/core/validation/validation.go`` and ``pkg/apis/core/helper`` for names,
``k8s.io/component-helpers/resource/helpers.go`` for totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.metadata import key_problem

from .amounts import Amount, amounts_of

Amounts = dict[str, Amount]

COUNTS = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
                    "replicationcontrollers", "services.nodeports", "services.loadbalancers"})  # fmt: skip
HUGE_PAGES = "hugepages-"
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_NAMES = frozenset({*COUNTS, *_COMPUTE, *(f"requests.{n}" for n in (*_COMPUTE, "storage")),
                    *(f"limits.{n}" for n in _COMPUTE)})  # fmt: skip


def resource_name_problems(name: str) -> list[str]:
    problem = key_problem(name)
    if not problem and "/" not in name and name != "storage" and not is_standard(name):
        problem = "must be a standard resource type or fully qualified"
    return [problem] if problem else []


def container_resource_problems(name: str) -> list[str]:
    problems = resource_name_problems(name)
    if "/" not in name:
        if name not in _COMPUTE and not name.startswith(HUGE_PAGES):
            problems.append("must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        problems.append("doesn't follow extended resource name standard")
    return problems


def is_standard(name: str) -> bool:
    return name in _NAMES or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether a name is that of an extended resource (a device), which a quota must be able to name."""
    return not is_native(name) and not name.startswith("requests.") and not key_problem(f"requests.{name}")


def may_be_overcommitted(name: str) -> bool:
    return is_native(name) and not name.startswith(HUGE_PAGES)


def containers_of(spec: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
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
    return name in {"cpu", "memory"} or name.startswith(HUGE_PAGES)


def has_pod_level(spec: Mapping[str, Any]) -> bool:
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

"""Resource names, and the total resources of a pod: all containers, pod-level resources and overhead.

Sources, of Kubernetes 1.36: ``pkg/apis/core/validation/validation.go`` and ``pkg/apis/core/helper`` for names,
``k8s.io/component-helpers/resource/helpers.go`` for totals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from backoff_ctrl.k8s.sandbox.admission.amounts import Amount, amounts_of
from backoff_ctrl.k8s.sandbox.objects.metadata import prefix_problem

Amounts = dict[str, Amount]


COUNTS = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
                    "replicationcontrollers", "services.nodeports", "services.loadbalancers"})  # fmt: skip
HUGE_PAGES = "hugepages-"
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_NAMES = frozenset({*COUNTS, *_COMPUTE, *(f"requests.{n}" for n in (*_COMPUTE, "storage")),
                    *(f"limits.{n}" for n in _COMPUTE)})  # fmt: skip
_LONGEST = 63
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PART = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def resource_name_problems(name: str) -> list[str]:
    """What is wrong with a resource name, wherever it is used (``validateResourceName``)."""
    problems = _qualified_problems(name)
    if not problems and "/" not in name and name != "storage" and not is_standard(name):
        problems.append("must be a standard resource type or fully qualified")
    return problems


def container_resource_problems(name: str) -> list[str]:
    """What is wrong with a resource name in a container (``validateContainerResourceName``)."""
    problems = resource_name_problems(name)
    if "/" not in name:
        if name not in _COMPUTE and not name.startswith(HUGE_PAGES):
            problems.append("must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        problems.append("doesn't follow extended resource name standard")
    return problems


def is_standard(name: str) -> bool:
    """Whether a name without a domain is one that quotas know."""
    return name in _NAMES or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def is_native(name: str) -> bool:
    """Whether a resource is one of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether a name is that of an extended resource (a device), which a quota must be able to name."""
    return not is_native(name) and not name.startswith("requests.") and not _qualified_problems(f"requests.{name}")


def may_be_overcommitted(name: str) -> bool:
    """Whether the limit may exceed the request."""
    return is_native(name) and not name.startswith(HUGE_PAGES)


def _qualified_problems(name: str) -> list[str]:
    """List what is wrong with a qualified name, in the words of apimachinery's ``IsQualifiedName``."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        return [f"a valid label key {_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems = []
    if slash and (text := prefix_problem(prefix)):
        problems.append(f"prefix part {text}")
    if not last:
        problems.append("name part must be non-empty")
    elif len(last) > _LONGEST:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(last):
        problems.append(f"name part {_PART}")
    return problems


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

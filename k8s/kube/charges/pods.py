"""Compute what a pod is charged, by the rules of the API server, and its scope facts.

Sources: ``PodRequests`` and ``PodLimits`` of ``k8s.io/component-helpers/resource/helpers.go``, the defaults
of ``pkg/apis/core/v1/defaults.go``, ``pkg/quota/v1/evaluator/core/pods.go``, ``pkg/apis/core/v1/helper/qos``.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.answers.fields import FieldError, amounts_at, count_at, mapping_at, mappings_at, text_at

_HUGE_PAGES: Final = "hugepages-"
_OF_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"  # an extended resource for each DeviceClass
_COMPUTE: Final = ("cpu", "memory")
_CHARGED: Final = ("resources", "overhead", "activeDeadlineSeconds", "priorityClassName", "affinity")
"""The fields of a pod's spec that are read, beside its containers."""
SHAPE_BYTES_MAX: Final = 8192
"""Shapes are remembered: they must not fill the memory."""
_EXACT: Final = 2  # marshal version 2 uses no references, so equal values give equal bytes
_LIMITED: Final = ("cpu", "memory", "ephemeral-storage")


class _Container(NamedTuple):
    """The resources of one container. Limits stand in for missing requests."""

    requests: dict[str, int]
    limits: dict[str, int]
    restartable: bool = False


class _Pod(NamedTuple):
    """The resources of all containers, and those of the pod itself (pod-level resources)."""

    containers: list[_Container]
    init_containers: list[_Container]
    requests: dict[str, int]
    limits: dict[str, int]
    overhead: dict[str, int]
    has_pod_level_resources: bool  # also true for an empty object


def pod_amounts(spec: Mapping[str, Any], path: str, quality: str = "") -> tuple[dict[str, int], frozenset[str]]:
    """Return what one pod of this spec is charged, without ``count/pods``, and its scope facts.

    ``quality`` is the ``qosClass`` in its status: the API server trusts it, even in a manifest (``PrepareForCreate`` of
    ``pkg/registry/core/pod/strategy.go``). Raises ``FieldError`` for a malformed spec.
    """
    pod = _read(spec, path)
    requests, limits = _total_requests(pod), _total_limits(pod)
    best_effort = quality == "BestEffort" if quality else _is_best_effort(pod)
    return _by_quota_name(requests, limits), _scopes(spec, path, best_effort=best_effort)


def shape_of(pod: Mapping[str, Any]) -> bytes | None:
    """Serialise all of a pod that is read here: pods of one shape are charged the same.

    None for one that is malformed, no plain JSON, or too large to be remembered.
    """
    try:
        spec, status = pod["spec"], pod.get("status")
        fields = [pod.get("kind"), status.get("qosClass") if isinstance(status, Mapping) else status]
        fields += map(spec.get, _CHARGED)
        for key in ("containers", "initContainers"):
            containers = spec.get(key)
            if not containers and containers not in (None, []):
                return None  # such as an empty object: malformed, though it has no container
            for container in containers or ():
                fields += (key, container.get("resources"), container.get("restartPolicy"))
        shape = marshal.dumps(fields, _EXACT)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return shape if len(shape) <= SHAPE_BYTES_MAX else None


def _read(spec: Mapping[str, Any], path: str) -> _Pod:
    if not mappings_at(spec, "containers", path):
        raise FieldError(f"{path}.containers: a pod needs at least one container")
    whole = mapping_at(spec, "resources", path)
    return _Pod(
        read_containers(spec, "containers", path),
        read_containers(spec, "initContainers", path),
        amounts_at(whole, "requests", f"{path}.resources"),
        amounts_at(whole, "limits", f"{path}.resources"),
        amounts_at(spec, "overhead", path),
        spec.get("resources") is not None,
    )


def read_containers(spec: Mapping[str, Any], key: str, path: str) -> list[_Container]:
    """Return the resources of a list of containers. Raises ``FieldError`` with the path of a malformed field."""
    containers = []
    for index, container in enumerate(mappings_at(spec, key, path)):
        at = f"{path}.{key}[{index}]"
        resources = mapping_at(container, "resources", at)
        limits = amounts_at(resources, "limits", f"{at}.resources")
        requests = limits | amounts_at(resources, "requests", f"{at}.resources")
        restartable = key == "initContainers" and container.get("restartPolicy") == "Always"
        containers.append(_Container(requests, limits, restartable))
    return containers


def _peak(ordinary: list[dict[str, int]], init: list[tuple[bool, dict[str, int]]]) -> dict[str, int]:
    """Return the most that the containers use at once, per resource.

    Containers and restartable init containers (sidecars) run together, so they add up. Each ordinary init container
    runs alone with the sidecars that were started before it.
    """
    running: dict[str, int] = {}
    for amounts in ordinary:
        _add(running, amounts)
    started: dict[str, int] = {}
    highest: dict[str, int] = {}
    for restartable, amounts in init:
        if restartable:
            _add(running, amounts)
            _add(started, amounts)
            _raise_to(highest, started)
        else:
            _raise_to(highest, _sum(started, amounts))
    _raise_to(running, highest)
    return running


def _total_requests(pod: _Pod) -> dict[str, int]:
    """Return a pod's requests: those of its containers, overridden by the pod-level ones, plus the overhead."""
    total = _container_requests(pod)
    total.update({name: amount for name, amount in _own_requests(pod).items() if _may_be_pod_wide(name)})
    _add(total, pod.overhead)
    return total


def _container_requests(pod: _Pod) -> dict[str, int]:
    return _peak([c.requests for c in pod.containers], [(c.restartable, c.requests) for c in pod.init_containers])


def _own_requests(pod: _Pod) -> dict[str, int]:
    """Return the pod-level requests, with the server's defaults if there are pod-level limits.

    A missing request is the sum of the containers' requests (cpu and memory only), or else the pod-level limit.
    """
    limits = _own_limits(pod)
    if not limits:
        return pod.requests
    own = dict(pod.requests)
    for name, amount in _container_requests(pod).items():
        if name in _COMPUTE:
            own.setdefault(name, amount)
    for name, amount in limits.items():
        own.setdefault(name, amount)
    return own


def _own_limits(pod: _Pod) -> dict[str, int]:
    """Return the pod-level limits; if there are pod-level resources, also the containers' huge pages."""
    own = dict(pod.limits)
    if pod.requests or pod.limits:
        for name, amount in _container_limits(pod).items():
            if name.startswith(_HUGE_PAGES) and name not in pod.requests:
                own.setdefault(name, amount)
    return own


def _total_limits(pod: _Pod) -> dict[str, int]:
    """Return a pod's limits. Overhead is added only to limits that are not zero."""
    total = _container_limits(pod)
    total.update({name: amount for name, amount in pod.limits.items() if _may_be_pod_wide(name)})
    _add(total, {name: amount for name, amount in pod.overhead.items() if total.get(name)})
    return total


def _container_limits(pod: _Pod) -> dict[str, int]:
    return _peak([c.limits for c in pod.containers], [(c.restartable, c.limits) for c in pod.init_containers])


def _by_quota_name(requests: dict[str, int], limits: dict[str, int]) -> dict[str, int]:
    """Return the totals by quota resource name. Extended resources exist only as ``requests.NAME``."""
    charged = {"pods": NANO}
    for name, amount in requests.items():
        if name in _LIMITED or name.startswith(_HUGE_PAGES):
            charged[name] = amount
            charged[f"requests.{name}"] = amount
        elif _is_extended(name):
            charged[f"requests.{name}"] = amount
    for name in _LIMITED:
        if name in limits:
            charged[f"limits.{name}"] = limits[name]
    return charged


def _scopes(spec: Mapping[str, Any], path: str, *, best_effort: bool) -> frozenset[str]:
    """Return the scope facts, which decide which quotas apply to the pod."""
    scopes = set()
    if best_effort:
        scopes.add("BestEffort")
    if count_at(spec, "activeDeadlineSeconds", path) is not None:
        scopes.add("Terminating")
    if name := text_at(spec, "priorityClassName", path):
        scopes |= {"PriorityClass", f"PriorityClass={name}"}
    if _reaches_other_namespaces(spec, path):
        scopes.add("CrossNamespacePodAffinity")
    return frozenset(scopes)


def _is_best_effort(pod: _Pod) -> bool:
    """True if no container requests or limits cpu or memory.

    Pod-level resources, even empty ones, hide the containers'.
    """
    if pod.has_pod_level_resources:
        lists = [_own_requests(pod), pod.limits]
    else:
        lists = [amounts for c in (*pod.containers, *pod.init_containers) for amounts in (c.requests, c.limits)]
    return not any(amounts.get(name) for amounts in lists for name in _COMPUTE)


def _reaches_other_namespaces(spec: Mapping[str, Any], path: str) -> bool:
    """True if an affinity term of the pod names or selects namespaces."""
    affinity = mapping_at(spec, "affinity", path)
    for key in ("podAffinity", "podAntiAffinity"):
        at = f"{path}.affinity.{key}"
        rules = mapping_at(affinity, key, f"{path}.affinity")
        terms = mappings_at(rules, "requiredDuringSchedulingIgnoredDuringExecution", at)
        for weighted in mappings_at(rules, "preferredDuringSchedulingIgnoredDuringExecution", at):
            terms.append(mapping_at(weighted, "podAffinityTerm", at))
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def _may_be_pod_wide(name: str) -> bool:
    """True for the resources that may be set at pod level."""
    return name in _COMPUTE or name.startswith(_HUGE_PAGES)


def _is_extended(name: str) -> bool:
    """True for extended resources: ``DOMAIN/NAME`` with a domain that is not Kubernetes' own, or a device class."""
    if name.startswith(_OF_DEVICE_CLASS):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    """Add the amounts to the total, in place."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = dict(one)
    _add(total, other)
    return total


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    """Raise the total to the amounts where these are higher, in place."""
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)

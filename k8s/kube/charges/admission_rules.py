"""What the API server refuses in a pod or a claim however much room there is, and what LimitRanges fill in. Pure.

It refuses invalid amounts, amounts outside LimitRanges, and a lack of amounts that a quota limits. Sources, v1.36:
``ValidateResourceRequirements`` of ``pkg/apis/core/validation``, ``plugin/pkg/admission/limitranger/admission.go``, and
``Constraints`` of ``pkg/quota/v1/evaluator/core/pods.go``. LimitRanges are read as the API server returns them: it has
filled in the defaults that follow from other fields (``SetDefaults_LimitRangeItem``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from backoff_ctrl.engine.facts.quantities import NANO, quantity
from backoff_ctrl.k8s.kube.answers.fields import FieldError, amounts_at, mapping, mapping_at, mappings_at

from .pods import pod_amounts, read_containers

Item = Mapping[str, Any]
"""One limit of a LimitRange."""
Amounts = Mapping[str, int]
CONTAINERS: Final = ("containers", "initContainers")
COMPUTE: Final = frozenset(f"{side}{name}" for side in ("", "requests.", "limits.") for name in ("cpu", "memory"))
"""What every container has to specify where a quota limits it."""
_OF_PODS: Final[tuple[str, ...]] = ("cpu", "memory", "ephemeral-storage")


def items_of(listed: Iterable[object]) -> list[Item]:
    """Return the limits of all LimitRanges of a list, by name of the LimitRange; what can't be read is left out."""
    named = []
    for each in listed:
        try:
            body = mapping(each)
            name = mapping_at(body, "metadata", "").get("name")
            named.append((str(name), mappings_at(mapping_at(body, "spec", ""), "limits", "spec")))
        except FieldError:
            continue  # an unreadable LimitRange must not hide the others
    return [item for _, items in sorted(named, key=lambda pair: pair[0]) for item in items]


def fill_in(spec: dict[str, Any], items: Sequence[Item]) -> None:
    """Give the containers of a pod spec the default requests and limits, in place."""
    for item in items:
        if item.get("type") != "Container":
            continue
        for container in (each for key in CONTAINERS for each in spec.get(key) or ()):
            if not isinstance(container, dict):
                continue
            resources = container["resources"] = dict(container.get("resources") or {})
            given = dict(resources.get("requests") or {})
            limits = dict(resources.get("limits") or {})
            requests = {**limits, **given}  # what the API server fills in before any LimitRange does
            resources["requests"] = {**(item.get("defaultRequest") or {}), **requests}
            resources["limits"] = {**(item.get("default") or {}), **limits}


def pod_refusals(
    spec: Mapping[str, Any], items: Sequence[Item], limits: Mapping[str, frozenset[str]], at: str
) -> Iterator[str]:
    """Yield why a pod with this spec is refused, in the order in which the server looks.

    ``limits`` are the resources that each quota limits that applies; ``at`` is the path of the spec.
    """
    yield from _invalid(spec, at)
    yield from (f"LimitRange: {why}" for why in _limit_refusals(spec, items, at))
    if spec.get("resources"):  # amounts of the whole pod stand in for those of the containers
        return
    for quota, names in limits.items():
        yield from _missing(spec, quota, names & COMPUTE, at)


def claim_refusals(spec: Mapping[str, Any], items: Sequence[Item], at: str) -> Iterator[str]:
    """Yield why a PersistentVolumeClaim with this spec would be refused by a LimitRange."""
    requests = amounts_at(mapping_at(spec, "resources", at), "requests", f"{at}.resources")
    for item in items:
        if item.get("type") == "PersistentVolumeClaim":
            yield from _below(item, "PersistentVolumeClaim", requests, {})
            yield from _above(item, "PersistentVolumeClaim", requests, requests)


def _invalid(spec: Mapping[str, Any], at: str) -> Iterator[str]:
    for key in CONTAINERS:
        for index, container in enumerate(read_containers(spec, key, at)):
            for name, limit in container.limits.items():
                if container.requests.get(name, 0) > limit:
                    yield f"{at}.{key}[{index}].resources: the request of {name} is larger than its limit"


def _missing(spec: Mapping[str, Any], quota: str, wanted: frozenset[str], at: str) -> Iterator[str]:
    for key in CONTAINERS:
        for index, container in enumerate(mappings_at(spec, key, at)):
            path = f"{at}.{key}[{index}]"
            resources = mapping_at(container, "resources", path)
            limits = {str(name) for name in mapping_at(resources, "limits", path)}
            requests = {str(name) for name in mapping_at(resources, "requests", path)} | limits
            named = requests | {f"requests.{name}" for name in requests} | {f"limits.{name}" for name in limits}
            if absent := sorted(wanted - named):
                yield f"{path}.resources: quota {quota} limits {', '.join(absent)}, so every container must specify it"


def _limit_refusals(spec: Mapping[str, Any], items: Sequence[Item], at: str) -> Iterator[str]:
    for item in items:
        if item.get("type") == "Container":
            for key in CONTAINERS:
                for container in read_containers(spec, key, at):
                    yield from _outside(item, "Container", container.requests, container.limits)
        elif item.get("type") == "Pod":
            whole = {key: value for key, value in spec.items() if key != "overhead"}
            amounts = pod_amounts(whole, at)[0]
            requests = {name: amounts[name] for name in _OF_PODS if name in amounts}
            limits = {name: amounts[f"limits.{name}"] for name in _OF_PODS if f"limits.{name}" in amounts}
            yield from _outside(item, "Pod", requests, limits)


def _outside(item: Item, holder: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _below(item, holder, requests, limits)
    yield from _above(item, holder, requests, limits)
    for name, ratio in amounts_at(item, "maxLimitRequestRatio", "").items():
        request, limit = requests.get(name, 0), limits.get(name, 0)
        if not request or not limit or limit * NANO > ratio * request:
            yield f"{name}: at most {quantity(ratio, '')} times as much limit as request is allowed per {holder}"


def _below(item: Item, holder: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in amounts_at(item, "min", "").items():
        if name not in requests:
            yield f"{name}: a request of at least {quantity(least, name)} per {holder} is required, but it is not set"
        elif min(requests[name], limits.get(name, least)) < least:
            yield f"{name}: at least {quantity(least, name)} per {holder} is required"


def _above(item: Item, holder: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in amounts_at(item, "max", "").items():
        if name not in limits:
            yield f"{name}: a limit of at most {quantity(most, name)} per {holder} is required, but it is not set"
        elif max(limits[name], requests.get(name, 0)) > most:
            yield f"{name}: at most {quantity(most, name)} per {holder} is allowed"

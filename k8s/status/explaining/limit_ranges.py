"""LimitRanges: what they fill into containers, and what they refuse. Pure.

Source: ``plugin/pkg/admission/limitranger/admission.go`` (v1.36). The objects are read as the API server returns them:
it has filled in the defaults that follow from other fields (``SetDefaults_LimitRangeItem``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.quantities import NANO, format_quantity
from backoff_ctrl.k8s.charges.fields import FootprintError, amounts_at, mapping_at, mappings_at
from backoff_ctrl.k8s.charges.pods import pod_amounts, read_containers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Item = Mapping[str, Any]
Amounts = Mapping[str, int]
CONTAINERS: Final = ("containers", "initContainers")
_OF_PODS: Final[tuple[str, ...]] = ("cpu", "memory", "ephemeral-storage")


def items_of(listed: Iterable[object]) -> list[Item]:
    """Return the limits of all LimitRanges of a list, by name of the LimitRange; what can't be read is left out."""
    named = []
    for each in listed:
        try:
            body = each if isinstance(each, Mapping) else {}
            name = mapping_at(body, "metadata", "").get("name")
            named.append((str(name), mappings_at(mapping_at(body, "spec", ""), "limits", "spec")))
        except FootprintError:
            continue
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


def refusals(spec: Mapping[str, Any], items: Sequence[Item], at: str) -> Iterator[str]:
    """Yield why a pod with this spec, at this path, would be refused by a LimitRange."""
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


def claim_refusals(spec: Mapping[str, Any], items: Sequence[Item], at: str) -> Iterator[str]:
    """Yield why a PersistentVolumeClaim with this spec would be refused by a LimitRange."""
    requests = amounts_at(mapping_at(spec, "resources", at), "requests", f"{at}.resources")
    for item in items:
        if item.get("type") == "PersistentVolumeClaim":
            yield from _below(item, "PersistentVolumeClaim", requests, {})
            yield from _above(item, "PersistentVolumeClaim", requests, requests)


def _outside(item: Item, holder: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _below(item, holder, requests, limits)
    yield from _above(item, holder, requests, limits)
    for name, ratio in amounts_at(item, "maxLimitRequestRatio", "").items():
        request, limit = requests.get(name, 0), limits.get(name, 0)
        if not request or not limit or limit * NANO > ratio * request:
            yield f"{name}: at most {_shown(ratio, '')} times as much limit as request is allowed per {holder}"


def _below(item: Item, holder: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in amounts_at(item, "min", "").items():
        if name not in requests:
            yield f"{name}: a request of at least {_shown(least, name)} per {holder} is required, and none is given"
        elif min(requests[name], limits.get(name, least)) < least:
            yield f"{name}: at least {_shown(least, name)} per {holder} is required"


def _above(item: Item, holder: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in amounts_at(item, "max", "").items():
        if name not in limits:
            yield f"{name}: a limit of at most {_shown(most, name)} per {holder} is required, and none is given"
        elif max(limits[name], requests.get(name, 0)) > most:
            yield f"{name}: at most {_shown(most, name)} per {holder} is allowed"


def _shown(amount: int, name: str) -> str:
    return format_quantity(amount, binary="memory" in name or "storage" in name)

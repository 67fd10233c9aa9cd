"""The quality of service of a pod, and what resources a sidecar may ask for so that it stays as it is. Pure.

Rules: ``pkg/apis/core/v1/helper/qos/qos.go`` in Kubernetes; the resources that count are cpu and memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.answers.fields import mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .sidecar import SidecarSettings

_COUNTED: Final = ("cpu", "memory")
KNOWN: Final = (*_COUNTED, "ephemeral-storage")
"""What a sidecar may ask for: it needs nothing else, and the server refuses pods for names that it does not know."""


class Quality(StrEnum):
    """A pod's quality of service, by its Kubernetes name."""

    BEST_EFFORT = "BestEffort"
    BURSTABLE = "Burstable"
    GUARANTEED = "Guaranteed"


def quality_of(spec: Mapping[str, Any]) -> Quality:
    """Return the quality of a pod's spec. What can't be read counts as asked for: the server will say what is wrong."""
    if isinstance(own := spec.get("resources"), dict) and any(own.values()):  # of the pod as a whole, since 1.34
        return Quality.GUARANTEED if _is_guaranteed(own) else Quality.BURSTABLE
    asked = list(_resources(spec))
    if not any(_amounts(each, part) for each in asked for part in ("requests", "limits")):
        return Quality.BEST_EFFORT
    return Quality.GUARANTEED if all(map(_is_guaranteed, asked)) else Quality.BURSTABLE


def sidecar_resources(spec: Mapping[str, Any], settings: SidecarSettings) -> dict[str, dict[str, str]]:
    """Return what the sidecar asks for in a pod of this spec.

    cpu and memory always: a quota of ``limits.*`` answers "must specify" otherwise. Nothing in a BestEffort pod, which
    such a quota refuses anyway: it would fall under other quotas then. Equal amounts in a Guaranteed one. Nothing of
    what the pod asks for as a whole: its containers together may not ask for more than that, and share it.
    """
    quality = quality_of(spec)
    if quality is Quality.BEST_EFFORT:
        return {}
    whole = {name for amounts in _parts(spec.get("resources")) for name in amounts}
    limits = {name: amount for name, amount in settings.limits.items() if name not in whole}
    asked = {name: amount for name, amount in settings.requests.items() if name not in whole}
    requests = limits if quality is Quality.GUARANTEED else {**limits, **asked}
    found = {"requests": dict(requests), "limits": limits}
    return {part: amounts for part, amounts in found.items() if amounts}


def wrong_amounts(requests: Mapping[str, str], limits: Mapping[str, str]) -> str:
    """Say what is wrong with the amounts of a sidecar; empty: nothing. With wrong ones all its pods are refused."""
    found: dict[str, dict[str, int]] = {"requests": {}, "limits": {}}
    for part, given in (("requests", requests), ("limits", limits)):
        for name, amount in given.items():
            if name not in KNOWN:
                return f"{part}: {name!r} is none of {', '.join(KNOWN)}"
            try:
                found[part][name] = parse_quantity(amount)
            except QuantityError as error:
                return f"{part}: {name}: {error}"
            if found[part][name] < (part == "limits"):
                return f"{part}: {name} must be {'more than 0' if part == 'limits' else '0 or more'}, not {amount}"
    for name, amount in requests.items():
        if found["requests"][name] > found["limits"].get(name, found["requests"][name]):
            return f"requests: {name} {amount} is more than its limit, {limits[name]}"
    return ""


def _parts(resources: object) -> Iterator[Mapping[str, object]]:
    """Yield the requests and the limits of resources."""
    yield from (mapping(mapping(resources).get(part)) for part in ("requests", "limits"))


def _resources(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("initContainers", "containers"):
        for each in spec.get(key) or ():
            yield mapping(mapping(each).get("resources"))


def _is_guaranteed(resources: Mapping[str, Any]) -> bool:
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    return set(limits) == set(_COUNTED) and all(requests.get(name, limits[name]) == limits[name] for name in limits)


def _amounts(resources: Mapping[str, Any], part: str) -> dict[str, object]:
    """Return the counted amounts of ``requests`` or ``limits`` that are above zero; the text of what is no quantity."""
    found = mapping(resources.get(part))
    given = {name: found[name] for name in _COUNTED if found.get(name) is not None}
    amounts = {name: _amount(value) for name, value in given.items()}
    return {name: amount for name, amount in amounts.items() if amount != 0}


def _amount(value: object) -> object:
    try:
        return parse_quantity(str(value))
    except QuantityError:
        return value

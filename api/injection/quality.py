"""The quality of service of a pod, and what resources a sidecar may ask for so that it stays as it is. Pure.

Rules: ``pkg/apis/core/v1/helper/qos/qos.go`` in Kubernetes; the resources that count are cpu and memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .sidecar import SidecarSettings

_COUNTED: Final = ("cpu", "memory")


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


def sidecar_resources(quality: Quality, settings: SidecarSettings) -> dict[str, dict[str, str]]:
    """Return what the sidecar asks for in a pod of this quality.

    cpu and memory always: a quota of ``limits.*`` answers "must specify" otherwise. Nothing in a BestEffort pod, which
    such a quota refuses anyway: it would fall under other quotas then. Equal amounts in a Guaranteed one.
    """
    if quality is Quality.BEST_EFFORT:
        return {}
    limits = dict(settings.limits)
    requests = limits if quality is Quality.GUARANTEED else {**limits, **settings.requests}
    return {"requests": dict(requests), "limits": limits}


def _resources(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("initContainers", "containers"):
        for each in spec.get(key) or ():
            found = each.get("resources") if isinstance(each, dict) else None
            yield found if isinstance(found, dict) else {}


def _is_guaranteed(resources: Mapping[str, Any]) -> bool:
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    return set(limits) == set(_COUNTED) and all(requests.get(name, limits[name]) == limits[name] for name in limits)


def _amounts(resources: Mapping[str, Any], part: str) -> dict[str, object]:
    """Return the counted amounts of ``requests`` or ``limits`` that are above zero; the text of what is no quantity."""
    found = resources.get(part)
    given = {name: found[name] for name in _COUNTED if found.get(name) is not None} if isinstance(found, dict) else {}
    amounts = {name: _amount(value) for name, value in given.items()}
    return {name: amount for name, amount in amounts.items() if amount != 0}


def _amount(value: object) -> object:
    try:
        return parse_quantity(str(value))
    except QuantityError:
        return value

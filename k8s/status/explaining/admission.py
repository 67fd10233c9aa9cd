"""What the API server refuses in a pod whatever room a quota has: invalid amounts, LimitRanges, missing amounts.

Sources, v1.36: ``ValidateResourceRequirements`` of ``pkg/apis/core/validation``, and ``Constraints`` of
``pkg/quota/v1/evaluator/core/pods.go``. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.fields import mapping_at, mappings_at
from backoff_ctrl.k8s.charges.pods import read_containers

from .limit_ranges import CONTAINERS, refusals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .limit_ranges import Item

COMPUTE: Final = frozenset(f"{side}{name}" for side in ("", "requests.", "limits.") for name in ("cpu", "memory"))
"""What every container has to name where a quota limits it."""


def pod_refusals(
    spec: Mapping[str, Any], items: Sequence[Item], limits: Mapping[str, frozenset[str]], at: str
) -> Iterator[str]:
    """Yield why a pod with this spec is refused, in the order in which the server looks.

    ``limits`` are the resources that each quota limits that applies; ``at`` is the path of the spec.
    """
    yield from _invalid(spec, at)
    yield from (f"LimitRange: {why}" for why in refusals(spec, items, at))
    if spec.get("resources"):  # amounts of the whole pod stand in for those of the containers
        return
    for quota, names in limits.items():
        yield from _missing(spec, quota, names & COMPUTE, at)


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

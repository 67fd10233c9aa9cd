"""LimitRanges: their defaults for containers, and the minimum, maximum and ratio of containers, pods and claims.

Sources, of Kubernetes 1.36: ``plugin/pkg/admission/limitranger/admission.go``, and ``ValidateLimitRange``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.answers import forbidden
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import CLAIMS, LIMIT_RANGES, PODS, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.store import DELETED, Event, Store
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .amounts import NANO, ZERO, Amount, amounts_of
from .resources import asked, container_total, containers_of

Amounts = Mapping[str, Amount]

_ANNOTATION = "kubernetes.io/limit-ranger"
_LARGEST_MILLI = (2**63 - 1) // 1000


class LimitRanger:
    """The admission plugin ``LimitRanger``; it follows the LimitRanges of each namespace."""

    def __init__(self, store: Store) -> None:
        self._ranges: dict[str, dict[str, list[JSON]]] = {}
        store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if kind is not LIMIT_RANGES:
            return
        if event.type == DELETED:
            self._ranges.get(event.namespace, {}).pop(event.name, None)
        else:
            limits = list((obj.get("spec") or {}).get("limits") or ())
            self._ranges.setdefault(event.namespace, {})[event.name] = limits

    def _of(self, namespace: str) -> list[list[JSON]]:
        ranges = self._ranges.get(namespace)
        return [ranges[name] for name in sorted(ranges)] if ranges else []

    def fill_in(self, kind: Kind, namespace: str, obj: JSON) -> None:
        if kind is PODS:
            for limits in self._of(namespace):
                _fill_in_pod(limits, obj)

    def check(self, kind: Kind, namespace: str, name: str, obj: JSON) -> None:
        """Raise 403 for amounts below a minimum, above a maximum or beyond a ratio."""
        for limits in self._of(namespace):
            if kind is PODS:
                problems = list(_pod_problems(limits, obj["spec"]))
            elif kind is CLAIMS:
                problems = list(_claim_problems(limits, obj))
            else:
                return
            unique = list(dict.fromkeys(problems))
            if unique:
                raise forbidden(kind, name, unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")


def _fill_in_pod(limits: list[JSON], pod: JSON) -> None:
    defaults: dict[str, JSON] = {"requests": {}, "limits": {}}
    for item in limits:
        if item.get("type") == "Container":
            defaults["requests"].update(item.get("defaultRequest") or {})
            defaults["limits"].update(item.get("default") or {})
    done: list[str] = []
    for field, what in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for side, word in (("requests", "request"), ("limits", "limit")):
                present = resources.get(side) or {}
                added = {name: text for name, text in defaults[side].items() if name not in present}
                if added:
                    resources[side] = {**present, **added}
                    done.append(f"{', '.join(sorted(added))} {word} for {what} {container.get('name', '')}")
    if done:
        metadata = pod["metadata"]
        annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(done)}"


def _pod_problems(limits: list[JSON], spec: JSON) -> Iterable[str]:
    for item in limits:
        if item.get("type") == "Container":
            for container in containers_of(spec):
                yield from _problems(item, "Container", asked(container, "requests"), asked(container, "limits"))
        elif item.get("type") == "Pod":
            yield from _problems(item, "Pod", _whole_pod(spec, "requests"), _whole_pod(spec, "limits"))


def _whole_pod(spec: JSON, side: str) -> Amounts:
    total = container_total(spec, side)
    pod_level = amounts_of((spec.get("resources") or {}).get(side))
    total.update({name: amount for name, amount in pod_level.items() if name in {"cpu", "memory"}})
    return total


def _claim_problems(limits: list[JSON], claim: JSON) -> Iterable[str]:
    requests = amounts_of(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for item in limits:
        if item.get("type") == "PersistentVolumeClaim":  # what a claim requests is bounded, for it has no limits
            yield from _problems(item, "PersistentVolumeClaim", requests, requests, "request")


def _problems(
    item: Mapping[str, Any], holder: str, requests: Amounts, limits: Amounts, word: str = "limit"
) -> Iterable[str]:
    for name, bound in amounts_of(item.get("min")).items():
        yield from _below(name, holder, bound, requests, limits)
    for name, bound in amounts_of(item.get("max")).items():
        head = f"maximum {name} usage per {holder} is {bound}"
        if name not in limits:
            yield f"{head}.  No {word} is specified"
        elif _above(limits[name], bound):
            yield f"{head}, but {word} is {limits[name]}"
        elif name in requests and _above(requests[name], bound):
            yield f"{head}, but request is {requests[name]}"
    for name, bound in amounts_of(item.get("maxLimitRequestRatio")).items():
        yield from _out_of_ratio(name, holder, bound, requests, limits)


def _below(name: str, holder: str, bound: Amount, requests: Amounts, limits: Amounts) -> Iterable[str]:
    head = f"minimum {name} usage per {holder} is {bound}"
    if name not in requests:
        yield f"{head}.  No request is specified"
    elif _above(bound, requests[name]):
        yield f"{head}, but request is {requests[name]}"
    elif name in limits and _above(bound, limits[name]):
        yield f"{head}, but limit is {limits[name]}"


def _out_of_ratio(name: str, holder: str, bound: Amount, requests: Amounts, limits: Amounts) -> Iterable[str]:
    head = f"{name} max limit to request ratio per {holder} is {bound}"
    request, limit = requests.get(name, ZERO), limits.get(name, ZERO)
    if not request.nano:
        yield f"{head}, but no request is specified or request is 0"
    elif not limit.nano:
        yield f"{head}, but no limit is specified or limit is 0"
    elif limit.nano * NANO > bound.nano * request.nano:
        yield f"{head}, but provided ratio is {limit.nano / request.nano:f}"


def _above(one: Amount, other: Amount) -> bool:
    """Compare with the plugin's precision: milli-units, rounded up, as long as they fit an int64."""
    scale = 10**6 if max(one.nano, other.nano) <= _LARGEST_MILLI * NANO else NANO
    return -(-one.nano // scale) > -(-other.nano // scale)

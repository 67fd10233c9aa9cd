"""Validation of the resources of a container or of a whole pod (``ValidateResourceRequirements``).

Source: ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go`` (1.36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.amounts.amounts import NANO, AmountError, amount_of
from backoff_ctrl.k8s.sandbox.amounts.pod_resources import asked, container_total, for_whole_pods
from backoff_ctrl.k8s.sandbox.amounts.resource_name_rules import (
    HUGE_PAGES,
    container_resource_problems,
    is_extended,
    may_be_overcommitted,
    resource_name_problems,
)
from backoff_ctrl.k8s.sandbox.storage.identity import LABEL, LABEL_TEXT
from backoff_ctrl.k8s.sandbox.wire.problems import bad, missing, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from backoff_ctrl.k8s.sandbox.amounts.amounts import Amount
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON
    from backoff_ctrl.k8s.sandbox.wire.problems import Problem

    NameRule = Callable[[str, str], Iterable[Problem]]

_OVERCOMMITTED = ("cpu", "memory")


def problems_of_container_resources(path: str, resources: JSON, claims: Collection[str]) -> Iterator[Problem]:
    """The resources of one container; ``claims`` are the names of the pod's claims. Raises ``AmountError``."""
    yield from _requirement_problems(path, resources, _container_name_problems)
    yield from _claim_problems(f"{path}.claims", resources.get("claims") or (), claims)


def problems_of_pod_resources(spec: JSON, claims: Collection[str]) -> Iterator[Problem]:
    """Pod-level resources: at least what the containers need together. Raises ``AmountError``."""
    path, resources = "spec.resources", spec.get("resources") or {}
    if resources.get("claims"):
        yield ("FieldValueForbidden", f"{path}.claims", "Forbidden: claims may not be set for Resources at pod-level")
    yield from _requirement_problems(path, resources, _pod_name_problems)
    yield from _claim_problems(f"{path}.claims", resources.get("claims") or (), claims)
    yield from _below_containers(path, spec, "requests")
    yield from _below_containers(path, spec, "limits")
    limits = asked(spec, "limits")
    for index, container in enumerate(spec.get("containers") or ()):
        for name, amount in asked(container, "limits").items():
            if name in limits and amount.nano > limits[name].nano:
                where = f"{path}.containers[{index}][{name}].limits"
                yield bad(where, str(amount), f"must be less than or equal to pod limits of {limits[name]}")


def _below_containers(path: str, spec: JSON, side: str) -> Iterator[Problem]:
    """Pod-level amounts below the containers' total; limits are compared for huge pages only."""
    given = asked(spec, side)
    for name, total in container_total(spec, side).items():
        counts = side == "requests" or name.startswith(HUGE_PAGES)
        if counts and name in given and total.nano > given[name].nano:
            text = f"must be greater than or equal to aggregate container {side} of {total}"
            yield bad(f"{path}.{side}[{name}]", str(given[name]), text)


def _requirement_problems(path: str, resources: JSON, of_name: NameRule) -> Iterator[Problem]:
    limits, requests = asked({"resources": resources}, "limits"), asked({"resources": resources}, "requests")
    for name, amount in limits.items():
        yield from _entry_problems(f"{path}.limits[{name}]", name, amount, of_name)
        yield from _page_problems(f"{path}.limits[{name}]", name, amount)
    for name, amount in requests.items():
        yield from _entry_problems(f"{path}.requests[{name}]", name, amount, of_name)
        yield from _pair_problems(path, name, amount, limits.get(name))
        yield from _page_problems(f"{path}.requests[{name}]", name, amount)
    names = {*limits, *requests}
    if any(name.startswith(HUGE_PAGES) for name in names) and not names.intersection(_OVERCOMMITTED):
        yield ("FieldValueForbidden", path, "Forbidden: HugePages require cpu or memory")


def _entry_problems(where: str, name: str, amount: Amount, of_name: NameRule) -> Iterator[Problem]:
    yield from of_name(where, name)
    if amount.nano < 0:
        yield bad(where, str(amount), "must be greater than or equal to 0")
    if is_extended(name) and amount.nano % NANO:
        yield bad(where, str(amount), "must be an integer")


def _container_name_problems(where: str, name: str) -> Iterator[Problem]:
    for text in container_resource_problems(name):
        yield bad(where, name, text)


def _pod_name_problems(where: str, name: str) -> Iterator[Problem]:
    problems = resource_name_problems(name)
    for text in problems:
        yield bad(where, name, text)
    if not problems and not for_whole_pods(name):
        yield unsupported(where, name, "cpu", HUGE_PAGES, "memory")


def _page_problems(where: str, name: str, amount: Amount) -> Iterator[Problem]:
    """Huge pages must be a whole number of pages."""
    if name.startswith(HUGE_PAGES) and not _are_whole_pages(name, amount):
        yield bad(where, str(amount), f"{amount} is not positive integer multiple of {name}")


def _are_whole_pages(name: str, amount: Amount) -> bool:
    try:
        page = amount_of(name.removeprefix(HUGE_PAGES)).nano
    except AmountError:
        return False
    return page > 0 and page % NANO == 0 and -(-amount.nano // NANO) % (page // NANO) == 0


def _pair_problems(path: str, name: str, request: Amount, limit: Amount | None) -> Iterator[Problem]:
    """A request must not exceed its limit; what cannot be overcommitted needs an equal limit."""
    firm = not may_be_overcommitted(name)
    if limit is None:
        if firm:
            yield missing(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif firm and request.nano != limit.nano:
        yield bad(f"{path}.requests", str(request), f"must be equal to {name} limit of {limit}")
    elif request.nano > limit.nano:
        yield bad(f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {limit}")


def _claim_problems(path: str, claims: Iterable[Any], known: Collection[str]) -> Iterator[Problem]:
    """Each entry names a claim of the pod, and none repeats another; a whole claim includes each of its requests."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield missing(where)
            continue
        if request and not LABEL.fullmatch(request):
            yield bad(f"{where}.request", request, LABEL_TEXT)
        key = f"{name}/{request}" if request else name
        if key in seen:
            yield ("FieldValueDuplicate", where, f'Duplicate value: "{key}"')
        elif name in seen or (not request and any(each.startswith(f"{name}/") for each in seen)):
            yield ("FieldValueDuplicate", where, f'Duplicate value: "{name}"')
        seen.add(key)
        if name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{listed}"
            yield ("FieldValueNotFound", where, f'Not found: "{name}": {text}')

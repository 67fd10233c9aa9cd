"""Validation of pods, on create and update (``pkg/apis/core/validation``). Only mistakes that creators really make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from backoff_ctrl.k8s.sandbox.admission.amounts import NANO, Amount, AmountError, amount_of
from backoff_ctrl.k8s.sandbox.admission.resources import (
    HUGE_PAGES,
    asked,
    container_resource_problems,
    container_total,
    for_whole_pods,
    is_extended,
    may_be_overcommitted,
    resource_name_problems,
)
from backoff_ctrl.k8s.sandbox.objects.answers import Problem, bad, in_range, missing, unsupported
from backoff_ctrl.k8s.sandbox.objects.metadata import LABEL, LABEL_TEXT
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

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


_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_UPDATE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_DEADLINE = "spec.activeDeadlineSeconds"
_MOST_SECONDS = 2**31 - 1
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def problems_of_new_pod(spec: JSON) -> list[Problem]:
    """Everything that is wrong with the spec of a new pod. Raises ``AmountError``."""
    problems = problems_of_pod(spec)
    if spec.get("ephemeralContainers"):
        problems.append(("FieldValueForbidden", "spec.ephemeralContainers", "Forbidden: cannot be set on create"))
    return problems


def problems_of_pod(spec: JSON) -> list[Problem]:
    """Everything that is wrong with the spec of a pod. Raises ``AmountError``."""
    if not spec.get("containers"):
        return [missing("spec.containers")]
    problems: list[Problem] = []
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    claims = {each.get("name") or "" for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for path, container in _with_paths(spec):
        problems += _name_problems(path, container.get("name"), seen)
        problems += _container_problems(path, container, volumes)
        problems += problems_of_container_resources(f"{path}.resources", container.get("resources") or {}, claims)
    problems += problems_of_pod_resources(spec, claims)
    if spec.get("restartPolicy") not in {"Always", "OnFailure", "Never"}:
        problems.append(unsupported("spec.restartPolicy", spec.get("restartPolicy"), "Always", "OnFailure", "Never"))
    if spec.get("dnsPolicy") not in _DNS:
        problems.append(unsupported("spec.dnsPolicy", spec.get("dnsPolicy"), *_DNS))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        problems += in_range(_DEADLINE, deadline, 1, _MOST_SECONDS)
    return problems


def problems_of_pod_update(before: JSON, after: JSON) -> list[Problem]:
    """Everything that is wrong with an update of a pod's spec. Raises ``AmountError``."""
    for field in ("containers", "initContainers"):
        if len(before.get(field) or ()) != len(after.get(field) or ()):
            text = f"Forbidden: pod updates may not add or remove {'init ' if field != 'containers' else ''}containers"
            return [*problems_of_pod(after), ("FieldValueForbidden", f"spec.{field}", text)]
    problems = [*problems_of_pod(after), *_deadline_problems(before, after), *_toleration_problems(before, after)]
    if not problems and _fixed(before) != _fixed(after):
        problems.append(("FieldValueForbidden", "spec", _UPDATE))
    return problems


def _deadline_problems(before: JSON, after: JSON) -> Iterator[Problem]:
    old, new = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if old is None:
        return
    if new is None:
        text = "Invalid value: null: must not update from a positive integer to nil value"
        yield ("FieldValueInvalid", _DEADLINE, text)
    elif new > old:
        yield bad(_DEADLINE, new, "must be less than or equal to previous value")


def _toleration_problems(before: JSON, after: JSON) -> Iterator[Problem]:
    kept = [_without_seconds(each) for each in after.get("tolerations") or ()]
    if any(_without_seconds(each) not in kept for each in before.get("tolerations") or ()):
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield ("FieldValueForbidden", "spec.tolerations", text)


def _without_seconds(toleration: JSON) -> JSON:
    return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}


def _fixed(spec: JSON) -> JSON:
    """The part of a pod's spec that a plain update must not change."""
    fixed = {field: value for field, value in spec.items() if field not in _MUTABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in each.items() if k != "image"} for each in fixed[field] or ()]
    grace = "terminationGracePeriodSeconds"
    return {**fixed, grace: 1} if (fixed.get(grace) or 0) < 0 else fixed


def _with_paths(spec: JSON) -> Iterator[tuple[str, JSON]]:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def _name_problems(path: str, name: Any, seen: set[str]) -> Iterator[Problem]:
    if not name:
        yield missing(f"{path}.name")
        return
    if not LABEL.fullmatch(name):
        yield bad(f"{path}.name", name, LABEL_TEXT)
    if name in seen:
        yield ("FieldValueDuplicate", f"{path}.name", f'Duplicate value: "{name}"')
    seen.add(name)


def _container_problems(path: str, container: JSON, volumes: set[Any]) -> Iterator[Problem]:
    if not container.get("image"):
        yield missing(f"{path}.image")
    if container.get("imagePullPolicy") not in {"Always", "IfNotPresent", "Never"}:
        where = f"{path}.imagePullPolicy"
        yield unsupported(where, container.get("imagePullPolicy"), "Always", "IfNotPresent", "Never")
    for index, port in enumerate(container.get("ports") or ()):
        where = f"{path}.ports[{index}].containerPort"
        number = port.get("containerPort") or 0
        yield from in_range(where, number, 1, 65535) if number else [missing(where)]
    for index, variable in enumerate(container.get("env") or ()):
        where, name = f"{path}.env[{index}].name", variable.get("name")
        if not name:
            yield missing(where)
        elif "=" in name or not (name.isascii() and name.isprintable()):
            yield bad(where, name, _ENV_TEXT)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            where = f"{path}.volumeMounts[{index}].name"
            yield ("FieldValueNotFound", where, f'Not found: "{mount.get("name")}"')

"""Validation of LimitRanges, with the API server's messages.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go`` (1.36), ``ValidateLimitRange``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.amounts.amounts import ONE, Amount, amounts_of
from backoff_ctrl.k8s.sandbox.amounts.resource_name_rules import (
    HUGE_PAGES,
    container_resource_problems,
    resource_name_problems,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    Problem = tuple[str, str, str]

_TYPES = frozenset({"Container", "Pod", "PersistentVolumeClaim"})
_FIELDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")

# Per rule: the smaller field, the larger, the field that the error names, whose amount it shows, and its message.
_REQUEST = "defaultRequest"
_ORDER = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", _REQUEST, _REQUEST, _REQUEST, "min value {} is greater than default request value {}"),
    (_REQUEST, "max", _REQUEST, _REQUEST, "default request value {} is greater than max value {}"),
    (_REQUEST, "default", _REQUEST, _REQUEST, "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)


def problems_of_limit_range(limit_range: Mapping[str, Any]) -> list[Problem]:
    """Everything that is wrong with a LimitRange whose defaults are filled in. Raises ``AmountError``."""
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        where, kind = f"spec.limits[{index}]", item.get("type", "")
        if kind not in _TYPES and "/" not in kind:
            problems.append(_invalid(f"{where}.type", kind, "must be a standard limit type or fully qualified"))
        if kind in seen:
            problems.append(("FieldValueDuplicate", f"{where}.type", f'Duplicate value: "{kind}"'))
        seen.add(kind)
        problems += _item(where, kind, item)
    return problems


def _item(where: str, kind: str, item: JSON) -> Iterator[Problem]:
    bounds = {field: amounts_of(item.get(field)) for field in _FIELDS}
    yield from _names(where, kind, bounds, _FIELDS[:2])
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            if bounds.pop(field):
                yield (
                    "FieldValueForbidden",
                    f"{where}.{field}",
                    "Forbidden: may not be specified when `type` is 'Pod'",
                )
    else:
        yield from _names(where, kind, bounds, _FIELDS[2:4])
    if kind == "PersistentVolumeClaim" and "storage" not in {**bounds["min"], **bounds["max"]}:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield ("FieldValueRequired", f"{where}.limits", f"Required value: {text}")
    yield from _names(where, kind, bounds, _FIELDS[4:])
    for name in dict.fromkeys(name for amounts in bounds.values() for name in amounts):
        yield from _amounts(where, name, {field: values[name] for field, values in bounds.items() if name in values})


def _names(
    where: str, kind: str, bounds: Mapping[str, Mapping[str, Amount]], fields: tuple[str, ...]
) -> Iterator[Problem]:
    problems_of = container_resource_problems if kind in {"Pod", "Container"} else resource_name_problems
    for field in fields:
        for name in bounds[field]:
            for text in problems_of(name):
                yield _invalid(f"{where}.{field}[{name}]", name, text)


def _amounts(where: str, name: str, given: Mapping[str, Amount]) -> Iterator[Problem]:
    for smaller, larger, field, shown, template in _ORDER:
        if smaller in given and larger in given and given[smaller].nano > given[larger].nano:
            text = template.format(given[smaller], given[larger])
            yield _invalid(f"{where}.{field}[{name}]", given[shown], text)
    ratio, least, most = (given.get(field) for field in ("maxLimitRequestRatio", "min", "max"))
    if ratio is not None and ratio.nano < ONE.nano:
        yield _invalid(f"{where}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")
    if ratio is not None and least is not None and most is not None and ratio.nano * least.nano > most.nano * ONE.nano:
        text = f"ratio {ratio} is greater than max/min = {most.nano / least.nano:f}"
        yield _invalid(f"{where}.maxLimitRequestRatio[{name}]", ratio, text)
    default, request = given.get("default"), given.get("defaultRequest")
    firm = "/" in name or name.startswith(HUGE_PAGES)
    if firm and default is not None and request is not None and default.nano != request.nano:
        text = f"default value {default} must equal to defaultRequest value {request} in {name}"
        yield _invalid(f"{where}.defaultRequest[{name}]", request, text)


def _invalid(field: str, value: object, text: str) -> Problem:
    return ("FieldValueInvalid", field, f'Invalid value: "{value}": {text}')

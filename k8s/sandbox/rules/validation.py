"""Which validation rules apply to which kind; they answer 422 before quota admission runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.definition_rules import problems_of_definition, problems_of_definition_update
from backoff_ctrl.k8s.sandbox.kinds.kinds import QUOTAS
from backoff_ctrl.k8s.sandbox.kinds.structural import problems_of
from backoff_ctrl.k8s.sandbox.storage.identity import name_problems
from backoff_ctrl.k8s.sandbox.storage.metadata_rules import kept_problems, metadata_problems

from .kind_validation import (
    problems_of_claim,
    problems_of_claim_update,
    problems_of_controller,
    problems_of_data,
    problems_of_job_update,
    problems_of_service,
)
from .limit_range_validation import problems_of_limit_range
from .pod_validation import problems_of_new_pod, problems_of_pod_update
from .quota_validation import problems_of_quota, problems_of_quota_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON
    from backoff_ctrl.k8s.sandbox.wire.problems import Problem

    Rule = Callable[[JSON], Iterable[Problem]]
    ChangeRule = Callable[[JSON, JSON], Iterable[Problem]]

_CONTROLLERS = ("deployments", "daemonsets", "replicasets", "statefulsets", "jobs", "replicationcontrollers")
_DATA = ("configmaps", "secrets")


def problems_of_new(kind: Kind, obj: JSON) -> list[Problem]:
    """Everything that is wrong with a new object. Raises ``AmountError``."""
    metadata, rule = obj["metadata"], _NEW.get(kind.plural)
    problems = [*name_problems(kind, metadata), *metadata_problems(metadata)]
    if kind.schema:
        return [*problems, *problems_of(kind.schema, obj)]
    return [*problems, *rule(obj)] if rule is not None and kind.strategic else problems


def problems_of_update(kind: Kind, before: JSON, obj: JSON, subresource: str) -> list[Problem]:
    """Everything that is wrong with an update. Raises ``AmountError``."""
    metadata, rule = obj["metadata"], _CHANGED.get(kind.plural)
    problems = [*metadata_problems(metadata), *kept_problems(before["metadata"], metadata)]
    if kind.schema:
        return [*problems, *problems_of(kind.schema, obj)]
    if kind is QUOTAS and subresource:
        return [*problems, *problems_of_quota_status(obj)]
    return [*problems, *rule(before, obj)] if rule is not None and kind.strategic and not subresource else problems


def _job_update(before: JSON, obj: JSON) -> Iterable[Problem]:
    spec = _spec(obj)
    return [*problems_of_controller("jobs", spec), *problems_of_job_update(_spec(before), spec)]


def _spec(obj: JSON) -> JSON:
    return obj.get("spec") or {}


def _data(plural: str) -> Rule:
    return lambda obj: problems_of_data(plural, obj, None)


def _controller(plural: str) -> Rule:
    return lambda obj: problems_of_controller(plural, _spec(obj))


def _changed_data(plural: str) -> ChangeRule:
    return lambda before, obj: problems_of_data(plural, obj, before)


_NEW: dict[str, Rule] = {
    "pods": lambda obj: problems_of_new_pod(_spec(obj)),
    "resourcequotas": problems_of_quota,
    "limitranges": problems_of_limit_range,
    "persistentvolumeclaims": lambda obj: problems_of_claim(_spec(obj)),
    "services": lambda obj: problems_of_service(_spec(obj), None),
    "customresourcedefinitions": problems_of_definition,
    **{plural: _data(plural) for plural in _DATA},
    **{plural: _controller(plural) for plural in _CONTROLLERS},
}
_CHANGED: dict[str, ChangeRule] = {
    "pods": lambda before, obj: problems_of_pod_update(_spec(before), _spec(obj)),
    "resourcequotas": lambda before, obj: problems_of_quota(obj, before),
    "limitranges": lambda _, obj: problems_of_limit_range(obj),
    "persistentvolumeclaims": problems_of_claim_update,
    "services": lambda before, obj: problems_of_service(_spec(obj), _spec(before)),
    "customresourcedefinitions": problems_of_definition_update,
    "jobs": _job_update,
    **{plural: _changed_data(plural) for plural in _DATA},
}
